package upgradecheck

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/installer/cluster/inventory"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/kubeletcheck"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/runtimecheck"
	"airlift/internal/fault"
)

var now = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)

// sound returns a target without problems: one control plane and one worker.
func sound(t *testing.T) *Target {
	t.Helper()
	image := func(name, tag string) string { return "registry.k8s.io/" + name + ":" + tag }
	files := fstest.MapFS{}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		files["etc/kubernetes/manifests/"+name+".yaml"] = &fstest.MapFile{Data: []byte("kind: Pod")}
	}
	return &Target{
		Command: Plan, From: "v1.37.1", To: "v1.37.2", Platform: "linux/amd64", HostPlatform: "linux/amd64",
		Drain: true, Root: t.TempDir(), Files: files, NodeName: "cp", ControlPlane: true, Now: now,
		Config: &config.Config{Cluster: config.Cluster{KubernetesVersion: "v1.37.2"}},
		Cluster: &inventory.Cluster{
			ServerVersion: "v1.37.1",
			Nodes: []inventory.Node{
				{Name: "cp", ControlPlane: true, Ready: true, KubeletVersion: "v1.37.1"},
				{Name: "worker", Ready: true, Open: true, KubeletVersion: "v1.37.1"},
			},
			Components: []inventory.Component{
				{Name: "coredns", Image: image("coredns/coredns", "v1.14.6")},
				{Name: "etcd", Node: "cp", Image: image("etcd", "3.7.0-0")},
				{Name: "kube-apiserver", Node: "cp", Image: image("kube-apiserver", "v1.37.1")},
				{Name: "kube-controller-manager", Node: "cp", Image: image("kube-controller-manager", "v1.37.1")},
				{Name: "kube-scheduler", Node: "cp", Image: image("kube-scheduler", "v1.37.1")},
			},
		},
		Etcd:         &Etcd{Members: []etcd.Status{{Member: etcd.Member{Name: "cp"}, Version: "3.7.0"}}},
		Certificates: []pki.Expiration{{Name: "apiserver", File: "/etc/kubernetes/pki/apiserver.crt", CA: "ca", NotAfter: now.AddDate(1, 0, 0)}},
	}
}

func versions(from, to string) func(*Target) {
	return func(t *Target) {
		t.From, t.To, t.Config.KubernetesVersion = from, to, to
		for i := range t.Cluster.Nodes {
			t.Cluster.Nodes[i].KubeletVersion = from
		}
		for i, c := range t.Cluster.Components {
			if slices.Contains(controlPlane, c.Name) {
				t.Cluster.Components[i].Image = "registry.k8s.io/" + c.Name + ":" + from
			}
		}
	}
}

// uses is for an upgrade of a cluster in which an object uses a feature.
func uses(from, to string, feature inventory.Feature, object string) func(*Target) {
	return func(t *Target) {
		versions(from, to)(t)
		t.Cluster.Features = inventory.Features{feature: {object}}
	}
}

// runtimeOf is for an upgrade of a cluster in which a node has an old containerd.
func runtimeOf(from, to string, node int) func(*Target) {
	return func(t *Target) {
		versions(from, to)(t)
		t.Cluster.Nodes[node].ContainerRuntime = "containerd://1.7.29"
	}
}

