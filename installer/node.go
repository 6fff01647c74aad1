package installer

import (
	"context"
	"strings"

	"airlift/fault"
	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/preflight"
)

// A node is this host on its way into a cluster, as init and join share it.
type node struct {
	*machine
	plan *Plan
	// config is the plan's, with what the run has learned: about an existing
	// container runtime and, for join, about the cluster. It is replaced and
	// never changed.
	config *config.Config

	inspected  bool             // inspect has run
	rerun      bool             // an earlier run got at least to the certificates
	runtime    *existingRuntime // nil where the bundle's containerd is used
	runtimeErr error            // why the existing container runtime cannot be used
	containerd *store.Store     // connected when it runs
	// checkEarlier refuses an earlier run that this one cannot continue.
	checkEarlier func(context.Context) error
}

func newNode(p *Plan, m *machine) *node {
	return &node{machine: m, plan: p, config: p.config, checkEarlier: func(context.Context) error { return nil }}
}

// close ends the connection to containerd.
func (n *node) close() {
	if n.containerd != nil {
		_ = n.containerd.Close()
	}
}

// inspect finds out what is on this host already. The first step that needs to
// know calls it, because preflight may be skipped.
func (n *node) inspect(ctx context.Context) error {
	if n.inspected {
		return nil
	}
	if err := n.findEarlierRun(); err != nil {
		return err
	}
	if err := n.checkEarlier(ctx); err != nil {
		return err
	}
	n.runtimeErr = n.detectRuntime(ctx)
	n.inspected = true
	return nil
}

// findEarlierRun finds out whether this host is already what it is to become,
// wholly or in part, and refuses to turn a worker into a control plane or a
// control plane into a worker.
func (n *node) findEarlierRun() error {
	controlPlane := fileExists(n.existing, adminConf)
	worker := !controlPlane && (fileExists(n.existing, kubeletConf) || fileExists(n.existing, bootstrapConf))
	is, want := controlPlane, "a control plane"
	if !n.plan.controlPlane {
		is, want = worker, "a worker"
	}
	if n.existing.Used() && (controlPlane || worker) && !is {
		other := "a control plane"
		if worker {
			other = "a worker of a cluster"
		}
		return fault.New(fault.Preflight, "./install reset --force makes it a bare host again; on a control plane that ends its cluster",
			"this host is %s already and cannot become %s", other, want)
	}
	n.rerun = n.existing.Used() && is
	return nil
}

// ready waits for the check of the bundle file and inspects the host: nothing
// is changed before that.
func (n *node) ready(ctx context.Context) error {
	if err := n.plan.bundle.checked(ctx, n.console); err != nil { // preflight may be skipped
		return err
	}
	if err := n.inspect(ctx); err != nil {
		return err
	}
	return n.runtimeErr
}

// binaries are those that the bundle installs on this host.
func (n *node) binaries() []host.Binary {
	var list []host.Binary
	for _, e := range n.plan.bundle.manifest.Entries {
		if path := binaryPath(e.Name); path != "" && n.wantsBinary(e.Name) {
			list = append(list, host.Binary{Path: path, SHA256: e.SHA256})
		}
	}
	return list
}

func (n *node) wantsBinary(entry string) bool { return n.plan.wantsBinary(entry, n.runtime != nil) }

// claim records in the ledger what Kubernetes and containerd are about to fill. A
// directory that is not empty is refused, unless the user ignores its check:
// then it is used, and reset leaves it.
func (n *node) claim(claims ...host.Claim) error {
	for _, c := range claims {
		err := n.host.Claim(c)
		if err != nil && preflight.Ignored(c.Check(), n.config.NodeRegistration.IgnorePreflightErrors) {
			err = n.host.Spare(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// claims are all directories that Kubernetes and containerd fill on this node.
func (n *node) claims() []host.Claim {
	return host.Claims(n.config, n.plan.controlPlane, n.runtime == nil)
}

// claimEtcd claims etcd's data directory, for a phase that runs alone.
func (n *node) claimEtcd() error {
	for _, c := range n.claims() {
		if c.Holds == host.EtcdData {
			return n.claim(c)
		}
	}
	return nil
}

// claimKubeletCertDir records the kubelet's --cert-dir where it is elsewhere and
// does not exist yet: the kubelet puts rotated certificates there, which reset
// has to remove.
func (n *node) claimKubeletCertDir() error {
	dir := n.config.NodeRegistration.KubeletCertDir()
	if strings.HasPrefix(dir, config.KubeletDir+"/") || n.exists(dir) {
		return nil
	}
	return n.host.Claim(host.Claim{Path: dir, Holds: "the kubelet's certificates"})
}
