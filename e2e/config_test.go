//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"airlift/scripts/lab"
)

// kubeadmFile is a typical kubeadm configuration: every kind of document that init reads, with
// values that are visible in a running cluster.
const kubeadmFile = `
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens:
- token: abcdef.0123456789abcdef
  description: for the racks
  ttl: 48h0m0s
certificateKey: "0123456789012345678901234567890123456789012345678901234567890123"
nodeRegistration:
  name: first
  taints: []
  kubeletExtraArgs:
  - {name: node-labels, value: site.example/rack=a1}
patches: {directory: /root/patches}
skipPhases: [show-join-command]
timeouts: {controlPlaneComponentHealthCheck: 3m0s}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
clusterName: ship-7
imageRepository: registry.site.example:5000/k8s
controlPlaneEndpoint: k8s.site.example:6443
networking: {dnsDomain: ship.example, podSubnet: 10.60.0.0/16, serviceSubnet: 10.70.0.0/16}
encryptionAlgorithm: RSA-2048
certificateValidityPeriod: 4380h0m0s
caCertificateValidityPeriod: 43800h0m0s
apiServer:
  certSANs: [k8s.site.example, 192.0.2.9]
  extraArgs:
  - {name: audit-log-path, value: /var/log/audit/audit.log}
  - {name: audit-policy-file, value: /etc/audit/policy.yaml}
  extraEnvs: [{name: SITE, value: ship-7}]
  extraVolumes:
  - {name: audit, hostPath: /etc/audit, mountPath: /etc/audit, readOnly: true, pathType: Directory}
  - {name: audit-log, hostPath: /var/log/audit, mountPath: /var/log/audit, pathType: DirectoryOrCreate}
controllerManager:
  extraArgs: [{name: node-cidr-mask-size, value: "26"}]
etcd:
  local:
    dataDir: /srv/etcd
    extraArgs: [{name: snapshot-count, value: "5000"}]
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 33
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
metricsBindAddress: 0.0.0.0:10249
`

const joinFile = `
apiVersion: kubeadm.k8s.io/v1beta3
kind: JoinConfiguration
discovery:
  file: {kubeConfigPath: /root/discovery.conf}
  tlsBootstrapToken: abcdef.0123456789abcdef
nodeRegistration:
  name: second
  kubeletExtraArgs: {node-labels: site.example/rack=b2}
  taints: [{key: dedicated, value: storage, effect: NoSchedule}]
`