// Each case breaks one thing. The report must have the check's name, the message and a fix.
func TestEachCheck(t *testing.T) {
	args := func(name, value string) []config.Arg { return []config.Arg{{Name: name, Value: value}} }
	budget := inventory.Budget{Name: "default/web", Pods: []string{"default/web-1"}, Nodes: []string{"cp"}, Healthy: 1, Desired: 1, Never: true}
	cert := func(c pki.Expiration, left time.Duration) func(*Target) {
		return func(t *Target) {
			c.File, c.NotAfter = "/etc/kubernetes/pki/"+c.Name+".crt", now.Add(left)
			t.Certificates = []pki.Expiration{c}
		}
	}
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		change  func(*Target)
		check   string
		message string
		fix     string
		warning bool
	}{
		"older":              {versions("v1.37.1", "v1.29.15"), "KubernetesVersion", "older than the cluster's v1.37.1", "a later v1.37, or v1.38", false},
		"older patch":        {versions("v1.37.2", "v1.37.1"), "KubernetesVersion", "a downgrade is not possible", "higher than v1.37.2", false},
		"same":               {versions("v1.37.1", "v1.37.1"), "KubernetesVersion", "nothing to upgrade", "v1.38", false},
		"skipped minor":      {versions("v1.35.4", "v1.37.1"), "KubernetesVersion", "cannot skip a minor version", "bundle build --version 1.36", false},
		"release candidate":  {versions("v1.37.1", "v1.37.2-rc.1"), "KubernetesVersion", "release candidate", "--allow-release-candidate-upgrades", false},
		"alpha":              {versions("v1.37.1", "v1.38.0-alpha.1"), "KubernetesVersion", "not a released version", "--allow-experimental-upgrades", false},
		"node before apply":  {func(t *Target) { t.Command = Node }, "KubernetesVersion", "nodes are upgraded to the cluster's version", "./install upgrade apply", false},
		"apply of an older":  {func(t *Target) { versions("v1.37.2", "v1.37.1")(t); t.Command = Apply }, "KubernetesVersion", "a downgrade is not possible", "./install upgrade undo", false},
		"node with an older": {func(t *Target) { versions("v1.37.2", "v1.37.1")(t); t.Command = Node }, "KubernetesVersion", "nodes are upgraded to the cluster's version", "use the file with v1.37.2", false},
		"old kubelet":        {func(t *Target) { t.Cluster.Nodes[1].KubeletVersion = "v1.33.0" }, "VersionSkew", "the kubelet of node worker is v1.33.0", "v1.34 or later", false},
		"new kubelet":        {func(t *Target) { t.Cluster.Nodes[1].KubeletVersion = "v1.38.0" }, "VersionSkew", "must not be newer", "later one", false},
		"old control plane":  {func(t *Target) { t.Cluster.Components[2].Image = "x/kube-apiserver:v1.35.0" }, "VersionSkew", "differ by one minor", "upgrade node", false},
		"new control plane":  {func(t *Target) { t.Cluster.Components[2].Image = "x/kube-apiserver:v1.38.0" }, "VersionSkew", "newer than v1.37.2", "later one", false},
		"control plane down": {func(t *Target) { t.Cluster.Nodes[0].Ready = false }, "ControlPlaneNodesReady", "control plane cp is not Ready", "kubectl describe node cp", false},
		"worker down":        {func(t *Target) { t.Cluster.Nodes[1].Ready = false }, "NodesReady", "node worker is not Ready", "kubectl", true},
		"cordoned":           {func(t *Target) { t.Cluster.Nodes[0].Unschedulable = true }, "NodesReady", "already cordoned", "kubectl uncordon cp", true},
		"another node":       {func(t *Target) { t.NodeName = "x" }, "NodesReady", `no node "x"`, "run it on a node", false},
		"no manifest":        {func(t *Target) { delete(t.Files.(fstest.MapFS), "etc/kubernetes/manifests/etcd.yaml") }, "StaticPodManifest", "etcd.yaml", "restore it", false},
		"etcd's volume moved": {func(t *Target) {
			t.Config.Etcd.Local.DataDir = "/var/lib/etcd"
			t.Files.(fstest.MapFS)["etc/kubernetes/manifests/etcd.yaml"] = &fstest.MapFile{Data: []byte("metadata: {name: etcd}\nspec: {containers: [{name: etcd, command: [etcd, --data-dir=/var/lib/etcd]}], volumes: [{name: etcd-data, hostPath: {path: /data/etcd}}]}\n")}
		}, "StaticPodManifest", "etcd's data is in /data/etcd, and in /var/lib/etcd", "set etcd.local.dataDir", false},
		"etcd's flag moved": {func(t *Target) {
			t.Config.Etcd.Local.DataDir = "/var/lib/etcd"
			t.Files.(fstest.MapFS)["etc/kubernetes/manifests/etcd.yaml"] = &fstest.MapFile{Data: []byte("metadata: {name: etcd}\nspec: {containers: [{name: etcd, command: [etcd, --data-dir=/var/lib/etcd/data]}], volumes: [{name: etcd-data, hostPath: {path: /var/lib/etcd}}]}\n")}
		}, "StaticPodManifest", "etcd's data is in /var/lib/etcd/data, and in /var/lib/etcd", "set etcd.local.dataDir", false},
		"no manifest, no copy": {func(t *Target) {
			t.Continues = true
			delete(t.Files.(fstest.MapFS), "etc/kubernetes/manifests/kube-scheduler.yaml")
		}, "StaticPodManifest", "kube-scheduler.yaml", "restore it", false},
		"no image":             {func(t *Target) { t.MissingImages = []string{"flannel"} }, "ImagePull", "an image of flannel", "--cni flannel", false},
		"another tag":          {func(t *Target) { t.ImageNames = errors.New("the configuration requires etcd 3.5.0") }, "ImagePull", "etcd 3.5.0", "imageTag", false},
		"architecture":         {func(t *Target) { t.Platform = "linux/arm64" }, "Architecture", "this file is for linux/arm64", "--arch amd64", false},
		"etcd away":            {func(t *Target) { t.Etcd = &Etcd{Err: errors.New("no member answers")} }, "EtcdHealth", "no member answers", "log", false},
		"etcd unhealthy":       {func(t *Target) { t.Etcd.Members[0].Err = errors.New("it has no leader") }, "EtcdHealth", "it has no leader", "start that control plane", false},
		"etcd learner":         {func(t *Target) { t.Etcd.Members[0].Learner = true }, "EtcdHealth", "a learner", "join command", false},
		"etcd full":            {func(t *Target) { t.Etcd.Members[0].Alarms = []string{"NOSPACE"} }, "EtcdHealth", "NOSPACE", "etcd defrag", false},
		"etcd corrupt":         {func(t *Target) { t.Etcd.Members[0].Alarms = []string{"CORRUPT"} }, "EtcdHealth", "CORRUPT", "restore", false},
		"expired":              {cert(pki.Expiration{Name: "apiserver", CA: "ca"}, -day), "Certificates", "expired on 2026-04-30", "certs renew apiserver", false},
		"expired CA":           {cert(pki.Expiration{Name: "ca"}, -day), "Certificates", "the CA", "./install docs certificates", false},
		"expired, external CA": {cert(pki.Expiration{Name: "apiserver", CA: "ca", External: true}, -day), "Certificates", "not on this host", "external CA ca", false},
		"expired, kubelet":     {cert(pki.Expiration{Name: "kubelet.conf", CA: "ca", External: true}, -day), "Certificates", "expired", "./install docs certificates", false},
		"ends soon":            {cert(pki.Expiration{Name: "apiserver", CA: "ca"}, 3*day), "Certificates", "ends on 2026-05-04", "renews it", true},
		"CA ends soon":         {cert(pki.Expiration{Name: "ca"}, 3*day), "Certificates", "does not renew it", "replace the CA", true},
		"kubeadm's gate":       {func(t *Target) { t.Config.FeatureGates = map[string]bool{"EtcdLearnerMode": true} }, "FeatureGates", "EtcdLearnerMode", "kubeadm-config", false},
		"gate gone":            {func(t *Target) { t.Config.APIServer.ExtraArgs = args("feature-gates", "CloudDualStackNodeIPs=true") }, "FeatureGates", "kube-apiserver: feature gate CloudDualStackNodeIPs does not exist in v1.37", "apiServer.extraArgs", false},
		"flag gone":            {func(t *Target) { t.Config.APIServer.ExtraArgs = args("cloud-provider", "external") }, "RemovedFlags", "no flag --cloud-provider since v1.33", "apiServer.extraArgs", false},
		"etcd's flag gone": {func(t *Target) {
			t.Config.Etcd.Local.ExtraArgs = args("experimental-compact-hash-check-enabled", "true")
		}, "RemovedFlags", "etcd has no flag --experimental-compact-hash-check-enabled since v1.37", "etcd.local.extraArgs", false},
		"etcd's flag gone with etcd 3.6": {func(t *Target) {
			versions("v1.33.13", "v1.34.9")(t)
			t.Config.Etcd.Local.ExtraArgs = args("enable-v2", "true")
		}, "RemovedFlags", "etcd has no flag --enable-v2 since v1.34", "etcd.local.extraArgs", false},
		"controller gone": {func(t *Target) {
			versions("v1.36.3", "v1.37.2")(t)
			t.Config.ControllerManager.ExtraArgs = args("controllers", "*,bootstrapsigner,tokencleaner,-service-lb-controller")
		}, "RemovedFlags", "kube-controller-manager does not start with -service-lb-controller in --controllers since v1.37", "remove -service-lb-controller from controllers in controllerManager.extraArgs", false},
		"built-in cloud provider": {func(t *Target) {
			versions("v1.30.14", "v1.31.14")(t)
			t.Config.ControllerManager.ExtraArgs = args("cloud-provider", "vsphere")
		}, "RemovedFlags", "kube-controller-manager does not start with vsphere in --cloud-provider since v1.31", "set cloud-provider: external in controllerManager.extraArgs", false},
		"object": {func(t *Target) {
			t.Uses = []inventory.APIUse{{API: "a/v1beta1", Kind: "K", Object: "x", By: "helm", Removed: "v1.37", Replacement: "a/v1, K"}}
		}, "RemovedAPIs", `K x was written by "helm" with a/v1beta1`, "use a/v1, K", true},
		"requests": {func(t *Target) { t.Uses = []inventory.APIUse{{API: "a/v1beta1", Kind: "ks", Removed: "v1.37"}} }, "RemovedAPIs", "a client requests ks of a/v1beta1", "audit log", true},
		"objects that are lost": {func(t *Target) {
			for _, name := range []string{"a/1", "a/2", "a/3", "a/4", "a/5", "a/6"} {
				t.Uses = append(t.Uses, inventory.APIUse{API: "scheduling.k8s.io/v1alpha2", Kind: "Workload", Object: name, Removed: "v1.37", Replacement: "scheduling.k8s.io/v1beta1", Lost: "workloads"})
			}
		}, "RemovedAPIs", "Workload a/1, a/2, a/3, a/4, a/5 and 1 more: v1.37 can neither read nor delete", "kubectl delete workloads.v1alpha2.scheduling.k8s.io -A --all; afterwards, create them with scheduling.k8s.io/v1beta1", false},
		"API in runtime-config": {func(t *Target) {
			versions("v1.36.3", "v1.37.2")(t)
			t.Config.APIServer.ExtraArgs = args("runtime-config", "api/alpha=true, scheduling.k8s.io/v1alpha2=true,scheduling.k8s.io/v1beta1=true")
		}, "UpgradeNotes", "does not know the API scheduling.k8s.io/v1alpha2 in", "remove it from runtime-config in apiServer.extraArgs", false},
		"admission plugin gone": {func(t *Target) {
			versions("v1.29.15", "v1.30.14")(t)
			t.Config.APIServer.ExtraArgs = args("enable-admission-plugins", "NodeRestriction,SecurityContextDeny")
		}, "UpgradeNotes", "no admission plugin SecurityContextDeny", "enable-admission-plugins", false},
		"admission plugin always pulls": {func(t *Target) {
			t.Config.APIServer.ExtraArgs = args("enable-admission-plugins", "NodeRestriction,AlwaysPullImages")
		}, "UpgradeNotes", "AlwaysPullImages makes each pod pull", "enable-admission-plugins", true},
		"ceph":     {uses("v1.30.14", "v1.31.14", inventory.VolumeType("rbd"), "PersistentVolume old"), "UpgradeNotes", "PersistentVolume old: volumes of the types cephfs and rbd", "ceph-csi", true},
		"portworx": {uses("v1.30.14", "v1.31.14", inventory.VolumeType("portworxVolume"), "PersistentVolume p"), "UpgradeNotes", "PersistentVolume p: since v1.31", "pxd.portworx.com", true},
		"resizing": {func(t *Target) {
			versions("v1.30.14", "v1.31.14")(t)
			t.Config.ControllerManager.ExtraArgs = args("feature-gates", "RecoverVolumeExpansionFailure=true")
		}, "UpgradeNotes", "kube-controller-manager enables RecoverVolumeExpansionFailure", "--subresource=status", true},
		"scheduler's plugins": {func(t *Target) {
			versions("v1.31.14", "v1.32.13")(t)
			t.Config.Scheduler.ExtraArgs = args("config", "/etc/scheduler/config.yaml")
			t.Config.Scheduler.ExtraVolumes = []config.HostPathMount{{MountPath: "/etc/sched", HostPath: "/other"}, {MountPath: "/etc/scheduler", HostPath: "/opt/scheduler"}}
			t.Files.(fstest.MapFS)["opt/scheduler/config.yaml"] = &fstest.MapFile{Data: []byte("profiles: [{plugins: {filter: {enabled: [{name: EBSLimits}, {name: NodeName}], disabled: [{name: CinderLimits}]}}}]")}
		}, "UpgradeNotes", "kube-scheduler enables EBSLimits, which v1.32 does not have", "NodeVolumeLimits", false},
		"static pod with a Secret": {func(t *Target) {
			versions("v1.33.13", "v1.34.9")(t)
			t.Files.(fstest.MapFS)["etc/kubernetes/manifests/proxy.yaml"] = &fstest.MapFile{Data: []byte("kind: Pod\nspec: {containers: [{name: a, envFrom: [{secretRef: {name: b}}]}]}")}
		}, "UpgradeNotes", "/etc/kubernetes/manifests/proxy.yaml: since v1.34", "hostPath", true},
		"shared counters": {func(t *Target) {
			versions("v1.34.9", "v1.35.6")(t)
			t.Config.APIServer.ExtraArgs = args("feature-gates", "DRAPartitionableDevices=true")
		}, "UpgradeNotes", "kube-apiserver enables DRAPartitionableDevices", "kubectl delete resourceslices --all", true},
		"exec by get":  {uses("v1.34.9", "v1.35.6", inventory.ConnectByGet, "Role a/debug"), "UpgradeNotes", "Role a/debug: since v1.35", "verb create", true},
		"ipvs":         {func(t *Target) { t.Config.KubeProxy = &kubeproxyv1.KubeProxyConfiguration{Mode: "ipvs"} }, "UpgradeNotes", "mode ipvs is deprecated since v1.35", "mode: nftables", true},
		"external IPs": {uses("v1.37.1", "v1.37.2", inventory.ExternalIPs, "Service default/web"), "UpgradeNotes", "Service default/web: externalIPs", "LoadBalancer", true},
		"git volume":   {uses("v1.35.6", "v1.36.3", inventory.VolumeType("gitRepo"), "Pod default/git"), "UpgradeNotes", "Pod default/git: volumes of the type gitRepo", "init container", true},
		"flex volume":  {uses("v1.35.6", "v1.36.3", inventory.VolumeType("flexVolume"), "PersistentVolume f"), "UpgradeNotes", "PersistentVolume f: since v1.36", "flex-volume-plugin-dir", true},
		"SELinux":      {uses("v1.36.3", "v1.37.2", inventory.SELinuxMount, "CSIDriver x"), "UpgradeNotes", "CSIDriver x: since v1.37", "seLinuxChangePolicy: Recursive", true},
		"SELinux on this host": {func(t *Target) {
			versions("v1.36.3", "v1.37.2")(t)
			t.Files.(fstest.MapFS)["sys/fs/selinux/enforce"] = &fstest.MapFile{}
		}, "UpgradeNotes", "this host uses SELinux: since v1.37", "seLinuxChangePolicy", true},
		"SELinux on another node": {func(t *Target) {
			versions("v1.37.2", "v1.37.2")(t)
			t.Command, t.Kubelet, t.ControlPlane, t.Etcd, t.Cluster = Node, "v1.36.3", false, nil, nil
			t.Files.(fstest.MapFS)["sys/fs/selinux/enforce"] = &fstest.MapFile{}
		}, "UpgradeNotes", "this host uses SELinux", "seLinuxChangePolicy", true},
		"logs of nodes":                {uses("v1.36.3", "v1.37.2", inventory.NodeLogs, "ClusterRole logs"), "UpgradeNotes", "ClusterRole logs: the kubelet of v1.37", "remove nodes/log", true},
		"old containerd":               {runtimeOf("v1.36.3", "v1.37.2", 0), "ContainerRuntimeVersion", "containerd 1.7.29 of node cp", "2.0 or newer", true},
		"too old containerd":           {runtimeOf("v1.37.2", "v1.38.0", 0), "ContainerRuntimeVersion", "containerd 1.7.29 of node cp", "2.0 or newer", false},
		"too old containerd elsewhere": {runtimeOf("v1.37.2", "v1.38.0", 1), "ContainerRuntimeVersion", "containerd 1.7.29 of node worker", "2.0 or newer", true},
		"a file of other software": {func(t *Target) {
			t.ContainerdFiles = []runtimecheck.Problem{{Message: "/etc/containerd/conf.d/a.toml: the pause image", Fix: "mv a b"}}
		}, "ContainerdFiles", "conf.d/a.toml", "mv a b", false},
		"a GPU without a driver": {func(t *Target) {
			dir := filepath.Join(t.Root, "sys/bus/pci/devices/0000:3b:00.0")
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "vendor"), []byte("0x10de\n"), 0o644), os.WriteFile(filepath.Join(dir, "class"), []byte("0x030200\n"), 0o644)); err != nil {
				panic(err)
			}
		}, "GPU", "the NVIDIA GPU at 0000:3b:00.0 has no driver", "./install docs gpu", true},
		"kubelet's flag": {func(t *Target) {
			t.KubeletProblems = []kubeletcheck.Problem{{Name: kubeletcheck.Flags, Message: "--x does not exist", Fix: "remove it"}}
		}, "KubeletFlags", "--x", "remove it", false},
		"budget here": {func(t *Target) { t.Cluster.Budgets = []inventory.Budget{budget} }, "Drain", "never allows the eviction of default/web-1", "--drain=false", false},
		"budget elsewhere": {func(t *Target) {
			b := budget
			b.Nodes = []string{"worker"}
			t.Cluster.Nodes[0].Open = true
			t.Cluster.Budgets = []inventory.Budget{b}
		}, "Drain", "drain of worker cannot end", "--drain=false", true},
		"budget for now": {func(t *Target) { b := budget; b.Never = false; t.Cluster.Budgets = []inventory.Budget{b} }, "Drain", "allows no eviction of default/web-1 now", "Ready", true},
		"bare pod elsewhere": {func(t *Target) {
			t.Cluster.Nodes[0].Open = true
			t.Cluster.Pods = []inventory.Pod{{Name: "default/bare", Node: "worker", Bare: true}}
		}, "Drain", "default/bare on worker has no controller", "delete it", true},
		"bare pod": {func(t *Target) { t.Cluster.Pods = []inventory.Pod{{Name: "default/bare", Node: "cp", Bare: true}} }, "Drain", "default/bare on cp has no controller", "delete it", false},
		"emptyDir": {func(t *Target) {
			t.Cluster.Pods = []inventory.Pod{{Name: "default/web", Node: "cp", EmptyDirs: []string{"data"}}}
		}, "Drain", "emptyDir volumes (data)", "save its data", true},
		"disk": {func(t *Target) { t.Disk = []preflight.Space{{Path: "/var", Bytes: 1 << 60}} }, "DiskSpace", "MB are needed", "free space", false},
	} {
		t.Run(name, func(t *testing.T) {
			target := sound(t)
			c.change(target)
			report, err := Run(t.Context(), target, nil)
			list := report.Errors
			if c.warning {
				list = report.Warnings
			}
			if !slices.ContainsFunc(list, func(p preflight.Problem) bool {
				return p.Name == c.check && strings.Contains(p.Message, c.message) && strings.Contains(p.Fix, c.fix)
			}) {
				t.Errorf("not found: %+v", report)
			}
			if others := len(report.Errors) + len(report.Warnings); others != 1 {
				t.Errorf("%d findings: %+v", others, report)
			}
			if !slices.Contains(checkNames(), c.check) {
				t.Errorf("Names has no %s", c.check)
			}
			if c.warning != (err == nil) || err != nil && fault.ExitCode(err) != fault.Preflight {
				t.Errorf("error %v", err)
			}
			if report, err = Run(t.Context(), target, []string{"all"}); err != nil || len(report.Errors) > 0 {
				t.Errorf("ignored: %v", err)
			}
		})
	}
}

