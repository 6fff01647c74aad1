package oracle

import (
	"maps"
	"slices"
	"strings"

	"airlift/installer/config"
)

// A Change is a change of the configuration of a running cluster, by documents of kubeadm that replace the plain ones, and what
// it restarts. Its bodies have the form of a Case's.
type Change struct {
	Name       string
	Cluster    string
	Init       string            // only what the node registers, without its name
	Components string            // whole documents
	Files      map[string]string // files for the control planes, by path
	Restarts   []string          // on a control plane: static pods and "kubelet"
	Pods       []string          // add-ons whose pods are replaced
	Minors     Minors
}

// Directories and files of the changes.
const (
	auditDir       = "/etc/kubernetes/audit"
	auditPolicy    = auditDir + "/policy.yaml"
	admissionFile  = "/etc/kubernetes/admission/admission.yaml"
	encryptionFile = "/etc/kubernetes/encryption/keys.yaml"
	schedulerFile  = "/etc/kubernetes/scheduler/scheduler.yaml"
)

const policyText = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"

// Keys are the EncryptionConfiguration with providers for Secrets, in order: "identity", or the name of a key.
func Keys(providers ...string) string {
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n"
	for _, name := range providers {
		if name == "identity" {
			text += "  - identity: {}\n"
			continue
		}
		// 32 bytes, a different one for each name.
		text += "  - aescbc: {keys: [{name: " + name + ", secret: " + map[bool]string{true: "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", false: "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY="}[strings.HasSuffix(name, "1")] + "}]}\n"
	}
	return text
}

// EncryptionCluster is the ClusterConfiguration of an API server with the keys in EncryptionFile.
const EncryptionCluster = `
apiServer:
  extraArgs: {encryption-provider-config: /keys/keys.yaml}
  extraVolumes: [{name: keys, hostPath: /etc/kubernetes/encryption, mountPath: /keys, readOnly: true, pathType: Directory}]
`

// EncryptionFile is the file of Keys on the control planes.
const EncryptionFile = encryptionFile

