// Package neighbours makes the hosts of a network segment send packets for an address to this host, and hears which other
// host has the address: ARP for IPv4, neighbour discovery for IPv6.
package neighbours

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

// A Segment is the network to which an interface is connected, for one address: it announces the
// address to the neighbours and hears which other host has it.
type Segment interface {
	// Announce makes the neighbours send packets for the address to this host.
	Announce() error
	// Solicit asks who has the address, to take it if nobody answers.
	Solicit() error
	// Ask asks who has the address, to send packets to it.
	Ask() error
	// Hear waits for a packet in which another host claims the address, and returns its
	// hardware address. It fails after Close.
	Hear() (net.HardwareAddr, error)
	Close() error
}

// Open opens the segment of an interface. The kernel answers for an address of this host. For another address, answer, if it is
// not nil, is called for each request of a neighbour while Hear waits: if it returns true, Hear answers that this host has the address. prober
// is the hardware address of a neighbour that looks whether the address is free, to take it; nil for other requests.
func Open(ifi *net.Interface, a netip.Addr, answer func(prober net.HardwareAddr) bool) (Segment, error) {
	open := openND
	if a.Is4() {
		open = openARP
	}
	s, err := open(ifi, a, answer)
	if err != nil {
		return nil, fmt.Errorf("listening on %s for hosts with the address %s: %w", ifi.Name, a, err)
	}
	return s, nil
}

// arp is a segment with IPv4.
type arp struct {
	*packet.Conn
	ifi    *net.Interface
	mac    net.HardwareAddr
	addr   netip.Addr
	answer func(prober net.HardwareAddr) bool
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

func openARP(ifi *net.Interface, a netip.Addr, answer func(net.HardwareAddr) bool) (Segment, error) {
	if len(ifi.HardwareAddr) != 6 {
		return nil, errors.New("it is not an Ethernet interface")
	}
	// The process wakes up only for packets from hosts with the address, and, if it answers, for packets that ask for it.
	number, asked := binary.BigEndian.Uint32(a.AsSlice()), uint8(1)
	if answer != nil {
		asked = 0
	}
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: senderIP, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: number, SkipTrue: 2},
		bpf.LoadAbsolute{Off: targetIP, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: 1, SkipFalse: asked},
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
	return &arp{conn, ifi, ifi.HardwareAddr, a, answer}, nil
}

// Announce sends both forms that hosts and routers accept: a request and a reply.
func (s *arp) Announce() error {
	for _, operation := range []byte{arpRequest, arpReply} {
		if err := s.send(operation, s.addr, broadcast, s.addr); err != nil {
			return fmt.Errorf("announcing %s: %w", s.addr, err)
		}
	}
	return nil
}

// Solicit sends a probe (RFC 5227): its sender has no address, so no neighbour learns it.
func (s *arp) Solicit() error {
	return s.send(arpRequest, netip.IPv4Unspecified(), broadcast, s.addr)
}

// Ask sends a request with an address of this host in the same subnet. Without one, it is a probe.
func (s *arp) Ask() error {
	own := netip.IPv4Unspecified()
	addresses, _ := s.ifi.Addrs() // of an interface that is gone
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Contains(s.addr) && !p.IsSingleIP() {
			own = p.Addr()
		}
	}
	return s.send(arpRequest, own, broadcast, s.addr)
}

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func (s *arp) send(operation byte, sender netip.Addr, to net.HardwareAddr, target netip.Addr) error {
	p := []byte{0, 1, 8, 0, 6, 4, 0, operation} // Ethernet, IPv4, the sizes of their addresses
	p = append(append(p, s.mac...), sender.AsSlice()...)
	p = append(append(p, make([]byte, len(s.mac))...), target.AsSlice()...)
	if operation == arpReply {
		copy(p[targetMAC:], to)
	}
	_, err := s.WriteTo(p, &packet.Addr{HardwareAddr: to})
	return err
}

func (s *arp) Hear() (net.HardwareAddr, error) {
	p := make([]byte, 64)
	for {
		n, _, err := s.ReadFrom(p)
		if err != nil {
			return nil, err
		}
		from := net.HardwareAddr(bytes.Clone(p[senderMAC:senderIP]))
		if n < arpSize || bytes.Equal(from, s.mac) {
			continue
		}
		sender := netip.AddrFrom4([4]byte(p[senderIP:targetMAC]))
		if sender == s.addr {
			return from, nil
		}
		var prober net.HardwareAddr
		if sender.IsUnspecified() {
			prober = from
		}
		if p[7] == arpRequest && bytes.Equal(p[targetIP:arpSize], s.addr.AsSlice()) && s.answer != nil && s.answer(prober) {
			// A client that does not get this answer asks again.
			_ = s.send(arpReply, s.addr, from, sender)
		}
	}
}

