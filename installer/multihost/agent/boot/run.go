package boot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/multihost/agent"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/seed"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// The pauses between attempts. They grow to the longest.
const (
	pause        = 5 * time.Second
	longestPause = time.Minute
)

// Start makes this host a node, and returns when it is done: on the first control plane, when all hosts are. A refusal has changed
// nothing.
func (b *Host) Start(ctx context.Context) error {
	s, me, r, err := b.begin(ctx)
	defer b.unlock()
	if err != nil || r == nil {
		return err
	}
	if err := b.steps(ctx, s, me, r); err != nil {
		if r.First && ctx.Err() == nil && b.expired(s) != nil {
			_ = b.Site.End(ctx, s) // if there is no cluster, it has nothing of the seed
		}
		return b.giveUp(ctx, *r, err)
	}
	state := seed.Done
	if r.First {
		if err := b.lead(ctx, s); err != nil {
			return err
		}
		state = seed.Ended
	} else if err := b.reported(ctx, s, me); err != nil {
		return err
	}
	if err := b.settle(ctx, *r, state); err != nil {
		return err
	}
	b.say("this host is done: %s, %s of cluster %s", me.Name, me.Role, s.Cluster.Name)
	return nil
}

// begin finds the row of this host, and takes the seed unless it has it. Without a record, there is nothing to do.
func (b *Host) begin(ctx context.Context) (*seed.Seed, spec.Host, *seed.Record, error) {
	r, err := seed.ReadRecord(b.Root)
	if err != nil {
		return nil, spec.Host{}, nil, err
	}
	if b.over(r) {
		return nil, spec.Host{}, nil, b.finished(ctx, *r)
	}
	file, taken, err := b.source(r)
	if err != nil {
		return nil, spec.Host{}, nil, err
	}
	s, me, data, signed, err := b.read(ctx, file, r, cardTries)
	if err == nil {
		err = b.lock(ctx, s)
	}
	if err != nil && taken {
		err = b.giveUp(ctx, *r, err)
	}
	if err != nil {
		return nil, me, nil, err
	}
	now, err := seed.ReadRecord(b.Root)
	if err != nil {
		return nil, me, nil, err
	}
	if !reflect.DeepEqual(now, r) { // by the command that had the lock
		b.unlock()
		return b.begin(ctx)
	}
	if !taken {
		if err := b.take(ctx, s, me, data, signed); err != nil {
			return nil, me, nil, err
		}
		b.say("the copy is complete: the drive may be removed")
		if r, err = seed.ReadRecord(b.Root); err != nil {
			return nil, me, nil, err
		}
	}
	return s, me, r, nil
}

// over reports whether this host has nothing more to do. If it has given up because of a wrong clock, the drive begins again.
func (b *Host) over(r *seed.Record) bool {
	return r != nil && (r.State == seed.Done || r.State == seed.Ended || r.State == seed.Expired && b.Drive == "")
}

// source returns where the seed is: in the copy if that is complete, or on the drive.
func (b *Host) source(r *seed.Record) (file string, taken bool, err error) {
	switch {
	case r != nil && r.State != seed.Expired && filesystem.Exists(string(rootOf(b.Root).Path(Installer))):
		return copyFile, true, b.sameSeed(*r)
	case b.Drive == "":
		return "", false, fault.New(fault.Usage, "this host has taken no seed").Hint("connect the drive, and name its directory: ./install seed run DIRECTORY")
	}
	return b.Drive + "/" + seed.File, false, nil
}

// finished is what a host does that has nothing more to do. A drive with another seed changes nothing.
func (b *Host) finished(ctx context.Context, r seed.Record) error {
	if err := b.sameSeed(r); err != nil {
		return err
	}
	if r.State == seed.Expired {
		return b.gaveUp(ctx, r)
	}
	b.say("this host is done: %s, %s of cluster %s; nothing was changed", r.Host, r.Role, r.Cluster)
	return b.settle(ctx, r, r.State) // it may have been interrupted there
}

// sameSeed refuses a drive with a seed that is not this host's.
func (b *Host) sameSeed(r seed.Record) error {
	if b.Drive == "" {
		return nil
	}
	s, _, _, err := b.readSeed(b.Drive + "/" + seed.File)
	if err == nil && s.ID != r.Seed {
		err = otherSeed(r, s)
	}
	return err
}

// giveUp ends the seed on this host if it has expired, or if the cluster refuses its token: nobody needs the secrets any more.
func (b *Host) giveUp(ctx context.Context, r seed.Record, err error) error {
	if ctx.Err() != nil || !errors.Is(err, errOver) && b.Now().Before(r.Expires) {
		return err
	}
	r.Reason = clean(err.Error())
	return b.gaveUp(ctx, r)
}

