package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/flow/reconfigure"
	"airlift/installer/flow/upgrade"
	"airlift/installer/host"
	"airlift/installer/payload"
	"airlift/installer/pods"
	"airlift/installer/reconfiguration"
	"airlift/installer/revision"
	"airlift/installer/status"
	"airlift/installer/workflow"
)

// Commands that change the configuration of a running cluster.
const (
	reconfigureWide   = "reconfigure everything"
	reconfigureLittle = "reconfigure a little"
	reconfigureBroken = "reconfigure with a broken file"
	reconfigureNode   = "reconfigure node"
	reconfigureUndo   = "reconfigure undo"
	// reconfigureFile brings another audit policy. The clock was set back since the components started, and stays so.
	reconfigureFile  = "reconfigure with another file, by a wrong clock"
	removePolicy     = "remove the audit policy"
	reconfigureProxy = "reconfigure kube-proxy" // no node must follow it
	// reconfigureImages gives the images other names. An upgrade that can be undone has kept images.
	reconfigureImages   = "reconfigure the names of images"
	reconfigureDNSImage = "reconfigure the name of CoreDNS' image"
	// reconfigureKey lets the API servers read Secrets that are encrypted, and reconfigureEncrypt lets them write such ones.
	reconfigureKey     = "reconfigure the key of Secrets"
	reconfigureEncrypt = "reconfigure the encryption of Secrets"
	// formerRecords gives a host its records in the form in which a former build wrote them.
	formerRecords = "a former build has written the records"
	// userPod gives a host a static pod of the user.
	userPod = "the user adds a static pod"
	// restoreEdits drops what was edited by hand.
	restoreEdits     = "reconfigure --restore"
	restoreEditsNode = "reconfigure node --restore"
	// editFlag and editFlags add a flag to a manifest by hand, the second one to that of the API server.
	editFlag  = "add a flag to a manifest"
	editFlags = "add a flag to the API server's manifest"
	// editComment adds a comment to a manifest. Unlike a kubelet, the model starts another pod.
	editComment = "add a comment to a manifest"
	// editKubelet sets a field of the kubelet's configuration by hand, and adds a flag to its flags.
	editKubelet = "edit the kubelet's configuration"
	// editKubeletFlags adds a flag to the kubelet's flags by hand, and reconfigureKubelet another one by kubeadm's documents.
	editKubeletFlags   = "add a flag to the kubelet"
	reconfigureKubelet = "reconfigure the flags of the kubelet"
	// editImage gives a static pod another image by hand, which kubeadm's documents cannot express.
	editImage = "change the image of a manifest"
	// editPolicy edits a file that a reconfiguration brought, editDropIn the drop-in of the kubelet's unit, editFixed fields of the
	// kubelet's configuration: one that kubeadm sets itself, and one of the host.
	editPolicy = "edit the audit policy"
	editDropIn = "edit the kubelet's drop-in"
	editFixed  = "edit the kubelet's rotation"
	// editPause gives containerd another pause image by hand.
	editPause = "edit the pause image"
	// editVariables gives the scheduler environment variables by hand.
	editVariables = "edit the scheduler's environment"
	// keepEdits gives the cluster what editFlag, editFlags and editKubelet edit on a host, keepPolicy what editPolicy does, and
	// keepVariables what editVariables does; keepFlags gives it to the kubelet of the host.
	keepEdits     = "reconfigure with what was edited"
	keepPolicy    = "reconfigure with the edited audit policy"
	keepVariables = "reconfigure with the edited variables"
	keepFlags     = "reconfigure node with the edited flags"
	showDrift     = "status"
	showPlans     = "plans"
)

