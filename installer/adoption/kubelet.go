package adoption

import (
	"cmp"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"airlift/installer/config"
	"airlift/installer/kubeletcheck"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/redact"
	"airlift/installer/render"
)

const kubeletClient = config.KubeletPKIDir + "/kubelet-client-current.pem"

var kubeletChecks = []func(*view){
	refuse("KubeletRuns", everywhere, when(func(v *view) bool { return v.Kubelet.PID == 0 }), "the kubelet does not run", "kubelet.service",
		"its flags and its binary are read from its process", "start it: systemctl start kubelet"),

	refuse("NodeIdentity", everywhere, when(func(v *view) bool { return v.name == "" }), node.KubeletConf+" has no certificate with a node's name", node.KubeletConf,
		"the name of this node is not known", "join this node again, or correct the file"),
	refuse("NodeIdentity", answered, when(func(v *view) bool { return v.name != "" && v.Cluster.Node == nil }), "the cluster has no node $name, which is the name in the kubelet's certificate", node.KubeletConf,
		"an upgrade would not find this node", "see: kubectl get nodes; if the node has another name, join it again"),
	refuse("NodeIdentity", running, otherName, "$1 is $2, and the kubelet's certificate is for $name", node.KubeletConf,
		"a kubelet that starts again would register another node", "start the kubelet with --hostname-override=$3"),
	find("NodeName", everywhere, word(otherHost), "the node is $name, and the host is $1", "--hostname-override", "an upgrade uses the node's name, and keeps the flag", ""),
	find("NodeName", everywhere, when(func(v *view) bool { return otherHost(v) == "" && strings.Contains(v.name, ".") }), "the node's name $name has dots", node.KubeletConf,
		"an upgrade uses this name, also for etcd's member", ""),

	refuse("KubeletCredentials", everywhere, when(func(v *view) bool { return v.user == nil }), "there is no "+node.KubeletConf, node.KubeletConf, "this host is not a node of a cluster", "run it on a node"),
	// The kubelet renews it in another file.
	refuse("KubeletCredentials", everywhere, func(v *view) [][]string {
		return given(v.user != nil && len(v.user.ClientCertificateData) > 0, v.userName)
	}, node.KubeletConf+" contains the kubelet's certificate", node.KubeletConf,
		"the kubelet renews its certificate in "+kubeletClient+", and is locked out when the one in this file ends",
		"kubectl config set-credentials $1 --kubeconfig "+node.KubeletConf+" --client-certificate "+kubeletClient+" --client-key "+kubeletClient+"; systemctl restart kubelet"),
	find("KubeletCertificate", everywhere, func(v *view) [][]string {
		file := pki.KubeletClientFile(v.host.files)
		return given(v.user != nil && len(v.user.ClientCertificateData) == 0 && file != "" && path.Clean(file) != kubeletClient, file)
	}, "the kubelet's certificate is $1", node.KubeletConf, "it stays there, and check-expiration does not list it", ""),

	refuse("KubeletPaths", everywhere, otherPaths, "$1 is $2", "$1", "it must be $3: $4", "move it to $3, and restart the kubelet"),
	find("KubeletConfigFile", everywhere, when(func(v *view) bool { return v.configFile != config.KubeletConfigFile }), "the kubelet reads $config", "$config",
		"the first upgrade writes the kubelet's configuration to "+config.KubeletConfigFile+", and what differs from the cluster's to "+render.KubeletInstanceConfigPath, ""),
	find("KubeletConfigDir", everywhere, word(func(v *view) string { return strings.Join(v.configFiles, ", ") }), "the kubelet also reads $1", "--config-dir",
		"they stay and apply: they precede what an upgrade writes to "+config.KubeletConfigFile, ""),

	find("Binaries", everywhere, func(v *view) [][]string { return given(strings.HasSuffix(v.Kubelet.Exe, deleted), v.kubelet.binary()) }, "the kubelet that runs is not the file $1: that was replaced or removed after its start", "$1",
		"the first upgrade replaces both", "restart the kubelet to see which one works: systemctl restart kubelet"),
	binaries,

	refuse("KubeletUnit", everywhere, when(func(v *view) bool { return !has(v.Units, kubeletUnitName) }), "systemd has no kubelet.service", kubeletUnitName,
		"an upgrade restarts the kubelet with systemd", "start the kubelet with a unit of this name"),
	units, execStart,

	refuse("ReadOnly", everywhere, each(func(v *view) []string { return v.ReadOnly }), "$1 is on a file system that is mounted read-only", "$1",
		"an upgrade writes the kubelet, or its unit, there", "mount it writable, or mount a writable file system at $1"),

	refuse("KubeletConfigFile", everywhere, when(func(v *view) bool { return v.host.read(v.configFile) == nil }), "the kubelet's configuration $config does not exist", "$config",
		"an upgrade compares it with the cluster's", "start the kubelet with a file: --config="+config.KubeletConfigFile),
	kubeletRules,
	refuse("KubeletConfigMap", answered, when(func(v *view) bool { return v.ownConfig != nil && v.value(kubeletConfig, "kubelet") == "" }), "the cluster has no ConfigMap "+kubeletConfig, "ConfigMap "+kubeletConfig,
		"an upgrade writes the kubelet's configuration from it", "run on a control plane, with kubeadm of the cluster's version: kubeadm init phase upload-config kubelet"),
	find("KubeletConfig", compared, changedFields, "$1 is $2, and $3 in the cluster's configuration", "$config", "$4", ""),
	find("KubeletConfig", compared, word(func(v *view) string {
		_, missing := instanceConfig(v.ownConfig, v.sharedConfig)
		return strings.Join(missing, ", ")
	}), "it has no $1, which the cluster's configuration sets", "$config", "from the first upgrade on, the cluster's values apply", ""),

	find("CgroupDriver", compared, func(v *view) [][]string {
		driver, runtime := cgroupDrivers(v)
		return given(v.Runtime.Info.CRI && driver != runtime, driver, runtime)
	}, "the kubelet's cgroup driver is $1, and containerd's is $2", "$config", "it stays, and the node may become unstable under load", "set the same driver in both, and restart both"),
	find("CgroupDriver", compared, func(v *view) [][]string {
		driver, runtime := cgroupDrivers(v)
		return given((!v.Runtime.Info.CRI || driver == runtime) && driver != "systemd", driver)
	}, "the cgroup driver is $1", "$config", "it stays", ""),
	find("CgroupV1", compared, when(func(v *view) bool {
		return v.host.exists("/sys/fs/cgroup/cpuset") && !v.host.exists("/sys/fs/cgroup/cgroup.controllers") && minor(v.Target) >= 35
	}), "the host uses cgroup v1", "/sys/fs/cgroup", "the upgrade sets failCgroupV1: false: the kubelet of v1.35 and newer does not start otherwise", "boot with cgroup v2"),

	find("KubeletServer", onPlane, func(v *view) [][]string {
		effect := "from v1.33 on, the upgrade makes it use the API server of its own host before its kubelet is replaced"
		if minor(v.Target) < 33 {
			effect = "it stays until an upgrade to v1.33. Until all control planes are upgraded, the new kubelet may reach an older API server"
		}
		return given(otherServer(v) != "" && otherServer(v) == v.config.ServerURL(), effect)
	}, "the kubelet of this control plane uses the endpoint $server", node.KubeletConf, "$1", ""),
	find("KubeletServer", onPlane, when(func(v *view) bool { return otherServer(v) != "" && otherServer(v) != v.config.ServerURL() }),
		"the kubelet of this control plane uses $server, which is neither the endpoint nor this host", node.KubeletConf, "it stays", ""),

	find("SELinux", everywhere, when(func(v *view) bool { return v.host.text("/sys/fs/selinux/enforce") == "1" }), "SELinux is enforcing", "/sys/fs/selinux/enforce",
		"an upgrade writes the kubelet to /usr/local/bin, where it gets the label of that directory",
		"compare before the upgrade: matchpathcon /usr/bin/kubelet /usr/local/bin/kubelet; after it: restorecon -v /usr/local/bin/kubelet"),
}

