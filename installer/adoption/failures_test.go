package adoption_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"airlift/installer/adoption"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host/systemd"
	"airlift/installer/pki"
	"airlift/installer/runtimecheck"
	"airlift/scripts/fixtures/layouts"
)

// A change makes something of a layout odd.
type change func(*layouts.Layout)

// of returns a layout of kubeadm between two versions.
func of(version, target string, change func(*config.Config)) func() *layouts.Layout {
	return func() *layouts.Layout {
		return layouts.Kubeadm(layouts.Options{Version: version, Target: target, Change: change})
	}
}

// edit replaces text in a file of a layout, which must have it.
func edit(file, from, to string) change {
	return func(l *layouts.Layout) {
		if !strings.Contains(l.Files[file], from) {
			panic(file + " has no " + from + ":\n" + l.Files[file])
		}
		l.Files[file] = strings.Replace(l.Files[file], from, to, 1)
	}
}

// store replaces text in a ConfigMap.
func store(name, key, from, to string) change {
	return func(l *layouts.Layout) {
		m := l.Cluster.ConfigMaps[name]
		if !strings.Contains(m.Data[key], from) {
			panic(name + " has no " + from + ":\n" + m.Data[key])
		}
		m.Data[key] = strings.Replace(m.Data[key], from, to, 1)
	}
}

const (
	stored    = "kube-system/kubeadm-config"
	apiserver = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	flagsFile = "/var/lib/kubelet/kubeadm-flags.env"
)

// extraArgs gives a component of the stored configuration, and the running one, a flag.
func extraArgs(version, target, component, name, value string) func() *layouts.Layout {
	return of(version, target, func(c *config.Config) {
		arg := config.Arg{Name: name, Value: value}
		switch component {
		case "etcd":
			c.Etcd.Local.ExtraArgs = append(c.Etcd.Local.ExtraArgs, arg)
		case "apiServer":
			c.APIServer.ExtraArgs = append(c.APIServer.ExtraArgs, arg)
		case "scheduler":
			c.Scheduler.ExtraArgs = append(c.Scheduler.ExtraArgs, arg)
		}
	})
}

func kubelet(flags string) change {
	return func(l *layouts.Layout) {
		l.Files["/etc/default/kubelet"] = "KUBELET_EXTRA_ARGS=\"" + flags + "\"\n"
		l.Restart()
	}
}

// fromUnit gives the kubelet flags in its drop-in, as kURL, KubeKey and sealos do.
func fromUnit(flags string) change {
	return func(l *layouts.Layout) {
		const file = "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
		const vendor = "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf"
		l.Files[file] = strings.Replace(l.Files[vendor], "ExecStart=\n", "Environment=\"KUBELET_EXTRA_ARGS="+flags+"\"\nExecStart=\n", 1)
		unit := l.Units["kubelet.service"]
		unit.DropIns = []string{file}
		l.Units["kubelet.service"] = unit
		l.Restart(strings.Fields(flags)...)
	}
}

func all(changes ...change) change {
	return func(l *layouts.Layout) {
		for _, c := range changes {
			c(l)
		}
	}
}

// failures are the reported failures in Kubernetes and in the tools that make clusters. Adopt must report each before an
// upgrade meets it.
var failures = []struct {
	issue   string
	layout  func() *layouts.Layout // base if nil
	change  change
	refused bool
	name    string // of the finding or the refusal
	what    string // is in What
	effect  string // is in Effect
}{
	{"kubeadm#2762, kubeone#4060", of("v1.36.3", "v1.37.1", func(c *config.Config) {}),
		store(stored, "ClusterConfiguration", "apiServer: {}", "apiServer:\n  certSANs: [api.example.com, 192.0.2.9, "+layouts.Address+"]"),
		false, "CertificateNames", "does not have api.example.com, 192.0.2.9 of", "keeps the names that the certificate has"},
	{"website#28875", nil, func(l *layouts.Layout) { l.Served["/etc/kubernetes/pki/apiserver.crt"] = "1f" },
		false, "ServedCertificate", "/etc/kubernetes/pki/apiserver.crt", "restarts it"},
	{"kubeadm#1753", nil, embedCertificate, true, "KubeletCredentials", "contains the kubelet's certificate", "locked out"},
	{"kubeadm#1927", nil, edit(flagsFile, `""`, `"--max-pods=50"`), false, "KubeletFlagsUnused", "--max-pods=50", "removes it there"},
	{"image-builder#1866", of("v1.34.9", "v1.35.4", nil), kubelet("--pod-infra-container-image=k8s.gcr.io/pause:3.5"),
		false, "KubeletFlagsGone", "--pod-infra-container-image=k8s.gcr.io/pause:3.5", "refuses it until it is removed"},
	{"kURL#4451, sealos#2933", nil, fromUnit("--container-runtime=remote"), false, "KubeletFlagsGone", "--container-runtime=", "leaves it out"},
	{"k8s#100988", nil, store(stored, "ClusterConfiguration", "scheduler: {}", "scheduler:\n  extraArgs:\n  - name: feature-gates\n    value: TTLAfterFinished=true"),
		false, "FeatureGates", "kube-scheduler: feature gate TTLAfterFinished does not exist in v1.37", "refuses it"},
	{"kubeadm#3193", extraArgs("v1.36.3", "v1.37.1", "apiServer", "feature-gates", "PublicKeysECDSA=true"), nil,
		false, "FeatureGates", "PublicKeysECDSA is a feature gate of kubeadm", "does not start with it"},
	{"k8s#127316, kubeadm#1955", of("v1.32.13", "v1.33.13", func(c *config.Config) { c.ControlPlaneEndpoint = "lb.example.com:6443" }), nil,
		false, "KubeletServer", "https://lb.example.com:6443", "use the API server of its own host before its kubelet is replaced"},
	{"kubeadm#2714", of("v1.36.3", "v1.37.1", func(c *config.Config) { c.ImageRepository = "k8s.gcr.io" }), nil,
		false, "ImageNames", "imageRepository is k8s.gcr.io", "nothing is pulled"},
	{"k8s#84326", nil, func(l *layouts.Layout) {
		l.Cluster.Deployments["kube-system/coredns"].Spec.Template.Spec.Containers[0].Image = "registry.example.com/coredns:custom"
	}, false, "Corefile", "custom", "keeps the Corefile and CoreDNS custom"},
	{"kubeadm#3137, kubespray#12306", nil, func(l *layouts.Layout) { delete(l.Cluster.DaemonSets, "kube-system/kube-proxy") },
		false, "KubeProxy", "no kube-proxy", "stores proxy.disabled: true"},
	{"kubeadm#1175", func() *layouts.Layout {
		return layouts.Kubespray(layouts.Options{Version: "v1.36.3", Target: "v1.37.1"})
	}, nil,
		false, "DNS", "kube-system/coredns, at 10.96.0.3", "stores dns.disabled: true"},
	{"kubespray#11552", nil, edit(apiserver, "- --allow-privileged=true", "- --allow-privileged=true\n    - --profiling=false"),
		false, "EditedManifests", "runs with --profiling=false, which is not in the stored configuration", "removes it"},
	{"kubespray#7866", func() *layouts.Layout {
		return layouts.Kubespray(layouts.Options{Version: "v1.36.3", Target: "v1.37.1"})
	}, nil,
		false, "KubeProxyServer", "https://127.0.0.1:6443", "A node that joins has no such proxy"},
	{"ocne#248", nil, func(l *layouts.Layout) { l.Cluster.Nodes = []string{"one", "two"} },
		false, "OtherNodes", "1 other nodes: two", "until every node has the new images"},
	{"kubespray#12629, etcd#20809", of("v1.33.13", "v1.34.9", nil), edit("/etc/kubernetes/manifests/etcd.yaml", "etcd:3.5.24-0", "etcd:3.5.21-0"),
		false, "EtcdVersion", "etcd is 3.5.21", "older than 3.5.26"},
	{"kubeadm#3240", extraArgs("v1.36.3", "v1.37.1", "etcd", "experimental-compaction-batch-limit", "1000"), nil,
		false, "RemovedFlags", "etcd has no flag --experimental-compaction-batch-limit since v1.37", "refuses it"},
	{"k8s#81756, kURL#4077", of("v1.33.13", "v1.34.9", nil), func(l *layouts.Layout) { l.Runtime.Info.SandboxImage = "registry.k8s.io/pause:3.6" },
		false, "SandboxImage", "containerd uses registry.k8s.io/pause:3.6", "the flag stays up to v1.34"},
	{"containerd#12612, containerd#12636", nil, func(l *layouts.Layout) {
		l.Files["/etc/containerd/config.toml"] = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.registry.mirrors.'docker.io']\nendpoint = ['https://mirror.example.com']\n"
	}, false, "Registries", "mirrors of docker.io, which containerd 2.2 does not use", "no command of Airlift changes containerd"},
	{"containerd#4581", nil, func(l *layouts.Layout) { l.Runtime.Info.CRI = false }, true, "ContainerRuntime", "CRI plugin is disabled", "cannot use it"},
	{"kubernetes/release#3392", nil, func(l *layouts.Layout) {
		const legacy = "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
		l.Files[legacy] = "[Service]\nExecStart=\nExecStart=/opt/bin/kubelet $KUBELET_KUBECONFIG_ARGS\n"
		unit := l.Units["kubelet.service"]
		unit.DropIns = []string{legacy}
		l.Units["kubelet.service"] = unit
	}, true, "KubeletExecStart", "the unit starts /opt/bin/kubelet, and /usr/bin/kubelet runs", "not clear which kubelet"},
	{"containerd#11814", nil, func(l *layouts.Layout) { l.Files["/sys/fs/selinux/enforce"] = "1" }, false, "SELinux", "enforcing", "label of that directory"},
	{"kubeadm#2823, k8s#129364", nil, func(l *layouts.Layout) { l.Files[apiserver+".bak"] = l.Files[apiserver] },
		true, "StaticPods", "kube-apiserver.yaml and kube-apiserver.yaml.bak define the same pod kube-system/kube-apiserver", "also backups"},
	{"kubeadm#2354, kubeadm#3244", nil, func(l *layouts.Layout) { l.Cluster.Node = nil }, true, "NodeIdentity", `no node "one"`, "would not find this node"},
	{"kube-vip#684", nil, func(l *layouts.Layout) {
		l.StaticPod("kube-vip", "ghcr.io/kube-vip/kube-vip:v0.8", "/etc/kubernetes/admin.conf")
	}, false, "StaticPod", "kube-vip announces the endpoint's address", "it stays"},
	{"sealos#5231", nil, func(l *layouts.Layout) {
		l.Cluster.Node.Annotations["kubeadm.alpha.kubernetes.io/cri-socket"] = "/var/run/image-cri-shim.sock"
	}, true, "RuntimeSocket", "image-cri-shim.sock", "answers only requests for images"},
}

