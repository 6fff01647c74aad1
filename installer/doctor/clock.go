package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"airlift/installer/cluster"
	"airlift/installer/cluster/discovery"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/pki"
)

// clockTolerance is a difference between clocks that may come from the measurement: the API
// server reports whole seconds, and a kubelet renews its lease every ten.
const clockTolerance = 30 * time.Second

// clocks compares this host's clock with others.
type clocks struct {
	client *cluster.Client // nil if the API server does not answer

	here         time.Time
	synchronized bool
	// api is how far the API server's clock is ahead of this host's.
	api    time.Duration
	apiErr error
	// nodes are how far other nodes' clocks are ahead of the API server's, if that is more
	// than the tolerance.
	nodes map[string]time.Duration
	// later is something on this host that is from a later time than now, and that time.
	later   string
	laterAt time.Time
}

func (d *Doctor) readClocks(ctx context.Context) clocks {
	c := clocks{here: d.began, nodes: map[string]time.Duration{}}
	var timex unix.Timex
	state, err := unix.Adjtimex(&timex)
	c.synchronized = err == nil && state != unix.TIME_ERROR
	c.findLater(d.Host)
	client, err := d.Reader.Connect(ctx)
	if err != nil {
		c.apiErr = err
		return c
	}
	c.client = client
	there, err := discovery.ServerTime(ctx, client.Server)
	if err != nil {
		c.apiErr = err
		return c
	}
	c.api = time.Until(there).Round(time.Second)
	list, err := client.NodeClocks(ctx)
	if err != nil {
		return c // a worker may not list nodes
	}
	for _, n := range list {
		if ahead := n.Renewed.Sub(there).Round(time.Second); n.Ready && (ahead > clockTolerance || ahead < -clockTolerance-10*time.Second) {
			c.nodes[n.Node] = ahead
		}
	}
	return c
}

// findLater looks for times that must be in the past: the times of Airlift's files, and the start
// of the CA's validity.
func (c *clocks) findLater(h *host.Host) {
	see := func(what string, at time.Time) {
		if at.After(c.here.Add(clockTolerance)) && at.After(c.laterAt) {
			c.later, c.laterAt = what, at
		}
	}
	for _, path := range []string{ledger.Path, ledger.StateDir + "/runs.json", config.KubeletConfigFile, config.KubernetesDir + "/kubelet.conf"} {
		if info, err := os.Stat(h.Path(path)); err == nil {
			see(path+" was written", info.ModTime())
		}
	}
	data, err := os.ReadFile(h.Path(config.CACertPath))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if certs, err := pki.ParseCertificates(data); err == nil {
		see("the cluster's CA was created", certs[0].NotBefore)
	}
}

func (c clocks) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "this host: %s\nsynchronized with a time server, by the kernel: %t\n", c.here.UTC().Format(time.RFC3339), c.synchronized)
	if c.apiErr != nil {
		fmt.Fprintf(&b, "API server: unknown: %v\n", c.apiErr)
	} else {
		fmt.Fprintf(&b, "API server: %s\n", ahead(c.api))
	}
	for node, by := range c.nodes {
		fmt.Fprintf(&b, "node %s, compared with the API server: %s\n", node, ahead(by))
	}
	if c.later != "" {
		fmt.Fprintf(&b, "%s at %s, which is in the future\n", c.later, c.laterAt.UTC().Format(time.RFC3339))
	}
	return b.String()
}

// ahead describes a difference.
func ahead(by time.Duration) string {
	if by < 0 {
		return "its clock is " + (-by).String() + " behind"
	}
	return "its clock is " + by.String() + " ahead"
}
