package spec_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/installer/configfile"
	"airlift/installer/multihost/spec"
	"airlift/internal/documents/problems"
	"airlift/internal/fault"
)

// release is a bundle of v1.37.1.
func release() *bundle.Manifest {
	m := &bundle.Manifest{KubernetesVersion: "v1.37.1", CNI: "flannel"}
	for _, name := range []string{"kube-apiserver:v1.37.1", "kube-controller-manager:v1.37.1", "kube-scheduler:v1.37.1", "kube-proxy:v1.37.1", "etcd:3.7.0-0", "coredns/coredns:v1.14.6", "pause:3.10.2"} {
		component, _, _ := strings.Cut(name, ":")
		component = strings.TrimPrefix(component, "coredns/")
		m.Images = append(m.Images, bundle.Image{Name: component, Reference: "registry.k8s.io/" + name})
	}
	return m
}

// Files with mistakes. A comment has the error of its line.
var mistakes = map[string]string{
	"cluster.yaml": `apiVersion: airlift/v1
kind: Cluster
name: Plant-7 #! name "Plant-7" has capital letters
ssh:
  port: 0 #! ssh.port must be the number of a port
hosts:
- name: cp-1
  role: master #! hosts[0].role "master" is not a role
  address: 10.0.0.11
- name: cp-2
  role: control-plane
  address: 10.0.0.12
  nodeIP: 10.244.7.1 #! hosts[1].nodeIP 10.244.7.1 is in the cluster's range of pod addresses, 10.244.0.0/16
- name: cp-2 #! the host in line 10 has the name cp-2, too
  role: control-plane
  address: 10.0.0.13
- name: w-1
  role: worker
  address: 10.0.0.21
  group: fats #! there is no group "fats"
  labels: {"a b": "c"} #! hosts[3].labels: the name "a b" is not valid
  taints: [dedicated] #! hosts[3].taints[0] "dedicated" is not a taint
  patches: patches
endpoint:
  vip: 10.100.0.1 #! endpoint.vip 10.100.0.1 is in the cluster's range of Service addresses
  balanced: true #! endpoint.balanced is not known
kubeadm: kubeadm.yaml
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.0 #! the configuration requires Kubernetes v1.36.0, and this bundle has v1.37.1
networking:
  serviceSubnet: 10.96.0.0/11 #! ClusterConfiguration.networking.serviceSubnet 10.96.0.0/11 is too large
  dnsDomain: under_score #! ClusterConfiguration.networking.dnsDomain "under_score"
  podCIDR: 10.0.0.0/8 #! ClusterConfiguration.networking.podCIDR is not known
featureGates:
  Teleport: true #! ClusterConfiguration.featureGates.Teleport: kubeadm has no such feature gate
imageRepository: "registry example" #! ClusterConfiguration.imageRepository "registry example" is not an image repository
dns:
  imageTag: v1.0.0 #! ClusterConfiguration.dns.imageTag requires coredns v1.0.0; the bundle has registry.k8s.io/coredns/coredns:v1.14.6
apiServer:
  certSANs: [fine.example.org, "a b"] #! ClusterConfiguration.apiServer.certSANs[1] "a b"
  extraArgs:
  - {name: --v, value: "4"} #! ClusterConfiguration.apiServer.extraArgs[0]: write the name without dashes, "v"
  extraVolumes:
  - {name: logs, hostPath: var/log, mountPath: /logs} #! ClusterConfiguration.apiServer.extraVolumes[0]: hostPath "var/log" is not an absolute path
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: -1 #! KubeletConfiguration.maxPods is -1: it must be
evictionHard: {memory.available: much} #! KubeletConfiguration.evictionHard
serializeImagePulls: perhaps #! KubeletConfiguration.serializeImagePulls is the string "perhaps" and must be true or false
featureGates: {NoSuchGate: true} #! feature gate NoSuchGate does not exist in the kubelet of v1.37
`,
	"kubeadm.yaml": `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
certificateKey: "4711" #! InitConfiguration.certificateKey cannot be in the file of a cluster
nodeRegistration:
  imagePullPolicy: Sometimes #! InitConfiguration.nodeRegistration.imagePullPolicy "Sometimes" is not Always, IfNotPresent or Never
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
caCertPath: ca.pem #! JoinConfiguration.caCertPath "ca.pem" must be an absolute path
nodeRegistration:
  kubeletExtraArgs:
  - {name: v, value: "2"}
  - {name: network-plugin, value: cni} #! JoinConfiguration.nodeRegistration.kubeletExtraArgs[1]: --network-plugin is not a flag of the kubelet
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: 7 #! KubeProxyConfiguration.mode is the number 7 and must be a string
`,
	"patches/etcd+json.yaml": `- {op: replace, path: /spec/nowhere, value: 1} #! patching etcd with etcd+json.yaml
`,
	"patches/kube-apiserver.yaml": `spec:
  hostnetwork: true #! spec.hostnetwork is not known
`,
	"patches/kubeletconfiguration.yaml": `podsPerCore: 10
imageGCHighThresholdPercent: 101 #! imageGCHighThresholdPercent is 101
`,
}