const kubeletUnitName = "kubelet.service"

// otherName is the name with which the kubelet would start again, if it is not the one in its certificate, and where that is from.
func otherName(v *view) [][]string {
	is, from := v.flag("hostname-override"), "--hostname-override of the kubelet"
	if is == "" {
		is, from = v.host.text(hostnameFile), "the host's name"
	}
	is = strings.ToLower(is)
	return given(is != "" && v.name != "" && is != v.name, from, strconv.Quote(is), v.name)
}

// otherHost is the quoted name of the host, if it is not the node's; else "".
func otherHost(v *view) string {
	host := v.host.text(hostnameFile)
	if v.name == "" || host == "" || strings.ToLower(host) == v.name {
		return ""
	}
	return strconv.Quote(host)
}

// otherPaths are paths of the kubelet on which Airlift relies, with what they must be, and why.
func otherPaths(v *view) (list [][]string) {
	for _, p := range []struct{ flag, field, want, why string }{
		{"kubeconfig", "", node.KubeletConf, "Airlift reads and writes the kubelet's credentials there"},
		{"root-dir", "", config.KubeletDir, "reset unmounts the volumes of pods only there"},
		{"pod-manifest-path", "staticPodPath", config.ManifestsDir, "Airlift writes static pods there"},
	} {
		is, where := v.flag(p.flag), "--"+p.flag
		if is == "" && p.field != "" {
			is, where = v.field(p.field), p.field+" in "+v.sourceOf(p.field)
		}
		list = append(list, given(is != "" && v.host.files.place(is) != v.host.files.place(p.want), where, is, p.want, p.why)...)
	}
	return list
}