// Changes are the changes that a version accepts, each from the plain configuration.
func Changes(version string) []Change {
	api, kcm, scheduler, etcd, kubelet := []string{"kube-apiserver"}, []string{"kube-controller-manager"}, []string{"kube-scheduler"}, []string{"etcd"}, []string{"kubelet"}
	kubeletDoc := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	proxyDoc := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	proxy := []string{"kube-proxy"}
	list := []Change{
		{Name: "names in the API server's certificate", Cluster: "apiServer: {certSANs: [api.site.example, 192.0.2.7]}"},
		{Name: "names in etcd's certificates", Cluster: "etcd: {local: {serverCertSANs: [etcd.site.example], peerCertSANs: [192.0.2.8]}}"},
		{Name: "an argument of the API server", Cluster: `apiServer: {extraArgs: {profiling: "false"}}`, Restarts: api},
		{Name: "admission plugins", Cluster: `apiServer: {extraArgs: {enable-admission-plugins: "NodeRestriction,PodNodeSelector"}}`, Restarts: api},
		{Name: "node ports", Cluster: `apiServer: {extraArgs: {service-node-port-range: 30000-31000}}`, Restarts: api},
		{Name: "a volume of the API server", Cluster: "apiServer: {extraVolumes: [{name: site, hostPath: /etc/site, mountPath: /etc/site, readOnly: true, pathType: DirectoryOrCreate}]}", Restarts: api},
		{Name: "the environment of the API server", Cluster: "apiServer: {extraEnvs: [{name: SITE, value: one}]}", Restarts: api, Minors: Minors{Since: 31}},
		{Name: "an audit policy", Cluster: `
apiServer:
  extraArgs: {audit-policy-file: /audit/policy.yaml, audit-log-path: "-"}
  extraVolumes: [{name: audit, hostPath: /etc/kubernetes/audit, mountPath: /audit, readOnly: true, pathType: Directory}]
`, Files: map[string]string{auditPolicy: policyText}, Restarts: api},
		{Name: "an admission configuration", Cluster: `
apiServer:
  extraArgs: {admission-control-config-file: /admission/admission.yaml}
  extraVolumes: [{name: admission, hostPath: /etc/kubernetes/admission, mountPath: /admission, readOnly: true, pathType: Directory}]
`, Files: map[string]string{admissionFile: `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: privileged, warn: baseline}
    exemptions: {namespaces: [kube-system]}
`}, Restarts: api},
		{Name: "encryption, the key second", Cluster: EncryptionCluster, Files: map[string]string{encryptionFile: Keys("identity", "key1")}, Restarts: api},
		{Name: "an argument of the controller manager", Cluster: `controllerManager: {extraArgs: {terminated-pod-gc-threshold: "100"}}`, Restarts: kcm},
		{Name: "how long nodes may be away", Cluster: `controllerManager: {extraArgs: {node-monitor-grace-period: 60s}}`, Restarts: kcm},
		{Name: "a feature gate of the controller manager", Cluster: `controllerManager: {extraArgs: {feature-gates: "AllAlpha=false"}}`, Restarts: kcm},
		{Name: "an argument of the scheduler", Cluster: `scheduler: {extraArgs: {profiling: "false"}}`, Restarts: scheduler},
		{Name: "the scheduler's configuration", Cluster: `
scheduler:
  extraArgs: {config: /scheduler/scheduler.yaml}
  extraVolumes: [{name: own, hostPath: /etc/kubernetes/scheduler, mountPath: /scheduler, readOnly: true, pathType: Directory}]
`, Files: map[string]string{schedulerFile: "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nclientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf}\nleaderElection: {leaderElect: true}\npercentageOfNodesToScore: 50\n"}, Restarts: scheduler},
		{Name: "etcd's quota", Cluster: `etcd: {local: {extraArgs: {quota-backend-bytes: "4294967296"}}}`, Restarts: slices.Concat(etcd, api)},
		{Name: "etcd's compaction", Cluster: `etcd: {local: {extraArgs: {auto-compaction-mode: periodic, auto-compaction-retention: 2h}}}`, Restarts: slices.Concat(etcd, api)},
		{Name: "arguments of all components", Cluster: `
apiServer: {extraArgs: {v: "3"}}
controllerManager: {extraArgs: {v: "3"}}
scheduler: {extraArgs: {v: "3"}}
etcd: {local: {extraArgs: {log-level: warn}}}
`, Restarts: slices.Concat(etcd, api, kcm, scheduler)},
		{Name: "the kubelet's pods", Components: kubeletDoc + "maxPods: 90\n", Restarts: kubelet},
		{Name: "the kubelet's eviction", Components: kubeletDoc + "evictionHard: {memory.available: 50Mi, nodefs.available: 5%, nodefs.inodesFree: 5%, imagefs.available: 5%}\n", Restarts: kubelet},
		{Name: "the kubelet's images", Components: kubeletDoc + "imageGCHighThresholdPercent: 95\nimageGCLowThresholdPercent: 90\nserializeImagePulls: false\n", Restarts: kubelet},
		{Name: "the kubelet's logs", Components: kubeletDoc + "containerLogMaxSize: 5Mi\ncontainerLogMaxFiles: 3\n", Restarts: kubelet},
		{Name: "kube-proxy's intervals", Components: proxyDoc + "iptables: {minSyncPeriod: 2s, syncPeriod: 40s}\n", Pods: proxy},
		{Name: "kube-proxy's metrics", Components: proxyDoc + "metricsBindAddress: 0.0.0.0:10249\n", Pods: proxy},
		{Name: "the name of the images", Cluster: "imageRepository: registry.site.example/k8s", Restarts: slices.Concat(etcd, api, kcm, scheduler), Pods: []string{"coredns", "kube-proxy"}},
		{Name: "the name of CoreDNS' image", Cluster: "dns: {imageRepository: registry.site.example/dns}", Pods: []string{"coredns"}},
		{Name: "the name of etcd's image", Cluster: "etcd: {local: {imageRepository: registry.site.example/etcd}}", Restarts: slices.Concat(etcd, api)},
		{Name: "how long certificates are valid", Cluster: "certificateValidityPeriod: 4380h", Minors: Minors{Since: keysSince}},
		{Name: "no taint on this control plane", Init: "nodeRegistration: {taints: []}"},
		{Name: "a label and an argument of this kubelet", Init: `nodeRegistration: {kubeletExtraArgs: {node-labels: "site=one", v: "3"}}`, Restarts: kubelet},
		{Name: "API server, scheduler, kubelet and kube-proxy", Cluster: `
apiServer: {certSANs: [all.site.example], extraArgs: {profiling: "false"}}
scheduler: {extraArgs: {profiling: "false"}}
`, Components: kubeletDoc + "maxPods: 100\n---\n" + proxyDoc + "iptables: {minSyncPeriod: 3s}\n", Restarts: slices.Concat(api, scheduler, kubelet), Pods: proxy},
	}
	return slices.DeleteFunc(list, func(c Change) bool { return !c.Minors.Have(version) })
}

