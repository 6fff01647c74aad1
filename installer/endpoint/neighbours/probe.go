package neighbours

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// A probe asks three times. RFC 5227 wants one to two seconds in between, for links that lose
// packets for seconds after they came up; these are up.
const (
	probes     = 3
	probePause = 500 * time.Millisecond
)

// Probe asks with ARP or neighbour discovery whether another host on the interface has an
// address. It returns that host's hardware address at once, or nil if nobody answers, after 1.5 seconds.
func Probe(ctx context.Context, a netip.Addr, iface string) (taken net.HardwareAddr, err error) {
	list, err := ask(ctx, a, iface, Segment.Solicit, 1)
	if len(list) > 0 {
		taken = list[0]
	}
	return taken, err
}

// maxHolders is how many hosts with one address are looked for.
const maxHolders = 8

// Holders asks as a client of the address does, so a host that looks whether the address is free does not find that another one wants it. It
// returns the hardware addresses of all other hosts that answer within 1.5 seconds.
func Holders(ctx context.Context, a netip.Addr, iface string) ([]net.HardwareAddr, error) {
	return ask(ctx, a, iface, Segment.Ask, maxHolders)
}

// ask asks until as many hosts have answered as are wanted.
func ask(ctx context.Context, a netip.Addr, iface string, request func(Segment) error, wanted int) (list []net.HardwareAddr, err error) {
	ifi, err := net.InterfaceByName(iface)
	if err != nil {
		return nil, fmt.Errorf("looking for the interface %s: %w", iface, err)
	}
	s, err := Open(ifi, a, nil)
	if err != nil {
		return nil, err
	}
	heard, ended := make(chan net.HardwareAddr), make(chan struct{})
	var failed error
	go func() {
		defer close(heard)
		for {
			var mac net.HardwareAddr
			if mac, failed = s.Hear(); failed != nil {
				return
			}
			select {
			case heard <- mac:
			case <-ended:
				return
			}
		}
	}()
	defer func() {
		close(ended)
		_ = s.Close()
		for range heard { // until the goroutine has ended
		}
	}()
	for range probes {
		if err := request(s); err != nil {
			return nil, fmt.Errorf("asking who has %s: %w", a, err)
		}
		for next := time.After(probePause); next != nil; {
			select {
			case mac, ok := <-heard:
				if !ok {
					return nil, fmt.Errorf("waiting for a host that has %s: %w", a, failed)
				}
				if !slices.ContainsFunc(list, func(m net.HardwareAddr) bool { return m.String() == mac.String() }) {
					list = append(list, mac)
				}
				if len(list) >= wanted {
					return list, nil
				}
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-next:
				next = nil
			}
		}
	}
	return list, nil
}
