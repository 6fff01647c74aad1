// Package run executes a plan by commands on the hosts of a cluster.yaml. It keeps no state: what was done is
// read from the hosts.
package run

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/live"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/remote"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// Places on a host. Reset removes them with the state directory of the installer.
const (
	stateDir  = "/var/lib/airlift"
	driverDir = stateDir + "/cluster"
	// installed is the thin file of the last apply. It stays on a node, for later runs and for people.
	installed = driverDir + "/install"
	// whole is the whole file, until the host has installed from it. The embedded registry copies it to bundlesDir, which only
	// the installer's ledger may claim.
	whole      = driverDir + "/whole"
	bundlesDir = stateDir + "/bundles"
)

// A Dialer connects to a host.
type Dialer interface {
	Dial(ctx context.Context, h spec.Host) (remote.Conn, error)
}

// A Site is the hosts of a cluster.yaml.
type Site struct {
	Cluster *spec.Cluster
	File    *File
	Dialer  Dialer
	Display *live.Display
	// Parallel is how many hosts have something done at once.
	Parallel int
	// Skip are the names of hosts that the user leaves out.
	Skip map[string]bool
	// Who names this driver in the lock of a host, and no other one: user@machine, pid, a random name, command.
	Who string

	hosts []*Host
	keys  keyring
	end   context.CancelCauseFunc // of what runs with locks
}

// A Host is a host of the site that is not left out, or one that leaves.
type Host struct {
	spec.Host
	// Facts are what Gather found; nil before.
	Facts *facts.Facts
	// Err is why the host has no facts.
	Err error

	site *Site
	at   time.Time // of Facts, on this machine's clock
	row  *live.Row
	bare bool // it had nothing of the driver before
	// proof is what the host has to show first; nil if its address is in cluster.yaml.
	proof *proof
	same  bool // the installed file is the one of this run
	// installer is the path of the thin file that this run uses: File.staged, or installed.
	installer string
	mu        sync.Mutex
	conn      remote.Conn // nil before Gather
	again     sync.Mutex  // of reconnect
	tried     time.Time   // when it failed last, and gone is why
	gone      error
	locked    *lock // that this driver took; nil without one
}

// Gather connects to all hosts, brings the thin file to them and reads their facts. What fails is in Err of the host. With
// present, a host that has an installer keeps it: for commands that only read.
func (s *Site) Gather(ctx context.Context, present bool) error {
	for _, h := range s.Cluster.Hosts {
		if !s.Skip[h.Name] {
			s.hosts = append(s.hosts, &Host{Host: h, site: s})
		}
	}
	if len(s.hosts) == 0 {
		return fault.New(fault.Usage, "all hosts are skipped").Hint("leave at least one host")
	}
	_ = s.Each(ctx, "read facts", s.hosts, func(ctx context.Context, h *Host) error {
		h.Err = h.gather(ctx, present)
		return h.Err
	})
	return context.Cause(ctx)
}

func (h *Host) gather(ctx context.Context, present bool) error {
	err := h.connect(ctx)
	for n := 1; ; n++ {
		if err == nil && h.proof != nil {
			err = h.identify(ctx)
		}
		if err == nil {
			err = h.prepare(ctx, present)
		}
		if err == nil {
			err = h.observe(ctx)
		}
		lost := (*remote.LostError)(nil)
		switch {
		case !errors.As(err, &lost) || ctx.Err() != nil:
			return err
		case n == gatherings:
			return unknown("read facts", err)
		}
		h.row.Note("%v: connecting again", err)
		err = patiently(ctx, h.connect)
	}
}

// Refresh reads the facts of the host once more, after Gather. If it does not answer, it connects once more. Facts are nil if it does
// not answer then, and Err is why.
func (h *Host) Refresh(ctx context.Context) {
	if h.Err == nil {
		h.Err = h.observe(ctx)
	}
	if h.Err != nil && ctx.Err() == nil {
		if h.Err = h.connect(ctx); h.Err == nil {
			h.Err = h.prepare(ctx, true)
		}
		if h.Err == nil {
			h.Err = h.observe(ctx)
		}
	}
	if h.Err != nil {
		h.Facts = nil
	}
}

// gatherings is how often a host is asked for its facts if the connection is lost meanwhile. A copy continues.
const gatherings = 3

// GatherLeavers also connects to the nodes of the cluster that cluster.yaml does not have, so that they can be reset: at their
// addresses in the cluster, which are shown first, and otherwise as to the first host with their role. A host that does not show
// that it is that node gets nothing. One that cannot be reached is no error.
func (s *Site) GatherLeavers(ctx context.Context) error {
	leavers := s.leavers()
	for _, h := range leavers {
		s.Display.Printf("%s: logging in as %s at %s, the address that its Node reports\n", h.Name, h.SSH.User, h.SSH.Address)
	}
	_ = s.Each(ctx, "read facts", leavers, func(ctx context.Context, h *Host) error {
		h.Err = h.gather(ctx, true)
		return h.Err
	})
	for _, h := range leavers {
		if h.Err == nil && plan.IsHostOf(h.Facts, h.Name) {
			s.hosts = append(s.hosts, h)
			continue
		}
		if h.leave(ctx); h.Err != nil {
			s.Display.Printf("%s: its host is not reset: %s\n", h.Name, plan.Reason(h.Name, h.Err))
		}
	}
	return context.Cause(ctx)
}

