//go:build e2e

package e2e

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

const (
	linkRate = 1_000_000 // bytes per second
	cuts     = 10
	// resent is what may be sent again after a cut, in bytes.
	resent = 1 << 20
)

// TestEmbeddedRegistryLink joins a worker with a thin file, behind a link of 1 MB/s that is cut ten times at random moments.
func TestEmbeddedRegistryLink(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-embeddedlink", Hosts: 2})
	plane, worker := s.Hosts[0], s.Hosts[1]
	thin := thinFile(t, *bundlePath)
	run(t, worker, "rm", site.Installer)
	if _, err := worker.CopyIn(t.Context(), thin, site.Installer, 0o755); err != nil {
		t.Fatal(err)
	}
	join, err := site.JoinArgs(install(t, plane, 0, "init", "--embedded-registry"))
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Limit(t.Context(), linkRate); err != nil {
		t.Fatal(err)
	}
	rest := fileSize(t, *bundlePath) - fileSize(t, thin)
	was, began := received(t, worker), time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cutLink(t, worker, time.Duration(rest/linkRate)*time.Second)
	}()
	install(t, worker, 0, join...)
	took := time.Since(began)
	<-ended
	n := received(t, worker) - was
	t.Logf("the worker received %d bytes of %d that the thin file does not have, %.3f of them, with %d cuts, in %s", n, rest, float64(n)/float64(rest), cuts, took.Round(time.Second))
	// 5 % for the headers of TCP and TLS, and the API.
	if limit := rest + rest/20 + cuts*resent; n > limit {
		t.Errorf("the worker received %d bytes, more than %d", n, limit)
	}
	if err := worker.Limit(t.Context(), 0); err != nil {
		t.Error(err)
	}
	systemIsUp(t, s, 2)
}

// cutLink cuts a host's link at random moments of a transfer that takes about so long, each time for some seconds.
func cutLink(t *testing.T, h *lab.Host, transfer time.Duration) {
	for range cuts {
		pause := time.Duration(rand.Int64N(int64(transfer / cuts)))
		for _, step := range []struct {
			after time.Duration
			do    func(context.Context) error
		}{{pause, h.Unplug}, {time.Second + rand.N(5*time.Second), h.Plug}} {
			select {
			case <-time.After(step.after):
			case <-t.Context().Done():
				return
			}
			if err := step.do(t.Context()); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(transfer/cuts - pause)
	}
}
