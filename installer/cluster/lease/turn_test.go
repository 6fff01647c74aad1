//go:build !race

// The tests change the state of their cluster from several goroutines of a synctest bubble, mostly while
// the others are blocked. The race detector does not see that order.

package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"airlift/installer/cluster"
	"airlift/internal/fault"
)

// turnCluster is a cluster of control planes with one store, and an API server on each.
type turnCluster struct {
	store *leaseStore
	hosts []*turnHost
}

type turnHost struct {
	name, url string
	client    *cluster.Client
	down      bool // its API server does not answer
	locked    bool // an installer runs on it
}

func newTurnCluster(n int) *turnCluster {
	c := &turnCluster{store: &leaseStore{}}
	var objects []runtime.Object
	for i := range n {
		h := &turnHost{name: fmt.Sprint("host", i+1), url: fmt.Sprintf("https://192.0.2.%d:6443", i+1)}
		c.hosts = append(c.hosts, h)
		objects = append(objects,
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.name, Labels: map[string]string{cluster.ControlPlaneLabel: ""}}},
			&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-" + h.name, Labels: map[string]string{"component": "kube-apiserver", "tier": "control-plane"},
					Annotations: map[string]string{cluster.APIServerAnnotation: strings.TrimPrefix(h.url, "https://")},
				},
				Spec: corev1.PodSpec{NodeName: h.name},
			})
	}
	for _, h := range c.hosts {
		h.client = c.store.client(h.url, objects...)
	}
	return c
}

var errRefused = errors.New("connection refused")

// connect returns a client of a server; the endpoint of kubeconfigs is the first host.
func (c *turnCluster) connect(server string) (*cluster.Client, error) {
	for _, h := range c.hosts {
		if server == h.url || server == "" && h == c.hosts[0] {
			if h.down {
				return nil, errRefused
			}
			return h.client, nil
		}
	}
	return nil, fmt.Errorf("no server %q", server)
}

func (c *turnCluster) turn(host int) *Turn {
	h := c.hosts[host]
	return &Turn{Node: h.name, Connect: c.connect, Servers: []string{h.url}}
}

// The second process waits until the first one gives up its turn. The Lease is then gone.
func TestTurnWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTurnCluster(2)
		a, b := c.turn(0), c.turn(1)
		if err := a.Take(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		seen, done := []string{}, make(chan error)
		go func() { done <- b.Take(t.Context(), func(text string) { seen = append(seen, text) }) }()
		time.Sleep(time.Hour / 2) // renewals keep it
		if err := errors.Join(a.Confirm(t.Context()), a.End(t.Context()), <-done); err != nil {
			t.Error(err)
		}
		if len(seen) != 1 || !strings.HasPrefix(seen[0], "host1 restarts its control plane") {
			t.Errorf("it reports %q", seen)
		}
		if err := b.End(t.Context()); err != nil || c.store.lease != nil {
			t.Errorf("%v, left: %v", err, c.store.lease)
		}
	})
}

