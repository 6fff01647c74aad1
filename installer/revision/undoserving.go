package revision

import (
	"context"
	"slices"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/installer/phases"
	"airlift/installer/profile"
	"airlift/installer/serving"
	"airlift/internal/fault"
)

// stopServing stops the approval of serving certificates of kubelets if the change started it. resumes reports whether the change
// stopped it: then it starts when its files are restored.
func (u *Undo) stopServing(ctx context.Context) (resumes bool, err error) {
	if !slices.Contains(u.paths, serving.UnitPath) {
		return false, nil
	}
	former, err := u.former.Read(serving.UnitPath)
	if err != nil || former != nil {
		return former != nil, err
	}
	return false, phases.StopServing(ctx, u.Machine)
}

// checkServing refuses to let this kubelet have no signed certificate while API servers verify it.
func (u *Undo) checkServing(ctx context.Context) error {
	former, err := u.former.Read(config.KubeletConfigFile)
	if err != nil || former == nil || requestsServing(former) {
		return err
	}
	if now, err := u.Optional(config.KubeletConfigFile); err != nil || !requestsServing(now) {
		return err
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	if ok, err := u.reaches(ctx, client, false); err != nil || !ok {
		return err
	}
	stored, err := client.FetchConfig(ctx)
	if err != nil {
		return err
	}
	// API servers begin to verify in a later change. If that was undone, a control plane may not have followed the undo, which a worker cannot
	// see: it may not list the nodes.
	mayVerify := profile.SignsServing(&stored.Cluster) && stored.Cluster.Reconfiguration.Number > u.record.Number
	if !profile.VerifiesServing(&stored.Cluster) && !mayVerify {
		return nil
	}
	return fault.New(fault.Preflight, "API servers verify the certificates of kubelets, or may still do so, and after undo, the kubelet of this node would have no signed one: kubectl logs and exec would fail").
		Hint("take the profile away from the whole cluster, on a control plane: ./install reconfigure --profile " + profile.None)
}

// requestsServing reports whether a kubelet with this configuration requests a signed certificate.
func requestsServing(data []byte) bool {
	var c kubeletv1.KubeletConfiguration
	return yaml.Unmarshal(data, &c) == nil && c.ServerTLSBootstrap
}