func TestNothingIsFound(t *testing.T) {
	for name, change := range map[string]func(*Target){
		"patch":            func(*Target) {},
		"next minor":       versions("v1.36.3", "v1.37.1"),
		"kubelets at N-3":  func(t *Target) { t.Cluster.Nodes[1].KubeletVersion = "v1.34.0" },
		"experimental":     func(t *Target) { versions("v1.37.1", "v1.38.0-beta.0")(t); t.AllowExperimental = true },
		"rc":               func(t *Target) { versions("v1.37.1", "v1.38.0-rc.0")(t); t.AllowRC = true },
		"unfinished":       func(t *Target) { t.From = "v1.37.2" },
		"apply again":      func(t *Target) { versions("v1.37.2", "v1.37.2")(t); t.Command = Apply },
		"node after apply": func(t *Target) { t.Command, t.From = Node, "v1.37.2" },
		"a manifest that an interrupted upgrade has removed": func(t *Target) {
			t.Continues, t.Kept = true, []string{"/etc/kubernetes/manifests/kube-scheduler.yaml"}
			delete(t.Files.(fstest.MapFS), "etc/kubernetes/manifests/kube-scheduler.yaml")
		},
		"other node": func(t *Target) {
			t.Command = Apply
			t.Cluster.Pods = []inventory.Pod{{Name: "default/bare", Node: "worker", Bare: true}}
			t.Cluster.Budgets = []inventory.Budget{{Name: "default/web", Nodes: []string{"worker"}, Never: true}}
		},
		"no other node": func(t *Target) {
			t.Cluster.Nodes[1].Open = false
			t.Cluster.Pods = []inventory.Pod{{Name: "default/bare", Node: "cp", Bare: true}}
		},
		"changes of versions before and after": func(t *Target) {
			versions("v1.36.3", "v1.37.2")(t)
			t.Cluster.Features = inventory.Features{inventory.VolumeType("rbd"): {"a"}, inventory.VolumeType("gitRepo"): {"a"}, inventory.VolumeType("csi"): {"a"}, inventory.ConnectByGet: {"a"}}
			t.Config.APIServer.ExtraArgs = []config.Arg{{Name: "enable-admission-plugins", Value: "NodeRestriction"}, {Name: "runtime-config", Value: "scheduling.k8s.io/v1beta1=true"}}
			t.Config.KubeProxy = &kubeproxyv1.KubeProxyConfiguration{Mode: "nftables"}
		},
		"changes that come later": func(t *Target) {
			versions("v1.30.4", "v1.30.14")(t)
			t.Cluster.Features = inventory.Features{inventory.VolumeType("rbd"): {"a"}, inventory.ExternalIPs: {"a"}, inventory.SELinuxMount: {"a"}, inventory.NodeLogs: {"a"}}
			t.Config.KubeProxy = &kubeproxyv1.KubeProxyConfiguration{Mode: "ipvs"}
			t.Config.APIServer.ExtraArgs = []config.Arg{{Name: "runtime-config", Value: "resource.k8s.io/v1alpha2=true"}}
			t.Cluster.Nodes[0].ContainerRuntime = "containerd://1.7.29"
		},
		"flex volumes with their directory": func(t *Target) {
			uses("v1.35.6", "v1.36.3", inventory.VolumeType("flexVolume"), "Pod a/b")(t)
			t.Config.ControllerManager.ExtraArgs = []config.Arg{{Name: "flex-volume-plugin-dir", Value: "/opt/flex/"}}
			t.Config.ControllerManager.ExtraVolumes = []config.HostPathMount{{MountPath: "/audit"}, {MountPath: "/opt/flex"}}
		},
		"other runtimes": func(t *Target) {
			t.Cluster.Nodes[0].ContainerRuntime, t.Cluster.Nodes[1].ContainerRuntime = "containerd://2.4.2", "cri-o://1.33.1"
		},
		"static pods without objects": func(t *Target) {
			versions("v1.33.13", "v1.34.9")(t)
			t.Files.(fstest.MapFS)["etc/kubernetes/manifests/proxy.yaml"] = &fstest.MapFile{Data: []byte("kind: Pod\nspec: {volumes: [{name: a, hostPath: {path: /a}}, {name: b, projected: {sources: [{downwardAPI: {}}]}}]}")}
		},
		"no drain": func(t *Target) {
			t.Drain = false
			t.Cluster.Pods = []inventory.Pod{{Name: "default/bare", Node: "cp", Bare: true}}
		},
		"a worker's permissions": func(t *Target) {
			t.Command, t.From, t.ControlPlane, t.Etcd = Node, "v1.37.2", false, nil
			t.Cluster, t.NodeName = nil, "cp"
		},
	} {
		t.Run(name, func(t *testing.T) {
			target := sound(t)
			change(target)
			report, err := Run(t.Context(), target, nil)
			if err != nil || len(report.Warnings) > 0 {
				t.Errorf("%v %+v", err, report)
			}
		})
	}
}

