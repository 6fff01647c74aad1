package drift

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"airlift/documents"
	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/flow/upgrade"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
	"airlift/installer/status"
	"airlift/installer/workflow"
)

// Find adds to the options of a reconfiguration what was edited by hand on this node, so that the stored configuration gives
// it: flags, volumes and environment variables of static pods, fields of the kubelet's configuration, and files that flags name. For
// reconfigure node, it is only what belongs to the node: the kubelet's fields and flags. found is false if nothing was edited, and
// no such run was interrupted. It changes nothing. What kubeadm's documents cannot express is an error of fault.Preflight.
func Find(ctx context.Context, b *payload.Bundle, o upgrade.ReconfigureOptions, h *host.Host, c *workflow.Console) (with upgrade.ReconfigureOptions, found bool, err error) {
	if status.AdoptedKubelet(h) != nil {
		return o, false, fault.New(fault.Preflight, "%w", errAdopted).Hint("upgrade it first: ./install upgrade apply")
	}
	look := o
	look.Restore = true
	r := upgrade.NewReconfigure(b, look, h, c)
	defer r.Close()
	p, err := r.Compare(ctx)
	if err != nil {
		return o, false, err
	}
	f := &finder{Comparison: p, options: &o, edits: &upgrade.Edits{}, cluster: p.Config.Cluster, pods: map[string][]byte{}, command: "./install reconfigure"}
	if o.Node {
		f.command += " node"
	}
	if err := f.find(); err != nil {
		return o, false, err
	}
	if len(f.edits.List)+len(f.refused) == 0 {
		if p.Unfinished { // the stored configuration gives the edits already: the run that goes on restarts nothing either
			o.Edits = f.edits
		}
		return o, p.Unfinished, nil
	}
	if !p.Follows && !p.Unfinished { // an interrupted run has stored a change that this node does not follow yet
		return o, false, fault.New(fault.Preflight, "node %s has not followed the last change of the configuration, so its edits cannot be told from that", p.Config.NodeRegistration.Name).
			Hint("drop its edits: ./install reconfigure node --restore; then make them with kubeadm's documents: ./install reconfigure print")
	}
	if err := f.verify(r); err != nil {
		return o, false, err
	}
	if len(f.refused) > 0 {
		var text strings.Builder
		for _, one := range upgrade.WithoutSecrets(f.refused) {
			fmt.Fprintf(&text, "\n  - %s: it is %s instead of %s: %s\n    needed: %s", one.Field, quoted(one.To), quoted(one.From), one.Reason, one.Needed)
		}
		return o, false, fault.New(fault.Preflight, "%s cannot be kept, and nothing was changed:%s", workflow.Count(len(f.refused), "edit"), text.String()).
			Hint("to see all edits: " + f.command + " --restore --plan")
	}
	o.Edits, o.Given = f.edits, f.given
	return o, true, nil
}

func quoted(value string) string {
	if value == "" {
		return "nothing"
	}
	return fmt.Sprintf("%q", value)
}

// A finder finds what was edited by hand.
type finder struct {
	*upgrade.Comparison
	options *upgrade.ReconfigureOptions // of the run that follows
	edits   *upgrade.Edits
	refused []reconfiguration.Refusal
	cluster config.Cluster    // the stored configuration with the edits
	kubelet []byte            // the KubeletConfiguration with the edits, nil if it stays
	pods    map[string][]byte // the edited manifests, by path
	given   *config.Given
	command string // without flags
}

func (f *finder) find() error {
	for _, file := range f.Files {
		switch {
		case file.Path == config.KubeletFlagsFile || !file.Edited && f.options.Patches != "" && bytes.Equal(file.Now, file.Wanted):
			if file.Claimable { // the cluster stores neither these flags nor patches
				f.edits.Claims = append(f.edits.Claims, file.Path)
				f.add(file.Path, "this node")
			}
		case file.Edited:
			if err := f.adopt(file); err != nil {
				return err
			}
		}
	}
	for _, o := range f.Objects {
		if o.EditedByHand {
			f.refuse(o.Name, "as configured", "edited", "kubeadm's documents have no field for it", "to drop the edit: ./install reconfigure --restore; to keep it, give a patch: --patches DIRECTORY")
		}
	}
	return nil
}