// Case returns the change as a case for kubeadm. It has ECDSA keys, as Before.
func (c Change) Case(version string) Case {
	one := complete(version, []Case{{Name: c.Name, Cluster: c.Cluster, Components: c.Components}})[0]
	if c.Init != "" {
		one.Init = strings.Replace(plainInit, "{name: n1, criSocket: \"unix:///run/containerd/containerd.sock\"}",
			"{name: n1, criSocket: \"unix:///run/containerd/containerd.sock\", "+strings.TrimPrefix(strings.TrimSpace(c.Init), "nodeRegistration: {"), 1)
	}
	return one
}

// Documents are the change's documents alone, for a running cluster of this version.
func (c Change) Documents(version string) string {
	return documents(version, c.Init, c.Cluster, c.Components)
}

// documents are the documents with these bodies: none for one without a body.
func documents(version, first, cluster, components string) string {
	given := Case{Init: first, Cluster: cluster, Config: Plain(version)}
	firstDoc, clusterDoc := given.kubeadm()
	var list []string
	if first != "" {
		list = append(list, firstDoc)
	}
	if cluster != "" {
		// A running cluster keeps its version.
		list = append(list, strings.Replace(clusterDoc, "kubernetesVersion: "+given.Config.KubernetesVersion+"\n", "", 1))
	}
	if components != "" {
		list = append(list, components)
	}
	return strings.Join(list, "\n---\n")
}

// Before is the configuration that the changes begin with.
func Before(version string) *config.Config {
	return complete(version, []Case{{Name: "before"}})[0].Config
}

// Paths are the paths of the change's files, sorted.
func (c Change) Paths() []string { return slices.Sorted(maps.Keys(c.Files)) }

// A Refusal is a change that a running cluster cannot make, and the field that is refused.
type Refusal struct{ Name, Cluster, Init, Components, Field string }

// Documents are its documents alone.
func (r Refusal) Documents(version string) string {
	return documents(version, r.Init, r.Cluster, r.Components)
}