// TestEtcdQuorum: an unhealthy member blocks an upgrade only if etcd would have no quorum while the member
// of this host restarts. The fix is a command that can be typed.
func TestEtcdQuorum(t *testing.T) {
	for _, c := range []struct {
		members, down int
		own           bool // the first member that is down is this host's
		problems      int
		warnings      int
	}{
		{members: 1},
		{members: 2},
		{members: 2, down: 1, problems: 1},
		{members: 3, down: 1, problems: 1},
		{members: 4, down: 1, problems: 1},
		{members: 5, down: 1, warnings: 1},
		{members: 5, down: 2, problems: 2},
		{members: 7, down: 2, warnings: 2},
		{members: 5, down: 1, own: true, problems: 1},
	} {
		state := &Etcd{Own: 1}
		for i := range c.members {
			m := etcd.Status{Member: etcd.Member{ID: uint64(i + 1), Name: fmt.Sprint("host", i+1)}}
			if i > 0 && i <= c.down && !c.own || i == 0 && c.own {
				m.Err = errors.New("connection refused")
			}
			state.Members = append(state.Members, m)
		}
		problems, warnings := 0, 0
		for _, f := range (&Target{Etcd: state}).etcdHealth() {
			if f.Warning {
				warnings++
			} else {
				problems++
			}
			if !c.own && !strings.Contains(f.Fix, "./install etcd member remove 000000000000000") {
				t.Errorf("%+v: %s", c, f.Fix)
			}
		}
		if problems != c.problems || warnings != c.warnings {
			t.Errorf("%+v: %d problems, %d warnings", c, problems, warnings)
		}
	}
}
