package neighbours

import (
	"context"
	"fmt"
	"net"
	"net/netip"
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
	ifi, err := net.InterfaceByName(iface)
	if err != nil {
		return nil, fmt.Errorf("looking for the interface %s: %w", iface, err)
	}
	s, err := Open(ifi, a, nil)
	if err != nil {
		return nil, err
	}
	heard := make(chan net.HardwareAddr, 1)
	var failed error
	go func() {
		defer close(heard)
		var mac net.HardwareAddr
		if mac, failed = s.Hear(); failed == nil {
			heard <- mac
		}
	}()
	defer func() { _ = s.Close(); <-heard }()
	for range probes {
		if err := s.Solicit(); err != nil {
			return nil, fmt.Errorf("asking who has %s: %w", a, err)
		}
		select {
		case mac, ok := <-heard:
			if !ok {
				return nil, fmt.Errorf("waiting for a host that has %s: %w", a, failed)
			}
			return mac, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(probePause):
		}
	}
	return nil, nil
}
