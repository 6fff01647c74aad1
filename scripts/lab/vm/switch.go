package vm

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// A cable connects a machine to the switch. QEMU sends each frame in a UDP packet over the loopback interface.
type cable struct {
	mac              net.HardwareAddr // of the machine's network card
	machine, network netip.AddrPort   // the addresses of both ends
}

// maxFrame is more than the size of any Ethernet frame.
const maxFrame = 1 << 16

// connect starts a switch that ends with ctx, and returns a cable for each machine.
func connect(ctx context.Context, machines int) ([]cable, error) {
	// All are open at once, so each has another port. QEMU opens that of its machine again.
	var conns []*net.UDPConn
	for range machines + 1 {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	address := func(c *net.UDPConn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }
	network := conns[machines]
	var cables []cable
	for i, c := range conns[:machines] {
		cables = append(cables, cable{net.HardwareAddr{0x52, 0x54, 0, 0, 0, byte(11 + i)}, address(c), address(network)})
		if err := c.Close(); err != nil {
			return nil, err
		}
	}
	// A burst of several machines must not be lost.
	if err := network.SetReadBuffer(4 << 20); err != nil {
		return nil, fmt.Errorf("enlarging a buffer: %w", err)
	}
	context.AfterFunc(ctx, func() { network.Close() })
	go forward(network, cables)
	return cables, nil
}

// forward passes each frame on to the machine with its destination address, or to all others, until conn is closed.
func forward(conn *net.UDPConn, cables []cable) {
	frame := make([]byte, maxFrame)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(frame)
		if err != nil {
			return
		}
		for _, to := range receivers(cables, from, frame[:n]) {
			_, _ = conn.WriteToUDPAddrPort(frame[:n], to) // a machine may be off
		}
	}
}

// receivers are the ends of cables that get a frame. It never goes back to its sender, which would see its own address as
// that of another host.
func receivers(cables []cable, from netip.AddrPort, frame []byte) (list []netip.AddrPort) {
	known := slices.ContainsFunc(cables, func(c cable) bool { return bytes.HasPrefix(frame, c.mac) })
	for _, c := range cables {
		if c.machine != from && (!known || bytes.HasPrefix(frame, c.mac)) {
			list = append(list, c.machine)
		}
	}
	return list
}
