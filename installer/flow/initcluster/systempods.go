package initcluster

import (
	"context"
	"slices"
	"time"

	"airlift/installer/cluster/workloads"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pods"
)

// A systemPods waits for the pods of all components that init installs.
type systemPods struct {
	*node.Machine
	node *phases.Node
	api  *phases.API
	// onlyThisNode waits only for the pods of this node: others may be lost.
	onlyThisNode bool
	written      time.Time // when the kubelet had the static pods of etcd and the API server
}

// wait waits until the node is Ready and its pods run.
func (s *systemPods) wait(ctx context.Context) error {
	if err := s.api.WaitNode(ctx); err != nil {
		return err
	}
	if s.node.Config.CNI == "none" {
		return nil
	}
	if s.node.Plan.Skips("addon/kube-proxy") || s.node.Config.Proxy.Disabled {
		s.Console.Note("not waiting for pods: without kube-proxy, they cannot reach Services")
		return nil
	}
	namespaces := []string{"kube-system"}
	if s.node.Config.CNI == "flannel" {
		namespaces = append(namespaces, "kube-flannel")
	}
	want := workloads.Pods{Namespaces: namespaces, Names: s.staticPodNames()}
	if s.onlyThisNode {
		want.Node = s.node.Config.NodeRegistration.Name
	}
	if !s.node.Config.DNS.Disabled && !s.node.Plan.Skips("addon/coredns") {
		want.Service = "kube-system/kube-dns"
	}
	// The kubelet retries a mirror pod slowly. If the API server was not ready
	// in time, a restart of the kubelet creates the missing mirror pods.
	want.MissingAfter = max(5*time.Second, time.Until(s.written.Add(15*time.Second)))
	want.OnMissing = func() error {
		s.Console.Debug(1, "restarting the kubelet, so that it creates the mirror pods of the static pods")
		return s.Host.Systemd().Restart(ctx, "kubelet.service")
	}
	shown := map[string]bool{}
	want.OnProblem = func(problem string) {
		if !shown[problem] {
			s.Console.Warn("%s", problem)
		}
		shown[problem] = true
	}
	needs := pods.Dependency{Components: systemContainers, APIAnswers: s.apiAnswers}
	return s.node.Watch.Watched(ctx, needs, func(ctx context.Context) error {
		return workloads.WaitForPods(ctx, s.api.Client.API, want, phases.NodeTimeout, s.Report)
	})
}

// apiAnswers reports whether the API server answers at its own address and at the
// control-plane endpoint, which its clients on this host use.
func (s *systemPods) apiAnswers(ctx context.Context) bool {
	shared, err := node.LoadClient(s.Host, node.AdminConf, "", s.node.Config.Timeouts.KubernetesAPICall)
	return err == nil && s.api.Client.Answers(ctx) && shared.Answers(ctx)
}

// systemContainers are the containers of all components that Airlift installs.
var systemContainers = slices.Concat(pods.APIComponents, node.ControlPlaneComponents[1:], []string{"kube-proxy", "kube-flannel", "coredns"})

// staticPodNames returns the names of this control plane's static pods in the
// API. kubeadm join looks for etcd's.
func (s *systemPods) staticPodNames() []string {
	components := slices.Clone(node.ControlPlaneComponents)
	if s.node.Config.Etcd.External == nil {
		components = append(components, "etcd")
	}
	for k, c := range components {
		components[k] = "kube-system/" + c + "-" + s.node.Config.NodeRegistration.Name
	}
	return components
}
