package audit

import (
	"slices"
	"strconv"
	"strings"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"

	"airlift/installer/config"
	"airlift/installer/node"
)

// A row is a check as data. auto is A if the benchmark calls it automated, M if it calls it manual.
type row struct {
	id, auto string
	place    Place
	title    string
	want     string
	judge    rule
	fix      string
	stig     string // ids without "V-", separated by spaces
	since    int    // the first minor version; 0 for all
}

// Checks returns all checks of the benchmark, in the order of their numbers.
func Checks() (list []Check) {
	for _, r := range slices.Concat(ofNodes, ofKubelets, ofClusters) {
		c := Check{ID: r.id, Place: r.place, Automated: r.auto == "A", Title: r.title, Want: r.want, Since: max(r.since, oldest), judge: r.judge, fix: r.fix}
		for _, id := range strings.Fields(r.stig) {
			c.STIG = append(c.STIG, "V-"+id)
		}
		list = append(list, c)
	}
	return list
}

// oldest is the oldest minor version that Airlift knows.
const oldest = 29

const (
	chmod600   = "chmod 600 $FILES"
	chownRoot  = "chown root:root $FILES"
	rootRoot   = "root:root"
	mode600    = "mode 600 or stricter"
	isNotSet   = "not set"
	notInFlag  = "not in the list"
	bothAreSet = "both are set"
)

// cniFiles are the configuration of the pod network, and its addresses on the host.
var cniFiles = func(f *facts) []string {
	return slices.DeleteFunc(slices.Concat(f.walk("/etc/cni/net.d"), f.walk("/var/lib/cni/networks")), func(name string) bool {
		s, err := f.stat(name)
		return err != nil || !s.mode.IsRegular()
	})
}

var adminFiles = file(node.AdminConf, node.SuperAdminConf)

