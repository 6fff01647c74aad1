package upgrade

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/phases"
	"airlift/installer/render"
	"airlift/installer/undo"
)

// objects are the configuration and the permissions in the cluster.
type objects struct {
	node   *phases.Node
	api    *phases.API
	facts  *knowledge
	record *record
	work   *work
}

// changedObjects are the objects that undo of a reconfiguration restores, by the part that changes them; "" changes in each.
var changedObjects = map[string][]cluster.ObjectName{
	"":          {undo.Objects[0], {APIVersion: "v1", Kind: "Secret", Namespace: "kube-system", Name: config.FilesSecret}},
	kubeletPart: {undo.Objects[1]},
	corednsPart: {undo.Objects[2], undo.Objects[4]},
	proxyPart:   {undo.Objects[3], undo.Objects[5]},
	flannelPart: {undo.Objects[6]},
}

// undone returns the objects that this run may change.
func (o *objects) undone() []cluster.ObjectName {
	if o.facts.change == nil {
		return undo.Objects
	}
	list := changedObjects[""]
	for _, part := range []string{kubeletPart, corednsPart, proxyPart, flannelPart} {
		if o.facts.change.concerns(part) {
			list = slices.Concat(list, changedObjects[part])
		}
	}
	return list
}

// keep records the objects for undo, before the first of them changes.
func (o *objects) keep(ctx context.Context) error {
	if err := o.record.begin(); err != nil {
		return err
	}
	if len(o.record.state.Objects) > 0 {
		return nil
	}
	for _, name := range o.undone() {
		data, err := o.api.Client.ReadObject(ctx, name)
		if err != nil {
			return err
		}
		if data != nil {
			o.record.state.Objects = append(o.record.state.Objects, data)
		}
	}
	return o.record.write()
}

// store applies objects, after it has kept what they replace.
func (o *objects) store(ctx context.Context, l desired.List) error {
	if len(l.Objects) == 0 {
		return nil
	}
	if work, err := o.work.remains(); err != nil {
		return err
	} else if work {
		if err := o.keep(ctx); err != nil {
			return err
		}
	}
	return o.api.Apply(ctx, l)
}

// clusterConfiguration returns the ClusterConfiguration.
func (o *objects) clusterConfiguration(context.Context) (desired.List, error) {
	objects, err := render.UploadClusterConfig(o.node.Config)
	return desired.List{Objects: objects}, err
}

// kubeletConfiguration returns the KubeletConfiguration if the cluster's has only defaults. A
// configuration that a user changed is kept.
func (o *objects) kubeletConfiguration(context.Context) (desired.List, error) {
	objects, err := render.UploadKubeletConfig(o.node.Config)
	if err == nil && !o.facts.stored.DefaultKubelet && o.node.Config.Kubelet == nil {
		o.node.Console.Debug(1, "ConfigMap kube-system/kubelet-config was changed by the user: it is kept")
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

// joinRules returns what joining nodes may do. The ConfigMap cluster-info is not changed.
func (o *objects) joinRules(context.Context) (desired.List, error) {
	return desired.List{Objects: append(render.BootstrapRBAC(o.node.Config), withoutConfigMaps(render.ClusterInfo(o.node.Config, nil))...)}, nil
}
