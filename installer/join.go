package installer

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/render"
)

// Join lists the steps that make this host a node of an existing cluster: a
// worker, or another control plane. Without a Config it lists both's.
//
// kubeadm has moved its phases between versions: etcd is joined by
// control-plane-join/etcd up to v1.32, and by etcd-join, while the kubelet is
// still asking for its certificate, later. Here it is always done at the
// latter's place, and either name runs it and skips it.
func (n *Node) Join() []Step {
	n.role = preflight.Join
	if n.Config == nil || n.Config.ControlPlane {
		n.role = preflight.JoinControlPlane
	}
	components := []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	control := func(s Step) []Step {
		if n.role == preflight.Join {
			return nil
		}
		return []Step{s}
	}
	// The cluster's DaemonSets have pods for this node as soon as it is known. The
	// kubelet would try to pull an image that is not there yet, and wait for longer
	// each time before it looks again: up to minutes.
	images, doc := []string{"pause", "kube-proxy", "flannel"}, "import the images a worker needs"
	if n.role != preflight.Join {
		images, doc = append(append(images, "etcd"), components...), "import the control plane's images"
	}
	return slices.Concat(
		[]Step{
			{Name: "preflight", Doc: "check this host", Run: n.joinPreflight},
			{Name: "discovery", Doc: "find the cluster and check that it is the right one", Run: n.discovery, Needed: true},
			{Name: "unpack", Doc: "install the programs from the bundle", Run: n.unpack, Needed: true},
			{Name: "runtime", Doc: "prepare the kernel and start containerd", Run: n.withCluster(n.runtime), Needed: true},
		},
		control(Step{Name: "control-plane-prepare", Doc: "prepare the control plane", Steps: []Step{
			{Name: "download-certs", Doc: "download the certificates that all control planes share", Run: n.withCluster(n.downloadCerts)},
			{Name: "certs", Doc: "make this node's certificates", Run: n.withCluster(n.joinCerts)},
			{Name: "kubeconfig", Doc: "make the kubeconfig files", Run: n.withCluster(n.kubeconfig("admin", "controller-manager", "scheduler"))},
			{Name: "control-plane", Doc: "write the control plane's static pods", Run: n.withCluster(n.controlPlane())},
		}}),
		control(Step{Name: "check-etcd", Doc: "check that the cluster's etcd is healthy", Run: n.withCluster(n.checkEtcd)}),
		[]Step{
			{Name: "images", Doc: doc, Run: n.waitImages(images...)},
			{Name: "kubelet-start", Doc: "start the kubelet", Run: n.withCluster(n.joinKubelet)},
		},
		control(Step{Name: "etcd-join", Doc: "join etcd", Run: n.withCluster(n.joinEtcd)}),
		[]Step{
			{Name: "kubelet-wait-bootstrap", Doc: "wait for the kubelet's certificate and its node", Run: n.withCluster(n.waitBootstrap)},
		},
		control(Step{Name: "control-plane-join", Doc: "make the node a control plane", Steps: []Step{
			{Name: "etcd", Doc: "join etcd, unless etcd-join has", Run: n.withCluster(n.joinEtcd)},
			{Name: "update-status", Doc: "nothing since v1.22, where the ClusterStatus is no more", Run: n.updateStatus},
			{Name: "mark-control-plane", Doc: "label and taint this node", Run: n.withCluster(n.markJoined)},
		}}),
		control(Step{Name: "wait-control-plane", Doc: "wait for a healthy control plane", Run: n.withCluster(n.waitJoinedControlPlane)}),
		[]Step{
			{Name: "pod-network", Doc: "connect to the pod network", Run: n.withCluster(n.podNetwork)},
			{Name: "wait-node", Doc: "wait until the node is Ready", Run: n.withCluster(n.waitJoined)},
		},
	)
}

// RunJoin runs them. A phase that only control planes have may be skipped on a
// worker too, as in kubeadm.
func (n *Node) RunJoin(ctx context.Context) error {
	steps, all := n.Join(), new(Node).Join()
	skip := slices.DeleteFunc(slices.Clone(n.Config.SkipPhases), func(name string) bool {
		_, here := find(steps, name)
		_, known := find(all, name)
		return known && !here
	})
	return Run(ctx, n.Console, steps, skip)
}

// joinPreflight also learns about the cluster first, where it decides what a
// control plane needs. What is wrong with the host is said all the same when
// the cluster cannot be found.
func (n *Node) joinPreflight(ctx context.Context) error {
	if n.role == preflight.Join {
		return n.preflight(ctx)
	}
	lost := n.needCluster(ctx)
	if ctx.Err() != nil {
		return lost
	}
	if err := n.preflight(ctx); err != nil {
		if lost != nil {
			n.Console.Warn("%s", lost)
		}
		return err
	}
	return lost
}

// joinKubelet starts the kubelet with what it gets its certificate with.
func (n *Node) joinKubelet(ctx context.Context) error {
	if n.Single {
		if err := n.checkNodeName(ctx); err != nil {
			return err
		}
	}
	if err := n.writeBootstrap(); err != nil {
		return err
	}
	if err := n.startKubelet(ctx, n.kubelet, n.role == preflight.Join); err != nil {
		return err
	}
	if n.Single && !n.localBootstrap() { // there the phase includes the wait
		return n.waitBootstrap(ctx)
	}
	return nil
}

