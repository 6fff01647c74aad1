package vip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/mdlayher/ndp"
	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// A segment is the network to which an interface is connected, for one address: it announces the
// address to the neighbours and hears which other host has it.
type segment interface {
	// announce makes the neighbours send packets for the address to this host.
	announce() error
	// solicit asks who has the address.
	solicit() error
	// hear waits for a packet in which another host says that it has the address, and returns its
	// hardware address. It fails after Close.
	hear() (net.HardwareAddr, error)
	Close() error
}

// openSegment opens the segment of an interface.
func openSegment(ifi *net.Interface, a netip.Addr) (segment, error) {
	open := openND
	if a.Is4() {
		open = openARP
	}
	s, err := open(ifi, a)
	if err != nil {
		return nil, fmt.Errorf("listening on %s for hosts with the address %s: %w", ifi.Name, a, err)
	}
	return s, nil
}

// arp is a segment with IPv4.
type arp struct {
	*packet.Conn
	mac  net.HardwareAddr
	addr netip.Addr
}

// ARP packets (RFC 826) for Ethernet and IPv4.
const (
	arpRequest = 1
	arpReply   = 2
	arpSize    = 28
	senderMAC  = 8
	senderIP   = 14
	targetMAC  = 18
	targetIP   = 24
)

func openARP(ifi *net.Interface, a netip.Addr) (segment, error) {
	if len(ifi.HardwareAddr) != 6 {
		return nil, errors.New("it is not an Ethernet interface")
	}
	// The process wakes up only for packets from hosts with the address.
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: senderIP, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(a.AsSlice()), SkipTrue: 1},
		bpf.RetConstant{Val: arpSize},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return nil, err
	}
	conn, err := packet.Listen(ifi, packet.Datagram, unix.ETH_P_ARP, &packet.Config{Filter: filter})
	if err != nil {
		return nil, err
	}
	return &arp{conn, ifi.HardwareAddr, a}, nil
}

// announce sends both forms that hosts and routers accept: a request and a reply.
func (s *arp) announce() error {
	for _, operation := range []byte{arpRequest, arpReply} {
		if err := s.send(operation, s.addr); err != nil {
			return fmt.Errorf("announcing %s: %w", s.addr, err)
		}
	}
	return nil
}

// solicit sends a probe (RFC 5227): its sender has no address, so no neighbour learns it.
func (s *arp) solicit() error { return s.send(arpRequest, netip.IPv4Unspecified()) }

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func (s *arp) send(operation byte, sender netip.Addr) error {
	p := []byte{0, 1, 8, 0, 6, 4, 0, operation} // Ethernet, IPv4, the sizes of their addresses
	p = append(append(p, s.mac...), sender.AsSlice()...)
	p = append(append(p, make([]byte, len(s.mac))...), s.addr.AsSlice()...)
	if operation == arpReply {
		copy(p[targetMAC:], broadcast)
	}
	_, err := s.WriteTo(p, &packet.Addr{HardwareAddr: broadcast})
	return err
}

func (s *arp) hear() (net.HardwareAddr, error) {
	p := make([]byte, 64)
	for {
		n, _, err := s.ReadFrom(p)
		if err != nil {
			return nil, err
		}
		from := net.HardwareAddr(bytes.Clone(p[senderMAC:senderIP]))
		if n >= arpSize && bytes.Equal(p[senderIP:targetMAC], s.addr.AsSlice()) && !bytes.Equal(from, s.mac) {
			return from, nil
		}
	}
}

// nd is a segment with IPv6.
type nd struct {
	*ndp.Conn
	ifi  *net.Interface
	addr netip.Addr
}

func openND(ifi *net.Interface, a netip.Addr) (segment, error) {
	if len(ifi.HardwareAddr) != 6 {
		return nil, errors.New("it is not an Ethernet interface")
	}
	// Package net keeps the index of a name for a minute, in which the interface may be created again. It
	// does not do that with a number.
	byIndex := *ifi
	byIndex.Name = strconv.Itoa(ifi.Index)
	conn, _, err := ndp.Listen(&byIndex, ndp.Unspecified)
	if err != nil {
		return nil, err
	}
	var filter ipv6.ICMPFilter
	filter.SetAll(true)
	filter.Accept(ipv6.ICMPTypeNeighborAdvertisement)
	if err := errors.Join(conn.SetICMPFilter(&filter), conn.SetControlMessage(ipv6.FlagInterface|ipv6.FlagHopLimit, true)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &nd{conn, ifi, a}, nil
}

// announce sends an unsolicited advertisement (RFC 4861, 7.2.6) that overrides what neighbours have.
func (s *nd) announce() error {
	m := &ndp.NeighborAdvertisement{Override: true, TargetAddress: s.addr,
		Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: s.ifi.HardwareAddr}}}
	if err := s.WriteTo(m, nil, netip.IPv6LinkLocalAllNodes()); err != nil {
		return fmt.Errorf("announcing %s: %w", s.addr, err)
	}
	return nil
}

func (s *nd) solicit() error {
	group, err := ndp.SolicitedNodeMulticast(s.addr)
	if err != nil {
		return err
	}
	m := &ndp.NeighborSolicitation{TargetAddress: s.addr,
		Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: s.ifi.HardwareAddr}}}
	return s.WriteTo(m, nil, group)
}

func (s *nd) hear() (net.HardwareAddr, error) {
	for {
		m, control, _, err := s.ReadFrom()
		if err != nil {
			return nil, err
		}
		a, ok := m.(*ndp.NeighborAdvertisement)
		if !ok || a.TargetAddress != s.addr || control == nil || control.IfIndex != s.ifi.Index || control.HopLimit != ndp.HopLimit {
			continue
		}
		for _, o := range a.Options {
			if l, ok := o.(*ndp.LinkLayerAddress); ok && l.Direction == ndp.Target && !bytes.Equal(l.Addr, s.ifi.HardwareAddr) {
				return l.Addr, nil
			}
		}
	}
}
