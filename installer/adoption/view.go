package adoption

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"

	"airlift/installer/config"
	"airlift/installer/kubeletcheck"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/redact"
	"airlift/installer/staticpod"
	"airlift/internal/documents"
)

// A view is an Input with what follows from it for several checks, and the report so far.
type view struct {
	Input
	host    *hostFiles
	kubelet *kubeletUnit
	report  Report
	stop    bool // the maker is refused: its layout is not kubeadm's

	// plane is set on a control plane.
	plane bool
	// name is the name of this node in its certificate; "" if there is none.
	name string
	// flags are the running kubelet's flags.
	flags []config.Arg
	// configFile is the path of the kubelet's configuration, and ownConfig its content. running is that with the files of
	// --config-dir, which are configFiles.
	configFile         string
	ownConfig, running map[string]any
	configFiles        []string
	// sharedConfig is the KubeletConfiguration of the cluster; nil if there is none.
	sharedConfig map[string]any
	// user is the user of kubelet.conf, and server its cluster; nil without the file.
	userName string
	user     *clientcmdapi.AuthInfo
	server   *clientcmdapi.Cluster
	// pods are the static pods of this host, by the names of their files.
	pods map[string]*staticpod.Pod
	// api is the version of the stored configuration: "v1beta3". stored is nil if it cannot be used.
	api    string
	stored *config.Cluster
	// warnings are the fields of the stored configuration that nobody knows.
	warnings []string
	// config is the configuration of this node with the version of the cluster; nil without a stored configuration.
	config *config.Config
}

func newView(in Input) *view {
	files := filesOf(in.Root)
	v := &view{Input: in, host: files, kubelet: in.kubelet(files), pods: map[string]*staticpod.Pod{}}
	v.plane, v.name = files.exists(node.APIServerManifest), pki.NodeName(files.files)
	v.flags = kubeletcheck.ParseFlags(in.Kubelet.Args)
	v.configFile = cmp.Or(v.flag("config"), config.KubeletConfigFile)
	v.ownConfig = v.host.document(v.configFile)
	if text := v.value(kubeletConfig, "kubelet"); text != "" {
		v.sharedConfig = v.host.decode("ConfigMap "+kubeletConfig, []byte(text))
	}
	v.readConfigDir()
	v.readKubeconfig()
	v.readPods()
	v.readStored()
	return v
}

// find reports something odd.
func (v *view) find(name, what, where, effect, hint string) {
	v.report.Findings = append(v.report.Findings, Finding{name, what, where, effect, hint})
}

// refuse reports why the node cannot be adopted.
func (v *view) refuse(name, what, where, why, hint string) {
	v.report.Refusals = append(v.report.Refusals, Finding{name, what, where, why, hint})
}

// flag returns the value of a flag of the running kubelet; the last one counts.
func (v *view) flag(name string) string { return last(v.flags, name) }

func last(flags []config.Arg, name string) string {
	value, _ := config.LastArg(flags, name)
	return value
}

// readConfigDir lays the files of --config-dir on the kubelet's configuration.
func (v *view) readConfigDir() {
	v.running = v.ownConfig
	dir := v.flag("config-dir")
	if dir == "" {
		return
	}
	merged, files, err := kubeletcheck.Merge(v.host.read(v.configFile), v.host.files, dir)
	if err == nil {
		v.running, v.configFiles = nil, files
		err = documents.Unmarshal(merged, &v.running)
	}
	if err != nil {
		v.host.cannotRead("--config-dir="+dir, err)
	}
}

// field returns a text field of the running kubelet's configuration.
func (v *view) field(name string) string {
	text, _ := v.running[name].(string)
	return text
}

// sourceOf returns where the running kubelet has a field of its configuration from.
func (v *view) sourceOf(name string) string {
	if reflect.DeepEqual(v.running[name], v.ownConfig[name]) {
		return v.configFile
	}
	return strings.Join(v.configFiles, ", ")
}