// edit edits files of a host by hand.
func (h *Host) edit(command string) error {
	h.edited = true
	switch command {
	case "edit a manifest", editFlag:
		return h.addFlag("kube-scheduler", "--v=2")
	case editAPIServer, editFlags:
		return h.addFlag("kube-apiserver", "--profiling=false")
	case editComment:
		file := "etc/kubernetes/manifests/kube-scheduler.yaml"
		return h.put(file, h.read(file)+"# edited\n", 0o600)
	case editImage:
		file := "etc/kubernetes/manifests/kube-scheduler.yaml"
		return h.put(file, strings.Replace(h.read(file), "/kube-scheduler:", "/other/kube-scheduler:", 1), 0o600)
	}
	kubelet := "var/lib/kubelet/config.yaml"
	switch command {
	case editPolicy:
		h.newPolicy = true
		if err := h.put(strings.TrimPrefix(policyFile, "/"), "policy, edited\n", 0o600); err != nil {
			return err
		}
		return os.Chtimes(filepath.Join(h.Root, policyFile), time.Now(), time.Now()) // the API server started before
	case editPause:
		if err := h.put(runtimeConfig, strings.Replace(h.read(runtimeConfig), "sandbox = 'registry.k8s.io/", "sandbox = '"+editedRegistry+"/", 1), 0o644); err != nil {
			return err
		}
		return os.Chtimes(filepath.Join(h.Root, runtimeConfig), time.Now(), time.Now()) // containerd started before
	case editDropIn:
		file := "etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
		return h.put(file, h.read(file)+"# edited\n", 0o644)
	case editFixed:
		return h.put(kubelet, strings.Replace(h.read(kubelet), "rotateCertificates: true", "rotateCertificates: false", 1)+"failSwapOn: false\n", 0o644)
	}
	h.editedFlags = true
	flags := "var/lib/kubelet/kubeadm-flags.env"
	if err := h.put(flags, strings.Replace(h.read(flags), `"`, `"--v=3 `, 1), 0o644); err != nil || command == editKubeletFlags {
		return err
	}
	return h.put(kubelet, strings.Replace(h.read(kubelet), "maxPods: 100\n", "", 1)+"maxPods: 77\n", 0o644)
}

// runtimeConfig is containerd's configuration, to which editPause writes editedRegistry.
const runtimeConfig, editedRegistry = "etc/containerd/config.toml", "site.example"

// restartsRuntime returns a function that reports whether a reconfiguration has restarted containerd since, without need: neither it nor
// an interrupted run before has written containerd's configuration.
func (h *Host) restartsRuntime(c Command) func() bool {
	of := func() (string, byte) {
		h.world.mu.Lock()
		defer h.world.mu.Unlock()
		return h.read(runtimeConfig), h.unit("containerd.service").invocation
	}
	settings, invocation := of()
	record := h.reconfigured()
	needs := !strings.HasPrefix(c.Name, "reconfigure") || len(c.Meanwhile) > 0 || record.IsPending("containerd")
	return func() bool {
		now, is := of()
		return !needs && settings == now && is != invocation
	}
}

// addFlag adds a flag to a manifest, where nobody expects it.
func (h *Host) addFlag(component, flag string) error {
	file := "etc/kubernetes/manifests/" + component + ".yaml"
	line := "    - " + component + "\n"
	return h.put(file, strings.Replace(h.read(file), line, line+"    - "+flag+"\n", 1), 0o600)
}

// addVariables adds lines of a list of environment variables to the manifest of the scheduler.
func (h *Host) addVariables(lines string) error {
	h.edited = true
	const file, begin, image = "etc/kubernetes/manifests/kube-scheduler.yaml", "    env:\n", "    image: "
	text := h.read(file)
	if !strings.Contains(text, begin) {
		text = strings.Replace(text, image, begin+image, 1)
	}
	return h.put(file, strings.Replace(text, begin, begin+lines, 1), 0o600)
}

