package revision

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/desired"
	"airlift/installer/render"
)

// KeepObjects records the objects for undo, before the first of them changes.
func (r *Revision) KeepObjects(ctx context.Context) error {
	if err := r.Begin(); err != nil {
		return err
	}
	if len(r.Record.Objects) > 0 {
		return nil
	}
	for _, name := range r.Change.Objects() {
		data, err := r.API.Client.ReadObject(ctx, name)
		if err != nil {
			return err
		}
		if data != nil {
			r.Record.Objects = append(r.Record.Objects, data)
		}
	}
	return r.WriteRecord()
}

// Store applies objects, after it has kept what they replace.
func (r *Revision) Store(ctx context.Context, l desired.List) error {
	if len(l.Objects) == 0 {
		return nil
	}
	if work, err := r.Remains(); err != nil {
		return err
	} else if work {
		if err := r.KeepObjects(ctx); err != nil {
			return err
		}
	}
	return r.API.Apply(ctx, l)
}

// ClusterConfiguration returns the ClusterConfiguration.
func (r *Revision) ClusterConfiguration(context.Context) (desired.List, error) {
	objects, err := render.UploadClusterConfig(r.Config)
	return desired.List{Objects: objects}, err
}

// KubeletConfiguration returns the KubeletConfiguration if the cluster's has only defaults. A
// configuration that a user changed is kept.
func (r *Revision) KubeletConfiguration(context.Context) (desired.List, error) {
	objects, err := render.UploadKubeletConfig(r.Config)
	if err == nil && !r.Stored.DefaultKubelet && r.Config.Kubelet == nil {
		r.Console.Debug(1, "ConfigMap kube-system/kubelet-config was changed by the user: it is kept")
		objects = withoutConfigMaps(objects)
	}
	return desired.List{Objects: objects}, err
}

func withoutConfigMaps(objects []runtime.Object) []runtime.Object {
	return slices.DeleteFunc(objects, func(o runtime.Object) bool {
		_, is := o.(*corev1.ConfigMap)
		return is
	})
}

// JoinRules returns what joining nodes may do. The ConfigMap cluster-info is not changed.
func (r *Revision) JoinRules(context.Context) (desired.List, error) {
	return desired.List{Objects: append(render.BootstrapRBAC(r.Config), withoutConfigMaps(render.ClusterInfo(r.Config, nil))...)}, nil
}