// ofNodes are the checks of sections 1 to 3: control planes and etcd.
var ofNodes = []row{
	{"1.1.1", "A", ControlPlane, "Manifest of the API server: permissions", mode600, mode(manifest(apiServer), 0o600), chmod600, "242408", 0},
	{"1.1.2", "A", ControlPlane, "Manifest of the API server: owner", rootRoot, owner(manifest(apiServer), rootRoot), chownRoot, "242405", 0},
	{"1.1.3", "A", ControlPlane, "Manifest of the controller manager: permissions", mode600, mode(manifest(controllerManager), 0o600), chmod600, "242408", 0},
	{"1.1.4", "A", ControlPlane, "Manifest of the controller manager: owner", rootRoot, owner(manifest(controllerManager), rootRoot), chownRoot, "242405", 0},
	{"1.1.5", "A", ControlPlane, "Manifest of the scheduler: permissions", mode600, mode(manifest(scheduler), 0o600), chmod600, "242408", 0},
	{"1.1.6", "A", ControlPlane, "Manifest of the scheduler: owner", rootRoot, owner(manifest(scheduler), rootRoot), chownRoot, "242405", 0},
	{"1.1.7", "A", ControlPlane, "Manifest of etcd: permissions", mode600, mode(glob(config.ManifestsDir+"/*etcd*"), 0o600), chmod600, "242408", 0},
	{"1.1.8", "A", ControlPlane, "Manifest of etcd: owner", rootRoot, owner(glob(config.ManifestsDir+"/*etcd*"), rootRoot), chownRoot, "242405", 0},
	{"1.1.9", "M", ControlPlane, "Files of the pod network: permissions", mode600, mode(cniFiles, 0o600), chmod600, "", 0},
	{"1.1.10", "M", ControlPlane, "Files of the pod network: owner", rootRoot, owner(cniFiles, rootRoot), chownRoot, "", 0},
	{"1.1.11", "A", ControlPlane, "Data directory of etcd: permissions", "mode 700 or stricter", mode(etcdData, 0o700), "chmod 700 $FILES", "242459", 0},
	{"1.1.12", "A", ControlPlane, "Data directory of etcd: owner", "etcd:etcd", owner(etcdData, "etcd:etcd"), "chown -R etcd:etcd $FILES, after etcd's static pod runs as this user", "242445", 0},
	{"1.1.13", "A", ControlPlane, "Kubeconfigs of administrators: permissions", mode600, mode(adminFiles, 0o600), chmod600, "242460", 0},
	{"1.1.14", "A", ControlPlane, "Kubeconfigs of administrators: owner", rootRoot, owner(adminFiles, rootRoot), chownRoot, "242446", 0},
	{"1.1.15", "A", ControlPlane, "Kubeconfig of the scheduler: permissions", mode600, mode(file(config.KubernetesDir+"/scheduler.conf"), 0o600), chmod600, "242460", 0},
	{"1.1.16", "A", ControlPlane, "Kubeconfig of the scheduler: owner", rootRoot, owner(file(config.KubernetesDir+"/scheduler.conf"), rootRoot), chownRoot, "242446", 0},
	{"1.1.17", "A", ControlPlane, "Kubeconfig of the controller manager: permissions", mode600, mode(file(config.KubernetesDir+"/controller-manager.conf"), 0o600), chmod600, "242460", 0},
	{"1.1.18", "A", ControlPlane, "Kubeconfig of the controller manager: owner", rootRoot, owner(file(config.KubernetesDir+"/controller-manager.conf"), rootRoot), chownRoot, "242446", 0},
	{"1.1.19", "A", ControlPlane, "Directory of the certificates and all below it: owner", rootRoot, owner(inPKI(""), rootRoot), chownRoot, "242451", 0},
	{"1.1.20", "M", ControlPlane, "Certificates: permissions", "mode 644 or stricter", mode(inPKI(".crt"), 0o644), "chmod 644 $FILES", "242466", 0},
	{"1.1.21", "M", ControlPlane, "Private keys: permissions", mode600, mode(inPKI(".key"), 0o600), chmod600, "242467", 0},

	{"1.2.1", "M", ControlPlane, "API server: anonymous requests are refused", "disabled, or limited to health checks", anonymous, "", "242390", 0},
	{"1.2.2", "A", ControlPlane, "API server: no file with static tokens", isNotSet, unset(apiServer, "token-auth-file"), "", "245543", 0},
	{"1.2.3", "M", ControlPlane, "API server: Services cannot claim external addresses", "DenyServiceExternalIPs is on", plugin("DenyServiceExternalIPs"), "", "", 0},
	{"1.2.4", "A", ControlPlane, "API server: a client certificate for kubelets", bothAreSet, isSet(apiServer, "kubelet-client-certificate", "kubelet-client-key"), "set both flags to the files of apiserver-kubelet-client in " + config.CertificatesDir, "245544", 0},
	{"1.2.5", "A", ControlPlane, "API server: it verifies the certificates of kubelets", "set", isSet(apiServer, "kubelet-certificate-authority"), "sign the serving certificates of all kubelets by the cluster's CA first (serverTLSBootstrap: true and an approver), then set the flag to " + config.CertificatesDir + "/ca.crt", "", 0},
	{"1.2.6", "A", ControlPlane, "API server: not every request is authorized", "AlwaysAllow is not a mode", notAlwaysAllowed, "", "242382", 0},
	{"1.2.7", "A", ControlPlane, "API server: kubelets reach only objects of their own node", "Node is a mode", authorizes("Node"), "", "242382", 0},
	{"1.2.8", "A", ControlPlane, "API server: roles decide what users may do", "RBAC is a mode", authorizes("RBAC"), "", "242382", 0},
	{"1.2.9", "M", ControlPlane, "API server: events are limited", "EventRateLimit is on", plugin("EventRateLimit"), "", "", 0},
	{"1.2.10", "A", ControlPlane, "API server: the admission plugin AlwaysAdmit is off", notInFlag, without(apiServer, "enable-admission-plugins", "AlwaysAdmit"), "", "", 0},
	{"1.2.11", "M", ControlPlane, "API server: each start of a container checks the right to its image", "AlwaysPullImages is on", pullImages, "", "", 0},
	{"1.2.12", "A", ControlPlane, "API server: the admission plugin ServiceAccount is on", "on", plugin("ServiceAccount"), "", "", 0},
	{"1.2.13", "A", ControlPlane, "API server: the admission plugin NamespaceLifecycle is on", "on", plugin("NamespaceLifecycle"), "", "", 0},
	{"1.2.14", "A", ControlPlane, "API server: the admission plugin NodeRestriction is on", "on", plugin("NodeRestriction"), "", "", 0},
	{"1.2.15", "A", ControlPlane, "API server: no profiling", "false", is(apiServer, "profiling", "false"), "", "", 0},
	{"1.2.16", "A", ControlPlane, "API server: requests are recorded in an audit log", "set", isSet(apiServer, "audit-log-path"), "write an audit policy, and set audit-policy-file and audit-log-path: ./install docs reconfigure", "242402 242465", 0},
	{"1.2.17", "A", ControlPlane, "Audit log: how many days old files are kept", "30 or more", auditLog("audit-log-maxage", 30), "", "242464", 0},
	{"1.2.18", "A", ControlPlane, "Audit log: how many old files are kept", "10 or more", auditLog("audit-log-maxbackup", 10), "", "242463", 0},
	{"1.2.19", "A", ControlPlane, "Audit log: size of a file, in MB", "100 or more", auditLog("audit-log-maxsize", 100), "", "242462", 0},
	{"1.2.20", "M", ControlPlane, "API server: requests have a time limit", "5 minutes at most", requestTimeout5m, "", "242438", 0},
	{"1.2.21", "A", ControlPlane, "API server: tokens of deleted ServiceAccounts are refused", "true", is(apiServer, "service-account-lookup", "true"), "", "", 0},
	{"1.2.22", "A", ControlPlane, "API server: a key verifies tokens of ServiceAccounts", "set", isSet(apiServer, "service-account-key-file"), "set service-account-key-file to " + config.CertificatesDir + "/sa.pub", "", 0},
	{"1.2.23", "A", ControlPlane, "API server: a client certificate for etcd", bothAreSet, isSet(apiServer, "etcd-certfile", "etcd-keyfile"), "set both flags to the files of apiserver-etcd-client in " + config.CertificatesDir, "242430 242431", 0},
	{"1.2.24", "A", ControlPlane, "API server: a serving certificate", bothAreSet, isSet(apiServer, "tls-cert-file", "tls-private-key-file"), "set both flags to the files of apiserver in " + config.CertificatesDir, "242422", 0},
	{"1.2.25", "A", ControlPlane, "API server: a CA verifies client certificates", "set", isSet(apiServer, "client-ca-file"), "set the flag to " + config.CertificatesDir + "/ca.crt", "242419", 0},
	{"1.2.26", "A", ControlPlane, "API server: a CA verifies etcd", "set", isSet(apiServer, "etcd-cafile"), "set the flag to " + config.CertificatesDir + "/etcd/ca.crt", "242429", 0},
	{"1.2.27", "M", ControlPlane, "Secrets in etcd: encryption is configured", "set", isSet(apiServer, "encryption-provider-config"), encryptionFix, "274882", 0},
	{"1.2.28", "M", ControlPlane, "Secrets in etcd: the provider encrypts", "secretbox, aescbc or kms is first", firstProvider, "", "274882", 0},
	{"1.2.29", "M", ControlPlane, "API server: only strong cipher suites", "a list of strong suites, or TLS 1.3", flags(apiServer, func(_ *facts, v []value) bool { return strong(list(v[0].text), v[1].text) }, always("tls-cipher-suites", wantedCiphers), "tls-cipher-suites", "tls-min-version"), "", "242378 242418", 0},
	{"1.2.30", "A", ControlPlane, "API server: tokens of ServiceAccounts are not extended to a year", "false", is(apiServer, "service-account-extend-token-expiration", "false"), "", "", 0},

	{"1.3.1", "M", ControlPlane, "Controller manager: how many pods that ended are kept", "set by the site, less than the default of 12500", flags(controllerManager, func(_ *facts, v []value) bool { return number(v[0].text) > 0 && number(v[0].text) < 12500 }, always("terminated-pod-gc-threshold", "1000"), "terminated-pod-gc-threshold"), "", "", 0},
	{"1.3.2", "A", ControlPlane, "Controller manager: no profiling", "false", is(controllerManager, "profiling", "false"), "", "242409", 0},
	{"1.3.3", "A", ControlPlane, "Controller manager: each controller has its own account", "true", is(controllerManager, "use-service-account-credentials", "true"), "", "242381", 0},
	{"1.3.4", "A", ControlPlane, "Controller manager: a key signs tokens of ServiceAccounts", "set", isSet(controllerManager, "service-account-private-key-file"), "set the flag to " + config.CertificatesDir + "/sa.key", "", 0},
	{"1.3.5", "A", ControlPlane, "Controller manager: pods get the cluster's CA", "set", isSet(controllerManager, "root-ca-file"), "set the flag to " + config.CertificatesDir + "/ca.crt", "242421", 0},
	{"1.3.6", "A", ControlPlane, "Controller manager: serving certificates of kubelets can be rotated", "RotateKubeletServerCertificate is not off", without(controllerManager, "feature-gates", "RotateKubeletServerCertificate=false"), "", "", 0},
	{"1.3.7", "A", ControlPlane, "Controller manager: it serves only this host", "127.0.0.1", is(controllerManager, "bind-address", "127.0.0.1"), "", "242385", 0},
	{"1.4.1", "A", ControlPlane, "Scheduler: no profiling", "false", is(scheduler, "profiling", "false"), "", "", 0},
	{"1.4.2", "A", ControlPlane, "Scheduler: it serves only this host", "127.0.0.1", is(scheduler, "bind-address", "127.0.0.1"), "", "242384", 0},

	{"2.1", "A", Etcd, "etcd: a serving certificate", bothAreSet, isSet("etcd", "cert-file", "key-file"), "set both flags to the files of server in " + config.CertificatesDir + "/etcd", "242427 242428", 0},
	{"2.2", "A", Etcd, "etcd: clients need a certificate", "true", is("etcd", "client-cert-auth", "true"), "", "242423", 0},
	{"2.3", "A", Etcd, "etcd: no certificate that it signs itself, for clients", "false", is("etcd", "auto-tls", "false"), "", "242379", 0},
	{"2.4", "A", Etcd, "etcd: a certificate for other members", bothAreSet, isSet("etcd", "peer-cert-file", "peer-key-file"), "set both flags to the files of peer in " + config.CertificatesDir + "/etcd", "242432 242433", 0},
	{"2.5", "A", Etcd, "etcd: members need a certificate", "true", is("etcd", "peer-client-cert-auth", "true"), "", "242426", 0},
	{"2.6", "A", Etcd, "etcd: no certificate that it signs itself, for members", "false", is("etcd", "peer-auto-tls", "false"), "", "242380", 0},
	{"2.7", "M", Etcd, "etcd: its CA is not the cluster's", "another CA", otherCA, "create another CA for etcd: ./install docs certificates", "", 0},

	{"3.1.1", "M", Cluster, "People do not log in with client certificates", "another way to log in, such as OIDC", certificateUsers, "", "", 0},
	{"3.1.2", "M", Cluster, "People do not log in with tokens of ServiceAccounts", "no token that does not expire", tokenUsers, "", "", 0},
	{"3.1.3", "M", Cluster, "People do not log in with bootstrap tokens", "such tokens can only join nodes", bootstrapUsers, "", "", 0},
	{"3.2.1", "M", ControlPlane, "Audit log: there is a policy", "a policy that records requests", hasAuditPolicy, "write an audit policy, and set audit-policy-file and audit-log-path: ./install docs reconfigure", "242461", 0},
	{"3.2.2", "M", ControlPlane, "Audit log: the policy records what matters", "see " + docsPage, coveringAuditPolicy, "write an audit policy, and set audit-policy-file and audit-log-path: ./install docs reconfigure", "242403", 0},
}