func (f *finder) refuse(field, from, to, reason, needed string) {
	f.refused = append(f.refused, reconfiguration.Refusal{Field: field, From: from, To: to, Reason: reason, Needed: needed})
}

func (f *finder) add(file, to string) {
	f.edits.List = append(f.edits.List, upgrade.AdoptedEdit{File: file, To: to})
}

// adopt adds the edits of a file.
func (f *finder) adopt(file upgrade.ComparedFile) error {
	restore, name := f.command+" --restore", file.Path
	manifest := path.Dir(name) == config.ManifestsDir
	switch {
	case file.Now == nil:
		f.refuse(name, "a file", "", "kubeadm's documents cannot leave it out", restore)
	case (file.Carried || manifest) && f.options.Node:
		f.refuse(name, "as configured", "edited", "it belongs to the configuration of all control planes", "./install reconfigure --adopt-edits on this node; or, to drop it: "+restore)
	case name == reconfiguration.FileOf(&f.Config.Cluster, "kube-apiserver", "encryption-provider-config"):
		// The API server reads it only when it starts. Until then, nobody knows with which keys it writes.
		f.refuse(name, "as configured", "edited", "the API server may still write with the former keys",
			"if it has not restarted since the edit: "+restore+" --ignore-preflight-errors=Encryption; then, for other keys: ./install reconfigure --file "+name+"=FILE")
	case file.Carried:
		f.options.Files = append(f.options.Files, reconfiguration.File{Path: name, Data: file.Now})
		f.add(name, "Secret kube-system/"+config.FilesSecret)
	case manifest:
		component := strings.TrimSuffix(path.Base(name), ".yaml")
		refused, err := reconfiguration.AdoptPod(&f.cluster, f.names(), component, name, file.Wanted, file.Now)
		if err != nil {
			return err
		}
		f.refused = append(f.refused, refused...)
		f.pods[name] = file.Now
		f.add(name, "ClusterConfiguration."+fieldOf[component])
	case name == config.KubeletConfigFile:
		return f.adoptKubelet(file.Wanted, file.Now)
	case name == render.KubeletUnitPath || name == render.KubeletDropInPath:
		f.refuse(name, "Airlift's", "edited", "kubeadm's documents have no field for the kubelet's unit",
			"write your lines to a file of your own, such as "+path.Dir(render.KubeletDropInPath)+"/20-site.conf; then "+restore)
	default:
		f.refuse(name, "as configured", "edited", "kubeadm's documents have no field for it", restore)
	}
	return nil
}

// names are the names and the addresses of this node, of both families.
func (f *finder) names() []string {
	own := f.Config
	list := []string{own.NodeRegistration.Name, own.LocalAPIEndpoint.AdvertiseAddress, own.Facts.NodeIP, own.Facts.OtherIP}
	for _, ip := range own.NodeIPs() {
		list = append(list, ip.String())
	}
	return list
}

// fieldOf are the fields of the ClusterConfiguration for the static pods.
var fieldOf = map[string]string{node.EtcdPod: "etcd.local", "kube-apiserver": "apiServer", "kube-controller-manager": "controllerManager", "kube-scheduler": "scheduler"}

// kubeletOfNode are fields of the kubelet's configuration that differ from host to host.
var kubeletOfNode = []string{"containerRuntimeEndpoint", "imageServiceEndpoint", "resolvConf", "failSwapOn", "failCgroupV1"}