// drift returns what differs from the stored configuration of a node, as status does. ok is false if that cannot be read.
func (s *Site) drift(h *Host, c Command) (list []status.Drift, ok bool, err error) {
	defer h.holdTimer()()
	before := h.files()
	r, err := h.begin(0)
	if err != nil {
		return nil, false, err
	}
	defer r.end()
	opened, err := host.Open(r.root)
	if err != nil {
		return nil, false, err
	}
	r.use(opened)
	ctx, cancel := context.WithTimeout(r.ctx, 4*time.Second)
	defer cancel()
	list, unknown := reconfigure.ReadDrift(ctx, s.bundles[c.File], "", opened)
	for name, sum := range h.files() {
		if before[name] != sum && !strings.HasPrefix(name, "/var/lib/kubelet/pods") { // the kubelet may start a pod meanwhile
			return nil, false, fmt.Errorf("reading the drift writes %s", name)
		}
	}
	return list, unknown == nil, nil
}

// showDrift returns what differs from the stored configuration: the names for people, and what status prints in JSON.
func (r *run) showDrift(b *payload.Bundle) (string, error) {
	h, err := host.Open(r.root)
	if err != nil {
		return "", err
	}
	r.use(h)
	list, err := reconfigure.ReadDrift(r.ctx, b, "", h)
	text := "drift:"
	for _, d := range list {
		text += " " + filepath.Base(d.Name) + " " + d.Cause
		if d.Keep != "" {
			text += " (" + d.Keep + ")"
		}
	}
	if err != nil {
		text += " unknown: " + err.Error()
	}
	document, encodeErr := json.Marshal(list)
	for _, d := range list {
		text += ".\n" + d.Diff // as in the text of status
	}
	return text + ".\n" + string(document) + "\n", encodeErr
}

// showPlans returns what reconfigure --restore --plan, upgrade plan --print-config and upgrade diff print on a control plane, for people
// and in JSON.
func (r *run) showPlans(b *payload.Bundle) (string, error) {
	h, err := host.Open(r.root)
	if err != nil {
		return "", err
	}
	r.use(h)
	var out bytes.Buffer
	c := &workflow.Console{Out: &out, Results: &out}
	restored, err := reconfigure.ReadPlan(r.ctx, b, reconfigure.Options{Restore: true}, 3, h, c)
	if err != nil {
		return out.String(), err
	}
	upgraded, err := upgrade.ReadPlan(r.ctx, b, upgrade.PlanOptions{UpgradePlan: config.UpgradePlan{EtcdUpgrade: true, IgnorePreflightErrors: []string{"all"}}, Context: 3}, h, c)
	if err != nil {
		return out.String(), err
	}
	upgraded.Write(&out, true)
	out.WriteString(upgraded.Configuration)
	for _, change := range restored.Changes {
		out.WriteString(change.Name + "\n" + change.Diff)
	}
	return out.String(), json.NewEncoder(&out).Encode([]any{restored, upgraded})
}

// settlesEdits reports whether a command keeps or drops what was edited by hand.
func settlesEdits(command string) bool {
	return command == keepEdits || strings.HasSuffix(command, "--restore")
}

// checkDrift fails if a node on which nobody edited anything has a drift after a command. After a command that keeps or drops edits,
// the drift must be known, and the node follows the stored configuration.
func (s *Site) checkDrift(h *Host, c Command) error {
	if h.edited || !h.exists(kubeletConf) {
		return nil
	}
	list, ok, err := s.drift(h, c)
	if err == nil && !ok && settlesEdits(c.Name) {
		err = errors.New("the drift is not known")
	}
	if err != nil || !ok {
		return err
	}
	s.Compared++
	for _, d := range list {
		if d.Cause == status.Edited || settlesEdits(c.Name) {
			return fmt.Errorf("nobody edited %s, and it has a drift:\n%s", d.Name, d.Diff)
		}
	}
	return nil
}

const policyFile = "/etc/kubernetes/audit/policy.yaml"

// brokenPolicy is an audit policy with which the API server does not start.
const brokenPolicy = "broken\n"

