package config_test

import (
	"fmt"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// head is the start of a ClusterConfiguration, three lines.
const head = "apiVersion: VERSION\nkind: ClusterConfiguration\nkubernetesVersion: KUBERNETES\n"

// initHead is the start of a file with a ClusterConfiguration. The
// InitConfiguration continues at line 7.
const initHead = head + "---\napiVersion: VERSION\nkind: InitConfiguration\n"

const joinHead = "apiVersion: VERSION\nkind: JoinConfiguration\n"

const resetHead = "apiVersion: VERSION\nkind: ResetConfiguration\n"

const byToken = "discovery: {bootstrapToken: {token: abcdef.0123456789abcdef, apiServerEndpoint: 'h:6443', unsafeSkipCAVerification: true}}\n"

// badFiles are refused with the line of the error and a hint. If ours is set,
// kubeadm accepts the file, and ours is the reason why Airlift does not.
var badFiles = []struct {
	name, api, text string
	line            int
	want            string
	ours            string
}{
	{"a slip", "v1beta4", head + "clusterNam: x\n", 4, "did you mean clusterName?", ""},
	{"another case", "v1beta4", head + "ClusterName: x\n", 4, "did you mean clusterName?", ""},
	{"a slip further down", "v1beta3", head + "apiServer:\n  certSans: [a]\n", 5, "did you mean certSANs?", ""},
	{"in a list", "v1beta4", head + "apiServer:\n  extraVolumes:\n  - name: a\n    hostpath: /a\n", 7, "ClusterConfiguration.apiServer.extraVolumes[0].hostpath is not known: did you mean hostPath?", ""},
	{"in another document", "v1beta4", initHead + "nodeRegistration:\n  nam: x\n", 8, "did you mean name?", ""},
	{"a field of another place", "v1beta4", head + "podSubnet: 10.0.0.0/16\n", 4, "it belongs at ClusterConfiguration.networking.podSubnet", ""},
	{"a field of another document", "v1beta4", head + "nodeRegistration: {}\n", 4, "it belongs at InitConfiguration.nodeRegistration", ""},
	{"a field of the kubelet", "v1beta4", head + "maxPods: 20\n", 4, "KubeletConfiguration.maxPods", ""},
	{"written twice", "v1beta4", head + "clusterName: a\nclusterName: b\n", 5, "is written twice, first at line 4", ""},
	{"written twice further down", "v1beta4", head + "networking:\n  dnsDomain: a\n  podSubnet: 10.0.0.0/16\n  dnsDomain: b\n", 7, "networking.dnsDomain is written twice, first at line 5", ""},
	{"merged and written", "v1beta4", head + "scheduler: &a\n  extraEnvs: []\ncontrollerManager:\n  <<: *a\n  extraEnvs: []\n", 8, "already set", ""},
	{"a kind twice", "v1beta4", head + "---\n" + head, 5, "ClusterConfiguration occurs twice, first at line 1", ""},

	{"extraEnvs before its time", "v1beta3", head + "apiServer:\n  extraEnvs: []\n", 5, "exists since v1beta4", ""},
	{"encryptionAlgorithm before its time", "v1beta3", head + "encryptionAlgorithm: RSA-2048\n", 4, "exists since v1beta4", ""},
	{"proxy before its time", "v1beta3", head + "proxy: null\n", 4, "exists since v1beta4", ""},
	{"timeouts before their time", "v1beta3", initHead + "timeouts: {}\n", 7, "exists since v1beta4", ""},
	{"dryRun before its time", "v1beta3", joinHead + byToken + "dryRun: true\n", 4, "exists since v1beta4", ""},
	{"reset before its time", "v1beta3", resetHead, 1, "ResetConfiguration exists since kubeadm.k8s.io/v1beta4", ""},
	{"mergeMethod before its time", "v1beta4", head + "scheduler:\n  extraArgs:\n  - {name: v, value: '2', mergeMethod: append}\n", 6, "exists since v1", ""},
	{"timeoutForControlPlane after its time", "v1beta4", head + "apiServer:\n  timeoutForControlPlane: 4m\n", 5, "timeouts.controlPlaneComponentHealthCheck", ""},
	{"discovery.timeout after its time", "v1beta4", joinHead + "discovery:\n  timeout: 4m\n  bootstrapToken: {token: abcdef.0123456789abcdef, apiServerEndpoint: 'h:6443', unsafeSkipCAVerification: true}\n", 4, "write timeouts.discovery", ""},
	{"a list of arguments before its time", "v1beta3", head + "scheduler:\n  extraArgs:\n  - {name: v, value: '2'}\n", 5, `write NAME: "VALUE"`, ""},
	{"a map of arguments after its time", "v1beta4", head + "scheduler:\n  extraArgs: {v: '2'}\n", 5, "it must be a list", ""},
	{"a map of kubelet arguments after its time", "v1", initHead + "nodeRegistration:\n  kubeletExtraArgs: {v: '2'}\n", 8, "it must be a list", ""},

	{"a number for text", "v1beta4", head + "clusterName: 1\n", 4, `put it in quotes, "1"`, ""},
	{"an apiVersion that is a number", "v1beta4", "kind: ClusterConfiguration\napiVersion: 1.10\n", 2, `apiVersion is the number 1.10 and must be a string: put it in quotes, "1.10"`, ""},
	{"a kind that is a truth value", "v1beta4", "apiVersion: VERSION\nkind: no\n", 2, `kind is the boolean no and must be a string: put it in quotes, "no"`, ""},
	{"a version that is a number", "v1beta3", head + "imageRepository: 1.30\n", 4, `is the number 1.30 and must be a string: put it in quotes, "1.30"`, ""},
	{"an octal number for text", "v1beta3", head + "clusterName: 0123\n", 4, `the number 0123 and must be a string: put it in quotes, "0123"`, ""},
	{"a word for text", "v1beta3", head + "networking:\n  dnsDomain: no\n", 5, `the boolean no and must be a string: put it in quotes, "no"`, ""},
	{"a hexadecimal number for an argument", "v1beta3", head + "scheduler:\n  extraArgs:\n    v: 0x1F\n", 6, `put it in quotes, "0x1F"`, ""},
	{"an alias for text", "v1beta3", head + "clusterName: &v 1_000\ndns: {imageTag: *v}\n", 5, `put it in quotes, "1_000"`, ""},
	{"a number of JSON for text", "v1beta3", "{\"apiVersion\": \"VERSION\", \"kind\": \"ClusterConfiguration\", \"kubernetesVersion\": \"KUBERNETES\", \"clusterName\": 1.10}\n", 1, `put it in quotes, "1.10"`, ""},
	{"a huge number for text", "v1beta3", head + "clusterName: 123456789012345678901234567890\n", 4, `put it in quotes, "123456789012345678901234567890"`, ""},
	{"an exponent for text", "v1beta3", head + "clusterName: 1e3\n", 4, `put it in quotes, "1e3"`, ""},
	{"a number for an argument", "v1beta3", head + "scheduler:\n  extraArgs:\n    v: 2\n", 6, `put it in quotes, "2"`, ""},
	{"a truth value for an argument", "v1beta4", head + "scheduler:\n  extraArgs:\n  - name: profiling\n    value: false\n", 7, `put it in quotes, "false"`, ""},
	{"text for a number", "v1beta4", initHead + "localAPIEndpoint: {bindPort: '6443'}\n", 7, "whole number", ""},
	{"a fraction for a number", "v1beta4", initHead + "localAPIEndpoint: {bindPort: 6443.5}\n", 7, "whole number", ""},
	{"a number that is too large", "v1beta4", initHead + "localAPIEndpoint: {bindPort: 4294967296}\n", 7, "whole number of at most 32 bits", ""},
	{"text for a truth value", "v1beta4", head + "dns:\n  disabled: 'true'\n", 5, "true or false", ""},
	{"text for a gate", "v1beta4", head + "featureGates:\n  RootlessControlPlane: enabled\n", 5, "true or false", ""},
	{"text for a list", "v1beta4", head + "apiServer:\n  certSANs: a.example\n", 5, "must be a list", ""},
	{"a list for a mapping", "v1beta4", head + "networking: [10.0.0.0/8]\n", 4, "must be a mapping: fields here: dnsDomain, podSubnet, serviceSubnet", ""},
	{"a number for a duration", "v1beta4", head + "certificateValidityPeriod: 48\n", 4, "must be a duration", ""},
	{"days for a duration", "v1beta4", head + "certificateValidityPeriod: 2d\n", 4, "must be a duration", ""},
	{"a mapping in a list of text", "v1beta4", initHead + "skipPhases:\n- addon/kube-proxy\n- preflight: true\n", 9, "must be a string", ""},

	{"an old version", "v1beta2", head, 1, "kubeadm v1.22", ""},
	{"a version that never was", "v1beta5", head, 1, "the versions are v1beta3, v1beta4, v1", ""},
	{"a kind that is not", "v1beta4", head + "---\napiVersion: VERSION\nkind: InitConfig\n", 6, "did you mean InitConfiguration?", ""},
	{"a kind of another group", "v1beta4", head + "---\napiVersion: v1\nkind: Pod\n", 5, "apiVersion: kubeadm.k8s.io/v1beta4", ""},
	{"a kind of another API", "v1beta4", head + "---\napiVersion: apps/v1\nkind: Deployment\n", 6, "is not a kind that kubeadm knows", ""},
	{"another version of the kubelet's", "v1beta4", head + "---\napiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration\n", 5, "write kubelet.config.k8s.io/v1beta1", ""},
	{"no kind", "v1beta4", head + "---\napiVersion: VERSION\n", 5, "must have an apiVersion and a kind", ""},
	{"a document of comments", "v1beta4", "# mine\n---\n" + head, 1, "this document is empty", ""},
	{"a scalar document", "v1beta4", head + "---\nhello\n", 5, `the string "hello"`, ""},
	{"something behind the separator", "v1beta4", head + "--- x\n" + head, 4, "start the document on the next line", ""},
	{"UTF-16", "v1beta3", "\xff\xfea\x00:\x00", 1, "the text is UTF-16, not UTF-8", ""},
	{"a document after the end of one", "v1beta3", head + "...\n" + initHead, 5, "a second document begins here", "kubeadm ignores it"},
	{"JSON after JSON", "v1beta3", "# two\n{\"apiVersion\": \"VERSION\", \"kind\": \"ClusterConfiguration\", \"kubernetesVersion\": \"KUBERNETES\"}\n{\"apiVersion\": \"VERSION\", \"kind\": \"InitConfiguration\"}\n", 3, "a second document begins here", "kubeadm ignores it"},
	{"lines that end with CR", "v1beta3", strings.ReplaceAll(head+"---\n"+head, "\n", "\r"), 1, "end lines with a line feed", "kubeadm ignores the second document"},
	{"bad YAML", "v1beta4", head + "a: b: c\n", 4, "mapping values are not allowed", ""},
	{"JSON that is not", "v1beta4", "{\"apiVersion\": \"VERSION\",\n \"kind\": \"ClusterConfiguration\",\n kubernetesVersion: KUBERNETES}\n", 3, "read as JSON", ""},
	{"a tab", "v1beta4", head + "networking:\n\tdnsDomain: a\n", 5, "cannot start any token", ""},
	{"an unknown anchor", "v1beta4", head + "networking: *nets\n", 1, "unknown anchor", ""},
	{"an open quote in the second document", "v1beta4", head + "---\napiVersion: VERSION\nkind: InitConfiguration\ncertificateKey: \"a\n", 7, "", ""},

	{"an unknown field of the kubelet", "v1beta4", head + "---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPod: 3\n", 7, "did you mean maxPods?", ""},
	{"a wrong type of the kubelet's", "v1beta4", head + "---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nauthentication:\n  x509: {clientCAFile: 7}\n", 8, "put it in quotes", ""},
	{"a field of a later kubelet", "v1beta3", head + "---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: true\n", 7, "since v1.31", ""},
	{"an unknown field of kube-proxy", "v1beta4", head + "---\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmod: ipvs\n", 7, "did you mean mode?", ""},

	{"SAN", "v1beta3", head + "apiServer:\n  certSANs:\n  - ok.example\n  - a_b\n", 7, "neither an IP address nor a DNS name", ""},
	{"domain", "v1beta4", head + "networking:\n  dnsDomain: a_b\n", 5, "a name of a host has no _", ""},
	{"service subnet", "v1beta4", head + "networking:\n  serviceSubnet: ten\n", 5, "not an address range", ""},
	{"service subnet too large", "v1beta4", head + "networking:\n  serviceSubnet: 10.0.0.0/8\n", 5, "/12 or longer", ""},
	{"service subnet too small", "v1beta4", head + "networking:\n  serviceSubnet: 10.96.0.0/30\n", 5, "too small", ""},
	{"two subnets of a family", "v1beta4", head + "networking:\n  podSubnet: 10.1.0.0/16,10.2.0.0/16\n", 5, "one IPv4 and one IPv6", ""},
	{"three subnets", "v1beta4", head + "networking:\n  podSubnet: 10.1.0.0/16,fd00::/64,fd01::/64\n", 5, "one IPv4 and one IPv6", ""},
	{"a space between subnets", "v1beta4", head + "networking:\n  podSubnet: 10.1.0.0/16, fd00::/64\n", 5, "not an address range", ""},
	{"pod subnet too small", "v1beta4", head + "networking:\n  podSubnet: 10.1.0.0/25\n", 5, "each node gets a /24", ""},
	{"pod subnet too small for its nodes", "v1beta4", head + "networking:\n  podSubnet: 10.1.0.0/24\ncontrollerManager:\n  extraArgs: [{name: node-cidr-mask-size-ipv4, value: '20'}]\n", 5, "each node gets a /20", ""},
	{"pod subnet too large", "v1beta4", head + "networking:\n  podSubnet: 10.0.0.0/7\n", 5, "16 bits shorter", ""},
	{"mask that is no number", "v1beta4", head + "networking:\n  podSubnet: 10.0.0.0/16\ncontrollerManager:\n  extraArgs: [{name: node-cidr-mask-size-ipv4, value: a}]\n", 7, "not a number", ""},
	{"ranges overlap", "v1beta4", head + "networking:\n  podSubnet: 10.96.0.0/16\n", 5, "overlap", "pods and Services would get the same addresses"},
	{"host bits", "v1beta4", head + "networking:\n  podSubnet: 10.1.2.3/16\n", 5, "write 10.1.0.0/16", "what is written is not what holds"},
	{"endpoint", "v1beta4", head + "controlPlaneEndpoint: vip:99999\n", 4, "not between 1 and 65535", ""},
	{"endpoint with a scheme", "v1beta4", head + "controlPlaneEndpoint: https://vip:6443\n", 4, "controlPlaneEndpoint", ""},
	{"certificates' directory", "v1beta4", head + "certificatesDir: pki\n", 4, "not an absolute path", ""},
	{"repository", "v1beta4", head + "imageRepository: 'https://registry.example'\n", 4, "not an image repository", ""},
	{"DNS repository", "v1beta4", head + "dns: {imageRepository: 'A B'}\n", 4, "not an image repository", ""},
	{"gate", "v1beta3", head + "featureGates:\n  NoSuchGate: true\n", 5, "no such feature gate", ""},
	{"gate of another version", "v1beta4", head + "featureGates:\n  EtcdLearnerMode: true\n", 5, "since v1.33", ""},
	{"gate that is not here", "v1beta4", head + "featureGates:\n  RootlessControlPlane: true\n", 5, "not supported", "the control plane does not run as users of its own"},
	{"algorithm", "v1beta4", head + "encryptionAlgorithm: RSA\n", 4, "is not one of ECDSA-P256", ""},
	{"no validity", "v1beta4", head + "certificateValidityPeriod: 0s\n", 4, "greater than 0s", "no certificate could ever be used"},
	{"argument without a name", "v1beta4", head + "scheduler:\n  extraArgs:\n  - value: a\n", 6, "has no name", ""},
	{"argument with dashes", "v1beta4", head + "scheduler:\n  extraArgs:\n  - {name: --v, value: '2'}\n", 6, `"v"`, "the program would not start"},
	{"merge method", "v1", head + "scheduler:\n  extraArgs:\n  - {name: v, value: '2', mergeMethod: replace}\n", 6, "not append or prepend", ""},
	{"volume", "v1beta4", head + "scheduler:\n  extraVolumes:\n  - {name: V, hostPath: h, mountPath: '', pathType: Folder}\n", 6, "pathType", "the kubelet would refuse the pod"},
	{"environment", "v1beta4", head + "scheduler:\n  extraEnvs:\n  - {name: 'a=b', value: c}\n", 6, "name \"a=b\"", "the kubelet would refuse the pod"},
	{"two kinds of etcd", "v1beta4", head + "etcd:\n  local: {dataDir: /e}\n  external: {endpoints: ['http://h:2379'], caFile: '', certFile: '', keyFile: ''}\n", 6, "both local and external", ""},
	{"etcd's directory", "v1beta4", head + "etcd:\n  local: {dataDir: e}\n", 5, "not an absolute path", ""},
	{"etcd's SAN", "v1beta4", head + "etcd:\n  local:\n    dataDir: /e\n    peerCertSANs: [a_b]\n", 7, "neither an IP address", ""},
	{"etcd without endpoints", "v1beta4", head + "etcd:\n  external: {endpoints: [], caFile: '', certFile: '', keyFile: ''}\n", 5, "give at least one", ""},
	{"etcd without a scheme", "v1beta4", head + "etcd:\n  external:\n    endpoints:\n    - 10.0.0.1:2379\n    caFile: /c\n", 7, "10.0.0.1:2379", ""},
	{"etcd with TLS by HTTP", "v1beta4", head + "etcd:\n  external:\n    endpoints:\n    - http://10.0.0.1:2379\n    caFile: /c\n", 7, "must begin with https://", ""},
	{"etcd with a certificate alone", "v1beta4", head + "etcd:\n  external:\n    endpoints: ['https://h:2379']\n    caFile: /c\n    certFile: /d\n", 5, "both certFile and keyFile", ""},
	{"etcd without a CA", "v1beta4", head + "etcd:\n  external:\n    endpoints: ['https://h:2379']\n    certFile: /d\n    keyFile: /k\n", 5, "must also have caFile", ""},
	{"etcd's relative CA", "v1beta4", head + "etcd:\n  external:\n    endpoints: ['https://h:2379']\n    caFile: c\n", 7, "not an absolute path", ""},

	{"node name", "v1beta4", initHead + "nodeRegistration:\n  name: a_b\n", 8, "RFC 1123", ""},
	{"socket", "v1beta4", initHead + "nodeRegistration:\n  criSocket: tcp://127.0.0.1:80\n", 8, "must be unix://", "kubeadm makes unix://tcp://127.0.0.1:80 of it"},
	{"pull policy", "v1beta4", initHead + "nodeRegistration:\n  imagePullPolicy: Sometimes\n", 8, "not Always, IfNotPresent or Never", ""},
	{"taint", "v1beta4", initHead + "nodeRegistration:\n  taints:\n  - {key: a, effect: Never}\n", 9, "not NoSchedule", "the kubelet could not register the node"},
	{"ignored checks", "v1beta4", initHead + "nodeRegistration:\n  ignorePreflightErrors: [all, Swap]\n", 8, "all cannot be combined", "kubeadm says it when init runs"},
	{"token", "v1beta4", initHead + "bootstrapTokens:\n- token: ABC.def\n", 8, "abcdef.0123456789abcdef", ""},
	{"empty token", "v1beta4", initHead + "bootstrapTokens:\n- token: ''\n", 8, "leave it out", ""},
	{"usage", "v1beta4", initHead + "bootstrapTokens:\n- token: abcdef.0123456789abcdef\n  usages: [cooking]\n", 9, "cooking", ""},
	{"group", "v1beta4", initHead + "bootstrapTokens:\n- token: abcdef.0123456789abcdef\n  groups: [admins]\n", 9, "admins", ""},
	{"groups of a signing token", "v1beta4", initHead + "bootstrapTokens:\n- token: abcdef.0123456789abcdef\n  usages: [signing]\n  groups: [system:bootstrappers:a]\n", 10, "authentication", ""},
	{"ttl and expires", "v1beta4", initHead + "bootstrapTokens:\n- token: abcdef.0123456789abcdef\n  ttl: 1h\n  expires: '2031-02-03T04:05:06Z'\n", 10, "both ttl and expires", ""},
	{"address", "v1beta4", initHead + "localAPIEndpoint:\n  advertiseAddress: here\n", 8, "not an IP address", ""},
	{"multicast address", "v1beta4", initHead + "localAPIEndpoint:\n  advertiseAddress: 224.0.0.1\n", 8, "cannot be reached", "no API server can listen there"},
	{"port", "v1beta4", initHead + "localAPIEndpoint:\n  bindPort: 70000\n", 8, "not between 1 and 65535", ""},
	{"key", "v1beta4", initHead + "certificateKey: abc\n", 7, "64 hexadecimal digits", ""},
	{"no time at all", "v1beta4", initHead + "timeouts:\n  tlsBootstrap: 0s\n", 8, "greater than 0s", "nothing would be waited for"},

	{"no discovery", "v1beta4", joinHead, 1, "must have bootstrapToken or file", ""},
	{"two kinds of discovery", "v1beta4", joinHead + "discovery:\n  file: {kubeConfigPath: 'https://h/f'}\n  bootstrapToken: {token: abcdef.0123456789abcdef, apiServerEndpoint: 'h:6443', unsafeSkipCAVerification: true}\n", 3, "both bootstrapToken and file", ""},
	{"no hashes", "v1beta4", joinHead + "discovery:\n  bootstrapToken: {token: abcdef.0123456789abcdef, apiServerEndpoint: 'h:6443'}\n", 0, "caCertHashes is missing", ""},
	{"no endpoint", "v1beta4", joinHead + "discovery:\n  bootstrapToken: {token: abcdef.0123456789abcdef, unsafeSkipCAVerification: true}\n", 0, "apiServerEndpoint is missing", ""},
	{"no port", "v1beta4", joinHead + "discovery:\n  bootstrapToken:\n    token: abcdef.0123456789abcdef\n    apiServerEndpoint: h\n    unsafeSkipCAVerification: true\n", 6, "write h:6443", ""},
	{"discovery token", "v1beta4", joinHead + "discovery:\n  bootstrapToken:\n    token: a.b\n    apiServerEndpoint: h:1\n    unsafeSkipCAVerification: true\n", 5, "abcdef.0123456789abcdef", ""},
	{"bootstrap token", "v1beta4", joinHead + "discovery:\n  tlsBootstrapToken: a.b\n  bootstrapToken: {token: abcdef.0123456789abcdef, apiServerEndpoint: 'h:6443', unsafeSkipCAVerification: true}\n", 4, "abcdef.0123456789abcdef", ""},
	{"discovery file by HTTP", "v1beta4", joinHead + "discovery:\n  file:\n    kubeConfigPath: http://h/f\n  tlsBootstrapToken: abcdef.0123456789abcdef\n", 5, "begin with https://", ""},
	{"discovery file that is not there", "v1beta4", joinHead + "discovery:\n  file:\n    kubeConfigPath: /no/such/file\n  tlsBootstrapToken: abcdef.0123456789abcdef\n", 5, "does not exist", ""},
	{"relative CA", "v1beta4", joinHead + byToken + "caCertPath: ca.crt\n", 4, "must be an absolute path", ""},
	{"control plane's key", "v1beta4", joinHead + byToken + "controlPlane:\n  certificateKey: zz\n", 5, "64 hexadecimal digits", ""},
	{"control plane's port", "v1beta4", joinHead + byToken + "controlPlane:\n  localAPIEndpoint:\n    bindPort: -1\n", 6, "not between", ""},
	{"join's node name", "v1beta4", joinHead + byToken + "nodeRegistration:\n  name: a_b\n", 5, "RFC 1123", ""},

	{"reset's directory", "v1beta4", resetHead + "certificatesDir: pki\n", 3, "not an absolute path", ""},
	{"reset's socket", "v1beta4", resetHead + "criSocket: tcp://h\n", 3, "must be unix://", "kubeadm makes unix://tcp://h of it"},
	{"upgrade's pull policy", "v1beta4", "apiVersion: VERSION\nkind: UpgradeConfiguration\nnode:\n  imagePullPolicy: Sometimes\n", 4, "not Always", ""},
	{"upgrade's patches", "v1beta4", "apiVersion: VERSION\nkind: UpgradeConfiguration\napply:\n  patches:\n    directory: p\n", 5, "not an absolute path", ""},
	{"upgrade's gates", "v1beta4", "apiVersion: VERSION\nkind: UpgradeConfiguration\napply:\n  featureGates: {}\n", 4, "is not known", ""},
	{"reset's unmount flag", "v1beta4", resetHead + "unmountFlags:\n- MNT_DETACH\n- MNT_NEVER\n", 5, "MNT_NEVER", ""},
}

// refusal returns the error of config validate for a file.
func refusal(path string) error {
	f, _, err := config.Read(path)
	if err != nil {
		return err
	}
	facts := config.Facts{Hostname: "host", NodeIP: "192.0.2.1"}
	if c := f.Init; c != nil {
		c.Facts = facts
		c.CompleteInit()
		if err := c.ValidateInit(); err != nil {
			return err
		}
	}
	if c := f.Join; c != nil {
		c.Facts = facts
		c.CompleteJoin()
		if err := c.ValidateJoin(); err != nil {
			return err
		}
	}
	if r := f.Reset; r != nil {
		r.Complete()
		if err := r.ValidateReset(); err != nil {
			return err
		}
	}
	if f.Upgrade != nil {
		return f.Upgrade.Validate()
	}
	return nil
}

func TestBadFilesAreRefusedByLine(t *testing.T) {
	for _, f := range badFiles {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			kubeadm, kubernetes := judge(t, f.api)
			path := writeFile(t, inVersion(f.text, f.api, kubernetes))
			err := refusal(path)
			if err == nil {
				t.Fatal("accepted")
			}
			if fault.ExitCode(err) != fault.Usage {
				t.Errorf("exit code %d", fault.ExitCode(err))
			}
			at := path + ":"
			if f.line > 0 {
				at = fmt.Sprintf("%s:%d: ", path, f.line)
			}
			if text := err.Error() + ": " + fault.Hint(err); !strings.Contains(text, at) && f.line > 0 || !strings.Contains(text, f.want) {
				t.Errorf("%v\ndoes not say %s…%s", err, at, f.want)
			}
			out, err := run(kubeadm, "config", "validate", "--allow-experimental-api="+yes(f.api == "v1"), "--config", path)
			if accepted := err == nil; accepted != (f.ours != "") {
				t.Errorf("kubeadm accepts it: %t, %s", accepted, out)
			}
		})
	}
}

func TestAllMistakesOfAFileAreReportedTogether(t *testing.T) {
	path := writeFile(t, inVersion(head+`clusterNam: x
apiServer:
  extraArgs: {a: b}
  certSANs: [1]
---
apiVersion: VERSION
kind: InitConfiguration
localAPIEndpoint: {bindPort: x}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPod: 3
`, "v1beta4", "v1.37.1"))
	err := refusal(path)
	if err == nil {
		t.Fatal("accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 11 || !strings.Contains(lines[0], "5 errors") {
		t.Fatal(err)
	}
	for i, line := range []int{4, 6, 7, 11, 15} {
		if !strings.Contains(lines[2*i+1], fmt.Sprintf("%s:%d: ", path, line)) {
			t.Errorf("%q is not about line %d", lines[2*i+1], line)
		}
	}
}