// nd is a segment with IPv6.
type nd struct {
	*ndp.Conn
	requests *packet.Conn  // for the address; nil if this host does not answer
	answers  chan struct{} // is closed when the goroutine that answers has ended
	ifi      *net.Interface
	addr     netip.Addr
}

func openND(ifi *net.Interface, a netip.Addr, answer func(net.HardwareAddr) bool) (Segment, error) {
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
	s := &nd{Conn: conn, ifi: ifi, addr: a}
	if answer != nil {
		if err := s.openRequests(answer); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return s, nil
}

// Neighbour solicitations (RFC 4861, 4.3) in a packet of IPv6.
const (
	ndNextHeader = 6
	ndHopLimit   = 7
	ndSource     = 8
	ndType       = 40
	ndTarget     = 48
	ndOptions    = 64
)

// openRequests listens for requests for the address. A neighbour that knows the address sends them to the address itself, which
// the kernel does not have: only a packet socket gets them.
func (s *nd) openRequests(answer func(net.HardwareAddr) bool) error {
	group, err := ndp.SolicitedNodeMulticast(s.addr)
	if err != nil {
		return err
	}
	if err := s.JoinGroup(group); err != nil {
		return fmt.Errorf("joining %s: %w", group, err)
	}
	target := s.addr.As16()
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: ndNextHeader, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6<<8 | ndp.HopLimit, SkipTrue: 11},
		bpf.LoadAbsolute{Off: ndType, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(ipv6.ICMPTypeNeighborSolicitation), SkipTrue: 9},
	}
	for i := range 4 {
		program = append(program, bpf.LoadAbsolute{Off: uint32(ndTarget + 4*i), Size: 4},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(target[4*i:]), SkipTrue: uint8(7 - 2*i)})
	}
	program = append(program, bpf.RetConstant{Val: uint32(s.ifi.MTU)}, bpf.RetConstant{Val: 0})
	filter, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	if s.requests, err = packet.Listen(s.ifi, packet.Datagram, unix.ETH_P_IPV6, &packet.Config{Filter: filter}); err != nil {
		return err
	}
	s.answers = make(chan struct{})
	go s.respond(answer)
	return nil
}

// respond answers requests until Close. If its socket fails, because the interface went down, Hear fails too, as with ARP.
func (s *nd) respond(answer func(net.HardwareAddr) bool) {
	defer close(s.answers)
	p := make([]byte, s.ifi.MTU)
	for {
		n, sender, err := s.requests.ReadFrom(p)
		if err != nil {
			_ = s.Conn.Close()
			return
		}
		if n < ndOptions {
			continue
		}
		to := netip.AddrFrom16([16]byte(p[ndSource : ndSource+16]))
		var prober net.HardwareAddr
		if from, ok := sender.(*packet.Addr); ok && to.IsUnspecified() && !bytes.Equal(from.HardwareAddr, s.ifi.HardwareAddr) {
			prober = from.HardwareAddr
		}
		if !answer(prober) {
			continue
		}
		m := s.advertisement()
		if m.Solicited = !to.IsUnspecified(); !m.Solicited { // a host that wants the address for itself
			to = netip.IPv6LinkLocalAllNodes()
		}
		_ = s.WriteTo(m, nil, to) // a client that does not get this answer asks again
	}
}

func (s *nd) Close() error {
	err := s.Conn.Close()
	if s.requests != nil {
		err = errors.Join(err, s.requests.Close())
		<-s.answers
	}
	return err
}

// advertisement overrides what neighbours have.
func (s *nd) advertisement() *ndp.NeighborAdvertisement {
	return &ndp.NeighborAdvertisement{Override: true, TargetAddress: s.addr,
		Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: s.ifi.HardwareAddr}}}
}

// Announce sends an unsolicited advertisement (RFC 4861, 7.2.6).
func (s *nd) Announce() error {
	if err := s.WriteTo(s.advertisement(), nil, netip.IPv6LinkLocalAllNodes()); err != nil {
		return fmt.Errorf("announcing %s: %w", s.addr, err)
	}
	return nil
}

func (s *nd) Solicit() error {
	group, err := ndp.SolicitedNodeMulticast(s.addr)
	if err != nil {
		return err
	}
	m := &ndp.NeighborSolicitation{TargetAddress: s.addr,
		Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: s.ifi.HardwareAddr}}}
	return s.WriteTo(m, nil, group)
}

// Ask is Solicit, whose sender has an address.
func (s *nd) Ask() error { return s.Solicit() }

func (s *nd) Hear() (net.HardwareAddr, error) {
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
