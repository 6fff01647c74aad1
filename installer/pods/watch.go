// Package pods changes and restarts the static pods of a host, and watches how containers and the kubelet
// end while a run waits for them.
package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"airlift/images/store"
	"airlift/installer/node"
	"airlift/internal/fault"
)

// lookInterval is the pause between two looks at the processes of this node. On a slow host it is
// ten times as long as a look, at most maxLookInterval.
const (
	lookInterval    = time.Second
	maxLookInterval = 10 * time.Second
)

// A Dependency lists the components that a wait needs, in addition to the kubelet.
type Dependency struct {
	Components []string // names of containers on this node
	// APIAnswers, if set, reports whether the API server answers. While it does
	// not, its clients may end, and recover later.
	APIAnswers func(context.Context) bool
	// Only is set if the ends of other components, and of processes that were started before
	// since, are ordinary: they are printed with -v 1.
	Only  bool
	since time.Time
}

// ordinary reports whether a wait with these needs expects the end of a process.
func (d Dependency) ordinary(e end) bool {
	return d.Only && e.process != theKubelet && (!slices.Contains(d.Components, e.component) || e.started.Before(d.since))
}

// A Watch looks at the processes of this node while a run waits for them.
type Watch struct {
	*node.Machine
	socket     func() string // of the container runtime
	Containerd *store.Store  // nil until it is connected
	crashes    *crashes      // how processes of this node ended
}

// NewWatch returns the Watch of a host. socket returns the path of the socket of its container runtime.
func NewWatch(m *node.Machine, socket func() string) *Watch {
	return &Watch{Machine: m, socket: socket, crashes: newCrashes(time.Now())}
}

// Close closes the connection to the container runtime.
func (w *Watch) Close() {
	if w.Containerd != nil {
		_ = w.Containerd.Close()
	}
}

// connect connects to the container runtime, once.
func (w *Watch) connect(ctx context.Context) (err error) {
	if w.Containerd == nil {
		w.Containerd, err = store.Connect(ctx, w.socket())
	}
	return err
}

// Forget forgets how processes have ended.
func (w *Watch) Forget() { w.crashes = newCrashes(time.Now()) }

// Watched runs a wait. In parallel it looks at the containers of the cluster's
// components and at the kubelet. It shows how they end, and it ends the wait if
// one that the wait needs will not recover. If the wait fails, the error has the
// last lines of their logs.
func (w *Watch) Watched(ctx context.Context, needs Dependency, wait func(context.Context) error) error {
	waiting, giveUp := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.watch(waiting, needs, giveUp)
	}()
	err := wait(waiting)
	hopeless := context.Cause(waiting)
	giveUp(nil)
	<-stopped
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case hopeless == nil:
		return w.withMissing(ctx, w.crashes.explain(err), needs)
	case errors.Is(err, hopeless):
		return err
	}
	return hopeless
}

// watch looks at the processes of this node until ctx ends. It calls giveUp if
// one that is needed will not recover.
func (w *Watch) watch(ctx context.Context, needs Dependency, giveUp context.CancelCauseFunc) {
	pause := lookInterval
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		began := time.Now()
		w.look(ctx, needs)
		pause = min(max(lookInterval, 10*time.Since(began)), maxLookInterval)
		if err := w.crashes.hopeless(needs.Components, time.Now()); err != nil {
			giveUp(err)
			return
		}
	}
}

// lookTimeout limits one look: a runtime that hangs must not hide the kubelet's
// end.
const lookTimeout = 5 * time.Second

// look records and shows the processes that have ended since the last look.
func (w *Watch) look(ctx context.Context, needs Dependency) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var news []end
	if state, err := w.Host.Systemd().Unit(ctx, "kubelet.service"); err == nil {
		news = w.crashes.seeKubelet(state, func() []string {
			return w.Host.Systemd().LogTail(ctx, "kubelet.service", state.Invocation, crashLines)
		})
	}
	var ended []end
	err := w.connect(ctx) // a phase that runs alone has not connected
	if err == nil {
		ended, err = w.crashes.seeContainers(ctx, w.Containerd, time.Now())
	}
	if err != nil {
		w.Console.Debug(1, "%s", err)
	}
	news = append(news, ended...)
	for _, e := range news {
		if needs.ordinary(e) {
			w.Console.Debug(1, "%s %s", e.process, e.how)
			continue
		}
		w.showEnd(e)
	}
	if needs.APIAnswers != nil && len(w.crashes.ends) > 0 && !needs.APIAnswers(ctx) {
		w.crashes.forgetAPIClients()
	}
}

// showEnd shows how a process ended, once for each reason.
func (w *Watch) showEnd(e end) {
	if !w.crashes.isNew(e) {
		w.Console.Debug(1, "%s %s again", e.process, e.how)
		return
	}
	w.Console.Warn("%s", strings.ReplaceAll(e.String(), "\n", "\n        "))
}

// withMissing adds to the error of a wait the needed components that the kubelet
// has not started, and the last lines of the kubelet's log.
func (w *Watch) withMissing(ctx context.Context, err error, needs Dependency) error {
	missing := slices.DeleteFunc(slices.Clone(needs.Components), func(name string) bool { return w.crashes.created[name] })
	if len(missing) == 0 || !w.crashes.listed || len(w.crashes.ends[theKubelet]) > 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	lines := w.Host.Systemd().LogTail(ctx, "kubelet.service", "", crashLines)
	if len(lines) == 0 {
		return err
	}
	return fault.Wrap(fmt.Errorf("%w\nthe kubelet has not started %s; the last lines of its log:\n  %s",
		err, strings.Join(missing, ", "), strings.Join(lines, "\n  ")), fault.ExitCode(err), "")
}