// readKubeconfig reads kubelet.conf.
func (v *view) readKubeconfig() {
	data := v.host.read(node.KubeletConf)
	if data == nil {
		return
	}
	c, err := clientcmd.Load(data)
	if err == nil && (c.Contexts[c.CurrentContext] == nil || c.AuthInfos[c.Contexts[c.CurrentContext].AuthInfo] == nil || c.Clusters[c.Contexts[c.CurrentContext].Cluster] == nil) {
		err = errors.New("its current context has no cluster and user")
	}
	if err != nil {
		v.host.cannotRead(node.KubeletConf, err)
		return
	}
	now := c.Contexts[c.CurrentContext]
	v.userName, v.user, v.server = now.AuthInfo, c.AuthInfos[now.AuthInfo], c.Clusters[now.Cluster]
}

// readPods reads the static pods, as the kubelet does: from all files, whatever their name ends with.
func (v *view) readPods() {
	for _, name := range v.host.list(config.ManifestsDir) {
		file := path.Join(config.ManifestsDir, name)
		data := v.host.read(file)
		if data == nil {
			continue
		}
		pod, err := staticpod.Parse(strings.TrimSuffix(name, ".yaml"), data)
		if err == nil && pod.Container == "" {
			err = errors.New("it is not a pod with a container")
		}
		if err != nil {
			v.host.cannotRead(file, err)
			continue
		}
		v.pods[name] = pod
	}
}

// component returns the static pod of a component of the control plane; nil if there is none.
func (v *view) component(name string) *staticpod.Pod { return v.pods[name+".yaml"] }

// Names of objects in the cluster.
const (
	kubeadmConfig = "kube-system/kubeadm-config"
	kubeletConfig = "kube-system/kubelet-config"
	proxyConfig   = "kube-system/kube-proxy"
	corednsConfig = "kube-system/coredns"
)

// value returns a key of a ConfigMap.
func (v *view) value(configMap, key string) string {
	if v.Cluster == nil || v.Cluster.ConfigMaps[configMap] == nil {
		return ""
	}
	return v.Cluster.ConfigMaps[configMap].Data[key]
}

// readStored decodes the ClusterConfiguration that kubeadm stored, and completes this node's, as an upgrade does.
func (v *view) readStored() {
	text := v.value(kubeadmConfig, "ClusterConfiguration")
	if text == "" {
		return
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
	}
	if err := documents.Unmarshal([]byte(text), &head); err != nil {
		v.host.cannotRead("ConfigMap "+kubeadmConfig, err)
		return
	}
	v.api = strings.TrimPrefix(head.APIVersion, "kubeadm.k8s.io/")
	if slices.Contains(oldAPIs, v.api) {
		return
	}
	stored, warnings, err := config.DecodeClusterConfiguration([]byte(text))
	if err != nil {
		v.host.cannotRead("ConfigMap "+kubeadmConfig, err)
		return
	}
	v.stored, v.warnings = &stored, warnings
	c := &config.Config{Cluster: stored}
	c.NodeRegistration.Name = v.name
	if server := v.component("kube-apiserver"); server != nil {
		if c.LocalAPIEndpoint, err = node.APIEndpoint(server.Flags); err != nil {
			v.host.cannotRead(node.APIServerManifest, err)
		}
	}
	c.CompleteUpgrade(v.plane)
	v.config = c
}

// kubeletVersion is the version of this node's kubelet, as its Node has it.
func (v *view) kubeletVersion() string {
	if v.Cluster == nil || v.Cluster.Node == nil {
		return ""
	}
	return v.Cluster.Node.Status.NodeInfo.KubeletVersion
}

// active reports whether a unit runs, or waits for its time.
func (v *view) active(unit string) bool { return v.Units[unit].Running() }

// minor returns the minor version of "v1.29.15"; 0 for another text.
func minor(version string) int { return (&config.Cluster{KubernetesVersion: version}).Minor() }

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// fieldText is the value of a field of a KubeletConfiguration on one line, without secrets.
func fieldText(name string, value any) string {
	if value == nil {
		return "not set"
	}
	data, err := json.Marshal(map[string]any{"apiVersion": kubeletv1.SchemeGroupVersion.String(), "kind": "KubeletConfiguration", name: value})
	var document map[string]any
	if err == nil {
		document, err = generic(data)
	}
	if err == nil {
		shown, _ := redact.Object(document).(map[string]any)
		data, err = json.Marshal(shown[name])
	}
	if err != nil {
		return "not readable"
	}
	return string(data)
}

// generic decodes the JSON of an object with the numbers that redact keeps.
func generic(data []byte) (object map[string]any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	err = decoder.Decode(&object)
	return object, err
}