// embedCertificate makes kubelet.conf contain its certificate, as up to kubeadm v1.17.
func embedCertificate(l *layouts.Layout) {
	var link string
	for name, target := range l.Links {
		if strings.HasSuffix(name, "kubelet-client-current.pem") {
			link = target
		}
	}
	pem := []byte(l.Files[link])
	conf := l.Files["/etc/kubernetes/kubelet.conf"]
	for _, key := range []string{"client-certificate", "client-key"} {
		conf = strings.Replace(conf, key+": /var/lib/kubelet/pki/kubelet-client-current.pem", key+"-data: "+base64.StdEncoding.EncodeToString(pem), 1)
	}
	l.Files["/etc/kubernetes/kubelet.conf"] = conf
}

// found returns the finding or refusal of a name whose texts contain others.
func found(list []adoption.Finding, name, what, effect string) bool {
	return slices.ContainsFunc(list, func(f adoption.Finding) bool {
		return f.Name == name && strings.Contains(f.What, what) && strings.Contains(f.Effect, effect)
	})
}

// TestReportedFailures: each reported failure is found, where it is, and not without its cause.
func TestReportedFailures(t *testing.T) {
	if len(failures) != 27 {
		t.Errorf("%d failures", len(failures))
	}
	for _, f := range failures {
		t.Run(f.issue, func(t *testing.T) {
			l := base()
			if f.layout != nil {
				l = f.layout()
			}
			if f.change != nil {
				f.change(l)
			}
			r := adoption.Recognise(l.Input())
			list := r.Findings
			if f.refused {
				list = r.Refusals
			} else if !r.Adoptable() {
				t.Errorf("it is refused: %s", show(r))
			}
			if !found(list, f.name, f.what, f.effect) {
				t.Errorf("want %s with %q and %q: %s", f.name, f.what, f.effect, show(r))
			}
			if sound := adoption.Recognise(base().Input()); found(sound.Findings, f.name, f.what, f.effect) || found(sound.Refusals, f.name, f.what, f.effect) {
				t.Errorf("also without its cause: %s", show(sound))
			}
		})
	}
}