// documents are the user's documents, by command.
var documents = map[string]string{
	reconfigureWide: `
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
apiServer:
  certSANs: [new.example, 192.0.2.7]
  extraArgs: [{name: audit-policy-file, value: /audit/policy.yaml}, {name: v, value: "4"}]
  extraVolumes: [{name: audit, hostPath: /etc/kubernetes/audit, mountPath: /audit, readOnly: true}]
scheduler: {extraArgs: [{name: v, value: "3"}]}
etcd: {local: {serverCertSANs: [etcd.example]}}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 100
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
`,
	reconfigureProxy: `
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
`,
	reconfigureImages: `
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
imageRepository: mirror.example
`,
	reconfigureDNSImage: `
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
dns: {imageRepository: mirror.example/dns}
`,
	reconfigureKubelet: `
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration: {kubeletExtraArgs: [{name: v, value: "4"}]}
`,
	reconfigureLittle: `
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
scheduler: {extraArgs: [{name: v, value: "5"}]}
`,
	keepEdits: `
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
apiServer: {extraArgs: [{name: profiling, value: "false"}]}
scheduler: {extraArgs: [{name: v, value: "2"}]}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 77
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration: {kubeletExtraArgs: [{name: v, value: "3"}]}
`,
	keepFlags: `
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration: {kubeletExtraArgs: [{name: v, value: "3"}]}
`,
	keepVariables: `
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
scheduler:
  extraEnvs:
`,
}

// encryptionFile has how the API servers encrypt: encryptions, by command.
const encryptionFile = "/etc/kubernetes/encryption/config.yaml"

var encryptions = map[string]string{
	reconfigureKey:     encryption("identity: {}", "aescbc: {keys: [{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}"),
	reconfigureEncrypt: encryption("aescbc: {keys: [{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}", "identity: {}"),
}

func encryption(providers ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - " + strings.Join(providers, "\n  - ") + "\n"
}

func init() {
	documents[reconfigureBroken] = documents[reconfigureWide]
	for command := range encryptions {
		documents[command] = `
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
apiServer:
  extraArgs: [{name: encryption-provider-config, value: /encryption/config.yaml}]
  extraVolumes: [{name: encryption, hostPath: /etc/kubernetes/encryption, mountPath: /encryption, readOnly: true}]
`
	}
}

// reconfigure gives the node, and with it the cluster, another configuration.
func (r *run) reconfigure(b *payload.Bundle, c Command) (string, error) {
	command := c.Name
	return r.changing(strings.TrimSuffix(command, " --restore"), b.Manifest.KubernetesVersion, func(h *host.Host, console *workflow.Console) error {
		o := reconfigure.Options{Node: strings.HasPrefix(command, reconfigureNode), IgnorePreflightErrors: []string{"NodesReady", "ControlPlaneNodesReady", "EtcdHealth"}}
		o.Restore, o.Profile = strings.HasSuffix(command, "--restore"), profiles[command]
		if text := documents[command]; text != "" {
			text += c.Text
			file := filepath.Join(filepath.Dir(r.host.Root), "kubeadm.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				return err
			}
			given, _, err := config.ReadReconfigure(file)
			if err != nil {
				return err
			}
			o.Given = given
			if text := encryptions[command]; text != "" {
				o.Files = []reconfiguration.File{{Path: encryptionFile, Data: []byte(text)}}
			}
			switch command {
			case reconfigureWide:
				o.Files = []reconfiguration.File{{Path: policyFile, Data: []byte("policy\n")}}
			case reconfigureBroken:
				o.Files = []reconfiguration.File{{Path: policyFile, Data: []byte(brokenPolicy)}}
			}
		}
		if command == reconfigureFile {
			o.Files = []reconfiguration.File{{Path: policyFile, Data: []byte("another policy\n")}}
		}
		if command == keepPolicy {
			o.Files = []reconfiguration.File{{Path: policyFile, Data: []byte(r.host.read(policyFile))}}
			r.host.newPolicy = false // the API server has to read it
		}
		if r.dry {
			p, err := reconfigure.ReadPlan(r.ctx, b, o, 3, h, console)
			r.reconfigures = p
			return err
		}
		run := reconfigure.New(b, o, h, console)
		defer run.Close()
		return run.Run(r.ctx)
	})
}