// TestConfigFile creates a cluster from kubeadm's YAML, and checks the effect of each value.
func TestConfigFile(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-config", Hosts: 2})
	s.Domain = "ship.example"
	control, worker := s.Hosts[0], s.Hosts[1]
	write := func(h *lab.Host, name, content string) {
		t.Helper()
		if err := h.Exec(t.Context(), strings.NewReader(content), t.Output(), t.Output(), "sh", "-c", "mkdir -p $(dirname "+name+") && cat > "+name); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range s.Hosts {
		run(t, h, "sh", "-c", "echo 10.77.0.11 k8s.site.example >> /etc/hosts")
	}
	write(control, "/etc/audit/policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
	write(control, "/root/patches/kube-scheduler+merge.yaml", "metadata: {annotations: {site.example/patched: scheduler}}\n")
	write(control, "/root/patches/kubeletconfiguration0+json.yaml", "- {op: add, path: /registryPullQPS, value: 7}\n")
	write(control, "/root/patches/corednsdeployment.yaml", "spec: {replicas: 1}\n")
	write(control, "/root/kubeadm.yaml", kubeadmFile)
	write(worker, "/root/join.yaml", joinFile)

	t.Run("a bad file is refused whole", func(t *testing.T) {
		bare := untouched(t, control)
		write(control, "/root/bad.yaml", strings.Replace(kubeadmFile, "clusterName:", "clustreName:", 1))
		contains(t, install(t, control, 2, "init", "--config", "/root/bad.yaml"), "clustreName", "bad.yaml:20", "did you mean clusterName", "/root/bad.yaml")
		contains(t, install(t, control, 2, "init", "--config", "/root/kubeadm.yaml", "--pod-network-cidr", "10.61.0.0/16"), "--config", "pod-network-cidr")
		same(t, bare, untouched(t, control))
	})

	install(t, control, 0, "init", "--config", "/root/kubeadm.yaml", "--upload-certs")
	get := func(what ...string) string { return kubectl(t, s, append([]string{"get", "-o"}, what...)...) }
	api := run(t, control, "cat", "/etc/kubernetes/manifests/kube-apiserver.yaml")
	contains(t, api, "registry.site.example:5000/k8s/kube-apiserver:"+version, "--audit-log-path=/var/log/audit/audit.log", "name: SITE")
	contains(t, run(t, control, "sh", "-c", "cat /etc/kubernetes/manifests/etcd.yaml"), "--data-dir=/srv/etcd", "--snapshot-count=5000")
	contains(t, run(t, control, "head", "-c", "4000", "/var/log/audit/audit.log"), `"kind":"Event"`)
	contains(t, get("yaml", "pod", "-n", "kube-system", "kube-scheduler-first"), "site.example/patched: scheduler")
	contains(t, run(t, control, "cat", "/var/lib/kubelet/config.yaml"), "registryPullQPS: 7", "maxPods: 33", "clusterDomain: ship.example", "10.70.0.10")
	contains(t, get("jsonpath={.metadata.labels} {.spec.taints} {.spec.podCIDR} {.status.capacity.pods}", "node", "first"), `"site.example/rack":"a1"`, "/26", "33")
	if taints := get("jsonpath={.spec.taints}", "node", "first"); taints != "" {
		t.Errorf("taints: [] in the file, and the node has %s", taints)
	}
	contains(t, get("jsonpath={.spec.replicas} {.spec.template.spec.containers[0].image}", "deployment", "-n", "kube-system", "coredns"), "1 registry.site.example:5000/k8s/coredns:")
	contains(t, get("jsonpath={.data}", "configmap", "-n", "kube-system", "kube-proxy"), "0.0.0.0:10249", "https://k8s.site.example:6443")
	contains(t, get("name", "secret", "-n", "kube-system"), "secret/bootstrap-token-abcdef", "secret/kubeadm-certs")
	cert := run(t, control, "openssl", "x509", "-noout", "-text", "-in", "/etc/kubernetes/pki/apiserver.crt")
	contains(t, cert, "DNS:k8s.site.example", "IP Address:192.0.2.9", "DNS:first", "rsaEncryption", "kubernetes.default.svc.ship.example")
	contains(t, run(t, control, "sh", "-c", "openssl x509 -noout -checkend $((182*86400)) -in /etc/kubernetes/pki/apiserver.crt; openssl x509 -noout -checkend $((183*86400)) -in /etc/kubernetes/pki/apiserver.crt || true"),
		"will not expire", "will expire")

	run(t, control, "sh", "-c", "kubectl --kubeconfig /etc/kubernetes/admin.conf -n kube-public get cm cluster-info -o jsonpath='{.data.kubeconfig}' > /root/discovery.conf")
	write(worker, "/root/discovery.conf", run(t, control, "cat", "/root/discovery.conf"))
	install(t, worker, 0, "join", "--config", "/root/join.yaml")
	contains(t, get("jsonpath={.metadata.labels} {.spec.taints}", "node", "second"), `"site.example/rack":"b2"`, `"dedicated"`, `"storage"`)
	contains(t, run(t, worker, "cat", "/var/lib/kubelet/config.yaml"), "maxPods: 33")
	contains(t, run(t, worker, "cat", "/etc/kubernetes/kubelet.conf"), "server: https://k8s.site.example:6443")
	systemIsUp(t, s, 2)

	write(control, "/root/reset.yaml", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ResetConfiguration\nforce: true\n")
	install(t, control, 0, "reset", "--config", "/root/reset.yaml")
	if left := run(t, control, "sh", "-c", "ls -A /srv/etcd 2>/dev/null; ls /etc/kubernetes 2>/dev/null; true"); left != "" {
		t.Errorf("left after reset: %q", left)
	}
}