const docsPage = "./install docs audit"

// proxyFiles are kubeconfigs of a kube-proxy that is no pod.
var proxyFiles = file("/etc/kubernetes/kube-proxy.conf", "/etc/kubernetes/proxy.conf", "/etc/kubernetes/kube-proxy-kubeconfig", "/etc/kubernetes/proxy", "/var/lib/kube-proxy/kubeconfig")

var (
	kubeletUnit   = func(f *facts) []string { return f.unitFiles() }
	kubeletConf   = kubeletFile((*kubelet).kubeconfig)
	kubeletConfig = kubeletFile((*kubelet).file)
	kubeletCA     = kubeletFile(func(k *kubelet) string { return k.config.Authentication.X509.ClientCAFile })
)

// ofKubelets are the checks of section 4: each node.
var ofKubelets = []row{
	{"4.1.1", "A", Node, "Unit of the kubelet and its drop-ins: permissions", mode600, mode(kubeletUnit, 0o600), chmod600, "242455", 0},
	{"4.1.2", "A", Node, "Unit of the kubelet and its drop-ins: owner", rootRoot, owner(kubeletUnit, rootRoot), chownRoot, "242454", 0},
	{"4.1.3", "M", Node, "Kubeconfig of kube-proxy, if it is a file: permissions", mode600, mode(proxyFiles, 0o600), chmod600, "242447", 0},
	{"4.1.4", "M", Node, "Kubeconfig of kube-proxy, if it is a file: owner", rootRoot, owner(proxyFiles, rootRoot), chownRoot, "242448", 0},
	{"4.1.5", "A", Node, "Kubeconfig of the kubelet: permissions", mode600, mode(kubeletConf, 0o600), chmod600, "242452", 0},
	{"4.1.6", "A", Node, "Kubeconfig of the kubelet: owner", rootRoot, owner(kubeletConf, rootRoot), chownRoot, "242453", 0},
	{"4.1.7", "M", Node, "CA that verifies clients of the kubelet: permissions", "mode 644 or stricter", mode(kubeletCA, 0o644), "chmod 644 $FILES", "242449", 0},
	{"4.1.8", "M", Node, "CA that verifies clients of the kubelet: owner", rootRoot, owner(kubeletCA, rootRoot), chownRoot, "242450", 0},
	{"4.1.9", "A", Node, "Configuration file of the kubelet: permissions", mode600, mode(kubeletConfig, 0o600), chmod600, "242407 242456", 0},
	{"4.1.10", "A", Node, "Configuration file of the kubelet: owner", rootRoot, owner(kubeletConfig, rootRoot), chownRoot, "242406 242457", 0},

	{"4.2.1", "A", Node, "Kubelet: anonymous requests are refused", "false", field("authentication.anonymous.enabled", "authentication: {anonymous: {enabled: false}}", func(c *kubeletv1.KubeletConfiguration) (string, bool) {
		on := c.Authentication.Anonymous.Enabled != nil && *c.Authentication.Anonymous.Enabled
		return strconv.FormatBool(on), !on
	}), "", "242391", 0},
	{"4.2.2", "A", Node, "Kubelet: not every request is authorized", "Webhook", field("authorization.mode", "authorization: {mode: Webhook}", func(c *kubeletv1.KubeletConfiguration) (string, bool) {
		return string(c.Authorization.Mode), c.Authorization.Mode != kubeletv1.KubeletAuthorizationModeAlwaysAllow
	}), "", "242392", 0},
	{"4.2.3", "A", Node, "Kubelet: a CA verifies client certificates", "set", field("authentication.x509.clientCAFile", "authentication: {x509: {clientCAFile: "+config.CertificatesDir+"/ca.crt}}", func(c *kubeletv1.KubeletConfiguration) (string, bool) {
		return c.Authentication.X509.ClientCAFile, c.Authentication.X509.ClientCAFile != ""
	}), "", "242420", 0},
	{"4.2.4", "M", Node, "Kubelet: no port without authentication", "0", field("readOnlyPort", "readOnlyPort: 0", func(c *kubeletv1.KubeletConfiguration) (string, bool) {
		return strconv.Itoa(int(c.ReadOnlyPort)), c.ReadOnlyPort == 0
	}), "", "242387", 0},
	{"4.2.5", "M", Node, "Kubelet: streams that are idle are closed", "not 0", field("streamingConnectionIdleTimeout", "streamingConnectionIdleTimeout: 5m", func(c *kubeletv1.KubeletConfiguration) (string, bool) {
		return c.StreamingConnectionIdleTimeout.Duration.String(), c.StreamingConnectionIdleTimeout.Duration > 0
	}), "", "245541", 0},
	{"4.2.6", "A", Node, "Kubelet: it manages its iptables chains", "true", boolField("makeIPTablesUtilChains", true, func(c *kubeletv1.KubeletConfiguration) *bool { return c.MakeIPTablesUtilChains }), "", "", 0},
	{"4.2.7", "M", Node, "Kubelet: the node has the host's name", isNotSet, noOverride, "", "242404", 0},
	{"4.2.8", "M", Node, "Kubelet: the rate of events is limited, and not too low", "1 or more", field("eventRecordQPS", "eventRecordQPS: 50", func(c *kubeletv1.KubeletConfiguration) (string, bool) {
		return strconv.Itoa(int(*c.EventRecordQPS)), *c.EventRecordQPS > 0
	}), "", "", 0},
	{"4.2.9", "M", Node, "Kubelet: its serving certificate is signed by a CA", "a certificate that the kubelet did not sign itself", kubeletServing, "", "242424 242425", 0},
	{"4.2.10", "A", Node, "Kubelet: its client certificate is rotated", "true", boolField("rotateCertificates", true, func(c *kubeletv1.KubeletConfiguration) *bool { return &c.RotateCertificates }), "", "", 0},
	{"4.2.11", "M", Node, "Kubelet: its serving certificate can be rotated", "RotateKubeletServerCertificate is not off", field("featureGates.RotateKubeletServerCertificate", "featureGates without RotateKubeletServerCertificate", func(c *kubeletv1.KubeletConfiguration) (string, bool) {
		on, given := c.FeatureGates["RotateKubeletServerCertificate"]
		return strconv.FormatBool(on || !given), on || !given
	}), "", "", 0},
	{"4.2.12", "M", Node, "Kubelet: only strong cipher suites", "a list of strong suites, or TLS 1.3", field("tlsCipherSuites", "tlsCipherSuites: ["+wantedCiphers+"]", func(c *kubeletv1.KubeletConfiguration) (string, bool) {
		return strings.Join(c.TLSCipherSuites, ","), strong(c.TLSCipherSuites, c.TLSMinVersion)
	}), "", "", 0},
	{"4.2.13", "M", Node, "Kubelet: a pod has a limit of processes", "more than 0", field("podPidsLimit", "podPidsLimit: 4096", func(c *kubeletv1.KubeletConfiguration) (string, bool) {
		return strconv.FormatInt(*c.PodPidsLimit, 10), *c.PodPidsLimit > 0
	}), "", "", 0},
	{"4.2.14", "M", Node, "Kubelet: containers get a seccomp profile", "true", boolField("seccompDefault", true, func(c *kubeletv1.KubeletConfiguration) *bool { return c.SeccompDefault }), "", "", 0},
	{"4.3.1", "A", Node, "kube-proxy: its metrics serve only this host", "127.0.0.1", proxyMetrics, "kubectl -n kube-system edit configmap kube-proxy: metricsBindAddress: 127.0.0.1:10249; then: kubectl -n kube-system rollout restart daemonset kube-proxy", "", 0},
}
