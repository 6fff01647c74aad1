package installer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"airlift/fault"
	"airlift/images/store"
)

// lookInterval is the pause between two looks at the processes of this node. On a slow host it is
// ten times as long as a look, at most maxLookInterval.
const (
	lookInterval    = time.Second
	maxLookInterval = 10 * time.Second
)

// A dependency is what a wait depends on, in addition to the kubelet.
type dependency struct {
	components []string // names of containers on this node
	// apiAnswers, if set, reports whether the API server answers. While it does
	// not, its clients may end, and recover later.
	apiAnswers func(context.Context) bool
	// only is set if the ends of other components, and of processes that were started before
	// since, are ordinary: they are printed with -v 1.
	only  bool
	since time.Time
}

// ordinary reports whether a wait with these needs expects the end of a process.
func (d dependency) ordinary(e end) bool {
	return d.only && e.process != theKubelet && (!slices.Contains(d.components, e.component) || e.started.Before(d.since))
}

// localAPI returns the components that the API server of this node needs.
func (n *node) localAPI() dependency {
	if n.plan.hasEtcd(n.config) {
		return dependency{components: apiComponents}
	}
	return dependency{components: apiComponents[1:]}
}

// watched runs a wait. In parallel it looks at the containers of the cluster's
// components and at the kubelet. It shows how they end, and it ends the wait if
// one that the wait needs will not recover. If the wait fails, the error has the
// last lines of their logs.
func (n *node) watched(ctx context.Context, needs dependency, wait func(context.Context) error) error {
	waiting, giveUp := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		n.watch(waiting, needs, giveUp)
	}()
	err := wait(waiting)
	hopeless := context.Cause(waiting)
	giveUp(nil)
	<-stopped
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case hopeless == nil:
		return n.withMissing(ctx, n.crashes.explain(err), needs)
	case errors.Is(err, hopeless):
		return err
	}
	return hopeless
}

// watch looks at the processes of this node until ctx ends. It calls giveUp if
// one that is needed will not recover.
func (n *node) watch(ctx context.Context, needs dependency, giveUp context.CancelCauseFunc) {
	pause := lookInterval
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		began := time.Now()
		n.look(ctx, needs)
		pause = min(max(lookInterval, 10*time.Since(began)), maxLookInterval)
		if err := n.crashes.hopeless(needs.components, time.Now()); err != nil {
			giveUp(err)
			return
		}
	}
}

// lookTimeout limits one look: a runtime that hangs must not hide the kubelet's
// end.
const lookTimeout = 5 * time.Second

// look records and shows the processes that have ended since the last look.
func (n *node) look(ctx context.Context, needs dependency) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var news []end
	if state, err := n.host.Unit(ctx, "kubelet.service"); err == nil {
		news = n.crashes.seeKubelet(state, func() []string {
			return n.host.LogTail(ctx, "kubelet.service", state.Invocation, crashLines)
		})
	}
	ended, err := n.lookAtContainers(ctx)
	if err != nil {
		n.console.Debug(1, "%s", err)
	}
	news = append(news, ended...)
	for _, e := range news {
		if needs.ordinary(e) {
			n.console.Debug(1, "%s %s", e.process, e.how)
			continue
		}
		n.showEnd(e)
	}
	if needs.apiAnswers != nil && len(n.crashes.ends) > 0 && !needs.apiAnswers(ctx) {
		n.crashes.forgetAPIClients()
	}
}

// lookAtContainers connects to the container runtime if a phase runs alone.
func (n *node) lookAtContainers(ctx context.Context) ([]end, error) {
	if n.containerd == nil {
		runtime, err := store.Connect(ctx, strings.TrimPrefix(n.config.NodeRegistration.CRISocket, "unix://"))
		if err != nil {
			return nil, err
		}
		n.containerd = runtime
	}
	return n.crashes.seeContainers(ctx, n.containerd, time.Now())
}

// showEnd shows how a process ended, once for each reason.
func (n *node) showEnd(e end) {
	if !n.crashes.isNew(e) {
		n.console.Debug(1, "%s %s again", e.process, e.how)
		return
	}
	n.console.Warn("%s", strings.ReplaceAll(e.String(), "\n", "\n        "))
}

// withMissing adds to the error of a wait the needed components that the kubelet
// has not started, and the last lines of the kubelet's log.
func (n *node) withMissing(ctx context.Context, err error, needs dependency) error {
	missing := slices.DeleteFunc(slices.Clone(needs.components), func(name string) bool { return n.crashes.created[name] })
	if len(missing) == 0 || !n.crashes.listed || len(n.crashes.ends[theKubelet]) > 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	lines := n.host.LogTail(ctx, "kubelet.service", "", crashLines)
	if len(lines) == 0 {
		return err
	}
	return fault.Wrap(fmt.Errorf("%w\nthe kubelet has not started %s; the last lines of its log:\n  %s",
		err, strings.Join(missing, ", "), strings.Join(lines, "\n  ")), fault.ExitCode(err), "")
}