// TestFindings has what is odd or refused in other ways.
func TestFindings(t *testing.T) {
	long := func(c *config.Config) { c.CertificateValidityPeriod = 100 * config.CertificateValidity }
	for title, f := range map[string]struct {
		layout  func() *layouts.Layout
		change  change
		refused bool
		name    string
		what    string
		effect  string
	}{
		"kubelet does not run": {nil, func(l *layouts.Layout) { l.Kubelet = adoption.Process{} }, true, "KubeletRuns", "does not run", "process"},
		"kubelet was replaced": {nil, func(l *layouts.Layout) { l.Kubelet.Exe += " (deleted)" }, false, "Binaries", "was replaced or removed after its start", ""},
		"kubelet in /opt/bin":  {nil, moveKubelet("/opt/bin"), false, "Binaries", "/opt/bin/kubelet belongs to no package", "does not change it: it installs /usr/local/bin/kubelet"},
		"kubelet copied":       {nil, moveKubelet("/usr/local/bin"), false, "Binaries", "/usr/local/bin/kubelet belongs to no package", "the first upgrade replaces it, and reset puts it back"},
		"kubelet held":         {nil, func(*layouts.Layout) {}, false, "Binaries", "the package kubelet 1.36.3-1.1 (dpkg, held)", "neither it nor the package"},
		"rpm": {nil, func(l *layouts.Layout) {
			l.Packages["/usr/bin/kubelet"] = adoption.Package{Name: "kubelet", Version: "1.36.3-1", Manager: "rpm"}
		}, false, "Binaries", "the package kubelet 1.36.3-1 (rpm)", ""},
		"another name of the node": {nil, func(l *layouts.Layout) { l.Files["/proc/sys/kernel/hostname"] = "other\n" }, true, "NodeIdentity", `the host's name is "other", and the kubelet's certificate is for "one"`, "register another node"},
		"overridden name":          {nil, all(kubelet("--hostname-override=one"), func(l *layouts.Layout) { l.Files["/proc/sys/kernel/hostname"] = "other\n" }), false, "NodeName", `the node is "one", and the host is "other"`, "keeps the flag"},
		"wrong override":           {nil, kubelet("--hostname-override=two"), true, "NodeIdentity", `--hostname-override of the kubelet is "two"`, ""},
		"name with dots": {of("v1.36.3", "v1.37.1", func(c *config.Config) {
			c.NodeRegistration.Name = "one.example.com"
			c.Facts.Hostname = "one.example.com"
		}), nil, false, "NodeName", "has dots", "etcd's member"},
		"no kubelet.conf":          {nil, remove("/etc/kubernetes/kubelet.conf"), true, "KubeletCredentials", "there is no", "not a node"},
		"certificate elsewhere":    {nil, moveCertificate, false, "KubeletCertificate", "/data/kubelet.pem", "stays there"},
		"root directory elsewhere": {nil, kubelet("--root-dir=/data/kubelet"), true, "KubeletPaths", "--root-dir is /data/kubelet", "must be /var/lib/kubelet"},
		"manifests elsewhere":      {nil, edit("/var/lib/kubelet/config.yaml", "staticPodPath: /etc/kubernetes/manifests", "staticPodPath: /srv/manifests"), true, "KubeletPaths", "staticPodPath in /var/lib/kubelet/config.yaml is /srv/manifests", ""},
		"manifests behind a link": {nil, func(l *layouts.Layout) {
			l.Links["/srv/manifests"] = "/etc/kubernetes/manifests"
			edit("/var/lib/kubelet/config.yaml", "staticPodPath: /etc/kubernetes/manifests", "staticPodPath: /srv/manifests")(l)
		}, false, "KubeletConfig", `staticPodPath is "/srv/manifests"`, "the upgrade writes the cluster's value"},
		"late drop-in": {nil, dropIn("90-site.conf", "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet\n"), true, "KubeletDropIn", "sets ExecStart", "would not start as it should"},
		"late drop-in with another configuration":    {nil, dropIn("11-resource-sizing.conf", "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/etc/k.yaml\"\n"), true, "KubeletDropIn", "sets KUBELET_CONFIG_ARGS", ""},
		"late drop-in with two variables":            {nil, dropIn("90-site.conf", "[Service]\nEnvironment=\"HTTP_PROXY=http://p\" \"KUBELET_CONFIG_ARGS=--config=/k.yaml\"\n"), true, "KubeletDropIn", "sets KUBELET_CONFIG_ARGS", ""},
		"late drop-in with variables without quotes": {nil, dropIn("90-site.conf", "[Service]\nEnvironment=NO_PROXY=10.0.0.0/8 KUBELET_CONFIG_ARGS=--config=/k.yaml\n"), true, "KubeletDropIn", "sets KUBELET_CONFIG_ARGS", ""},
		"late drop-in with spaces":                   {nil, dropIn("90-site.conf", "[Service]\nEnvironment = \"KUBELET_CONFIG_ARGS=--config=/k.yaml\"\n"), true, "KubeletDropIn", "sets KUBELET_CONFIG_ARGS", ""},
		"late drop-in with a command after spaces":   {nil, dropIn("90-site.conf", "[Service]\nExecStart =\nExecStart = /usr/bin/kubelet\n"), true, "KubeletDropIn", "sets ExecStart", ""},
		"flags in a file of a late drop-in": {nil, all(dropIn("20-site.conf", "[Service]\nEnvironmentFile=-/etc/sysconfig/kubelet\n"), func(l *layouts.Layout) {
			l.Files["/etc/sysconfig/kubelet"] = "KUBELET_EXTRA_ARGS=--pod-infra-container-image=p:1\n"
			l.Restart("--pod-infra-container-image=p:1")
		}), false, "KubeletFlagsGone", "--pod-infra-container-image=p:1", "refuses it until it is removed there"},
		"argument with a space":    {nil, func(l *layouts.Layout) { l.Restart("--node-labels=a=b c") }, true, "KubeletFlags", "--node-labels=", "cannot be written"},
		"argument that is no flag": {nil, func(l *layouts.Layout) { l.Restart("word") }, true, "KubeletFlags", "", "cannot be written"},
		"drop-in of its own":       {nil, dropIn("20-site.conf", "[Service]\nCPUAffinity=0\n"), false, "KubeletDropIn", "CPUAffinity=", "stays and applies"},
		"flags of another file":    {nil, all(func(l *layouts.Layout) { l.Files["/etc/sysconfig/kubelet"] = "KUBELET_EXTRA_ARGS=--max-pods=50\n" }, func(l *layouts.Layout) { l.Restart("--max-pods=50") }), false, "KubeletFlags", "--max-pods=50", "kubeadm-flags.env"},
		"flags of a file that is not read": {nil, func(l *layouts.Layout) {
			l.Files["/etc/default/kubelet"] = "KUBELET_EXTRA_ARGS=--node-ip=192.168.9.9\n"
		}, true, "KubeletExtraArgs", "--node-ip=192.168.9.9", "first upgrade would start the kubelet with it"},
		"a second value of a flag":         {nil, edit(apiserver, "- --allow-privileged=true", "- --allow-privileged=true\n    - --service-account-issuer=https://old.example"), false, "EditedManifests", "also runs with --service-account-issuer=https://old.example", "removes it"},
		"a flag without a value":           {nil, edit(apiserver, "- --allow-privileged=true", "- --allow-privileged=true\n    - --profiling"), false, "EditedManifests", "runs with --profiling in another form", "removes it"},
		"a variable":                       {nil, edit(apiserver, "    name: kube-apiserver\n", "    name: kube-apiserver\n    env: [{name: GODEBUG, value: secret}]\n"), false, "EditedManifests", `has spec.containers[kube-apiserver].env: {"GODEBUG"`, "removes it"},
		"another container":                {nil, edit(apiserver, "  containers:\n", "  containers:\n  - {name: kms, image: kms:1}\n"), false, "EditedManifests", "has spec.containers[kms]: {", "removes it"},
		"host aliases":                     {nil, edit(apiserver, "  hostNetwork: true\n", "  hostNetwork: true\n  hostAliases: [{ip: 10.0.0.9, hostnames: [a]}]\n"), false, "EditedManifests", "has spec.hostAliases: ", "removes it"},
		"old network plugin":               {nil, fromUnit("--network-plugin=cni"), false, "KubeletFlagsGone", "--network-plugin=", "leaves it out"},
		"gate of the kubelet":              {nil, kubelet("--feature-gates=CloudDualStackNodeIPs=true"), false, "KubeletFeatureGates", "CloudDualStackNodeIPs", "refuses it"},
		"edited kubelet configuration":     {nil, edit("/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration", "kind: KubeletConfiguration\nmaxPods: 220"), false, "KubeletConfig", "maxPods is 220, and not set", "the upgrade writes the cluster's value"},
		"fields that only the cluster has": {nil, edit("/var/lib/kubelet/config.yaml", "rotateCertificates: true\n", ""), false, "KubeletConfig", "no rotateCertificates", "the cluster's values apply"},
		"no kubelet-config":                {nil, func(l *layouts.Layout) { delete(l.Cluster.ConfigMaps, "kube-system/kubelet-config") }, true, "KubeletConfigMap", "no ConfigMap", ""},
		"cgroup drivers differ":            {of("v1.30.14", "v1.31.14", nil), func(l *layouts.Layout) { l.Runtime.Info.SystemdCgroup = false }, false, "CgroupDriver", "the kubelet's cgroup driver is systemd, and containerd's is cgroupfs", ""},
		"cgroup drivers differ, and containerd does not answer": {nil, func(l *layouts.Layout) {
			l.Runtime.Info.SystemdCgroup, l.Runtime.Info.Version = false, "1.7.27"
		}, false, "CgroupDriver", "the kubelet's cgroup driver is systemd, and containerd's is cgroupfs", ""},
		"the kubelet asks for cgroupfs": {nil, func(l *layouts.Layout) { l.Runtime.Info.SystemdCgroup = false }, false, "CgroupDriver", "the cgroup driver is cgroupfs", "it stays"},

		"two variables in one line": {nil, all(dropIn("20-site.conf", "[Service]\nEnvironment=\"HTTP_PROXY=http://p\" \"KUBELET_EXTRA_ARGS=--max-pods=50 --container-runtime=remote\"\n"), running("--max-pods=50", "--container-runtime=remote")), false,
			"KubeletFlagsGone", "--container-runtime=remote", "refuses it until it is removed there"},
		"two variables without quotes":  {nil, all(dropIn("20-site.conf", "[Service]\nEnvironment = A=b KUBELET_EXTRA_ARGS=--v=3\n"), running()), true, "KubeletExtraArgs", "--v=3", "would start the kubelet with it"},
		"a variable that is taken back": {nil, all(dropIn("20-site.conf", "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--v=3\n"), dropIn("30-site.conf", "[Service]\nEnvironment=\n"), running()), true, "KubeletDropIn", "sets an empty Environment=", ""},

		"late drop-in that takes files back":     {nil, dropIn("20-site.conf", "[Service]\nEnvironmentFile=\nEnvironmentFile=-/etc/kubernetes/kubelet.env\n"), true, "KubeletDropIn", "sets an empty EnvironmentFile=", "would not start as it should"},
		"late drop-in that takes variables back": {nil, dropIn("20-site.conf", "[Service]\nEnvironment=\nEnvironment=HTTP_PROXY=http://p\n"), true, "KubeletDropIn", "sets an empty Environment=", ""},
		"late drop-in that unsets a variable":    {nil, dropIn("20-site.conf", "[Service]\nUnsetEnvironment=A KUBELET_KUBEADM_ARGS\n"), true, "KubeletDropIn", "sets KUBELET_KUBEADM_ARGS", ""},
		"several lines of flags": {of("v1.34.9", "v1.35.4", nil), func(l *layouts.Layout) {
			l.Files["/etc/default/kubelet"] = "KUBELET_EXTRA_ARGS=\"--max-pods=50 \\\n --pod-infra-container-image=k8s.gcr.io/pause:3.5\"\n"
			l.Restart("--max-pods=50", "--pod-infra-container-image=k8s.gcr.io/pause:3.5")
		}, false, "KubeletFlagsGone", "--pod-infra-container-image=k8s.gcr.io/pause:3.5", "refuses it until it is removed there"},

		"a gate in --config-dir":         {nil, configDir("featureGates: {CloudDualStackNodeIPs: true}\n"), false, "KubeletFeatureGates", "CloudDualStackNodeIPs", "refuses it"},
		"static pods in --config-dir":    {nil, configDir("staticPodPath: /srv/manifests\n"), true, "KubeletPaths", "staticPodPath in /etc/kubernetes/kubelet.d/10-site.conf is /srv/manifests", ""},
		"image service in --config-dir":  {nil, configDir("imageServiceEndpoint: unix:///run/other.sock\n"), true, "ImageService", "/run/other.sock", ""},
		"files of --config-dir":          {nil, configDir("maxPods: 220\n"), false, "KubeletConfigDir", "/etc/kubernetes/kubelet.d/10-site.conf", "stay and apply"},
		"a damaged file of --config-dir": {nil, configDir("maxPods: 220\nkind: Other\n"), true, "Unreadable", "--config-dir=/etc/kubernetes/kubelet.d", "kind: KubeletConfiguration"},
		"resolver of its own":            {nil, edit("/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration", "kind: KubeletConfiguration\nresolvConf: /etc/site.conf"), false, "KubeletConfig", `resolvConf is "/etc/site.conf"`, "the upgrade writes the cluster's value"},
		"kubespray's resolver": {kubespray, edit("/etc/kubernetes/kubelet-config.yaml", "kind: KubeletConfiguration", "kind: KubeletConfiguration\nresolvConf: /etc/site.conf\nfailSwapOn: false"),
			false, "KubeletConfig", "failSwapOn is false", "keeps it, in /var/lib/kubelet/instance-config.yaml"},

		"a package owns the file": {nil, all(moveKubelet("/usr/local/bin"), owned("/usr/local/bin/kubelet", adoption.Package{Name: "site-kubelet", Version: "1", Manager: "dpkg"})), true, "Binaries", "the package site-kubelet 1 (dpkg)", "next update would replace it again"},
		"a package on hold owns the file": {nil, all(moveKubelet("/usr/local/bin"), owned("/usr/local/bin/kubelet", adoption.Package{Name: "site-kubelet", Version: "1", Manager: "rpm", Held: true})), false,
			"Binaries", "(rpm, held)", "the first upgrade replaces it"},
		"a link where an upgrade writes": {nil, all(moveKubelet("/opt/k8s"), func(l *layouts.Layout) { l.Links["/usr/local/bin/kubelet"] = "/opt/k8s/kubelet" }), false, "Binaries", "/usr/local/bin/kubelet is a link to /opt/k8s/kubelet", "the first upgrade replaces it"},
		"kubelet in another directory":   {nil, moveKubelet("/opt/k8s"), false, "Binaries", "/opt/k8s/kubelet belongs to no package", "does not change it"},
		"read-only":                      {nil, func(l *layouts.Layout) { l.ReadOnly = []string{"/usr/local/bin"} }, true, "ReadOnly", "/usr/local/bin is on a file system", "writes the kubelet"},
		"a unit in another directory": {nil, func(l *layouts.Layout) {
			unit := l.Units["kubelet.service"]
			l.Files["/usr/local/lib/systemd/system/kubelet.service"] = l.Files[unit.File] + "CPUQuota=50%\n"
			unit.File = "/usr/local/lib/systemd/system/kubelet.service"
			l.Units["kubelet.service"] = unit
		}, false, "KubeletUnit", "CPUQuota=", "precedes this file"},
		"a drop-in in /run": {nil, func(l *layouts.Layout) {
			unit := l.Units["kubelet.service"]
			const file = "/run/systemd/system/kubelet.service.d/10-kubeadm.conf"
			l.Files[file] = l.Files[unit.DropIns[0]] + "CPUQuota=50%\n"
			unit.DropIns = []string{file}
			l.Units["kubelet.service"] = unit
		}, false, "KubeletDropIn", "is not in /etc, and has lines of its own: CPUQuota=", "hides it"},
		"a proxy on this host": {nil, edit("/etc/kubernetes/kubelet.conf", "server: https://10.1.2.3:6443", "server: https://localhost:6444"), false, "KubeletServer", "https://localhost:6444, which is neither", "it stays"},
		"containerd's --root":  {nil, func(l *layouts.Layout) { l.Containerd.Args = []string{"--root", "/data/c"} }, false, "ContainerdData", "/data/c", "stays there"},
		"containerd's data behind a link": {nil, func(l *layouts.Layout) {
			l.Files["/data/c/io.containerd.metadata.v1.bolt/meta.db"] = ""
			l.Links["/var/lib/containerd"] = "/data/c"
		}, false, "ContainerdData", "/data/c", "stays there"},
		"cri-dockerd":                  {nil, func(l *layouts.Layout) { l.Runtime = adoption.Runtime{Other: "docker"} }, true, "ContainerRuntime", "docker", "only into containerd"},
		"no key of ServiceAccounts":    {nil, remove("/etc/kubernetes/pki/sa.key"), true, "CertificateFiles", "/etc/kubernetes/pki/sa.key", "would not start"},
		"kube-proxy's empty ConfigMap": {nil, func(l *layouts.Layout) { delete(l.Cluster.ConfigMaps["kube-system/kube-proxy"].Data, "config.conf") }, true, "KubeProxy", "has no config.conf", "reads kube-proxy's configuration"},
		"kubeone's etcd": {func() *layouts.Layout { return layouts.Kubeone(layouts.Options{Version: "v1.36.3", Target: "v1.37.1"}) }, nil, false,
			"RemovedFlags", "etcd has no flag --experimental-initial-corrupt-check since v1.37", "refuses it"},
		"sealos' image service in the configuration": {nil, edit("/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration", "kind: KubeletConfiguration\nimageServiceEndpoint: unix:///var/run/image-cri-shim.sock"), false,
			"ImageService", "image-cri-shim", "Keep image-cri-shim.service running"},
		"sealos' excludeCIDRs":        {nil, store("kube-system/kube-proxy", "config.conf", "kind: KubeProxyConfiguration", "kind: KubeProxyConfiguration\nmode: ipvs\nipvs: {excludeCIDRs: [10.103.97.2/32]}"), false, "KubeProxyConfiguration", "was edited", "keeps it"},
		"a half-done upgrade":         {nil, edit(apiserver, "kube-apiserver:v1.36.3", "kube-apiserver:v1.37.1"), false, "ComponentVersion", "kube-apiserver has v1.37.1, and the stored configuration v1.36.3", "replaces it"},
		"a half-done upgrade to more": {of("v1.35.4", "v1.35.6", nil), edit(apiserver, "kube-apiserver:v1.35.4", "kube-apiserver:v1.36.3"), true, "KubernetesVersion", "kube-apiserver has v1.36.3, and this file has v1.35.6", "older file"},
		"a newer patch version":       {nil, edit(apiserver, "kube-apiserver:v1.36.3", "kube-apiserver:v1.37.9"), true, "KubernetesVersion", "kube-apiserver has v1.37.9, and this file has v1.37.1", "older file"},
		"another suffix":              {nil, edit(apiserver, "kube-apiserver:v1.36.3", "kube-apiserver:v1.36.3-amd64"), false, "ImageNames", "kube-apiserver:v1.36.3-amd64, and the stored version is v1.36.3", "sets the stored name"},
		"a prerelease":                {of("v1.36.3", "v1.37.1", nil), all(store(stored, "ClusterConfiguration", "kubernetesVersion: v1.36.3", "kubernetesVersion: v1.36.3-rc.0+a1"), edit(apiserver, "kube-apiserver:v1.36.3", "kube-apiserver:v1.36.3-rc.0_a1")), false, "ImageNames", "kube-scheduler runs the image registry.k8s.io/kube-scheduler:v1.36.3, and the stored version is v1.36.3-rc.0+a1", ""},
		"an edited image":             {nil, edit(apiserver, "registry.k8s.io/kube-apiserver:", "site.example:5000/k8s/kube-apiserver:"), false, "ImageNames", "site.example:5000/k8s/kube-apiserver:v1.36.3", "sets the stored name"},
		"two backups": {nil, func(l *layouts.Layout) {
			l.Files[apiserver+".1"], l.Files[apiserver+".2"] = l.Files[apiserver], l.Files[apiserver]
		}, true,
			"StaticPods", "kube-apiserver.yaml and kube-apiserver.yaml.1 and kube-apiserver.yaml.2", ""},
		"cgroup v1": {nil, all(remove("/sys/fs/cgroup/cgroup.controllers"), func(l *layouts.Layout) { l.Files["/sys/fs/cgroup/cpuset/tasks"] = "" }), false, "CgroupV1", "cgroup v1", "failCgroupV1"},

		"CRI-O":                   {nil, func(l *layouts.Layout) { l.Runtime = adoption.Runtime{Other: "cri-o"} }, true, "ContainerRuntime", "cri-o", "only into containerd"},
		"containerd is not ready": {nil, func(l *layouts.Layout) { l.Runtime.Info.Runtime.Ready = false }, true, "ContainerRuntime", "not ready", ""},
		"CRI disabled at next start": {nil, func(l *layouts.Layout) {
			l.Files["/etc/containerd/config.toml"] = "version = 2\ndisabled_plugins = ['cri']\n"
		}, false, "ContainerdPlugins", "disables the CRI plugin", "at its next start"},
		"a file of other software": {nil, func(l *layouts.Layout) {
			l.Runtime.Files = []runtimecheck.Problem{{File: "/etc/containerd/conf.d/a.toml", Message: "/etc/containerd/conf.d/a.toml: the pause image", Fix: "mv a b"}}
		}, false, "ContainerdFiles", "conf.d/a.toml", "would not serve this node"},
		"a file that is not read": {nil, func(l *layouts.Layout) {
			l.Runtime.Files = []runtimecheck.Problem{{File: "/etc/containerd/config.d/a.toml", Message: "/etc/containerd/config.d/a.toml: containerd does not read it", Fix: "mv a b", Warning: true}}
		}, false, "ContainerdFiles", "does not read it", "no command of Airlift"},
		"Debian's containerd": {nil, func(l *layouts.Layout) {
			l.Packages["/usr/bin/containerd"] = adoption.Package{Name: "containerd", Version: "1.7.24~ds1", Manager: "dpkg"}
			l.Runtime.Info.CNIBinDirs = []string{"/usr/lib/cni"}
		}, false, "CNIPlugins", "/usr/lib/cni", "they stay"},
		"containerd's data": {nil, func(l *layouts.Layout) {
			l.Files["/etc/containerd/config.toml"] = "version = 3\nroot = '/data/containerd'\n"
		}, false, "ContainerdData", "/data/containerd", "stays there"},
		"containerd's new config": {nil, func(l *layouts.Layout) {
			l.Containerd.Args = []string{"--config", "/etc/c.toml"}
			l.Files["/etc/c.toml"] = "root = '/d'\n"
		}, false, "ContainerdData", "/d", ""},
		"mirrors and config_path": {nil, func(l *layouts.Layout) {
			l.Files["/etc/containerd/config.toml"] = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.registry]\nconfig_path = '/etc/containerd/certs.d'\n[plugins.'io.containerd.grpc.v1.cri'.registry.mirrors.'docker.io']\nendpoint = []\n"
		}, false, "Registries", "mirrors of docker.io and config_path", ""},
		"sandbox image is missing": {nil, func(l *layouts.Layout) { l.Runtime.Info.SandboxImage = "registry.k8s.io/pause:3.8" }, false, "SandboxImage", "containerd has no image registry.k8s.io/pause:3.8", "gives it this name too"},
		"crictl": {nil, func(l *layouts.Layout) {
			l.Files["/etc/crictl.yaml"] = "runtime-endpoint: unix:///run/crio/crio.sock\n"
		}, false, "Crictl", "runtime-endpoint is unix:///run/crio/crio.sock", ""},
		"another image service":         {nil, kubelet("--image-service-endpoint=unix:///run/other.sock"), true, "ImageService", "/run/other.sock", "would not find them"},
		"the shim starts containers":    {nil, kubelet("--container-runtime-endpoint=unix:///var/run/image-cri-shim.sock"), true, "RuntimeSocket", "image-cri-shim", ""},
		"socket that only the unit has": {nil, fromUnit("--container-runtime-endpoint=unix:///run/c2/containerd.sock"), true, "RuntimeSocket", "/run/c2/containerd.sock", "another runtime than the kubelet"},

		"old API":               {nil, store(stored, "ClusterConfiguration", "v1beta4", "v1beta2"), true, "KubeadmAPI", "kubeadm.k8s.io/v1beta2", "no kubeadm of a supported Kubernetes reads it"},
		"v1beta3":               {of("v1.30.14", "v1.31.14", nil), nil, false, "KubeadmAPI", "v1beta3", "stores it as v1beta4"},
		"v1beta3 stays":         {of("v1.29.15", "v1.30.4", nil), nil, false, "KubeadmAPI", "v1beta3", "stores v1beta3 again"},
		"unknown field":         {nil, store(stored, "ClusterConfiguration", "kind: ClusterConfiguration", "kind: ClusterConfiguration\nnoSuchField: 1"), false, "KubeadmAPI", "noSuchField", "ignores it"},
		"too old":               {nil, func(l *layouts.Layout) { l.Cluster.Node.Status.NodeInfo.KubeletVersion = "v1.27.16" }, true, "KubernetesVersion", "kubelet has v1.27.16", "none can upgrade"},
		"newer":                 {nil, func(l *layouts.Layout) { l.Target = "v1.35.6" }, true, "KubernetesVersion", "the cluster has v1.36.3, and this file has v1.35.6", "older file"},
		"skips a minor version": {of("v1.34.9", "v1.36.3", nil), nil, false, "KubernetesVersion", "cannot skip a minor version", "refuses it"},
		"not a version":         {nil, store(stored, "ClusterConfiguration", "kubernetesVersion: v1.36.3", "kubernetesVersion: stable"), true, "KubernetesVersion", `"stable"`, ""},

		"no controller manager": {nil, remove("/etc/kubernetes/manifests/kube-controller-manager.yaml"), true, "StaticPods", "no kube-controller-manager.yaml", ""},
		"no advertise address":  {nil, edit(apiserver, "- --advertise-address=10.1.2.3\n", "- --allow-privileged=true\n"), true, "StaticPods", "--advertise-address", ""},
		"component in another file": {nil, func(l *layouts.Layout) {
			l.Files["/etc/kubernetes/manifests/s.yaml"] = l.Files["/etc/kubernetes/manifests/kube-scheduler.yaml"]
			delete(l.Files, "/etc/kubernetes/manifests/kube-scheduler.yaml")
		}, true, "StaticPods", "s.yaml defines the pod kube-scheduler", "there would be two"},
		"haproxy":          {nil, func(l *layouts.Layout) { l.StaticPod("haproxy", "haproxy:3", "/etc/haproxy") }, false, "StaticPod", "haproxy leads this node to the API servers", "its list of API servers"},
		"another pod":      {nil, func(l *layouts.Layout) { l.StaticPod("monitor", "monitor:1", "/srv") }, false, "StaticPod", "a static pod monitor of its own", "stays"},
		"flag stored only": {nil, store(stored, "ClusterConfiguration", "scheduler: {}", "scheduler:\n  extraArgs:\n  - name: v\n    value: \"4\""), false, "EditedManifests", "kube-scheduler runs without --v=4", "adds it"},
		"volume edited":    {nil, edit("/etc/kubernetes/manifests/kube-scheduler.yaml", "  volumes:\n", "  volumes:\n  - hostPath:\n      path: /srv/policy\n    name: policy\n"), false, "EditedManifests", "kube-scheduler has spec.volumes[/srv/policy]: {", "removes it"},
		"image tag":        {nil, store(stored, "ClusterConfiguration", "dns: {}", "dns:\n  imageTag: v1.0.0-custom"), false, "ImageNames", "dns.imageTag is v1.0.0-custom", "refuses it"},
		"proxy gate":       {nil, store("kube-system/kube-proxy", "config.conf", "kind: KubeProxyConfiguration", "kind: KubeProxyConfiguration\nfeatureGates: {TTLAfterFinished: true}"), false, "FeatureGates", "TTLAfterFinished", "kube-proxy of the new version does not start"},

		"long certificates":   {of("v1.30.14", "v1.31.14", long), store(stored, "ClusterConfiguration", "certificatesDir", "certificatesDir"), false, "CertificateLifetime", "apiserver ends 2126", "after 365 days"},
		"external CA":         {nil, remove("/etc/kubernetes/pki/ca.key"), false, "ExternalCA", "the key of the CA ca is not on this host", "rotate-ca refuses"},
		"missing CA":          {nil, remove("/etc/kubernetes/pki/front-proxy-ca.crt"), true, "CertificateFiles", "front-proxy-ca.crt does not exist", ""},
		"missing certificate": {nil, remove("/etc/kubernetes/pki/apiserver-kubelet-client.crt"), true, "CertificateFiles", "apiserver-kubelet-client.crt does not exist", ""},
		"other directory":     {of("v1.36.3", "v1.37.1", func(c *config.Config) { c.Cluster.CertificatesDir = "/srv/pki" }), nil, false, "CertificatesDir", "/srv/pki", "stay there"},
		"expired certificate": {nil, func(l *layouts.Layout) { expire(l) }, false, "Certificates", "expired", "the upgrade refuses it"},

		"no etcd manifest":    {nil, remove("/etc/kubernetes/manifests/etcd.yaml"), true, "StackedEtcd", "etcd.yaml", ""},
		"etcd as a unit only": {nil, all(remove("/etc/kubernetes/manifests/etcd.yaml"), func(l *layouts.Layout) { l.Unit("etcd.service") }), true, "StackedEtcd", "etcd.service", "a second etcd"},
		"etcd without its data": {nil, func(l *layouts.Layout) {
			const file = "/etc/kubernetes/manifests/etcd.yaml"
			l.Files[file] = strings.ReplaceAll(l.Files[file], "name: etcd-data\n", "name: etcd-other\n")
		}, true, "StackedEtcd", "volume etcd-data", ""},
		"etcd's data moved": {nil, func(l *layouts.Layout) {
			const file = "/etc/kubernetes/manifests/etcd.yaml"
			l.Files[file] = strings.ReplaceAll(l.Files[file], "/var/lib/etcd", "/data/etcd")
		}, true, "StackedEtcd", "etcd's data is in /data/etcd, and in /var/lib/etcd by the stored configuration", "an empty etcd"},
		"etcd's flag moved":   {nil, edit("/etc/kubernetes/manifests/etcd.yaml", "--data-dir=/var/lib/etcd\n", "--data-dir=/var/lib/etcd/data\n"), true, "StackedEtcd", "etcd's data is in /var/lib/etcd/data", "an empty etcd"},
		"etcd's volume moved": {nil, edit("/etc/kubernetes/manifests/etcd.yaml", "path: /var/lib/etcd\n", "path: /data/etcd\n"), true, "StackedEtcd", "etcd's data is in /data/etcd", "an empty etcd"},
		"external etcd":       {keyKey, nil, false, "ExternalEtcd", "https://10.1.2.3:2379", "does not change it"},
		"etcd's client":       {keyKey, remove("/etc/ssl/etcd/ssl/node-one.pem"), true, "EtcdClient", "node-one.pem", "would not start"},
		"old external etcd": {keyKey, func(l *layouts.Layout) {
			l.Etcd = []etcd.Status{{Member: etcd.Member{Name: "a"}, Version: "3.5.10"}}
		}, false, "EtcdVersion", "a has version 3.5.10", "3.5.24 and newer"},
		"etcd's variables": {keyKey, nil, false, "EtcdUnit", "ETCD_ENABLE_V2, ETCD_PROXY", "etcd 3.6 does not start with it"},
		"backup timer":     {keyKey, nil, false, "EtcdUnit", "backup-etcd.timer", "stays"},

		"Calico by Helm":      {nil, func(l *layouts.Layout) { podNetwork(l, "calico-system/calico-node", true) }, false, "PodNetwork", "Calico, installed by Helm", "stays"},
		"Cilium":              {nil, func(l *layouts.Layout) { podNetwork(l, "kube-system/cilium", false) }, false, "PodNetwork", "Cilium, installed by a manifest", ""},
		"kube-router":         {nil, func(l *layouts.Layout) { podNetwork(l, "kube-system/kube-router", false) }, false, "PodNetwork", "kube-router", ""},
		"pod network by file": {nil, func(l *layouts.Layout) { delete(l.Cluster.DaemonSets, "kube-flannel/kube-flannel-ds") }, false, "PodNetwork", "10-flannel.conflist", ""},
		"edited kube-proxy":   {nil, store("kube-system/kube-proxy", "config.conf", "kind: KubeProxyConfiguration", "kind: KubeProxyConfiguration\nmode: ipvs"), false, "KubeProxyConfiguration", "edited", "keeps it"},
		"kube-proxy as a unit": {nil, func(l *layouts.Layout) {
			delete(l.Cluster.DaemonSets, "kube-system/kube-proxy")
			l.Unit("kube-proxy.service")
		}, false, "KubeProxy", "runs as a unit", ""},
		"no kube-proxy ConfigMap": {nil, func(l *layouts.Layout) { delete(l.Cluster.ConfigMaps, "kube-system/kube-proxy") }, true, "KubeProxy", "no ConfigMap", ""},
		"ipvs":                    {nil, store("kube-system/kube-proxy", "config.conf", "kind: KubeProxyConfiguration", "kind: KubeProxyConfiguration\nmode: ipvs"), false, "UpgradeNotes", "ipvs", "warns of it"},
		"edited Corefile":         {nil, store("kube-system/coredns", "Corefile", "ttl 30", "ttl 31"), false, "Corefile", "was edited", "migrates it"},
		"second DNS": {nil, func(l *layouts.Layout) {
			d := l.Cluster.Deployments["kube-system/coredns"].DeepCopy()
			d.Name = "coredns-2"
			l.Cluster.Deployments["kube-system/coredns-2"] = d
		}, false, "DNS", "coredns-2", "does not change CoreDNS"},
		"DNS at another address": {nil, func(l *layouts.Layout) { l.Cluster.Services["kube-system/kube-dns"].Spec.ClusterIP = "10.96.0.53" }, false, "DNS", "10.96.0.53, and kubeadm gives it 10.96.0.10", ""},
		"no CoreDNS":             {nil, func(l *layouts.Layout) { delete(l.Cluster.Deployments, "kube-system/coredns") }, false, "DNS", "no Deployment coredns", ""},
		"DNS cache":              {keyKey, nil, false, "NodeLocalDNS", "cache of DNS", "stays"},
		"endpoint in /etc/hosts": {keyKey, nil, false, "Endpoint", "lb.kubesphere.local is in /etc/hosts", ""},
		"keepalived":             {nil, func(l *layouts.Layout) { l.Unit("keepalived.service") }, false, "Endpoint", "keepalived.service runs", "stays"},

		"renewal timer": {keyKey, func(l *layouts.Layout) { l.Unit("k8s-certs-renew.timer") }, true, "RenewTimer", "k8s-certs-renew.timer", "two control planes"},
		"renewal timer that boots": {nil, func(l *layouts.Layout) {
			l.Units["k8s-certs-renew.timer"] = systemd.UnitState{Load: "loaded", Active: "inactive", Enabled: true}
		}, true, "RenewTimer", "k8s-certs-renew.timer", ""},
		"EKCO":               {func() *layouts.Layout { return layouts.KURL(layouts.Options{Version: "v1.36.3"}) }, func(l *layouts.Layout) { l.Cluster.Deployments["kurl/ekc-operator"].Spec.Replicas = nil }, true, "Owner", "EKCO runs", "rewrites certificates"},
		"machine-controller": {func() *layouts.Layout { return layouts.Kubeone(layouts.Options{Version: "v1.36.3", Worker: true}) }, func(l *layouts.Layout) { l.Cluster.Node.Labels["machine-controller/owned-by"] = "x" }, true, "Owner", "machine-controller made this node", "replaces machines"},
		"kubean":             {nil, func(l *layouts.Layout) { l.Cluster.APIGroups = append(l.Cluster.APIGroups, "kubean.io") }, false, "Kubean", "kubean", ""},
		"a worker's view":    {func() *layouts.Layout { return layouts.Kubeadm(layouts.Options{Version: "v1.36.3", Worker: true}) }, nil, false, "NotReadable", "daemonsets", "on a control plane"},

		"unreadable file":     {nil, func(l *layouts.Layout) { l.Files["/var/lib/kubelet/config.yaml"] = "a: [" }, true, "Unreadable", "/var/lib/kubelet/config.yaml", "line"},
		"unreadable manifest": {nil, func(l *layouts.Layout) { l.Files["/etc/kubernetes/manifests/x.yaml"] = "a: [" }, true, "Unreadable", "x.yaml", ""},
		"no manifest": {nil, func(l *layouts.Layout) {
			l.Files["/etc/kubernetes/manifests/README"] = "apiVersion: v1\nkind: ConfigMap\n"
		}, true, "Unreadable", "README", "not a pod"},
		"unreadable kubeadm-config":           {nil, func(l *layouts.Layout) { l.Cluster.ConfigMaps[stored].Data["ClusterConfiguration"] = "a: [" }, true, "Unreadable", "ConfigMap kube-system/kubeadm-config", ""},
		"unreadable certificate":              {nil, func(l *layouts.Layout) { l.Files["/etc/kubernetes/pki/apiserver.crt"] = "x" }, true, "Unreadable", "/etc/kubernetes/pki", ""},
		"unreadable containerd configuration": {nil, func(l *layouts.Layout) { l.Files["/etc/containerd/config.toml"] = "version =" }, true, "Unreadable", "/etc/containerd/config.toml", ""},
		"loop of links":                       {nil, func(l *layouts.Layout) { delete(l.Files, "/etc/hosts"); l.Links["/etc/hosts"] = "/etc/hosts" }, true, "Unreadable", "/etc/hosts", "symbolic links"},
	} {
		t.Run(title, func(t *testing.T) {
			l := base()
			if f.layout != nil {
				l = f.layout()
			}
			if f.change != nil {
				f.change(l)
			}
			r := adoption.Recognise(l.Input())
			list := r.Findings
			if f.refused {
				list = r.Refusals
			} else if !r.Adoptable() {
				t.Errorf("it is refused: %s", show(r))
			}
			if !found(list, f.name, f.what, f.effect) {
				t.Errorf("want %s with %q and %q: %s", f.name, f.what, f.effect, show(r))
			}
		})
	}
}

