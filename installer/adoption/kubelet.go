package adoption

import (
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
	"airlift/installer/kubelet"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/redact"
	"airlift/installer/render"
)

// binary returns the path of the running kubelet, without links.
func (k *kubeletUnit) binary() string { return strings.TrimSuffix(k.process.Exe, deleted) }

// deleted is what the kernel adds to the path of a binary that was removed or replaced (proc_pid_exe(5)).
const deleted = " (deleted)"

// kubeletRuns refuses a node whose kubelet does not run: its flags are known only from its process.
func kubeletRuns(v *view) {
	if v.kubelet.process.PID == 0 {
		v.refuse("KubeletRuns", "the kubelet does not run", "kubelet.service", "its flags and its binary are read from its process", "start it: systemctl start kubelet")
	}
}

// identity compares the names of this node: in its certificate, in the cluster, and in the kubelet's flags.
func identity(v *view) {
	name := v.name
	if name == "" {
		v.refuse("NodeIdentity", node.KubeletConf+" has no certificate with a node's name", node.KubeletConf, "the name of this node is not known", "join this node again, or correct the file")
		return
	}
	if v.Cluster != nil && v.Cluster.Node == nil {
		v.refuse("NodeIdentity", fmt.Sprintf("the cluster has no node %q, which is the name in the kubelet's certificate", name), node.KubeletConf,
			"an upgrade would not find this node", "see: kubectl get nodes; if the node has another name, join it again")
	}
	given, from := v.flag("hostname-override"), "--hostname-override of the kubelet"
	if given == "" {
		given, from = strings.TrimSpace(string(v.host.read("/proc/sys/kernel/hostname"))), "the host's name"
	}
	if given = strings.ToLower(given); given != "" && given != name && v.Kubelet.PID != 0 {
		v.refuse("NodeIdentity", fmt.Sprintf("%s is %q, and the kubelet's certificate is for %q", from, given, name), node.KubeletConf,
			"a kubelet that starts again would register another node", "start the kubelet with --hostname-override="+name)
	}
}

// nodeName reports a node name that is not the host's, or that has dots.
func nodeName(v *view) {
	name := v.name
	switch host := strings.TrimSpace(string(v.host.read("/proc/sys/kernel/hostname"))); {
	case name == "":
	case host != "" && strings.ToLower(host) != name:
		v.find("NodeName", fmt.Sprintf("the node is %q, and the host is %q", name, host), "--hostname-override", "an upgrade uses the node's name, and keeps the flag", "")
	case strings.Contains(name, "."):
		v.find("NodeName", fmt.Sprintf("the node's name %q has dots", name), node.KubeletConf, "an upgrade uses this name, also for etcd's member", "")
	}
}

// credentials refuses a kubelet.conf that contains its certificate: the kubelet renews it in another file.
func credentials(v *view) {
	name, user, _ := v.user()
	if user == nil {
		v.refuse("KubeletCredentials", "there is no "+node.KubeletConf, node.KubeletConf, "this host is not a node of a cluster", "run it on a node")
		return
	}
	const current = config.KubeletPKIDir + "/kubelet-client-current.pem"
	if len(user.ClientCertificateData) > 0 {
		v.refuse("KubeletCredentials", node.KubeletConf+" contains the kubelet's certificate", node.KubeletConf,
			"the kubelet renews its certificate in "+current+", and is locked out when the one in this file ends",
			fmt.Sprintf("kubectl config set-credentials %[1]s --kubeconfig %[2]s --client-certificate %[3]s --client-key %[3]s; systemctl restart kubelet", name, node.KubeletConf, current))
	} else if file := pki.KubeletClientFile(v.host.files); file != "" && path.Clean(file) != current {
		v.find("KubeletCertificate", "the kubelet's certificate is "+file, node.KubeletConf, "it stays there, and check-expiration does not list it", "")
	}
}

