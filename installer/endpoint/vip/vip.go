// Package vip holds a virtual address of the API: on the control plane whose etcd member is the
// leader, if its API server is ready. It needs neither the API nor a clock that agrees with others.
package vip

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"airlift/installer/daemon"
	"airlift/installer/etcd"
	"airlift/internal/fault"
)

// An Election is the local member's view of etcd's election; *etcd.Election implements it.
type Election interface {
	// Role returns a leader only if a majority confirmed it after the call began.
	Role(ctx context.Context) (etcd.Role, error)
	// Move makes a member the leader.
	Move(ctx context.Context, member uint64) error
}

// Options describe a virtual address.
type Options struct {
	// Addresses are an IPv4 address, an IPv6 address, or one of each.
	Addresses []netip.Addr
	// Interface has the address. "" is the interface with a subnet that contains it.
	Interface string
	Election  Election
	// Ready asks the API server on a host whether it is ready; "" is the local one. A refused
	// connection must be found in the error with errors.Is.
	Ready func(ctx context.Context, host string) error
	Log   *slog.Logger
}

// An Agent takes the address when it may have it, and removes it when not.
type Agent struct {
	options   Options
	now       func() time.Time // the clock of deadlines: daemon.Now, but for tests
	handovers chan chan<- error

	mu     sync.Mutex
	status Status
}

// New returns an agent. It does nothing before Run.
func New(o Options) (*Agent, error) {
	var families [2]int
	for _, a := range o.Addresses {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" || !a.IsGlobalUnicast() {
			return nil, fault.New(fault.Usage, "%q cannot be a virtual address", a).Hint("use an unused address in the subnet of the control planes")
		}
		families[a.BitLen()/128]++
	}
	if len(o.Addresses) == 0 || families[0] > 1 || families[1] > 1 {
		return nil, fault.New(fault.Usage, "the virtual addresses are %v", o.Addresses).Hint("use one IPv4 address, one IPv6 address, or one of each")
	}
	return &Agent{options: o, now: daemon.Now, handovers: make(chan chan<- error), status: Status{Addresses: o.Addresses, Interface: o.Interface, Holders: []Holder{}, Reason: "starting"}}, nil
}

// Status is what an agent does.
type Status struct {
	Addresses []netip.Addr `json:"addresses"`
	// Interface is the interface of the addresses; "" until it is known.
	Interface string `json:"interface"`
	// MAC is the hardware address of the interface.
	MAC  string `json:"mac,omitempty"`
	Held bool   `json:"held"`
	// Holders are the hosts that have the addresses, this one included, the latest last. Two hosts are
	// normal for some seconds after the addresses moved: see Lasting.
	Holders []Holder `json:"holders"`
	// Since is when the agent took the address, or lost it; zero if it never had it.
	Since time.Time `json:"since,omitzero"`
	// Reason is why the address is held or not.
	Reason string `json:"reason"`
	// Leader is the name of the etcd member that is the leader; "" if it is not known.
	Leader string `json:"leader,omitempty"`
	// APIServer is why the local API server is not ready; "" if it is ready.
	APIServer string    `json:"apiServer,omitempty"`
	Conflict  *Conflict `json:"conflict,omitempty"`
}

// A Conflict is the last time that another host announced an address while this host held it.
type Conflict struct {
	Address netip.Addr `json:"address"`
	// MAC is the hardware address of the other host.
	MAC  string    `json:"mac"`
	Time time.Time `json:"time"`
}

// Status returns the present state. It never waits.
func (a *Agent) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// ErrNoPeer is the error of a handover if no other control plane can take the address.
var ErrNoPeer = errors.New("no other control plane has a ready API server")

// Handover gives the address to another control plane, and returns when this host has it no more.
// For some seconds, the address comes back only if no other API server is ready. The error is
// ErrNoPeer if there is no ready peer: then nothing has changed. Run must be running.
func (a *Agent) Handover(ctx context.Context) error {
	done := make(chan error, 1)
	for request := a.handovers; ; {
		select {
		case request <- done:
			request = nil
		case err := <-done:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