// keyKey is a control plane of KubeKey 3.
func keyKey() *layouts.Layout {
	return layouts.KubeKey3(layouts.Options{Version: "v1.36.3", Target: "v1.37.1"})
}

// kubespray is a control plane of kubespray.
func kubespray() *layouts.Layout {
	return layouts.Kubespray(layouts.Options{Version: "v1.36.3", Target: "v1.37.1"})
}

// running gives the kubelet these flags.
func running(flags ...string) change { return func(l *layouts.Layout) { l.Restart(flags...) } }

// configDir gives the kubelet a directory with more of its configuration.
func configDir(fields string) change {
	return func(l *layouts.Layout) {
		l.Files["/etc/kubernetes/kubelet.d/10-site.conf"] = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
		if strings.Contains(fields, "kind:") {
			l.Files["/etc/kubernetes/kubelet.d/10-site.conf"] = "apiVersion: kubelet.config.k8s.io/v1beta1\n"
		}
		l.Files["/etc/kubernetes/kubelet.d/10-site.conf"] += fields
		l.Files["/etc/kubernetes/kubelet.d/README"] = "not read"
		kubelet("--config-dir=/etc/kubernetes/kubelet.d")(l)
	}
}

func owned(file string, p adoption.Package) change {
	return func(l *layouts.Layout) { l.Packages[file] = p }
}