// writeBootstrap writes the kubelet's credentials for its TLS bootstrap,
// unless it has its own already.
func (n *Node) writeBootstrap() error {
	var files []pki.File
	// The first is where kubelets of this cluster look for it.
	places := []string{path.Join(n.Config.CertificatesDir, "ca.crt"), n.Config.CACertPath}
	for _, ca := range slices.Compact(places) {
		if !n.exists(ca) || n.role == preflight.Join {
			files = append(files, pki.File{Path: ca, Data: n.found.CA, Mode: 0o644})
		}
	}
	if !n.exists(kubeletConf) {
		kubeconfig := n.found.Kubeconfig
		if n.localBootstrap() {
			var err error
			if kubeconfig, err = cluster.WithServer(kubeconfig, n.Config.LocalURL()); err != nil {
				return err
			}
		}
		files = append(files, pki.File{Path: bootstrapConf, Data: kubeconfig, Mode: 0o600})
	}
	return n.write(files...)
}

// localBootstrap says whether this host's kubelet is to use the API server
// beside it, whose etcd has to be joined before it can get a certificate.
func (n *Node) localBootstrap() bool {
	return n.role != preflight.Join && n.Config.ControlPlaneKubeletLocalMode()
}

// waitBootstrap waits until the kubelet has its certificate and its node.
func (n *Node) waitBootstrap(ctx context.Context) error {
	server := n.found.Server
	if n.localBootstrap() {
		server = n.Config.LocalURL()
	}
	own, err := cluster.WaitForKubeconfig(ctx, n.Host.Path(kubeletConf), server, cmp.Or(n.Config.Timeouts.TLSBootstrap, nodeTimeout), n.report)
	if err != nil {
		return err
	}
	if n.exists(bootstrapConf) {
		if err := n.Host.Remove(bootstrapConf); err != nil {
			return err
		}
	}
	if n.client == nil { // a worker's
		n.client = own
		n.client.SetTimeout(n.Config.Timeouts.KubernetesAPICall)
	}
	if err := n.waitKubelet(ctx); err != nil {
		return err
	}
	if err := n.registered(ctx); err != nil {
		return err
	}
	return n.placeHeld()
}

// registered waits until the kubelet has registered the node, and notes there
// which container runtime it uses.
func (n *Node) registered(ctx context.Context) error {
	node := n.Config.NodeRegistration
	if err := n.client.WaitForNode(ctx, node.Name, nodeTimeout, n.report); err != nil {
		return err
	}
	if n.Config.NodeLocalCRISocket() {
		return nil
	}
	changed, err := n.client.AnnotateCRISocket(ctx, node.Name, node.CRISocket)
	n.changed(changed)
	return err
}

func (n *Node) waitJoined(ctx context.Context) error {
	if err := n.waitNode(ctx); err != nil {
		return err
	}
	switch {
	case n.changes == 0:
		n.Console.Summary("This host is already a node of the cluster. Nothing was changed.\n")
	case n.role == preflight.Join:
		n.Console.Summary("This host is now a node of the cluster. See it from a control plane:\n\n    kubectl get nodes\n")
	default:
		n.Console.Summary("This host is now a control plane of the cluster. Use it as root:\n\n    export KUBECONFIG=" + adminConf + "\n    kubectl get nodes\n")
	}
	return nil
}

// dryJoin is what of Join can be done without touching host or cluster.
func (n *Node) dryJoin() []Step {
	real := n.Join()
	var steps []Step
	for _, s := range real {
		switch s.Name {
		case "preflight":
			check := s.Run
			s.Run = func(ctx context.Context) error {
				folder := n.Host
				n.Host = n.before
				defer func() { n.Host = folder }()
				return check(ctx)
			}
		case "discovery", "control-plane-prepare":
		case "runtime":
			s.Run = func(context.Context) error { return n.writeContainerd() }
		case "kubelet-start":
			s.Run = n.withCluster(func(context.Context) error {
				if err := n.writeBootstrap(); err != nil {
					return err
				}
				return n.writeKubelet(n.kubelet, n.role == preflight.Join)
			})
		case "etcd-join":
			s.Run = n.withCluster(n.dryEtcd)
		default:
			continue
		}
		steps = append(steps, s)
	}
	return steps
}

// DryRunJoin writes the host's files that join would write into a new folder.
func (n *Node) DryRunJoin(ctx context.Context) error {
	return n.dryRun(ctx, "join", func() error {
		steps := n.dryJoin()
		skip := slices.DeleteFunc(slices.Clone(n.Config.SkipPhases), func(name string) bool {
			_, ok := find(steps, name)
			return !ok
		})
		return Run(ctx, n.Console, steps, skip)
	})
}

// DryRunJoinPhase does the same for one of join's phases.
func (n *Node) DryRunJoinPhase(ctx context.Context, phase string) error {
	steps := n.dryJoin()
	if _, ok := find(steps, strings.TrimSuffix(phase, "/all")); !ok {
		n.Console.Summary("The phase " + phase + " writes no files: with --dry-run it does nothing.\n")
		n.Console.close()
		return nil
	}
	return n.dryRun(ctx, "join-phase", func() error { return RunPhase(ctx, n.Console, steps, phase) })
}

// dryEtcd writes the static pod as if the cluster had no other member: who they
// are is known only to etcd.
func (n *Node) dryEtcd(context.Context) error {
	if n.Config.Etcd.External != nil {
		return nil
	}
	n.Console.Note("--initial-cluster will also name the members that there are")
	pod, err := render.Etcd(n.Config, render.EtcdMember{Name: n.Config.NodeRegistration.Name, PeerURL: render.EtcdPeerURL(n.Config)})
	if err != nil {
		return err
	}
	return n.writeManifest(pod)
}

// updateStatus is in the list for its name.
func (n *Node) updateStatus(context.Context) error { return nil }
