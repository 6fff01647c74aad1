package revision

import (
	"context"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/cluster"
	"airlift/installer/node"
	"airlift/installer/redact"
	"airlift/installer/workflow"
)

// A Difference is a file of this host or an object of the cluster that a revision changes.
type Difference struct {
	Name string `json:"name"` // a path, or "ConfigMap kube-system/kubeadm-config"
	Diff string `json:"diff"` // unified; empty for a binary, a kubeconfig, and if only values differ that are not shown
	// Removed is set for a file that is removed.
	Removed bool `json:"removed,omitempty"`
}

// Differences lists what steps would change: the files of this host, and the objects of the cluster. lines is the number of lines
// around a change in a diff.
func (r *Revision) Differences(ctx context.Context, steps []workflow.Step, lines int) (list []Difference, err error) {
	add := func(name string, before, after []byte) {
		list = append(list, r.Differs(name, before, after, lines))
	}
	wants, err := workflow.Desired(ctx, steps)
	if err != nil {
		return nil, err
	}
	files, err := r.Differing(wants.Files...)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		add(f.Path, f.Now, f.Data)
	}
	objects, err := r.Compared(ctx, wants.Objects)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if o.Before != o.After {
			add(o.Name, []byte(o.Before), []byte(o.After))
		}
	}
	for _, b := range wants.Binaries {
		list = append(list, Difference{Name: b.Path})
	}
	return list, nil
}

// Differs returns what the revision changes in a file or an object.
func (r *Revision) Differs(name string, before, after []byte, lines int) Difference {
	return Difference{Name: name, Diff: r.Diff(name, name+" now", before, name+" after the "+string(r.Options.Kind), after, lines)}
}

// Diff returns what differs between two versions of a file or an object, with lines around it; "" for a secret.
func (r *Revision) Diff(name, from string, before []byte, to string, after []byte, lines int) string {
	if name == node.KubeletConf || strings.HasPrefix(name, "Secret ") || r.Change.IsSecret(name) { // the kubeconfig may contain a key
		return ""
	}
	form := redact.Documents
	if path.IsAbs(name) {
		form = redact.File(name)
	}
	return redact.Diff(form, redact.Version{Name: from, Text: before}, redact.Version{Name: to, Text: after}, lines)
}

// Compared returns the objects that would change, without the objects that the user of --kubeconfig may not read.
func (r *Revision) Compared(ctx context.Context, objects []runtime.Object) (list []*cluster.Difference, err error) {
	for _, o := range objects {
		d, err := r.API.Client.Compare(ctx, o)
		switch {
		case apierrors.IsForbidden(err):
			r.Console.Warn("%v", err)
		case err != nil:
			return nil, err
		case d != nil:
			list = append(list, d)
		}
	}
	return list, nil
}