// Who gives up waiting leaves the turn to its holder.
func TestTurnInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTurnCluster(2)
		a, b := c.turn(0), c.turn(1)
		if err := a.Take(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err := b.Take(ctx, func(string) { cancel() }); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if err := errors.Join(a.Confirm(t.Context()), a.End(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// A run on the same host after a kill does not wait. The process that was killed would have lost its turn.
func TestTurnAfterKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTurnCluster(2)
		killed, again := c.turn(0), c.turn(0)
		if err := killed.Take(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := again.Take(t.Context(), nil); err != nil || time.Since(began) > 0 {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		err := killed.Confirm(t.Context())
		if err == nil || !strings.Contains(err.Error(), "has lost its turn to host1") || !strings.Contains(fault.Hint(err), "run the same command again") {
			t.Errorf("%v, hint %q", err, fault.Hint(err))
		}
		if err := killed.End(t.Context()); err != nil || c.store.holder() != again.lease.holder {
			t.Errorf("%v, the holder is %q", err, c.store.holder())
		}
		if err := again.End(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// While the API server of a host restarts, its turn is renewed through another one.
func TestTurnThroughAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTurnCluster(3)
		a, b := c.turn(0), c.turn(1)
		if err := a.Take(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		c.hosts[0].down = true
		ctx, cancel := context.WithTimeout(t.Context(), 3*Duration)
		defer cancel()
		if err := b.Take(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another host has the turn: %v", err)
		}
		if err := errors.Join(a.Confirm(t.Context()), a.End(t.Context())); err != nil || c.store.lease != nil {
			t.Error(err, c.store.lease)
		}
	})
}

// Without an API server, a component may be restarted as long as nobody else can have the turn.
func TestTurnUnconfirmed(t *testing.T) {
	for _, test := range []struct {
		hosts int
		away  time.Duration
		ok    bool
	}{
		{hosts: 1, away: time.Hour, ok: true},
		{hosts: 2, away: time.Minute, ok: true},
		{hosts: 2, away: Duration},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newTurnCluster(test.hosts)
			a := c.turn(0)
			if err := a.Take(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			for _, h := range c.hosts {
				h.down = true
			}
			time.Sleep(test.away)
			err := a.Confirm(t.Context())
			if (err == nil) != test.ok || err != nil && (!strings.Contains(err.Error(), "connection refused") || fault.Hint(err) == "") {
				t.Errorf("%+v: %v", test, err)
			}
			if err := a.End(t.Context()); (err == nil) != (test.hosts == 1) { // nobody else waits for a single one
				t.Errorf("%+v: %v", test, err)
			}
		})
	}
}

// After an outage of all API servers, the holder keeps its turn, although it could not renew it.
func TestTurnAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTurnCluster(2)
		a, b := c.turn(0), c.turn(1)
		b.Patience = time.Hour
		if err := a.Take(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.Take(ctx, nil) }()
		time.Sleep(time.Minute)
		down := func(down bool) {
			for _, h := range c.hosts {
				h.down = down
			}
		}
		down(true)
		time.Sleep(2 * Duration)
		down(false)
		time.Sleep(Duration)
		if err := a.Confirm(t.Context()); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := a.End(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An API server that refuses the Lease does not give the turn: permissions are read after a start, and
// etcd may accept no writes.
func TestTurnRefused(t *testing.T) {
	for _, refusal := range []error{
		apierrors.NewForbidden(coordinationv1.Resource("leases"), turnLease, errors.New("no permission")),
		apierrors.NewInternalError(errors.New("etcdserver: mvcc: database space exceeded")),
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newTurnCluster(1)
			refused := true
			c.hosts[0].client.API.(*fake.Clientset).PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				return refused, nil, refusal
			})
			err := c.turn(0).Take(t.Context(), nil)
			if err == nil || !strings.Contains(err.Error(), refusal.Error()) || fault.Hint(err) == "" {
				t.Errorf("%v", err)
			}
			time.AfterFunc(time.Minute, func() { refused = false })
			a := c.turn(0)
			if err := a.Take(t.Context(), nil); err != nil {
				t.Error(err)
			}
			if err := a.End(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// While another control plane has its turn, a short patience does not end the wait: that one may restart
// etcd, and all API servers are away.
func TestTurnPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTurnCluster(2)
		a, b := c.turn(0), c.turn(1)
		b.Patience = 30 * time.Second
		if err := a.Take(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- b.Take(t.Context(), nil) }()
		time.Sleep(time.Minute)
		down := func(down bool) { c.hosts[0].down, c.hosts[1].down = down, down }
		down(true)
		time.Sleep(2 * time.Minute)
		down(false)
		if err := errors.Join(a.Confirm(t.Context()), a.End(t.Context()), <-done, b.End(t.Context())); err != nil {
			t.Error(err)
		}
		down(true)
		go func() { done <- c.turn(0).Take(t.Context(), nil) }()
		if err := <-done; !errors.Is(err, ErrRefused) {
			t.Error(err)
		}
		down(false)
		if err := a.Take(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		b.Patience = 0
		go func() { done <- b.Take(t.Context(), nil) }()
		time.Sleep(time.Minute)
		down(true)
		if err := <-done; err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("it would go on while host1 has the turn: %v", err)
		}
		a.stop()
	})
}

// TestTurnSimulation runs upgrades, renewals and rotations on three control planes in random order,
// with kills, API servers that are lost, hosts that are cut off or stand still, and clocks that are
// wrong. A process begins to restart a component only while it has the Lease, and while no other process
// restarts one that is alive and has renewed its turn within TurnDuration.
func TestTurnSimulation(t *testing.T) {
	restarts := 0
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			s := &simulation{t: t, random: rand.New(rand.NewPCG(seed, 37)), cluster: newTurnCluster(3)}
			s.run()
			restarts += s.restarts
			if t.Failed() {
				t.Fatalf("the seed is %d\n%s", seed, strings.Join(s.events, "\n"))
			}
		})
	}
	if restarts < 1500 {
		t.Errorf("only %d restarts", restarts)
	}
}