// expected returns the places and texts of the comments in a file.
func expected(file, text string) (list []string) {
	for i, line := range strings.Split(text, "\n") {
		if _, want, ok := strings.Cut(line, " #! "); ok {
			list = append(list, fmt.Sprintf("%s:%d: %s", file, i+1, want))
		}
	}
	return list
}

func TestAllMistakesAtOnce(t *testing.T) {
	dir := t.TempDir()
	written := map[string]string{}
	for name, text := range mistakes {
		written[name] = text
	}
	delete(written, "patches/kube-apiserver.yaml")
	var want []string
	for _, name := range []string{"cluster.yaml", "kubeadm.yaml", "patches/etcd+json.yaml", "patches/kubeletconfiguration.yaml"} {
		want = append(want, expected(name, mistakes[name])...)
	}
	got, all := validate(t, dir, written)
	t.Logf("%s", all)
	for i, w := range want {
		if i >= len(got) || !strings.HasPrefix(got[i], w) {
			t.Fatalf("error %d is not %q in\n%s", i+1, w, strings.Join(got, "\n"))
		}
	}
	if len(got) != len(want) || len(want) < 30 {
		t.Errorf("%d errors, want %d: %q", len(got), len(want), got[len(want):])
	}
	if strings.Contains(all, "4711") {
		t.Errorf("a secret is in %s", all)
	}

	// A patch that cannot be read is an error of its file, once for all hosts.
	good := fmt.Sprintf(hostsOf, "patches: patches")
	got, _ = validate(t, t.TempDir(), map[string]string{"cluster.yaml": good, "patches/kube-apiserver.yaml": mistakes["patches/kube-apiserver.yaml"]})
	if want := expected("patches/kube-apiserver.yaml", mistakes["patches/kube-apiserver.yaml"]); len(got) != 1 || !strings.HasPrefix(got[0], want[0]) {
		t.Errorf("%q, want %q", got, want)
	}
}

const hostsOf = `apiVersion: airlift/v1
kind: Cluster
name: plant-7
hosts:
- {name: cp-1, role: control-plane, address: 10.0.0.11, %[1]s}
- {name: w-1, role: worker, address: 10.0.0.12, %[1]s}
`

// validate writes files, and returns the errors of cluster.yaml one by one, and as they are printed.
func validate(t *testing.T, dir string, files map[string]string) (list []string, all string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := spec.Validate(filepath.Join(dir, "cluster.yaml"), target())
	wrong := (*problems.Wrong)(nil)
	if err == nil {
		return nil, ""
	}
	if !errors.As(err, &wrong) || fault.ExitCode(err) != fault.Usage {
		t.Fatal(err)
	}
	for _, p := range wrong.Problems {
		if p.Field == "" && p.Line == 0 {
			t.Errorf("no place: %v", p)
		}
		list = append(list, strings.TrimPrefix(fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text), dir+"/"))
	}
	return list, strings.ReplaceAll(err.Error(), dir+"/", "")
}