// deleted is what the kernel adds to the path of a binary that was removed or replaced (proc_pid_exe(5)).
const deleted = " (deleted)"

// clientBinaries are the directories that tools and packages copy the kubelet and kubectl to.
var clientBinaries = []string{"/usr/bin", "/usr/local/bin", "/opt/bin"}

// binaries reports where the kubelet and kubectl come from, and refuses one that a package may write again after an upgrade
// replaced it.
func binaries(v *view) {
	files := map[string]string{v.kubelet.binary(): "kubelet"}
	for _, dir := range clientBinaries {
		files[dir+"/kubelet"], files[dir+"/kubectl"] = "kubelet", "kubectl"
	}
	for _, file := range sorted(files) {
		info, err := fs.Lstat(v.host.files.FS, inRoot(file))
		if err != nil || file == "" {
			continue
		}
		installed, what := node.BinaryPath("bin/"+files[file]), file+" belongs to no package"
		p, owned := v.Packages[file]
		switch {
		case owned:
			what = fmt.Sprintf("%s belongs to %s", file, p)
		case info.Mode()&fs.ModeSymlink != 0:
			what = file + " is a link to " + v.host.files.place(file)
		}
		switch {
		case file == installed && owned && !p.Held && !p.Diverted:
			hint := "tell dpkg that this file is not the package's any more: dpkg-divert --no-rename --divert " + file + ".distrib --add " + file
			if p.Manager == "rpm" {
				hint = "exclude the package from updates: exclude=" + p.Name + " in /etc/dnf/dnf.conf"
			}
			v.refuse("Binaries", what, file, "the first upgrade replaces this file, and the package's next update would replace it again", hint)
		case file == installed:
			v.find("Binaries", what, file, "the first upgrade replaces it, and reset puts it back", "")
		case owned:
			hint := "do not remove the packages kubelet and kubeadm: the first one's removal stops and disables kubelet.service"
			if files[file] != "kubelet" {
				hint = ""
			}
			v.find("Binaries", what, file, "an upgrade changes neither it nor the package: it installs "+installed+", which precedes it", hint)
		default:
			v.find("Binaries", what, file, "an upgrade does not change it: it installs "+installed, "")
		}
	}
}

func (p Package) String() string {
	state := p.Manager
	if p.Held {
		state += ", held"
	}
	if p.Diverted {
		state += ", diverted"
	}
	return fmt.Sprintf("the package %s %s (%s)", p.Name, p.Version, state)
}