// plan returns what a command would change, nil if it fails.
func (s *Site) plan(h *Host, c Command) (*reconfigure.Plan, error) {
	r, err := s.dry(h, c)
	if r == nil {
		return nil, err
	}
	return r.reconfigures, nil
}

// asPlanned fails if a command has changed other files than its plan has, or has restarted something else.
func asPlanned(p *reconfigure.Plan, before, after map[string]string) error {
	planned := map[string]bool{}
	for _, change := range p.Changes {
		planned[change.Name] = true
	}
	for _, certificate := range p.Certificates {
		planned[certificate.File], planned[strings.TrimSuffix(certificate.File, ".crt")+".key"] = true, true
	}
	removed := map[string]bool{}
	for _, change := range p.Changes {
		removed[change.Name] = change.Removed
	}
	for name, sum := range before {
		if gone := after[name] == ""; gone && sum != "directory" && !removed[name] || !gone && removed[name] {
			return fmt.Errorf("%s: removed %t, and in the plan %t", name, gone, removed[name])
		}
	}
	for name, sum := range after {
		if before[name] != sum && sum != "directory" && !planned[name] && name != servingFile {
			return fmt.Errorf("it changed %s, which is not in its plan", name)
		}
		if before[name] == sum && planned[name] {
			return fmt.Errorf("its plan has %s, which it did not change", name)
		}
	}
	for _, component := range pods.StaticPodOrder {
		file := config.ManifestsDir + "/" + component + ".yaml"
		if before[file] != after[file] && !slices.Contains(p.Nodes[0].Restarts, component) {
			return fmt.Errorf("it restarted %s, which is not in its plan: %v", component, p.Nodes[0].Restarts)
		}
	}
	return nil
}

// undoReconfigure undoes the last reconfiguration of the node.
func (r *run) undoReconfigure() (string, error) {
	return r.changing("reconfigure undo", "", func(h *host.Host, c *workflow.Console) error {
		run, err := revision.NewUndo(revision.Reconfigure, h, c)
		if err != nil {
			return err
		}
		defer run.Close()
		return run.Run(r.ctx)
	})
}

// hostPath returns the path on the host of a path in the container of a pod.
func (p *pod) hostPath(inside string) string {
	for _, m := range p.object.Spec.Containers[0].VolumeMounts {
		rest, ok := strings.CutPrefix(inside, m.MountPath)
		for _, v := range p.object.Spec.Volumes {
			if ok && v.Name == m.Name && v.HostPath != nil {
				return v.HostPath.Path + rest
			}
		}
	}
	return ""
}

// readPolicy returns the audit policy and the encryption that an API server reads at its start.
func (h *Host) readPolicy(p *pod) (text string, err error) {
	for _, name := range []string{"audit-policy-file", "encryption-provider-config"} {
		flag := p.flags[name]
		if flag == "" {
			continue
		}
		file := p.hostPath(flag)
		if file == "" || !h.exists(file) {
			return "", fmt.Errorf("%s %s does not exist", name, flag)
		}
		text += h.read(file)
	}
	if strings.Contains(text, brokenPolicy) {
		return "", fmt.Errorf("the audit policy is broken")
	}
	return text, nil
}

// encrypted precedes what an API server stores with the key of encryptions.
const encrypted = "k8s:enc:aescbc:v1:key1:"

// encrypts reports whether an API server writes Secrets encrypted.
func (s *apiServer) encrypts() bool {
	return strings.Contains(s.policy, encryptions[reconfigureEncrypt])
}

// readsAll fails if a control plane cannot read a Secret.
func (s *Site) readsAll() error {
	for _, h := range s.hosts {
		a := h.apiServer()
		if a == nil || a.data() == nil {
			continue
		}
		for key, text := range a.data().data {
			if !a.reads(text) {
				return fmt.Errorf("the API server of %s cannot read %s", h.Name, key)
			}
		}
	}
	return nil
}