// Each value alone is one error, with its line, and is no error for commands that bring no value to a host.
func TestOneValueIsOneError(t *testing.T) {
	const cluster, init, join = "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n", "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n", "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n"
	const kubelet = "---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for _, c := range []struct {
		text string
		line int
		want string
	}{
		{cluster + "networking: {podSubnet: 10.244.0.0/33}\n", 10, `ClusterConfiguration.networking.podSubnet "10.244.0.0/33" is not an address range`},
		{cluster + "networking:\n  podSubnet: 10.96.0.0/16\n", 11, "ClusterConfiguration.networking.podSubnet 10.96.0.0/16 and ClusterConfiguration.networking.serviceSubnet 10.96.0.0/12 overlap"},
		{cluster + "kubernetesVersion: v1.30.0\n", 10, "the configuration requires Kubernetes v1.30.0"},
		{cluster + "kubernetesVersion: new\n", 10, `kubernetesVersion "new" is not a version`},
		{cluster + "apiServer: {certSANs: [\"a b\"]}\n", 10, `ClusterConfiguration.apiServer.certSANs[0] "a b"`},
		{cluster + "controlPlaneEndpoint: \"a b\"\n", 10, "ClusterConfiguration.controlPlaneEndpoint"},
		{cluster + "apiServer:\n  extraArgs:\n  - {name: enable-admission-plugins, value: SecurityContextDeny}\n", 11, "ClusterConfiguration.apiServer.extraArgs: kube-apiserver v1.37.1 has no admission plugin SecurityContextDeny"},
		{kubelet + "maxPods: -1\n", 10, "KubeletConfiguration.maxPods is -1"},
		{kubelet + "shutdownGracePeriod: 5s\nshutdownGracePeriodCriticalPods: 10s\n", 11, "KubeletConfiguration.shutdownGracePeriodCriticalPods is 10s, longer than"},
		{init + "nodeRegistration:\n  kubeletExtraArgs:\n  - {name: max-pods, value: \"-1\"}\n", 12, "InitConfiguration.nodeRegistration.kubeletExtraArgs[0]: --max-pods (maxPods) is -1"},
		{init + "nodeRegistration:\n  kubeletExtraArgs:\n  - {name: root-dir, value: /data}\n", 12, "InitConfiguration.nodeRegistration.kubeletExtraArgs[0]: --root-dir is \"/data\", and must be"},
		{init + "localAPIEndpoint: {bindPort: 7444}\n", 1, "embeddedRegistry uses port 7444"},
		{init + "localAPIEndpoint: {bindPort: 70000}\n", 10, "InitConfiguration.localAPIEndpoint.bindPort 70000 is not between 1 and 65535"},
		{join + "nodeRegistration: {taints: [{key: a, effect: Never}]}\n", 10, "JoinConfiguration.nodeRegistration.taints[0]"},
		{"---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: UpgradeConfiguration\nnode: {imagePullPolicy: Often}\n", 10, `UpgradeConfiguration.node.imagePullPolicy "Often"`},
	} {
		dir := t.TempDir()
		got, _ := validate(t, dir, map[string]string{"cluster.yaml": fmt.Sprintf(hostsOf, "ssh: {port: 22}") + c.text})
		if want := fmt.Sprintf("cluster.yaml:%d: %s", c.line, c.want); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%q, want %s", got, want)
		}
		if _, err := spec.Read(filepath.Join(dir, "cluster.yaml")); err != nil {
			t.Errorf("%s: %v", c.want, err)
		}
	}
}

// What is right has no error: all fields, and the example.
func TestValidFiles(t *testing.T) {
	ipv6 := strings.Replace(strings.Replace(fmt.Sprintf(hostsOf, `nodeIP: "fd00::N"`), "::N", "::1", 1), "::N", "::2", 1)
	for _, text := range []string{whole, spec.Example(), ipv6} {
		if _, err := spec.Validate(directory(t, text), target()); err != nil {
			t.Error(err)
		}
	}
}

// target checks values for the bundle of release.
func target() spec.Target {
	t := configfile.TargetOf(release())
	return spec.Target{CNI: t.CNI, Checker: func(nodeIP string) spec.Checker {
		return &configfile.Checker{Target: t, Host: configfile.HostAt(nodeIP)}
	}}
}