// leavers are the nodes of the cluster that cluster.yaml does not have, and whose address can be used.
func (s *Site) leavers() (list []*Host) {
	// A worker has no state of the cluster: its root may name any address.
	at := slices.IndexFunc(s.hosts, func(h *Host) bool { return h.Role == spec.ControlPlane && h.Facts != nil && h.Facts.Cluster != nil })
	if at < 0 {
		return nil
	}
	c := s.hosts[at].Facts.Cluster
	for _, n := range c.Nodes {
		role := spec.Worker
		if n.ControlPlane {
			role = spec.ControlPlane
		}
		address := plan.AddressOf(n, c, s.Cluster.Hosts)
		if address == "" || slices.ContainsFunc(s.Cluster.Hosts, func(h spec.Host) bool { return h.Name == n.Name }) {
			continue
		}
		like := s.Cluster.Hosts[max(0, slices.IndexFunc(s.Cluster.Hosts, func(h spec.Host) bool { return h.Role == role }))]
		h := spec.Host{Name: n.Name, Role: role, SSH: like.SSH}
		h.SSH.Address, h.SSH.HostKey = address, ""
		list = append(list, &Host{Host: h, site: s, proof: proofOf(n.Name, s.hosts[at])})
	}
	return list
}

// Answers returns what each host answered, by its name.
func (s *Site) Answers() map[string]plan.Answer {
	all := map[string]plan.Answer{}
	for _, h := range s.hosts {
		all[h.Name] = plan.Answer{Facts: h.Facts, Err: h.Err, At: h.at}
	}
	return all
}

// Close ends the connections.
func (s *Site) Close() {
	for _, h := range s.hosts {
		h.close()
	}
}

// Hosts returns the hosts that are not skipped, in the order of cluster.yaml.
func (s *Site) Hosts() []*Host { return s.hosts }

// host returns a host by its name; nil if it is left out, or leaves and cannot be reached.
func (s *Site) host(name string) *Host {
	if i := slices.IndexFunc(s.hosts, func(h *Host) bool { return h.Name == name }); i >= 0 {
		return s.hosts[i]
	}
	return nil
}

// clusterOf returns the cluster as a host reported it; nil if it did not.
func (s *Site) clusterOf(name string) *facts.Cluster {
	if h := s.host(name); h != nil && h.Facts != nil {
		return h.Facts.Cluster
	}
	return nil
}

// filter returns hosts, in the order of cluster.yaml.
func (s *Site) filter(is func(*Host) bool) []*Host {
	return slices.DeleteFunc(slices.Clone(s.hosts), func(h *Host) bool { return !is(h) })
}

// atOnce does something n times, at most limit at once, and waits for all. It returns the errors of those that it began before stop.
func atOnce(n, limit int, stop func() bool, do func(i int) error) []error {
	errs := make([]error, n)
	began := 0
	slots := make(chan struct{}, max(limit, 1))
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		if stop() {
			break
		}
		began++
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = do(i)
		})
	}
	wg.Wait()
	return errs[:began]
}

func never() bool { return false }

// quietly does on all hosts what needs no line of progress.
func quietly(ctx context.Context, hosts []*Host, do func(context.Context, *Host) error) error {
	return failuresOf(hosts, atOnce(len(hosts), len(hosts), never, func(i int) error { return do(ctx, hosts[i]) }))
}

// Each does something on several hosts, at most Parallel at once, and waits for all. The error is a failures.
func (s *Site) Each(ctx context.Context, work string, hosts []*Host, do func(context.Context, *Host) error) error {
	return failuresOf(hosts, s.each(ctx, work, hosts, do))
}

func (s *Site) each(ctx context.Context, work string, hosts []*Host, do func(context.Context, *Host) error) []error {
	for _, h := range hosts {
		h.row = s.Display.Row(h.Name, work)
	}
	return atOnce(len(hosts), s.Parallel, never, func(i int) error {
		h := hosts[i]
		h.row.Begin()
		err := ctx.Err()
		if err == nil {
			err = do(ctx, h)
		}
		h.row.End(err)
		return err
	})
}

// Ask asks several hosts, as Each does, and returns their answers by their names. Those that had no facts before are not asked, and
// are in the error, too.
func Ask[T any](ctx context.Context, s *Site, work string, hosts []*Host, ask func(context.Context, *Host) (T, error)) (map[string]T, error) {
	var mu sync.Mutex
	answers := map[string]T{}
	reached := slices.DeleteFunc(slices.Clone(hosts), func(h *Host) bool { return h.Err != nil })
	failed := s.unreached(hosts)
	for i, err := range s.each(ctx, work, reached, func(ctx context.Context, h *Host) error {
		answer, err := ask(ctx, h)
		mu.Lock()
		defer mu.Unlock()
		answers[h.Name] = answer
		return err
	}) {
		if err != nil {
			failed = append(failed, failure{reached[i].Name, err})
		}
	}
	return answers, s.sorted(failed).fault()
}

// failuresOf returns the errors of hosts as one, or nil.
func failuresOf(hosts []*Host, errs []error) error {
	var failed failures
	for i, err := range errs {
		if err != nil {
			failed = append(failed, failure{hosts[i].Name, err})
		}
	}
	return failed.fault()
}