type simulation struct {
	t         *testing.T
	random    *rand.Rand
	cluster   *turnCluster
	processes []*process
	restarts  int
	events    []string
}

// process is a command on a host.
type process struct {
	*simulation
	host   *turnHost
	name   string
	turn   *Turn
	killed bool
	cutOff time.Time // until then it reaches no API server
	frozen time.Time // until then it does nothing
	acts   bool      // it restarts a component
	ended  chan struct{}
}

// upTo returns a random duration.
func (s *simulation) upTo(d time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(d)))
}

func (s *simulation) event(format string, args ...any) {
	s.events = append(s.events, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (s *simulation) run() {
	s.cluster.store.edit = func(l *coordinationv1.Lease) { // by a clock that jumps
		at := metav1.NewMicroTime(time.Now().Add(s.upTo(48*time.Hour) - 24*time.Hour))
		l.Spec.AcquireTime, l.Spec.RenewTime = &at, &at
	}
	for range 60 {
		time.Sleep(s.upTo(5 * time.Minute))
		s.disturb()
		s.start()
	}
	for _, p := range s.processes {
		<-p.ended
		if p.turn.stop != nil {
			p.turn.stop()
		}
	}
}

// start starts a command on a host, unless another one runs there.
func (s *simulation) start() {
	h := s.cluster.hosts[s.random.IntN(3)]
	if h.locked {
		return
	}
	h.locked = true
	kind := []string{"upgrade", "certs renew", "rotate-ca"}[s.random.IntN(3)]
	p := &process{simulation: s, host: h, name: fmt.Sprintf("%s %d on %s", kind, len(s.processes), h.name), ended: make(chan struct{})}
	p.turn = &Turn{Node: h.name, Connect: p.connect, Servers: []string{h.url}}
	s.processes = append(s.processes, p)
	go func() {
		defer close(p.ended)
		p.run()
		if !p.killed {
			h.locked = false
		}
	}()
}

// disturb makes something go wrong.
func (s *simulation) disturb() {
	h := s.cluster.hosts[s.random.IntN(3)]
	var p *process
	for _, o := range s.processes {
		if o.host == h && h.locked && !o.killed {
			p = o
		}
	}
	switch until := time.Now().Add(s.upTo(15 * time.Minute)); s.random.IntN(6) {
	case 0:
		s.event("the API server of %s is lost", h.name)
		h.down = true
		time.AfterFunc(time.Until(until), func() { h.down = false })
	case 1, 2:
		if p != nil {
			s.event("%s is killed", p.name)
			p.killed, p.acts, h.locked = true, false, false
		}
	case 3:
		if p != nil {
			s.event("%s is cut off", p.name)
			p.cutOff = until
		}
	case 4:
		if p != nil {
			s.event("%s stands still", p.name)
			p.frozen = until
		}
	}
}

// connect blocks as long as the process is frozen.
func (p *process) connect(server string) (*cluster.Client, error) {
	time.Sleep(time.Until(p.frozen))
	if p.killed || time.Now().Before(p.cutOff) {
		return nil, errRefused
	}
	return p.cluster.connect(server)
}

func (p *process) run() {
	ctx := p.t.Context()
	if err := p.turn.Take(ctx, nil); err != nil || p.killed {
		return
	}
	p.event("%s has the turn", p.name)
	for range 1 + p.random.IntN(5) {
		time.Sleep(p.upTo(2 * time.Minute))
		if err := p.turn.Confirm(ctx); err != nil {
			p.event("%s: %v", p.name, err)
			break
		}
		if p.killed {
			return
		}
		p.restart()
		if p.killed {
			return
		}
	}
	p.event("%s ends: %v", p.name, p.turn.End(ctx))
}

// restart restarts a component. The API server of the host is away meanwhile.
func (p *process) restart() {
	p.restarts++
	if has := p.cluster.store.holder(); has != p.turn.lease.holder {
		p.t.Errorf("%s restarts a component, and %s has the turn", p.name, has)
	}
	for _, o := range p.processes {
		if o.acts && time.Since(o.turn.renewed) < Duration {
			p.t.Errorf("%s and %s restart components at once", p.name, o.name)
		}
	}
	p.acts, p.host.down = true, true
	time.Sleep(p.upTo(8 * time.Minute))
	if !p.killed {
		p.acts = false
	}
	p.host.down = false
}