// units reports a unit and drop-ins of the kubelet that differ from the packages' files.
func units(v *view) {
	unit, known := v.Units[kubeletUnitName]
	if !known {
		return
	}
	own := func(file, usual string) string {
		return strings.Join(v.host.ownLines(string(v.host.read(file)), usual), "; ")
	}
	if lines := own(unit.File, render.KubeletUnit); lines != "" {
		effect := "the first upgrade replaces the unit, and reset puts it back: until then, these lines do not apply"
		if unit.File != render.KubeletUnitPath {
			effect = "after the first upgrade, " + render.KubeletUnitPath + " precedes this file, and reset removes it: until then, these lines do not apply"
		}
		v.find("KubeletUnit", "the unit has lines of its own: "+lines, unit.File, effect, "to keep them, write them to /etc/systemd/system/kubelet.service.d/20-site.conf")
	}
	for _, file := range unit.DropIns {
		lines, replaced := own(file, render.KubeletDropIn), v.kubelet.replaces(file)
		switch {
		case file == render.KubeletDropInPath && lines == "":
		case file == render.KubeletDropInPath:
			v.find("KubeletDropIn", "the drop-in has lines of its own: "+lines, file, "the first upgrade replaces it, and reset puts it back. Flags in it move to "+config.KubeletFlagsFile, "")
		case path.Base(file) == base10:
			what := "the drop-in is not in /etc"
			if lines != "" {
				what += ", and has lines of its own: " + lines
			}
			v.find("KubeletDropIn", what, file, "Airlift's file of the same name in /etc hides it", "")
		case path.Base(file) > base10 && replaced != "":
			v.refuse("KubeletDropIn", "the drop-in sets "+replaced, file, "systemd reads it after "+base10+", so the kubelet of an upgrade would not start as it should",
				"write its flags to "+preflight.DefaultKubelet+", as KUBELET_EXTRA_ARGS=\"…\", and remove the file; then: systemctl daemon-reload; systemctl restart kubelet")
		default:
			v.find("KubeletDropIn", "a drop-in of its own: "+own(file, ""), file, "it stays and applies", "")
		}
	}
}

var base10 = path.Base(render.KubeletDropInPath)

// ownLines returns the directives of a unit that a text does not have. Those with an equal meaning in every unit of the
// kubelet are not among them.
func (h *hostFiles) ownLines(unit, text string) (lines []string) {
	ignored := []string{"Description", "Documentation", "ExecStart", "Environment", "EnvironmentFile", "Wants", "After", "WantedBy", "Restart", "RestartSec", "StartLimitInterval", "StartLimitIntervalSec"}
	for _, d := range h.directives(unit) {
		line := d.name + "=" + d.value
		if text != "" && slices.Contains(ignored, d.name) || slices.Contains(strings.Split(text, "\n"), line) {
			continue
		}
		shown := strings.TrimSpace(string(redact.Unit([]byte(line))))
		if !strings.HasPrefix(shown, d.name) { // a directive that redact does not know
			shown = d.name + "=" + redact.Marker
		}
		lines = append(lines, strings.Join(strings.Fields(shown), " "))
	}
	return lines
}

// execStart refuses a kubelet whose unit would start another binary than the one that runs.
func execStart(v *view) {
	unit, known := v.Units[kubeletUnitName]
	if !known || v.Kubelet.PID == 0 {
		return
	}
	var all directives
	for _, file := range append([]string{unit.File}, unit.DropIns...) {
		all = append(all, v.host.directives(string(v.host.read(file)))...)
	}
	commands := all.values("ExecStart")
	if len(commands) == 0 {
		v.refuse("KubeletExecStart", "the unit has no ExecStart", unit.File, "the kubelet that runs would not start again", "correct the unit; then: systemctl daemon-reload; systemctl restart kubelet")
		return
	}
	starts := strings.TrimLeft(unitWords(commands[len(commands)-1])[0], "-@:+!")
	if starts != path.Base(v.kubelet.binary()) && v.host.files.place(starts) != v.host.files.place(v.kubelet.binary()) {
		v.refuse("KubeletExecStart", fmt.Sprintf("the unit starts %s, and %s runs", starts, v.kubelet.binary()), unit.File, "it is not clear which kubelet this node has",
			"remove the drop-in that is not needed: systemctl cat kubelet; then: systemctl daemon-reload; systemctl restart kubelet")
	}
}

