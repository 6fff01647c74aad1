package reconfiguration

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"airlift/documents"
	"airlift/installer/config"
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
	var one, other map[string]any
	if documents.Unmarshal(a, &one) != nil || documents.Unmarshal(b, &other) != nil {
		return false
	}
	return reflect.DeepEqual(present(one), present(other))
}

// present returns fields that have a value.
func present(fields map[string]any) map[string]any {
	fields = maps.Clone(fields)
	maps.DeleteFunc(fields, func(_ string, value any) bool { return value == nil })
	return fields
}

// What is needed instead of keeping an edit.
const (
	neededPatch = "to drop the edit: ./install reconfigure --restore; to keep it, write it as a patch in a directory, as for init --patches, and give that directory: --patches DIRECTORY"
	neededImage = "to drop the edit: ./install reconfigure --restore; for another registry, write imageRepository in kubeadm's documents: ./install reconfigure --config FILE; for another version, upgrade"
)

const ofOneNode = "the value has the name or the address of this node, and all control planes would get it"

// An editable is what kubeadm's documents have of a component.
type editable struct {
	args    *[]config.Arg
	volumes *[]config.HostPathMount // nil for etcd
	envs    *[]corev1.EnvVar
}

func editableOf(c *config.Cluster, component string) editable {
	of := func(c *config.Component) editable { return editable{&c.ExtraArgs, &c.ExtraVolumes, &c.ExtraEnvs} }
	switch component {
	case "kube-apiserver":
		return of(&c.APIServer.Component)
	case "kube-controller-manager":
		return of(&c.ControllerManager)
	case "kube-scheduler":
		return of(&c.Scheduler)
	}
	return editable{args: &c.Etcd.Local.ExtraArgs, envs: &c.Etcd.Local.ExtraEnvs}
}

// AdoptPod writes what was edited in the manifest of a component to the configuration of the cluster: flags, volumes and
// environment variables. was is what the configuration gives now, is the manifest on the host. refused is what kubeadm's documents
// have no field for, and flags, variables and paths of the host that have the name or an address of the node, which are of.
func AdoptPod(c *config.Cluster, of []string, component, file string, was, is []byte) (refused []Refusal, err error) {
	before, err := readPod(was)
	if err != nil {
		return nil, err
	}
	refuse := func(field, from, to, reason, needed string) {
		refused = append(refused, Refusal{Field: file + ": " + field, From: from, To: to, Reason: reason, Needed: needed})
	}
	after, err := readPod(is)
	if err != nil {
		refuse("the manifest", "a pod", "not one", err.Error(), "correct it; or: ./install reconfigure --restore")
		return refused, nil
	}
	if n := len(after.Spec.Containers); n != 1 {
		refuse("spec.containers", "1", strconv.Itoa(n), "a component of the control plane has one container in kubeadm's documents", neededPatch)
		return refused, nil
	}
	own, from, to := editableOf(c, component), &before.Spec.Containers[0], &after.Spec.Containers[0]
	flags, ok := flagsOf(to.Command)
	if ok && to.Command[0] == from.Command[0] {
		former, _ := flagsOf(from.Command)
		*own.args = adoptArgs(*own.args, former, flags)
		for _, a := range flags {
			if !slices.Contains(former, a) && Mentions(a.Value, of) {
				refuse("--"+a.Name, "", a.Value, ofOneNode, neededPatch)
			}
		}
	} else {
		for i, arg := range to.Command {
			if _, is := flagsOf([]string{"", arg}); i > 0 && !is {
				refuse("spec.containers[0].command", "", arg, "an argument must be --NAME=VALUE in kubeadm's documents", "write it so; or: ./install reconfigure --restore")
			}
		}
		if len(refused) == 0 {
			refuse("spec.containers[0].command", from.Command[0], "another one", "the command is kubeadm's", neededPatch)
		}
	}
	for _, e := range to.Env {
		if !slices.ContainsFunc(from.Env, func(f corev1.EnvVar) bool { return equality.Semantic.DeepEqual(f, e) }) && Mentions(e.Value, of) {
			refuse("the variable "+e.Name, "", "edited", ofOneNode, neededPatch) // its value may be a secret
		}
	}
	for _, v := range after.Spec.Volumes {
		if !slices.ContainsFunc(before.Spec.Volumes, func(b corev1.Volume) bool { return equality.Semantic.DeepEqual(b, v) }) && v.HostPath != nil && Mentions(v.HostPath.Path, of) {
			refuse("the volume "+v.Name, "", v.HostPath.Path, ofOneNode, neededPatch)
		}
	}
	*own.envs = slices.Clone(to.Env)
	if own.volumes != nil {
		*own.volumes = adoptVolumes(*own.volumes, before, after)
		before.Spec.Volumes, from.VolumeMounts = after.Spec.Volumes, to.VolumeMounts
	}
	from.Command, from.Env = to.Command, to.Env
	for _, d := range differences("", asMap(before), asMap(after)) {
		reason, needed := "kubeadm's documents have no field for it", neededPatch
		if d.field == "spec.containers[0].image" {
			reason, needed = "the image is the one of this file, under the name that imageRepository gives", neededImage
		}
		refuse(d.field, d.from, d.to, reason, needed)
	}
	return refused, nil
}

