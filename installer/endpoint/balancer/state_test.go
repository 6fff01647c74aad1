package balancer

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	first  = netip.MustParseAddrPort("192.0.2.1:6443")
	second = netip.MustParseAddrPort("192.0.2.2:6443")
	third  = netip.MustParseAddrPort("[2001:db8::3]:6443")
)

// watched runs a balancer without listeners, and returns how to end it.
func watched(t *testing.T, o Options, check func(context.Context, netip.AddrPort) error) (*Balancer, func()) {
	b := build(t, o, check)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return b, func() { cancel(); <-done }
}

func TestSlowAPIServersWithLossDoNotFlap(t *testing.T) {
	down := 0 // seconds, of an API server
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			random := map[netip.AddrPort]*rand.Rand{}
			for i, a := range []netip.AddrPort{first, second, third} {
				random[a] = rand.New(rand.NewPCG(seed, uint64(i)))
			}
			// Usually a loaded API server takes up to 100 ms: five times as much, and one of 20 checks fails.
			b, stop := watched(t, Options{Seeds: []netip.AddrPort{first, second, third}}, func(ctx context.Context, a netip.AddrPort) error {
				r := random[a]
				select {
				case <-time.After(time.Duration(r.Int64N(int64(500 * time.Millisecond)))):
				case <-ctx.Done():
					return ctx.Err()
				}
				if r.IntN(20) == 0 {
					return errors.New("lost")
				}
				return nil
			})
			for range 3600 {
				time.Sleep(time.Second)
				for _, s := range b.Status().Backends {
					if s.State == Down {
						down++
					}
				}
			}
			stop()
		})
	}
	t.Logf("down for %d of %d seconds", down, 5*3600*3)
	if down > 3 { // one change: 0.2 are to be expected
		t.Errorf("API servers were down for %d seconds", down)
	}
}

func TestStallOfTwoSecondsIsNoFailure(t *testing.T) {
	for phase := range 50 {
		synctest.Test(t, func(t *testing.T) {
			var until atomic.Pointer[time.Time]
			b, stop := watched(t, Options{Seeds: []netip.AddrPort{first, second}}, func(ctx context.Context, a netip.AddrPort) error {
				if end := until.Load(); end != nil {
					sleep(ctx, time.Until(*end))
				}
				return ctx.Err()
			})
			defer stop()
			time.Sleep(5*time.Second + time.Duration(phase)*40*time.Millisecond)
			end := time.Now().Add(2 * time.Second)
			until.Store(&end)
			for range 60 {
				time.Sleep(100 * time.Millisecond)
				for _, s := range b.Status().Backends {
					if s.State == Down {
						t.Fatalf("phase %d: %s is down: %s", phase, s.Address, s.Error)
					}
				}
			}
		})
	}
}

// A stopped process accepts TCP connections, but does not answer.
func TestHungAPIServerLeavesTheSetInTime(t *testing.T) {
	var took []time.Duration
	for phase := range 100 {
		synctest.Test(t, func(t *testing.T) {
			var hung atomic.Bool
			b, stop := watched(t, Options{Seeds: []netip.AddrPort{first, second}}, func(ctx context.Context, a netip.AddrPort) error {
				if a == first && hung.Load() {
					<-ctx.Done()
				}
				return ctx.Err()
			})
			defer stop()
			time.Sleep(5*time.Second + time.Duration(phase)*17*time.Millisecond)
			hung.Store(true)
			from := time.Now()
			for b.Status().of(first).State != Down {
				time.Sleep(10 * time.Millisecond)
			}
			took = append(took, time.Since(from))
			if s := b.Status(); s.of(second).State != Ready || s.of(first).Error != "no answer within 900ms" {
				t.Errorf("%+v", s)
			}
		})
	}
	slices.Sort(took)
	t.Logf("median %s, p95 %s, longest %s", took[50], took[95], took[99])
	if took[95] > 4*time.Second || took[99] > 8*time.Second {
		t.Error("too long")
	}
}

func TestStateFollowsChecks(t *testing.T) {
	bad := errors.New("bad")
	be := newBackend(first, 0, nil)
	for i, step := range []struct {
		err  error
		want State
	}{
		{bad, Unknown}, {nil, Ready}, // one success is enough at the start
		{bad, Failing}, {bad, Failing}, {bad, Failing}, {nil, Ready},
		{bad, Failing}, {bad, Failing}, {bad, Failing}, {bad, Down}, {bad, Down},
		{nil, Down}, {bad, Down}, {nil, Down}, {nil, Ready},
	} {
		be.observe(step.err)
		if be.state != step.want {
			t.Errorf("check %d: %s, want %s", i, be.state, step.want)
		}
	}
}

func TestNewConnectionsPreferReadyAPIServers(t *testing.T) {
	b := build(t, Options{}, healthy)
	states := []State{Down, Failing, Ready, Unknown, Ready}
	for i, s := range states {
		be := newBackend(netip.AddrPortFrom(first.Addr(), uint16(i)), uint64(i), nil)
		be.state = s
		b.backends = append(b.backends, be)
	}
	b.backends[2].dialing = 3
	var tried []*backend
	var got []uint16
	for be := b.candidate(nil); be != nil; be = b.candidate(tried) {
		tried = append(tried, be)
		got = append(got, be.address.Port())
	}
	if want := []uint16{4, 2, 1, 3, 0}; !slices.Equal(got, want) {
		t.Errorf("tried %v, want %v", got, want)
	}
}

func TestEmptyListIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saved [][]netip.AddrPort
		lists := make(follower)
		b, stop := watched(t, Options{
			Seeds: []netip.AddrPort{first}, Cached: []netip.AddrPort{first, second},
			Save:   func(list []netip.AddrPort) error { saved = append(saved, list); return errors.New("disk full") },
			Follow: lists.follow,
		}, healthy)
		defer stop()
		expect := func(source Source, want ...netip.AddrPort) {
			t.Helper()
			synctest.Wait()
			s := b.Status()
			var got []netip.AddrPort
			for _, be := range s.Backends {
				got = append(got, be.Address)
			}
			if !slices.Equal(got, want) || s.Source != source {
				t.Errorf("%v from %s, want %v from %s", got, s.Source, want, source)
			}
		}
		expect(FromNode, first, second)
		lists <- nil
		expect(FromNode, first, second)
		lists <- []netip.AddrPort{third, second}
		expect(FromCluster, second, third)
		lists <- []netip.AddrPort{second, third}
		lists <- []netip.AddrPort{}
		expect(FromCluster, second, third)
		if len(saved) != 1 {
			t.Errorf("saved %v", saved)
		}
	})
}