// kubeletPaths refuses paths of the kubelet that Airlift relies on.
func kubeletPaths(v *view) {
	for _, p := range []struct{ flag, field, want, why string }{
		{"kubeconfig", "", node.KubeletConf, "Airlift reads and writes the kubelet's credentials there"},
		{"root-dir", "", config.KubeletDir, "reset unmounts the volumes of pods only there"},
		{"pod-manifest-path", "staticPodPath", config.ManifestsDir, "Airlift writes static pods there"},
	} {
		is, where := v.flag(p.flag), "--"+p.flag
		if is == "" && p.field != "" {
			is, where = v.field(p.field), p.field+" in "+v.sourceOf(p.field)
		}
		if is != "" && v.host.files.place(is) != v.host.files.place(p.want) {
			v.refuse("KubeletPaths", fmt.Sprintf("%s is %s", where, is), where, fmt.Sprintf("it must be %s: %s", p.want, p.why), "move it to "+p.want+", and restart the kubelet")
		}
	}
	if v.configFile != config.KubeletConfigFile {
		v.find("KubeletConfigFile", "the kubelet reads "+v.configFile, v.configFile,
			"the first upgrade writes the kubelet's configuration to "+config.KubeletConfigFile+", and what differs from the cluster's to "+render.KubeletInstanceConfigPath, "")
	}
	if len(v.configFiles) > 0 {
		v.find("KubeletConfigDir", "the kubelet also reads "+strings.Join(v.configFiles, ", "), "--config-dir", "they stay and apply: they precede what an upgrade writes to "+config.KubeletConfigFile, "")
	}
}

// clientBinaries are the directories that tools and packages copy the kubelet and kubectl to.
var clientBinaries = []string{"/usr/bin", "/usr/local/bin", "/opt/bin"}

// binaries reports where the kubelet and kubectl come from.
func binaries(v *view) {
	if strings.HasSuffix(v.Kubelet.Exe, deleted) {
		v.find("Binaries", "the kubelet that runs is not the file "+v.kubelet.binary()+": that was replaced or removed after its start", v.kubelet.binary(),
			"the first upgrade replaces both", "restart the kubelet to see which one works: systemctl restart kubelet")
	}
	for _, name := range []string{"kubelet", "kubectl"} {
		files := []string{}
		for _, dir := range clientBinaries {
			files = append(files, path.Join(dir, name))
		}
		if runs := v.kubelet.binary(); name == "kubelet" && runs != "" && !slices.Contains(files, runs) {
			files = append(files, runs)
		}
		for _, file := range files {
			binary(v, name, file)
		}
	}
}