// kubeletRules applies the new kubelet's rules to its configuration and its flags.
func kubeletRules(v *view) {
	data := v.host.read(v.configFile)
	if data == nil {
		return
	}
	for _, p := range kubeletcheck.Check(kubeletcheck.Input{Kubernetes: v.Target, From: v.kubeletVersion(), Config: data, Flags: append(v.kubelet.flags(v.Target).kept, v.kubelet.extraFlags()...), Root: v.host.files}) {
		if !p.Warning && p.Name != kubeletcheck.Flags {
			v.find(p.Name, p.Message, strings.Join(append([]string{v.configFile}, v.configFiles...), ", "), "the upgrade refuses it", p.Fix)
		}
	}
}

// compared is the scope of a kubelet with a configuration in a cluster with one.
func compared(v *view) bool { return v.ownConfig != nil && v.sharedConfig != nil }

// ofNode are fields of the kubelet's configuration that kubeadm and Airlift set for each node in KubeletConfigFile.
var ofNode = []string{"resolvConf", "failSwapOn", "failCgroupV1"}

// instanceConfig returns the fields in which a kubelet's configuration differs from the cluster's, for
// /var/lib/kubelet/instance-config.yaml: then an upgrade keeps them. Missing are the names of fields, sorted, that only the
// cluster's has.
func instanceConfig(own, cluster map[string]any) (fields map[string]any, missing []string) {
	fields = map[string]any{}
	for name, value := range own {
		if name != "apiVersion" && name != "kind" && !reflect.DeepEqual(value, cluster[name]) {
			fields[name] = value
		}
	}
	for _, name := range sorted(cluster) {
		if !has(own, name) && !slices.Contains(ofNode, name) {
			missing = append(missing, name)
		}
	}
	return fields, missing
}

// setByHost reports whether an upgrade finds the value of a field for this host, as kubeadm does.
func setByHost(name string, value any) bool {
	if name == "resolvConf" {
		return slices.Contains([]any{"", "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}, value)
	}
	return slices.Contains(ofNode, name)
}

// changedFields are the fields of the kubelet's configuration that differ from the cluster's, both values, and what the upgrade does.
func changedFields(v *view) (list [][]string) {
	instance, usual := v.host.document(render.KubeletInstanceConfigPath), v.configFile == config.KubeletConfigFile
	effect := "the first upgrade keeps it, in " + render.KubeletInstanceConfigPath
	if usual {
		effect = "the upgrade writes the cluster's value; to keep this one on this node, write it to " + render.KubeletInstanceConfigPath
	}
	fields, _ := instanceConfig(v.ownConfig, v.sharedConfig)
	for _, name := range sorted(fields) {
		differs := name != "cgroupDriver" && name != "containerRuntimeEndpoint" && !reflect.DeepEqual(instance[name], fields[name]) && !(usual && setByHost(name, fields[name]))
		list = append(list, given(differs, name, fieldText(name, fields[name]), fieldText(name, v.sharedConfig[name]), effect)...)
	}
	return list
}

// asksRuntime is the first minor version whose kubelet asks the container runtime for the cgroup driver, and ignores its own field
// if it gets an answer (the feature gate KubeletCgroupDriverFromCRI is beta since v1.31). containerd answers since 2.0.
const asksRuntime = 31

// cgroupDrivers are the cgroup drivers of the kubelet and of containerd.
func cgroupDrivers(v *view) (driver, runtime string) {
	driver, runtime = cmp.Or(v.flag("cgroup-driver"), v.field("cgroupDriver"), "cgroupfs"), "cgroupfs" // the kubelet's default
	if v.Runtime.Info.SystemdCgroup {
		runtime = "systemd"
	}
	if is, err := version.ParseGeneric(v.Runtime.Info.Version); err == nil && is.Major() >= 2 && v.Runtime.Info.CRI && minor(v.kubeletVersion()) >= asksRuntime {
		driver = runtime
	}
	return driver, runtime
}

// otherServer is the API server that the kubelet of a control plane uses; "" if it is the one on this host.
func otherServer(v *view) string {
	if v.server == nil {
		return ""
	}
	u, err := url.Parse(v.server.Server)
	if err != nil {
		v.host.cannotRead(node.KubeletConf, err)
		return ""
	}
	if u.Port() == strconv.Itoa(int(v.config.LocalAPIEndpoint.BindPort)) && (u.Hostname() == v.config.LocalAPIEndpoint.AdvertiseAddress || isLoopback(v.server.Server)) {
		return ""
	}
	return v.server.Server
}