// adoptArgs returns extra arguments with which a component that has the flags was gets the flags is.
func adoptArgs(extra, was, is []config.Arg) []config.Arg {
	values := func(list []config.Arg, name string) (values []string) {
		for _, a := range list {
			if a.Name == name {
				values = append(values, a.Value)
			}
		}
		return values
	}
	extra = slices.Clone(extra)
	done := map[string]bool{}
	for _, a := range slices.Concat(is, was) {
		now := values(is, a.Name)
		if done[a.Name] || slices.Equal(now, values(was, a.Name)) {
			continue
		}
		done[a.Name] = true
		at := slices.IndexFunc(extra, func(e config.Arg) bool { return e.Name == a.Name })
		extra = slices.DeleteFunc(extra, func(e config.Arg) bool { return e.Name == a.Name })
		if at < 0 {
			at = len(extra)
		}
		var list []config.Arg
		for _, value := range now {
			list = append(list, config.Arg{Name: a.Name, Value: value})
		}
		extra = slices.Insert(extra, at, list...)
	}
	return extra
}

// adoptVolumes returns extra volumes with which the pod was gets the volumes of the pod is, as far as each is a path of the host
// that is mounted once.
func adoptVolumes(extra []config.HostPathMount, was, is *corev1.Pod) []config.HostPathMount {
	mounts := func(p *corev1.Pod) map[string]config.HostPathMount {
		list := map[string]config.HostPathMount{}
		for _, v := range p.Spec.Volumes {
			if v.HostPath == nil {
				continue
			}
			one := config.HostPathMount{Name: v.Name, HostPath: v.HostPath.Path, PathType: *v.HostPath.Type}
			for _, m := range p.Spec.Containers[0].VolumeMounts {
				if m.Name == v.Name {
					one.MountPath, one.ReadOnly = m.MountPath, m.ReadOnly
				}
			}
			list[v.Name] = one
		}
		return list
	}
	before, after := mounts(was), mounts(is)
	extra = slices.Clone(extra)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, stays := after[name]; !stays {
			extra = slices.DeleteFunc(extra, func(e config.HostPathMount) bool { return e.Name == name })
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if after[name] == before[name] {
			continue
		}
		if at := slices.IndexFunc(extra, func(e config.HostPathMount) bool { return e.Name == name }); at >= 0 {
			extra[at] = after[name]
		} else {
			extra = append(extra, after[name])
		}
	}
	return extra
}

// Unadopted returns why a manifest differs from what the configuration with its edits gives: kubeadm sets it itself.
func Unadopted(file string, gives, is []byte) (refused []Refusal) {
	before, err := readPod(gives)
	if err != nil {
		return nil
	}
	after, err := readPod(is)
	if err != nil || len(after.Spec.Containers) != 1 {
		return nil
	}
	list := differences("", asMap(before), asMap(after))
	own, _ := flagsOf(before.Spec.Containers[0].Command)
	now, _ := flagsOf(after.Spec.Containers[0].Command)
	for _, a := range own {
		if !slices.ContainsFunc(now, func(n config.Arg) bool { return n.Name == a.Name }) {
			list = slices.DeleteFunc(list, func(d difference) bool { return strings.HasPrefix(d.field, "spec.containers[0].command") })
			list = append(list, difference{"the flag --" + a.Name, a.Value, ""})
		}
	}
	for _, d := range list {
		refused = append(refused, Refusal{Field: file + ": " + d.field, From: d.from, To: d.to, Reason: "kubeadm sets it itself, and its documents cannot remove it or write it so", Needed: neededPatch})
	}
	return refused
}

func asMap(p *corev1.Pod) any {
	data, err := json.Marshal(p)
	if err != nil {
		return err.Error()
	}
	var value any
	_ = json.Unmarshal(data, &value) // it was marshalled
	return value
}

// A difference is a field of two documents with different values.
type difference struct{ field, from, to string }

// differences returns the fields that differ, sorted.
func differences(field string, a, b any) (list []difference) {
	if equality.Semantic.DeepEqual(a, b) {
		return nil
	}
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			break
		}
		keys := map[string]bool{}
		for _, m := range []map[string]any{a, b} {
			for key := range m {
				keys[key] = true
			}
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			list = append(list, differences(strings.TrimPrefix(field+"."+key, "."), a[key], b[key])...)
		}
		return list
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			break
		}
		for i := range a {
			list = append(list, differences(fmt.Sprintf("%s[%d]", field, i), a[i], b[i])...)
		}
		return list
	}
	return []difference{{field, valueText(a), valueText(b)}}
}

// valueText is a value for people.
func valueText(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(data)
}

// SameNames reports whether two configurations give the same names to certificates, in any order.
func SameNames(a, b config.Names) bool {
	same := func(a, b []string) bool {
		return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
	}
	return same(a.APIServer, b.APIServer) && same(a.EtcdServer, b.EtcdServer) && same(a.EtcdPeer, b.EtcdPeer)
}