// Refused are changes that a running cluster cannot make.
var Refused = []Refusal{
	{Name: "the Service range", Cluster: "networking: {serviceSubnet: 10.112.0.0/16, podSubnet: 10.244.0.0/16}", Field: "networking.serviceSubnet"},
	{Name: "the pod range", Cluster: "networking: {podSubnet: 10.200.0.0/16}", Field: "networking.podSubnet"},
	{Name: "the DNS domain", Cluster: "networking: {dnsDomain: site.example, podSubnet: 10.244.0.0/16}", Field: "networking.dnsDomain"},
	{Name: "the name of the cluster", Cluster: "clusterName: another", Field: "clusterName"},
	{Name: "the endpoint", Cluster: "controlPlaneEndpoint: another.site.example:6443", Field: "controlPlaneEndpoint"},
	{Name: "the directory of certificates", Cluster: "certificatesDir: /etc/site/pki", Field: "certificatesDir"},
	{Name: "another version", Cluster: "kubernetesVersion: v1.28.1", Field: "kubernetesVersion"},
	{Name: "an external etcd", Cluster: "etcd: {external: {endpoints: [\"https://192.0.2.9:2379\"], caFile: /a/ca.crt, certFile: /a/c.crt, keyFile: /a/c.key}}", Field: "etcd.external"},
	{Name: "etcd's directory", Cluster: "etcd: {local: {dataDir: /data/etcd}}", Field: "etcd.local.dataDir"},
	{Name: "etcd's members", Cluster: `etcd: {local: {extraArgs: {initial-cluster-token: another}}}`, Field: "etcd.local.extraArgs"},
	{Name: "the Service range as an argument", Cluster: `apiServer: {extraArgs: {service-cluster-ip-range: 10.112.0.0/16}}`, Field: "apiServer.extraArgs"},
	{Name: "where etcd has the data", Cluster: `apiServer: {extraArgs: {etcd-prefix: /other}}`, Field: "apiServer.extraArgs"},
	{Name: "where etcd has the data of a resource", Cluster: `apiServer: {extraArgs: {etcd-servers-overrides: "/events#https://192.0.2.9:2379"}}`, Field: "apiServer.extraArgs"},
	{Name: "who issues tokens", Cluster: `apiServer: {extraArgs: {service-account-issuer: "https://another.example", api-audiences: "https://kubernetes.default.svc.cluster.local"}}`, Field: "apiServer.extraArgs"},
	{Name: "for whom tokens are", Cluster: `apiServer: {extraArgs: {api-audiences: another}}`, Field: "apiServer.extraArgs"},
	{Name: "who signs tokens", Cluster: `apiServer: {extraArgs: {service-account-signing-endpoint: /run/signer.sock}}`, Field: "apiServer.extraArgs"},
	{Name: "etcd's log", Cluster: `etcd: {local: {extraArgs: {wal-dir: /data/wal}}}`, Field: "etcd.local.extraArgs"},
	{Name: "etcd's file", Cluster: `etcd: {local: {extraArgs: {config-file: /etc/etcd.yaml}}}`, Field: "etcd.local.extraArgs"},
	{Name: "etcd without its members", Cluster: `etcd: {local: {extraArgs: {force-new-cluster: "true"}}}`, Field: "etcd.local.extraArgs"},
	{Name: "the pod range as an argument", Cluster: `controllerManager: {extraArgs: {cluster-cidr: 10.200.0.0/16}}`, Field: "controllerManager.extraArgs"},
	{Name: "the name of the node", Init: "nodeRegistration: {name: another}", Field: "nodeRegistration.name"},
	{Name: "the container runtime", Init: "nodeRegistration: {criSocket: \"unix:///run/crio/crio.sock\"}", Field: "nodeRegistration.criSocket"},
	{Name: "the name of the node as an argument", Init: "nodeRegistration: {kubeletExtraArgs: {hostname-override: another}}", Field: "nodeRegistration.kubeletExtraArgs"},
	{Name: "the address of the API server", Init: "localAPIEndpoint: {advertiseAddress: 10.0.0.99}", Field: "localAPIEndpoint.advertiseAddress"},
	{Name: "the port of the API server", Init: "localAPIEndpoint: {bindPort: 8443}", Field: "localAPIEndpoint.bindPort"},
	{Name: "the cgroup driver", Components: "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: cgroupfs\n", Field: "cgroupDriver"},
	{Name: "the directory of static pods", Components: "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: /etc/site\n", Field: "staticPodPath"},
	{Name: "the DNS domain of the kubelet", Components: "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDomain: site.example\n", Field: "clusterDomain"},
}