// binary reports one file, and refuses one that a package may write again after an upgrade replaced it.
func binary(v *view, name, file string) {
	info, err := fs.Lstat(v.host.files.FS, inRoot(file))
	if err != nil {
		return
	}
	installed, what := node.BinaryPath("bin/"+name), file+" belongs to no package"
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
		v.find("Binaries", what, file, "an upgrade changes neither it nor the package: it installs "+installed+", which precedes it", p.hint(name))
	default:
		v.find("Binaries", what, file, "an upgrade does not change it: it installs "+installed, "")
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

// hint warns of the packages' own scripts.
func (p Package) hint(binary string) string {
	if binary != "kubelet" {
		return ""
	}
	return "do not remove the packages kubelet and kubeadm: the first one's removal stops and disables kubelet.service"
}

// units reports a unit and drop-ins of the kubelet that differ from the packages' files.
func units(v *view) {
	unit, known := v.Units["kubelet.service"]
	if !known {
		v.refuse("KubeletUnit", "systemd has no kubelet.service", "kubelet.service", "an upgrade restarts the kubelet with systemd", "start the kubelet with a unit of this name")
		return
	}
	if lines := v.host.ownLines(string(v.host.read(unit.File)), render.KubeletUnit); len(lines) > 0 {
		effect := "the first upgrade replaces the unit, and reset puts it back: until then, these lines do not apply"
		if unit.File != render.KubeletUnitPath {
			effect = "after the first upgrade, " + render.KubeletUnitPath + " precedes this file, and reset removes it: until then, these lines do not apply"
		}
		v.find("KubeletUnit", "the unit has lines of its own: "+strings.Join(lines, "; "), unit.File, effect, "to keep them, write them to /etc/systemd/system/kubelet.service.d/20-site.conf")
	}
	for _, file := range unit.DropIns {
		text, base := string(v.host.read(file)), path.Base(file)
		switch {
		case file == render.KubeletDropInPath:
			if lines := v.host.ownLines(text, render.KubeletDropIn); len(lines) > 0 {
				v.find("KubeletDropIn", "the drop-in has lines of its own: "+strings.Join(lines, "; "), file,
					"the first upgrade replaces it, and reset puts it back. Flags in it move to "+config.KubeletFlagsFile, "")
			}
		case base == path.Base(render.KubeletDropInPath):
			what := "the drop-in is not in /etc"
			if lines := v.host.ownLines(text, render.KubeletDropIn); len(lines) > 0 {
				what += ", and has lines of its own: " + strings.Join(lines, "; ")
			}
			v.find("KubeletDropIn", what, file, "Airlift's file of the same name in /etc hides it", "")
		case base > base10 && v.kubelet.replaces(text) != "":
			v.refuse("KubeletDropIn", "the drop-in sets "+v.kubelet.replaces(text), file, "systemd reads it after "+base10+", so the kubelet of an upgrade would not start as it should",
				"write its flags to "+preflight.DefaultKubelet+", as KUBELET_EXTRA_ARGS=\"…\", and remove the file; then: systemctl daemon-reload; systemctl restart kubelet")
		default:
			v.find("KubeletDropIn", "a drop-in of its own: "+strings.Join(v.host.ownLines(text, ""), "; "), file, "it stays and applies", "")
		}
	}
}

// replaces returns what a drop-in takes from Airlift's: the command, or one of its variables; "" if nothing.
func (k *kubeletUnit) replaces(text string) string {
	list := k.host.directives(text)
	if effective(list) != "" {
		return "ExecStart"
	}
	values, unset := environment(list), ""
	for _, d := range list {
		switch {
		case d.value == "" && (d.name == "Environment" || d.name == "EnvironmentFile"):
			return "an empty " + d.name + "=, which takes back those before it"
		case d.name == "UnsetEnvironment":
			unset += " " + d.value + " "
		}
	}
	for _, name := range []string{"KUBELET_KUBECONFIG_ARGS", "KUBELET_CONFIG_ARGS", "KUBELET_KUBEADM_ARGS"} {
		if has(values, name) || slices.Contains(strings.Fields(unset), name) || slices.ContainsFunc(k.host.environmentFiles(list), func(f string) bool { return sets(k.host.read(f), name) }) {
			return name
		}
	}
	return ""
}

var base10 = path.Base(render.KubeletDropInPath)

// ownLines returns the directives of a unit that a text does not have. Those with an equal meaning in every unit of the
// kubelet are not among them.
func (h *hostFiles) ownLines(unit, text string) (lines []string) {
	ignored := []string{"Description", "Documentation", "ExecStart", "Environment", "EnvironmentFile", "Wants", "After", "WantedBy", "Restart", "RestartSec", "StartLimitInterval", "StartLimitIntervalSec"}
	for _, d := range h.directives(unit) {
		key, line := d.name, d.name+"="+d.value
		if text != "" && slices.Contains(ignored, key) || slices.Contains(strings.Split(text, "\n"), line) {
			continue
		}
		shown := strings.TrimSpace(string(redact.Unit([]byte(line))))
		if !strings.HasPrefix(shown, key) { // a directive that redact does not know
			shown = key + "=" + redact.Marker
		}
		lines = append(lines, strings.Join(strings.Fields(shown), " "))
	}
	return lines
}

// effective returns the command that a unit with drop-ins, in their order, starts.
func effective(list []directive) (command string) {
	for _, d := range list {
		if d.name == "ExecStart" {
			command = d.value
		}
	}
	return command
}

// execStart refuses a kubelet whose unit would start another binary than the one that runs.
func execStart(v *view) {
	unit, known := v.Units["kubelet.service"]
	if !known || v.Kubelet.PID == 0 {
		return
	}
	var all []directive
	for _, file := range append([]string{unit.File}, unit.DropIns...) {
		all = append(all, v.host.directives(string(v.host.read(file)))...)
	}
	words := unitWords(effective(all))
	if len(words) == 0 {
		v.refuse("KubeletExecStart", "the unit has no ExecStart", unit.File, "the kubelet that runs would not start again", "correct the unit; then: systemctl daemon-reload; systemctl restart kubelet")
		return
	}
	if starts := strings.TrimLeft(words[0], "-@:+!"); starts != path.Base(v.kubelet.binary()) && v.host.files.place(starts) != v.host.files.place(v.kubelet.binary()) {
		v.refuse("KubeletExecStart", fmt.Sprintf("the unit starts %s, and %s runs", starts, v.kubelet.binary()), unit.File, "it is not clear which kubelet this node has",
			"remove the drop-in that is not needed: systemctl cat kubelet; then: systemctl daemon-reload; systemctl restart kubelet")
	}
}

// readOnly refuses a host on which an upgrade cannot write.
func readOnly(v *view) {
	for _, dir := range v.ReadOnly {
		v.refuse("ReadOnly", dir+" is on a file system that is mounted read-only", dir, "an upgrade writes the kubelet, or its unit, there", "mount it writable, or mount a writable file system at "+dir)
	}
}

// kubeletRules applies the new kubelet's rules to its configuration and its flags.
func kubeletRules(v *view) {
	data := v.host.read(v.configFile)
	if data == nil {
		v.refuse("KubeletConfigFile", "the kubelet's configuration "+v.configFile+" does not exist", v.configFile, "an upgrade compares it with the cluster's", "start the kubelet with a file: --config="+config.KubeletConfigFile)
		return
	}
	f := v.kubelet.kubeletFlags(v.Target)
	problems := kubelet.Check(kubelet.Input{Kubernetes: v.Target, From: v.kubeletVersion(), Config: data, Flags: append(f.Kept, v.kubelet.extraFlags()...), Root: v.host.files})
	for _, p := range problems {
		if !p.Warning && p.Name != kubelet.Flags {
			v.find(p.Name, p.Message, strings.Join(append([]string{v.configFile}, v.configFiles...), ", "), "the upgrade refuses it", p.Fix)
		}
	}
}

// ofNode are fields of the kubelet's configuration that kubeadm and Airlift set for each node in KubeletConfigFile.
var ofNode = []string{"resolvConf", "failSwapOn", "failCgroupV1"}

// InstanceConfig returns the fields in which a kubelet's configuration differs from the cluster's, for
// /var/lib/kubelet/instance-config.yaml: then an upgrade keeps them. Missing are the names of fields, sorted, that only the
// cluster's has.
func InstanceConfig(own, cluster map[string]any) (fields map[string]any, missing []string) {
	fields = map[string]any{}
	for name, value := range own {
		if name != "apiVersion" && name != "kind" && !reflect.DeepEqual(value, cluster[name]) {
			fields[name] = value
		}
	}
	for name := range cluster {
		if _, ok := own[name]; !ok && !slices.Contains(ofNode, name) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return fields, missing
}

// setByHost reports whether an upgrade finds the value of a field for this host, as kubeadm does.
func setByHost(name string, value any) bool {
	if name == "resolvConf" {
		return slices.Contains([]any{"", "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}, value)
	}
	return slices.Contains(ofNode, name)
}

// kubeletConfiguration compares the kubelet's configuration with the cluster's.
func kubeletConfiguration(v *view) {
	if v.Cluster == nil || v.ownConfig == nil {
		return
	}
	text := v.value(kubeletConfig, "kubelet")
	if text == "" {
		v.refuse("KubeletConfigMap", "the cluster has no ConfigMap "+kubeletConfig, "ConfigMap "+kubeletConfig, "an upgrade writes the kubelet's configuration from it",
			"run on a control plane, with kubeadm of the cluster's version: kubeadm init phase upload-config kubelet")
		return
	}
	shared := decode(v, "ConfigMap "+kubeletConfig, text)
	if shared == nil {
		return
	}
	instance := v.host.document(render.KubeletInstanceConfigPath)
	fields, missing := InstanceConfig(v.ownConfig, shared)
	for _, name := range sorted(fields) {
		if name == "cgroupDriver" || name == "containerRuntimeEndpoint" || reflect.DeepEqual(instance[name], fields[name]) || v.configFile == config.KubeletConfigFile && setByHost(name, fields[name]) {
			continue
		}
		effect := "the upgrade writes the cluster's value; to keep this one on this node, write it to " + render.KubeletInstanceConfigPath
		if v.configFile != config.KubeletConfigFile {
			effect = "the first upgrade keeps it, in " + render.KubeletInstanceConfigPath
		}
		v.find("KubeletConfig", fmt.Sprintf("%s is %s, and %s in the cluster's configuration", name, fieldText(name, fields[name]), fieldText(name, shared[name])), v.configFile, effect, "")
	}
	if len(missing) > 0 {
		v.find("KubeletConfig", "it has no "+strings.Join(missing, ", ")+", which the cluster's configuration sets", v.configFile, "from the first upgrade on, the cluster's values apply", "")
	}
	cgroup(v)
}

// asksRuntime is the first minor version whose kubelet asks the container runtime for the cgroup driver, and ignores its own field
// if it gets an answer (the feature gate KubeletCgroupDriverFromCRI is beta since v1.31). containerd answers since 2.0.
const asksRuntime = 31

// cgroup compares the cgroup drivers of the kubelet and of containerd.
func cgroup(v *view) {
	driver := v.field("cgroupDriver")
	if given := v.flag("cgroup-driver"); given != "" {
		driver = given
	}
	if driver == "" {
		driver = "cgroupfs" // the kubelet's default
	}
	runtime := "cgroupfs"
	if v.Runtime.Info.SystemdCgroup {
		runtime = "systemd"
	}
	if is, err := version.ParseGeneric(v.Runtime.Info.Version); err == nil && is.Major() >= 2 && v.Runtime.Info.CRI && minor(v.kubeletVersion()) >= asksRuntime {
		driver = runtime
	}
	switch {
	case v.Runtime.Info.CRI && driver != runtime:
		v.find("CgroupDriver", fmt.Sprintf("the kubelet's cgroup driver is %s, and containerd's is %s", driver, runtime), v.configFile, "it stays, and the node may become unstable under load", "set the same driver in both, and restart both")
	case driver != "systemd":
		v.find("CgroupDriver", "the cgroup driver is "+driver, v.configFile, "it stays", "")
	}
	if v.host.exists("/sys/fs/cgroup/cpuset") && !v.host.exists("/sys/fs/cgroup/cgroup.controllers") && minor(v.Target) >= 35 {
		v.find("CgroupV1", "the host uses cgroup v1", "/sys/fs/cgroup", "the upgrade sets failCgroupV1: false: the kubelet of v1.35 and newer does not start otherwise", "boot with cgroup v2")
	}
}

// server reports an API server of the kubelet of a control plane that is not on this host.
func server(v *view) {
	_, _, to := v.user()
	if !v.plane || to == nil || v.config == nil {
		return
	}
	u, err := url.Parse(to.Server)
	if err != nil {
		v.host.cannotRead(node.KubeletConf, err)
		return
	}
	own := u.Port() == strconv.Itoa(int(v.config.LocalAPIEndpoint.BindPort)) && (u.Hostname() == v.config.LocalAPIEndpoint.AdvertiseAddress || isLoopback(to.Server))
	switch {
	case own:
	case to.Server == v.config.ServerURL():
		effect := "from v1.33 on, the upgrade makes it use the API server of its own host before its kubelet is replaced"
		if minor(v.Target) < 33 {
			effect = "it stays until an upgrade to v1.33. Until all control planes are upgraded, the new kubelet may reach an older API server"
		}
		v.find("KubeletServer", "the kubelet of this control plane uses the endpoint "+to.Server, node.KubeletConf, effect, "")
	default:
		v.find("KubeletServer", "the kubelet of this control plane uses "+to.Server+", which is neither the endpoint nor this host", node.KubeletConf, "it stays", "")
	}
}

// seLinux reports a host that enforces labels.
func seLinux(v *view) {
	if strings.TrimSpace(string(v.host.read("/sys/fs/selinux/enforce"))) != "1" {
		return
	}
	v.find("SELinux", "SELinux is enforcing", "/sys/fs/selinux/enforce", "an upgrade writes the kubelet to /usr/local/bin, where it gets the label of that directory",
		"compare before the upgrade: matchpathcon /usr/bin/kubelet /usr/local/bin/kubelet; after it: restorecon -v /usr/local/bin/kubelet")
}
