// Package site is an isolated site for the demo and the end-to-end tests: a lab's hosts with
// the bundle, and the commands of an operator there.
package site

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"

	"airlift/scripts/lab"
)

// Installer is the path of the bundle on a host.
const Installer = "/root/install"

// A Host runs commands as root: a host of the lab, or an emulated machine.
type Host interface {
	Exec(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, argv ...string) error
	Output(ctx context.Context, argv ...string) (string, error)
}

// A Cluster is what an administrator sees of a cluster.
type Cluster struct {
	Control Host // a control plane, with kubectl and admin.conf
	Nodes   int  // the number of nodes of the workload
	// Domain is the cluster's DNS domain, cluster.local if empty.
	Domain string
	// Slow multiplies the time limits of the workload; 1 if zero.
	Slow int
}

// A Site is a lab whose hosts have the bundle.
type Site struct {
	*lab.Lab
	Cluster
}

// New describes the cluster of a lab's hosts. The first host is the control plane.
func New(l *lab.Lab) *Site {
	return &Site{Lab: l, Cluster: Cluster{Control: l.Hosts[0], Nodes: len(l.Hosts)}}
}

// Up boots a lab's hosts. CopyBundle copies the bundle to them.
func Up(ctx context.Context, o lab.Options) (*Site, error) {
	l, err := lab.Up(ctx, o)
	if err != nil {
		return nil, err
	}
	return New(l), nil
}

// CopyBundle copies the bundle file to every host and returns its size in bytes.
func (s *Site) CopyBundle(ctx context.Context, bundle string) (size int64, err error) {
	for _, h := range s.Hosts {
		if size, err = h.CopyIn(ctx, bundle, Installer, 0o755); err != nil {
			return 0, err
		}
	}
	return size, nil
}

// Install runs the installer on a host. It writes both outputs to out as they come, and returns
// them.
func Install(ctx context.Context, h Host, out io.Writer, args ...string) (string, error) {
	var all bytes.Buffer
	w := io.MultiWriter(out, &all)
	err := h.Exec(ctx, nil, w, w, append([]string{Installer}, args...)...)
	return all.String(), err
}

var joinLine = regexp.MustCompile(`(?m)^\s*\./install (join \S+:\d+ --token \S+ --discovery-token-ca-cert-hash \S+)\s*$`)

// JoinArgs finds the join command in the output of init or token create.
func JoinArgs(output string) ([]string, error) {
	m := joinLine.FindStringSubmatch(output)
	if m == nil {
		return nil, fmt.Errorf("finding the join command: there is none in %q", output)
	}
	return strings.Fields(m[1]), nil
}

// Kubectl runs the bundle's kubectl as the administrator.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.Control.Output(ctx, append([]string{"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"}, args...)...)
}

// Apply sends a manifest to the cluster.
func (c *Cluster) Apply(ctx context.Context, manifest string) error {
	var stderr bytes.Buffer
	err := c.Control.Exec(ctx, strings.NewReader(manifest), io.Discard, &stderr,
		"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "apply", "-f", "-")
	if err != nil {
		return fmt.Errorf("applying a manifest: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return nil
}