// adoptKubelet adds the edits of the kubelet's configuration: what belongs to the host to its own file, the rest to the cluster's
// KubeletConfiguration. On reconfigure node, all belongs to the host.
func (f *finder) adoptKubelet(wanted, now []byte) error {
	const file = config.KubeletConfigFile
	var want, is, common, own map[string]any
	if err := documents.Unmarshal(now, &is); err != nil {
		f.refuse(file, "a KubeletConfiguration", "not one", err.Error(), "correct it; or: "+f.command+" --restore")
		return nil
	}
	for _, d := range []struct {
		data []byte
		into *map[string]any
	}{{wanted, &want}, {f.Kubelet, &common}, {f.Instance, &own}} {
		if len(d.data) == 0 {
			continue
		}
		if err := documents.Unmarshal(d.data, d.into); err != nil {
			return err
		}
	}
	ofCluster, ofNode := false, false
	for _, key := range changedFields(want, is) {
		value, has := is[key], is[key] != nil
		_, inOwn := own[key]
		switch local := f.options.Node || inOwn || slices.Contains(kubeletOfNode, key) || reconfiguration.Mentions(fmt.Sprint(value), f.names()); {
		case key == "cgroupDriver" || key == "apiVersion" || key == "kind":
			f.refuse(file+": "+key, fmt.Sprint(want[key]), fmt.Sprint(value), "a running node keeps it", f.command+" --restore")
		case local && !has:
			f.refuse(file+": "+key, fmt.Sprint(want[key]), "", "the configuration of a node cannot remove a field", "write its value; or: "+f.command+" --restore")
		case local:
			if own == nil {
				own = map[string]any{}
			}
			own[key], ofNode = value, true
		default:
			if common[key] = value; !has {
				delete(common, key)
			}
			ofCluster = true
		}
	}
	if ofNode {
		data, err := yaml.Marshal(own)
		if err != nil {
			return err
		}
		f.edits.Instance = data
		f.add(file, render.KubeletInstanceConfigPath+", for this node")
	}
	if ofCluster {
		delete(common, "cgroupDriver") // each node keeps its own
		data, err := yaml.Marshal(common)
		if err != nil {
			return err
		}
		f.kubelet = data
		f.add(file, "KubeletConfiguration, for all nodes")
	}
	return nil
}

// changedFields returns the names of the fields of two documents that differ, sorted.
func changedFields(a, b map[string]any) (names []string) {
	for _, fields := range []map[string]any{a, b} {
		for name := range fields {
			if !slices.Contains(names, name) && !reflect.DeepEqual(a[name], b[name]) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// verify reads the documents with the edits, and refuses what they would not give to this node.
func (f *finder) verify(r *upgrade.Reconfigure) error {
	if len(f.refused) > 0 {
		return nil
	}
	var text []byte
	own := *f.Config
	if len(f.pods) > 0 {
		own.Cluster = f.cluster
		data, err := render.ClusterConfiguration(&own)
		if err != nil {
			return err
		}
		text = append(data, "---\n"...)
	}
	if text = append(text, f.kubelet...); len(text) > 0 {
		given, _, err := config.ParseReconfigure("the edits of this host", text)
		if err != nil {
			return err
		}
		f.given = given
		if given.Config.Kubelet != nil {
			k := *given.Config.Kubelet
			k.CgroupDriver = cmp.Or(own.Facts.CgroupDriver, k.CgroupDriver) // a running node keeps it
			own.Kubelet = &k
		}
	}
	gives, err := r.Gives(own, f.edits)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(f.pods)) {
		if reconfiguration.SamePod(gives[name], f.pods[name]) {
			continue
		}
		left := reconfiguration.Unadopted(name, gives[name], f.pods[name])
		if len(left) == 0 {
			f.refuse(name, "as configured", "edited", "kubeadm's documents cannot express it", f.command+" --restore")
		}
		f.refused = append(f.refused, left...)
	}
	if f.kubelet == nil && f.edits.Instance == nil {
		return nil
	}
	const file = config.KubeletConfigFile
	at := slices.IndexFunc(f.Files, func(c upgrade.ComparedFile) bool { return c.Path == file })
	var want, is map[string]any
	if err := documents.Unmarshal(gives[file], &want); err != nil {
		return err
	}
	if err := documents.Unmarshal(f.Files[at].Now, &is); err != nil {
		return err
	}
	for _, key := range changedFields(want, is) {
		f.refuse(file+": "+key, fmt.Sprint(want[key]), fmt.Sprint(is[key]), "kubeadm sets it itself", f.command+" --restore")
	}
	return nil
}