// gaveUp removes the secrets of a seed that has ended before this host was done, and returns why.
func (b *Host) gaveUp(ctx context.Context, r seed.Record) error {
	if err := b.settle(ctx, r, seed.Expired); err != nil {
		return fmt.Errorf("removing the copy of the seed, which has ended before this host was done: %w", err)
	}
	return fault.New(fault.Preflight, "the seed of cluster %s has ended before this host was done, and its copy was removed: %s", r.Cluster, r.Reason).
		Hint("add this host with ./install cluster apply, or by ./install join; to begin with another seed, first: ./install reset")
}

// lock keeps drivers such as cluster apply away from this host while it runs the seed, and waits for one that has begun: the certificates in
// the cluster have one key.
func (b *Host) lock(ctx context.Context, s *seed.Seed) error {
	for {
		holder, _, release, err := host.LockForDriver(b.Root, seed.Driver+s.Cluster.Name, false)
		if err != nil {
			return err
		}
		if release != nil {
			b.release = release
			return nil
		}
		waits := fmt.Sprintf("waiting for another command that changes this host: %s", cmp.Or(holder.Who, "unknown"))
		if over := b.expired(s); over != nil {
			return fmt.Errorf("%s: %w", waits, over)
		}
		b.say("%s", waits)
		if err := b.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func (b *Host) unlock() {
	if b.release != nil {
		b.release()
	}
	b.release = nil
}

func otherSeed(r seed.Record, s *seed.Seed) error {
	return fault.New(fault.Preflight, "this host is %s of cluster %s, by another seed: the one for cluster %s is refused", r.Host, r.Cluster, s.Cluster.Name).
		Hint("remove the drive; to give this host to the other cluster, first: ./install reset")
}

// read checks a seed, its time and the row of this host. It waits for its clock and for network cards; with no tries for cards, it waits
// for nothing.
func (b *Host) read(ctx context.Context, file string, r *seed.Record, tries int) (s *seed.Seed, me spec.Host, data, signed []byte, err error) {
	if s, data, signed, err = b.readSeed(b.path(file)); err != nil {
		return
	}
	if r != nil && r.Seed != s.ID {
		err = otherSeed(*r, s)
		return
	}
	if tries == 0 {
		_, err = s.InTime(b.Now())
	} else {
		err = b.waitClock(ctx, s)
	}
	if r != nil && r.State != seed.Expired && ctx.Err() == nil {
		err = nil // what a host has begun, it may end
	}
	if err != nil {
		return
	}
	if !mayBeNode(r) {
		if err = refuseUsed(b.Root, s); err != nil {
			return
		}
	}
	if me, err = b.find(ctx, s, tries); err == nil && r != nil && me.Name != r.Host {
		err = fault.New(fault.Preflight, "this host began as %s, and is in the row of %s now", r.Host, me.Name).Hint("was its disk moved to another machine? To begin again: ./install reset")
	}
	return
}

// cardTries is how often a host looks again for a network card in the seed: the driver of a card may be late.
const cardTries = 6

// find returns the row of this host.
func (b *Host) find(ctx context.Context, s *seed.Seed, tries int) (spec.Host, error) {
	for {
		m := b.Machine()
		me, err := s.Find(m)
		cards := slices.ContainsFunc(s.Cluster.Hosts, func(h spec.Host) bool { return h.Match != nil && h.Match.MAC != "" })
		if tries--; !errors.Is(err, seed.ErrNotListed) || !cards || tries < 0 {
			return me, err
		}
		b.say("waiting for a network card that is in the seed; this host has %s", m)
		if err := b.Sleep(ctx, pause); err != nil {
			return spec.Host{}, err
		}
	}
}

// mayBeNode reports whether the seed itself may have made this host a node.
func mayBeNode(r *seed.Record) bool { return r != nil && (r.State != seed.Expired || r.Node) }

// refuseUsed refuses a host that is a node, or has files of another installation.
func refuseUsed(root string, s *seed.Seed) error {
	h, err := host.Open(root)
	if err != nil {
		return err
	}
	const hint = "remove the drive; to give this host to the cluster of the seed, first "
	if id := observed(h); id != "" {
		return fault.New(fault.Preflight, "this host is %s already: the seed for cluster %s is refused", id, s.Cluster.Name).Hint(hint + "remove the node: ./install reset")
	}
	if list := agent.Leftovers(h); len(list) > 0 {
		return fault.New(fault.Preflight, "this host has files of another installation: %s; the seed for cluster %s is refused", strings.Join(list, ", "), s.Cluster.Name).
			Hint(hint + "remove that installation with the tool that made it")
	}
	return nil
}

// path returns where a file of the copy is; files of a drive are where they are.
func (b *Host) path(file string) string {
	if strings.HasPrefix(file, seed.CopyDir+"/") {
		return string(rootOf(b.Root).Path(file))
	}
	return file
}

// waitClock waits while the clock is before the seed was created: a time server may set it.
func (b *Host) waitClock(ctx context.Context, s *seed.Seed) error {
	for {
		early, err := s.InTime(b.Now())
		if !early {
			return err
		}
		b.say("waiting until the clock of this host is right: it is before %s, when the seed was created; %s", s.Created.Format(time.RFC3339), fault.Hint(err))
		if err := b.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// expired returns an error after the life of the seed. A clock that was set back ends nothing.
func (b *Host) expired(s *seed.Seed) error {
	early, err := s.InTime(b.Now())
	if early {
		return nil
	}
	return err
}

// steps runs the commands that are not done.
func (b *Host) steps(ctx context.Context, s *seed.Seed, me spec.Host, r *seed.Record) error {
	steps, err := s.Steps(me.Name)
	if err != nil {
		return err
	}
	if err := b.waitAddress(ctx, s, me); err != nil {
		return err
	}
	for i, step := range steps {
		if i < r.Steps {
			continue
		}
		if err := b.step(ctx, s, me, step); err != nil {
			return err
		}
		r.Steps = i + 1
		if err := b.retry(ctx, s, func() error { return b.change(func(h *host.Host) error { return writeRecord(h, *r) }) }); err != nil {
			return err
		}
	}
	return nil
}

// step runs a command until it succeeds.
func (b *Host) step(ctx context.Context, s *seed.Seed, me spec.Host, step seed.Step) error {
	claim := Claim{State: seed.Running, Message: step.Verb}
	return b.retry(ctx, s, func() error {
		if step.Verb == plan.Join {
			b.say("waiting for the first control plane, %s at %s", s.First().Name, s.Endpoint())
			if err := b.Site.Report(ctx, s, me.Name, claim); err != nil {
				return fmt.Errorf("waiting for the first control plane, %s at %s: %w", s.First().Name, s.Endpoint(), err)
			}
		}
		if step.Verb == plan.Init {
			if err := b.begun(ctx, s); err != nil {
				return err
			}
		}
		b.say("running %s", step)
		if err := b.change(func(h *host.Host) error { return prepare(h, step) }); err != nil {
			return err
		}
		err := b.Run(ctx, step.Args, step.Stdin)
		if step.Drop {
			err = errors.Join(err, b.change(func(h *host.Host) error { return h.RemoveTree(step.Dir) }))
		}
		if err != nil && ctx.Err() == nil && step.Verb != plan.Init {
			if me.Name == s.First().Name { // the other hosts do not wait for this command: a target of backups may be down for days
				_, _ = b.Site.Lead(ctx, s)
			}
			_ = b.Site.Report(ctx, s, me.Name, Claim{State: seed.Failed, Message: err.Error()}) // the console has it, too
		}
		return err
	})
}

// begun returns an error if the cluster exists, and this host is no node of it.
func (b *Host) begun(ctx context.Context, s *seed.Seed) error {
	h, err := b.Look()
	if err != nil || observed(h) != "" { // an interrupted init goes on
		return err
	}
	return b.Site.Begun(ctx, s)
}

// refusals is how many in a row mean that the token has ended: an API server that has just started has not read the tokens yet.
const refusals = 5

// errOver is why a host gives up: nothing of the seed can succeed any more.
var errOver = errors.New("the seed has ended: the cluster has no token for this host any more")

// retry does something until it succeeds, the seed expires, or the cluster refuses its token.
func (b *Host) retry(ctx context.Context, s *seed.Seed, do func() error) error {
	refused := 0
	for wait := pause; ; wait = min(2*wait, longestPause) {
		err := do()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if refused++; !errors.Is(err, errOver) {
			refused = 0
		}
		if over := b.expired(s); over != nil || refused == refusals {
			return fault.Wrap(errors.Join(err, over), fault.Preflight, "add this host with ./install cluster apply, or by ./install join")
		}
		b.say("%v; trying again", err)
		if err := b.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// waitAddress waits until this host has its addresses, or the seed expires.
func (b *Host) waitAddress(ctx context.Context, s *seed.Seed, me spec.Host) error {
	for {
		have := b.Addresses()
		missing := ""
		for _, ip := range me.NodeIP {
			if !slices.Contains(have, ip.String()) {
				missing = ip.String()
			}
		}
		if missing == "" {
			return nil
		}
		waits := fmt.Sprintf("waiting for the address %s (nodeIP of %s); this host has %s", missing, me.Name, cmp.Or(strings.Join(have, ", "), "none"))
		if over := b.expired(s); over != nil {
			return fmt.Errorf("%s: %w", waits, over)
		}
		b.say("%s", waits)
		if err := b.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// reported reports to the cluster that this host is done.
func (b *Host) reported(ctx context.Context, s *seed.Seed, me spec.Host) error {
	err := b.retry(ctx, s, func() error { return b.Site.Report(ctx, s, me.Name, Claim{State: seed.Done}) })
	if err != nil && ctx.Err() == nil { // it is a node: that nobody reads the report is no failure
		b.say("the cluster takes no report any more: %v", err)
		return nil
	}
	return err
}

// lead gives the nodes their labels and renews what they join with, until all are done or the seed expires. Then it ends the seed in the
// cluster.
func (b *Host) lead(ctx context.Context, s *seed.Seed) error {
	for {
		missing, err := b.Site.Lead(ctx, s)
		over := b.expired(s)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && over != nil: // what fails must not keep the token
			b.say("the seed has expired; which hosts are done is not known: %v", err)
		case err != nil:
			b.say("%v; trying again", err)
		case len(missing) == 0:
			b.say("all %d hosts are done", len(s.Cluster.Hosts))
		case over != nil:
			b.say("the seed has expired; these hosts are not done: %s. Add them with ./install cluster apply", strings.Join(missing, ", "))
		default:
			b.say("%d of %d hosts are done; waiting for %s", len(s.Cluster.Hosts)-len(missing), len(s.Cluster.Hosts), strings.Join(missing, ", "))
		}
		if err == nil && len(missing) == 0 || over != nil {
			break
		}
		if err := b.Sleep(ctx, pause); err != nil {
			return err
		}
	}
	return b.retryEnd(ctx, s)
}

// retryEnd deletes what the cluster has for the seed. It goes on after the seed has expired.
func (b *Host) retryEnd(ctx context.Context, s *seed.Seed) error {
	for {
		err := b.Site.End(ctx, s)
		if err == nil || ctx.Err() != nil {
			return err
		}
		b.say("%v; trying again", err)
		if err := b.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// Plan is what this host would do.
type Plan struct {
	Cluster string   `json:"cluster"`
	Host    string   `json:"host"`
	Match   string   `json:"match"`
	Role    string   `json:"role"`
	Steps   []string `json:"steps"`
	// Over is why there are no steps.
	Over string `json:"over,omitempty"`
}

// DryRun returns what Start would do. It changes nothing, and waits for nothing.
func (b *Host) DryRun(ctx context.Context) (*Plan, error) {
	r, err := seed.ReadRecord(b.Root)
	if err != nil {
		return nil, err
	}
	if b.over(r) {
		p := &Plan{Cluster: r.Cluster, Host: r.Host, Role: r.Role, Steps: []string{}, Over: cmp.Or(r.Reason, "this host is done")}
		return p, b.sameSeed(*r)
	}
	file, _, err := b.source(r)
	if err != nil {
		return nil, err
	}
	s, me, _, _, err := b.read(ctx, file, r, 0)
	if err != nil {
		return nil, err
	}
	steps, err := s.Steps(me.Name)
	if err != nil {
		return nil, err
	}
	p := &Plan{Cluster: s.Cluster.Name, Host: me.Name, Match: me.Match.String(), Role: me.Role, Steps: []string{}}
	for i, step := range steps {
		if r == nil || i >= r.Steps {
			p.Steps = append(p.Steps, step.String())
		}
	}
	return p, nil
}

// End stops the seed on this host, and removes its files here. On the first control plane, it also ends the seed in the cluster.
func (b *Host) End(ctx context.Context) error {
	// Without the lock of the host, which a command of the seed has, and before the end in the cluster: the unit would upload the certificates again.
	h, err := b.Look()
	if err != nil {
		return err
	}
	unit := filesystem.Exists(h.Path(seed.UnitFile))
	if unit {
		if err := h.Systemd().Stop(ctx, seed.Unit); err != nil {
			return err
		}
	}
	holder, _, release, err := host.LockForDriver(b.Root, "seed end", false)
	if err != nil {
		return err
	}
	if release == nil {
		return fault.New(fault.Failure, "this host is changed by another command: %s", cmp.Or(holder.Who, "unknown")).Hint("end it there: press Ctrl-C in its terminal")
	}
	defer release()
	if unit {
		if err := b.change(func(h *host.Host) error { return h.Systemd().DisableNow(ctx, seed.Unit) }); err != nil {
			return err
		}
	}
	r, err := seed.ReadRecord(b.Root)
	if err != nil {
		return err
	}
	if r != nil && r.First && r.State == seed.Running && observed(h) != "" {
		s, _, _, err := b.readSeed(b.path(copyFile))
		if err == nil {
			err = b.Site.End(ctx, s)
		}
		if err != nil {
			return err
		}
	}
	if !filesystem.Exists(h.Path(seed.CopyDir)) {
		return nil
	}
	return b.change(func(h *host.Host) error { return errors.Join(h.RemoveTree(seed.CopyDir), removeDropped(h)) })
}
