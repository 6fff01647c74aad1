package reconfiguration

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/internal/documents"
)

// SamePod reports whether two manifests make the kubelet run the same pod: comments, the order of fields and the order of flags
// with different names do not count.
func SamePod(a, b []byte) bool {
	one, err := readPod(a)
	if err != nil {
		return false
	}
	other, err := readPod(b)
	return err == nil && equality.Semantic.DeepEqual(one, other)
}

// readPod reads a manifest, with its lists in a fixed order.
func readPod(manifest []byte) (*corev1.Pod, error) {
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(manifest, p); err != nil {
		return nil, err
	}
	byName := func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) }
	slices.SortStableFunc(p.Spec.Volumes, byName)
	for _, v := range p.Spec.Volumes {
		if v.HostPath != nil && v.HostPath.Type == nil {
			v.HostPath.Type = new(corev1.HostPathType)
		}
	}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		slices.SortStableFunc(c.VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.Name, b.Name) })
		if flags, ok := flagsOf(c.Command); ok {
			slices.SortStableFunc(flags, func(a, b config.Arg) int { return strings.Compare(a.Name, b.Name) })
			for at, f := range flags {
				c.Command[at+1] = "--" + f.Name + "=" + f.Value
			}
		}
	}
	return p, nil
}

// flagsOf returns the flags of a command whose arguments are all --NAME=VALUE.
func flagsOf(command []string) (flags []config.Arg, ok bool) {
	if len(command) == 0 {
		return nil, false
	}
	for _, arg := range command[1:] {
		name, value, is := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !is || !strings.HasPrefix(arg, "--") || name == "" {
			return nil, false
		}
		flags = append(flags, config.Arg{Name: name, Value: value})
	}
	return flags, true
}

// SameDocument reports whether two YAML documents have the same fields. A field without a value counts as absent.
func SameDocument(a, b []byte) bool {
	fields, err := DifferingFields(a, b)
	return err == nil && len(fields) == 0
}

// DifferingFields returns the names of the fields of two YAML documents with different values, sorted.
func DifferingFields(a, b []byte) (names []string, err error) {
	var one, other map[string]any
	if err := errors.Join(documents.Unmarshal(a, &one), documents.Unmarshal(b, &other)); err != nil {
		return nil, err
	}
	for _, fields := range []map[string]any{one, other} {
		for name := range fields {
			if !slices.Contains(names, name) && !reflect.DeepEqual(one[name], other[name]) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// fieldOf are the fields of the ClusterConfiguration for components.
var fieldOf = map[string]string{"kube-apiserver": "apiServer", "kube-controller-manager": "controllerManager", "kube-scheduler": "scheduler", "etcd": "etcd.local"}

// argsOf returns the extra arguments of a component, which has a field of the ClusterConfiguration.
func argsOf(c *config.Cluster, field string) *config.Args {
	switch field {
	case "apiServer":
		return &c.APIServer.ExtraArgs
	case "controllerManager":
		return &c.ControllerManager.ExtraArgs
	case "scheduler":
		return &c.Scheduler.ExtraArgs
	}
	return &c.Etcd.Local.ExtraArgs
}

// Patch is what keeps an edit for which kubeadm's documents have no field.
const Patch = "a patch with --patches DIRECTORY"

// PodFields returns the fields of the ClusterConfiguration for what was edited in the manifest of a component, and Patch for the rest;
// nothing for a manifest that is no pod. c gives the component the manifest gives.
func PodFields(c *config.Cluster, component string, gives, now []byte) (fields []string) {
	before, err := readPod(gives)
	after, errNow := readPod(now)
	if err != nil || errNow != nil || len(before.Spec.Containers) != 1 {
		return nil
	}
	if len(after.Spec.Containers) != 1 {
		return []string{Patch}
	}
	was, is := &before.Spec.Containers[0], &after.Spec.Containers[0]
	field := fieldOf[component]
	add := func(name string) { fields = append(fields, clusterKind+"."+field+"."+name) }
	flags, ok := flagsOf(is.Command)
	former, _ := flagsOf(was.Command)
	removes := slices.ContainsFunc(former, func(f config.Arg) bool { // a flag that kubeadm sets itself
		named := func(a config.Arg) bool { return a.Name == f.Name }
		return !slices.ContainsFunc(flags, named) && !slices.ContainsFunc(*argsOf(c, field), named)
	})
	if ok && !removes && is.Command[0] == was.Command[0] && !slices.Equal(is.Command, was.Command) {
		add("extraArgs")
		was.Command = is.Command
	}
	if !equality.Semantic.DeepEqual(is.Env, was.Env) {
		add("extraEnvs")
		was.Env = is.Env
	}
	inside := func(v corev1.Volume) bool { return v.HostPath == nil }
	same := equality.Semantic.DeepEqual(after.Spec.Volumes, before.Spec.Volumes) && equality.Semantic.DeepEqual(is.VolumeMounts, was.VolumeMounts)
	if component != "etcd" && !same && !slices.ContainsFunc(after.Spec.Volumes, inside) {
		add("extraVolumes")
		before.Spec.Volumes, was.VolumeMounts = after.Spec.Volumes, is.VolumeMounts
	}
	if !equality.Semantic.DeepEqual(before, after) {
		fields = append(fields, Patch)
	}
	return fields
}

// SameNames reports whether two configurations give the same names to certificates, in any order.
func SameNames(a, b config.Names) bool {
	same := func(a, b []string) bool {
		return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
	}
	return same(a.APIServer, b.APIServer) && same(a.EtcdServer, b.EtcdServer) && same(a.EtcdPeer, b.EtcdPeer)
}