func remove(file string) change {
	return func(l *layouts.Layout) {
		if _, ok := l.Files[file]; !ok {
			panic("no " + file)
		}
		delete(l.Files, file)
	}
}

func moveKubelet(dir string) change {
	return func(l *layouts.Layout) {
		for _, name := range []string{"kubelet", "kubectl"} {
			l.Files[dir+"/"+name] = l.Files["/usr/bin/"+name]
			delete(l.Files, "/usr/bin/"+name)
			delete(l.Packages, "/usr/bin/"+name)
		}
		for file, text := range l.Files {
			if strings.Contains(file, "kubelet.service") {
				l.Files[file] = strings.ReplaceAll(text, "/usr/bin/kubelet", dir+"/kubelet")
			}
		}
		l.Kubelet.Exe = dir + "/kubelet"
	}
}

func moveCertificate(l *layouts.Layout) {
	l.Links["/data/kubelet.pem"] = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	l.Files["/etc/kubernetes/kubelet.conf"] = strings.ReplaceAll(l.Files["/etc/kubernetes/kubelet.conf"], "/var/lib/kubelet/pki/kubelet-client-current.pem", "/data/kubelet.pem")
}

func dropIn(name, text string) change {
	return func(l *layouts.Layout) {
		file := "/etc/systemd/system/kubelet.service.d/" + name
		l.Files[file] = text
		unit := l.Units["kubelet.service"]
		unit.DropIns = append(slices.Clone(unit.DropIns), file)
		l.Units["kubelet.service"] = unit
	}
}

func podNetwork(l *layouts.Layout, name string, helm bool) {
	d := l.Cluster.DaemonSets["kube-flannel/kube-flannel-ds"].DeepCopy()
	delete(l.Cluster.DaemonSets, "kube-flannel/kube-flannel-ds")
	d.Namespace, d.Name, _ = strings.Cut(name, "/")
	if helm {
		d.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm"}
	}
	l.Cluster.DaemonSets[name] = d
}

// expire replaces the API server's certificate by one that ended.
func expire(l *layouts.Layout) {
	c := *l.Config
	c.CertificateValidityPeriod = 1
	files := l.FS()
	delete(files, "etc/kubernetes/pki/apiserver.crt")
	delete(files, "etc/kubernetes/pki/apiserver.key")
	r, err := pki.Ensure(&c, files, layouts.Now, "apiserver")
	if err != nil {
		panic(err)
	}
	for _, f := range r.Files {
		l.Files[f.Path] = string(f.Data)
	}
}
