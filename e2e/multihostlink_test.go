//go:build e2e

package e2e

import (
	"testing"
	"time"
)

// TestMultiHostLink makes a cluster from outside of the site, over a link of 1 MB/s that is cut ten times at random moments.
func TestMultiHostLink(t *testing.T) {
	m := newMultihost(t, "e2e-multilink", 1, 2)
	m.describe(t, "", nil)
	thin := fileSize(t, thinFile(t, *bundlePath))
	want := fileSize(t, *bundlePath) + int64(len(m.nodes))*thin
	if err := m.driver.Limit(t.Context(), linkRate); err != nil {
		t.Fatal(err)
	}
	sent, began := transmitted(t, m.driver), time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cutLink(t, m.driver, time.Duration(want/linkRate)*time.Second)
	}()
	m.cluster(t, 0, "apply", "--yes")
	took := time.Since(began)
	<-ended
	n := transmitted(t, m.driver) - sent
	t.Logf("the driver sent %d bytes for %d of the file and %d thin files, %.3f of them, with %d cuts, in %s", n, want, len(m.nodes), float64(n)/float64(want), cuts, took.Round(time.Second))
	// 5 % for headers and SSH; sshd confirms up to 2 MiB before they are in the file.
	if limit := want + want/20 + cuts*2*resent; n > limit {
		t.Errorf("the driver sent %d bytes, more than %d", n, limit)
	}
	if err := m.driver.Limit(t.Context(), 0); err != nil {
		t.Error(err)
	}
	systemIsUp(t, m.Site, len(m.nodes))
	m.cluster(t, 0, "plan", "--detailed-exitcode")
}
