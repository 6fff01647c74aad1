package reconfigure

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/preflight"
	"airlift/installer/profile"
	"airlift/installer/serving"
)

// verificationPart is in a change that lets API servers verify kubelets, or lets kubelets have no signed certificates any more: the second
// run of two. A run that continues it is a second one, too, whatever the nodes answer then.
const verificationPart = "verification of kubelets"

// inTwoRuns makes sure that no API server verifies a kubelet that has no signed certificate. All nodes cannot change at once, so in a
// first run, kubelets get certificates, or API servers stop verifying them. initial is the configuration before this change.
func (r *Reconfigure) inTwoRuns(ctx context.Context, own, initial *config.Config, stored *cluster.Stored) (err error) {
	r.second, r.waits, r.ends = false, nil, false
	was, is := &stored.Cluster, &own.Cluster
	begins := profile.VerifiesServing(is) && !profile.VerifiesServing(was)
	ends := profile.SignsServing(was) && !profile.SignsServing(is)
	if !begins && !ends {
		return nil
	}
	r.ends = ends
	switch {
	case r.Unfinished():
		r.second = slices.Contains(r.Record.Parts, verificationPart)
	case profile.SignsServing(was) && !profile.VerifiesServing(was):
		if r.waits, err = r.verificationWaits(ctx, own, stored, begins); err != nil {
			return err
		}
		r.second = len(r.waits) == 0
	}
	if r.second {
		return nil
	}
	if ends {
		r.waits = append(r.waits, "API servers stop verifying them first, on all control planes")
		*own = *initial
	} else {
		r.waits = append(r.waits, "all kubelets get one first")
	}
	profile.DeferVerification(&own.Cluster)
	return nil
}

// verificationWaits returns what the second run has to wait for.
func (r *Reconfigure) verificationWaits(ctx context.Context, own *config.Config, stored *cluster.Stored, begins bool) (reasons []string, err error) {
	nodes, err := r.API.Client.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	if !begins {
		for _, name := range cluster.Behind(stored.Cluster.Reconfiguration, nodes, "") {
			reasons = append(reasons, name+" may still verify them: it has not followed the last change")
		}
		return reasons, nil
	}
	ca, err := fs.ReadFile(r.Files(), strings.TrimPrefix(path.Join(own.CertificatesDir, "ca.crt"), "/"))
	if err != nil {
		return nil, fmt.Errorf("reading the CA of the cluster: %w", err)
	}
	return serving.Unverified(ctx, ca, nodes), nil
}

// verificationWarnings names what another run has to change.
func (r *Reconfigure) verificationWarnings() (list []preflight.Problem) {
	if len(r.waits) == 0 {
		return nil
	}
	does := "API servers verify the certificates of kubelets only after another run"
	if r.ends {
		does = "kubelets lose their signed certificates, and the cluster the profile if it is taken away, only after another run"
	}
	return []preflight.Problem{{Name: "KubeletCertificates", Message: does + ": " + strings.Join(r.waits, "; "),
		Fix: "let the other nodes follow: ./install reconfigure node; then run the same command again"}}
}

// approval returns the permissions of the process that approves serving certificates, and the record of the nodes that joined before.
func (r *Reconfigure) approval(ctx context.Context) (l desired.List, err error) {
	if profile.SignsServing(&r.former.Cluster) || !profile.SignsServing(&r.Config.Cluster) {
		return l, nil
	}
	l.Objects, err = serving.For(r.Config).ObjectsFor(ctx, r.API.Client, r.Files())
	return l, err
}

// approver returns the files of that process on this control plane, nothing if it has them.
func (r *Reconfigure) approver(ctx context.Context) (l desired.List, err error) {
	if !r.IsControlPlane() {
		return l, nil
	}
	if r.exists(serving.UnitPath) {
		if !r.Unfinished() {
			return l, nil
		}
		kept, err := r.Record.Kept(r.Host).Paths()
		if err != nil || !slices.Contains(kept, serving.UnitPath) {
			return l, err
		}
	}
	return r.ServingFiles(ctx)
}

// switchApprover starts the process, or stops it where the cluster does not sign these certificates any more.
func (r *Reconfigure) switchApprover(ctx context.Context, l desired.List) error {
	stops, err := r.stopsApprover()
	if err != nil || len(l.Files) == 0 && !stops {
		return err
	}
	for _, file := range []string{serving.SettingsPath, serving.UnitPath} {
		if err := r.Keep(file); err != nil {
			return err
		}
	}
	if stops {
		return phases.StopServing(ctx, r.Machine)
	}
	return r.StartServing(ctx, l)
}

// stopsApprover reports whether the process is to stop: no kubelet requests such a certificate any more.
func (r *Reconfigure) stopsApprover() (bool, error) {
	if profile.SignsServing(&r.Config.Cluster) || !r.IsControlPlane() || !r.exists(serving.UnitPath) && !r.exists(serving.SettingsPath) {
		return false, nil
	}
	shared, err := r.SharedKubelet(r.Config)
	if err != nil {
		return false, err
	}
	var kubelet kubeletv1.KubeletConfiguration
	err = yaml.Unmarshal(shared, &kubelet)
	return !kubelet.ServerTLSBootstrap, err
}

// settleServing waits until the kubelet, which was restarted, has the certificate that it requests.
func (r *Reconfigure) settleServing(ctx context.Context) error {
	settings, err := node.KubeletConfiguration(r.Existing)
	if err != nil {
		return err
	}
	if settings.ServerTLSBootstrap {
		return r.WaitServing(ctx)
	}
	return phases.DropServing(r.Machine)
}