// recordsOf is a file with the records of a kind. Since version 2, that of upgrades has all records.
const recordsOf = "var/lib/airlift/%s/state.json"

// writeFormerRecords writes the records as version 1 had them: in a file for each kind, and in an annotation of the node for each.
func (h *Host) writeFormerRecords() error {
	h.world.mu.Lock()
	if c := h.world.api(); c != nil {
		c.update("nodes/"+h.Name, func(o map[string]any) {
			f := followsOf(o)
			set(o, "{}", "metadata", "annotations", "airlift.dev/follows") // from before
			set(o, strconv.Itoa(f.Reconfiguration), "metadata", "annotations", "airlift.dev/reconfiguration")
			set(o, strconv.Itoa(f.Endpoint)+map[bool]string{true: " serving"}[f.OnlyServes], "metadata", "annotations", "airlift.dev/endpoint-change")
			if f.UsesRegistry {
				set(o, strconv.Itoa(f.Registry), "metadata", "annotations", "airlift.dev/registry")
			}
			set(o, f.Rotation, "metadata", "annotations", "airlift.dev/ca-rotation")
		})
	}
	h.world.mu.Unlock()
	var file struct {
		Version int
		Records []map[string]json.RawMessage
	}
	at := fmt.Sprintf(recordsOf, revision.Upgrade)
	if json.Unmarshal([]byte(h.read(at)), &file) != nil || file.Version != 2 {
		return nil
	}
	if err := os.Remove(filepath.Join(h.Root, at)); err != nil {
		return err
	}
	for _, r := range file.Records {
		var kind string
		err := json.Unmarshal(r["kind"], &kind)
		delete(r, "kind")
		r["version"] = json.RawMessage("1")
		var data []byte
		if err == nil {
			data, err = json.Marshal(r)
		}
		if err == nil {
			err = h.put(fmt.Sprintf(recordsOf, kind), string(data), 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// runsPolicy fails if the API server does not run with the audit policy of its host.
func (h *Host) runsPolicy() error {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	s := h.apiServer()
	if s == nil || h.newPolicy {
		return nil
	}
	want, err := h.readPolicy(h.pods["kube-apiserver"])
	if err == nil && s.policy != want {
		err = fmt.Errorf("the API server runs with the audit policy %q, and its host has %q", s.policy, want)
	}
	return err
}

// keptImages is the lease that keeps the former images of an upgrade (images/store).
const keptImages = "airlift-kept"

// keepsImages makes a lease of kept images, and returns whether the host has it.
func (i *imageStore) keepsImages(create bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if create {
		i.leases[keptImages] = &leasesapi.Lease{ID: keptImages, CreatedAt: timestamppb.Now()}
	}
	return i.leases[keptImages] != nil
}

// configuration returns the files of a host that a reconfiguration may change.
func (h *Host) configuration() map[string]string {
	list := h.files()
	maps.DeleteFunc(list, func(name, _ string) bool {
		return !strings.HasPrefix(name, "/etc/kubernetes/") && !strings.HasPrefix(name, "/var/lib/kubelet/config") && !strings.HasPrefix(name, "/var/lib/kubelet/kubeadm-flags") || strings.Contains(name, savedSuffix)
	})
	return list
}

// plannable returns the files of a host that the plan of a reconfiguration names if the run changes or removes them.
func (h *Host) plannable() map[string]string {
	list := h.configuration()
	for name, sum := range h.files() {
		dir := path.Dir(name)
		if dir == "/etc/sysctl.d" || dir == "/etc/sysusers.d" || dir == "/etc/systemd/system" {
			list[name] = sum
		}
		if name == servingFile { // the kubelet changes it
			list[name] = "the link"
		}
	}
	return list
}

// changeOf returns what the record of a reconfiguration identifies, "" without one.
func (h *Host) changeOf() string { return h.reconfigured().Change }

// reconfigured returns the record of the last reconfiguration, an empty one without it.
func (h *Host) reconfigured() (s revision.Record) {
	var file struct{ Records []revision.Record }
	if json.Unmarshal([]byte(h.read(fmt.Sprintf(recordsOf, revision.Upgrade))), &file) != nil || file.Records == nil { // a former build wrote it
		_ = json.Unmarshal([]byte(h.read(fmt.Sprintf(recordsOf, revision.Reconfigure))), &s)
		return s
	}
	for _, r := range file.Records {
		if r.Kind == revision.Reconfigure {
			return r
		}
	}
	return s
}

// follows returns the number of the reconfiguration that the node of a host has recorded, -1 if there is no node.
func (s *Site) follows(h *Host) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.api()
	if c == nil || c.data["nodes/"+h.Name] == "" {
		return -1
	}
	return followsOf(c.object("nodes/" + h.Name)).Reconfiguration
}

// followsOf returns what a Node has recorded.
func followsOf(o map[string]any) cluster.Follows {
	var n corev1.Node
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, &n); err != nil {
		panic(err)
	}
	return cluster.FollowsOf(&n)
}

// value returns a value of a ConfigMap in kube-system, "" if there is none.
func (s *Site) value(name, key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.api()
	if c == nil || c.data["configmaps/kube-system/"+name] == "" {
		return ""
	}
	data, _ := c.object("configmaps/kube-system/" + name)["data"].(map[string]any)
	text, _ := data[key].(string)
	return text
}

// addedName is a name that reconfigureWide adds to certificates.
const addedName = "new.example"

// storesName reports whether the cluster's configuration has addedName.
func (s *Site) storesName() bool {
	return strings.Contains(s.value("kubeadm-config", "ClusterConfiguration"), addedName)
}

// followsAfterUndo fails if a node counts as one that follows what was undone on it. record is from before undo, and had is set if
// the cluster stored addedName then.
func (s *Site) followsAfterUndo(h *Host, record revision.Record, had bool) error {
	is, want := s.follows(h), h.followed
	last, _ := config.DecodeReconfiguration([]byte(s.value(config.ReconfigurationConfigMap, config.ReconfigurationKey)))
	if len(record.Objects) > 0 && record.Followers != "" {
		want = last.Number // undo has stored it
	}
	if had && is >= 0 && !s.storesName() && !slices.Contains(last.Removed.APIServer, addedName) {
		return fmt.Errorf("after undo, the other nodes do not learn that %s is no name any more: %+v", addedName, last)
	}
	if is >= 0 && is != want && is != h.followed {
		return fmt.Errorf("after undo, %s follows the reconfiguration %d, not %d", h.Name, is, want)
	}
	return nil
}

// checkConfiguration fails if a host has another configuration.
func (h *Host) checkConfiguration(want map[string]string) error {
	is := h.configuration()
	for name, sum := range want {
		if is[name] != sum {
			return fmt.Errorf("undo has not restored %s", name)
		}
	}
	for name, sum := range is {
		if _, ok := want[name]; !ok && sum != "directory" {
			return fmt.Errorf("undo has left %s", name)
		}
	}
	return nil
}

// addOnImages fails if an add-on runs with an image that a node does not have: its pods would never start there.
func (s *Site) addOnImages() error {
	c := s.api()
	if c == nil {
		return nil
	}
	for _, object := range []string{"deployments/kube-system/coredns", "daemonsets/kube-system/kube-proxy"} {
		for _, image := range regexp.MustCompile(`"image":"([^"]+)"`).FindAllStringSubmatch(c.data[object], -1) {
			for _, h := range s.hosts {
				if c.data["nodes/"+h.Name] != "" && h.store != nil && !h.store.has(image[1]) {
					return fmt.Errorf("%s runs %s, which %s does not have: %q", object, image[1], h.Name, slices.Sorted(maps.Keys(h.store.images)))
				}
			}
		}
	}
	return nil
}
