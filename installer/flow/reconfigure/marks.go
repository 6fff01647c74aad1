package reconfigure

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/preflight"
	"airlift/installer/upgradecheck"
	"airlift/internal/fault"
)

// setMarks gives this node the labels and taints of the user's InitConfiguration: its taints, and the labels in the kubelet's
// argument node-labels, which the kubelet itself sets only when it registers.
func (r *Reconfigure) setMarks(ctx context.Context) error {
	before, meta, changes, err := r.wantedMarks(ctx)
	if err != nil || len(changes) == 0 {
		return err
	}
	if err := r.keepMarks(before); err != nil {
		return err
	}
	changes, err = r.API.Client.NodeObjects().SetMeta(ctx, meta, false)
	for _, one := range changes {
		r.Console.Note("%s", one)
	}
	r.Changed(len(changes) > 0)
	return r.explainMarks(err)
}

// wantedMarks returns the labels and taints that this node has and is to have, and what changes.
func (r *Reconfigure) wantedMarks(ctx context.Context) (before *cluster.Marks, meta cluster.NodeMeta, changes []string, err error) {
	given := r.options.Given
	taints := given.Has("InitConfiguration.nodeRegistration.taints")
	text, labels := config.LastArg(r.options.Given.Values().NodeRegistration.KubeletExtraArgs, "node-labels")
	if !taints && !labels {
		return nil, meta, nil, nil
	}
	objects, name := r.API.Client.NodeObjects(), r.Config.NodeRegistration.Name
	if before, err = objects.Marks(ctx, name); err != nil {
		return nil, meta, nil, err
	}
	meta = before.Meta(name)
	if taints {
		meta.Taints = []string{}
		for _, t := range given.Values().NodeRegistration.Taints {
			meta.Taints = append(meta.Taints, t.ToString())
		}
	}
	if labels {
		meta.Labels = map[string]string{}
		for one := range strings.SplitSeq(text, ",") {
			if key, value, ok := strings.Cut(one, "="); ok {
				meta.Labels[key] = value
			}
		}
	}
	changes, err = objects.SetMeta(ctx, meta, true)
	return before, meta, changes, r.explainMarks(err)
}

// checkTaints refuses a change of taints that the kubelet of a worker may not make, before something else is changed.
func (r *Reconfigure) checkTaints(ctx context.Context, _ *upgradecheck.Target) ([]preflight.Problem, error) {
	if r.IsControlPlane() || r.options.Kubeconfig != "" {
		return nil, nil
	}
	_, _, changes, err := r.wantedMarks(ctx)
	if err != nil || !slices.ContainsFunc(changes, changesTaint) {
		return nil, err
	}
	return []preflight.Problem{{Name: "Taints", Message: "the kubelet of a worker may not change the taints of its node: " + strings.Join(changes, ", "),
		Fix: "give an administrator's kubeconfig: --kubeconfig FILE; or remove the taints from the file, and change them on a control plane: kubectl taint"}}, nil
}

// changesTaint reports whether a change that SetMeta returns is one of a taint.
func changesTaint(change string) bool {
	return strings.HasPrefix(strings.TrimLeft(change, "+-"), "taint ")
}

// keepMarks records the labels and taints for undo, before they change.
func (r *Reconfigure) keepMarks(before *cluster.Marks) error {
	if err := r.Begin(); err != nil || r.Record.Marks != nil {
		return err
	}
	r.Record.Marks = before
	return r.WriteRecord()
}

// explainMarks adds a hint to the error of a kubelet, which may not change the taints of its node.
func (r *Reconfigure) explainMarks(err error) error {
	if err != nil && apierrors.IsForbidden(err) && !r.IsControlPlane() {
		return fault.Wrap(err, fault.Failure, "the kubelet of a worker may not do that: give an administrator's kubeconfig with --kubeconfig; or, on a control plane: kubectl taint, kubectl label")
	}
	return err
}
