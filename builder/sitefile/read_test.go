package sitefile_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"airlift/builder"
	"airlift/builder/sitefile"
	"airlift/bundle"
	"airlift/images/release"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/render"
	"airlift/internal/fault"
)

const head = "apiVersion: airlift/v1\nkind: Bundle\n"

const service = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"

// directory returns a directory with the files that the tests name.
func directory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"app.yaml": "kind: Pod\n", "half-amd64": "base\n", "motd": "hello\n", "empty": "", "values.yaml": "a: 1\n", "chart/Chart.yaml": "name: c\n",
		"exporter.service": service, "tick.timer": "[Timer]\n[Install]\nWantedBy=timers.target\n",
		"oneshot.service": "[Service]\nExecStart=/bin/true\n", "worker@.service": service,
		"SHA256SUMS": strings.Repeat("ab", 32) + "  kubelet\n", "nosums": "hello\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"dangling": "nowhere", "link": "motd"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t *testing.T, dir, text string, given ...string) (builder.Options, error) {
	t.Helper()
	path := filepath.Join(dir, "bundle.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return sitefile.Read(path, func(field string) bool { return slices.Contains(given, field) })
}

func TestRead(t *testing.T) {
	dir := directory(t)
	f, err := read(t, dir, head+`kubernetesVersion: v1.29
architectures: [arm64, amd64]
cni: none
images: [nginx:1.27, "registry.k8s.io/pause:3.9", "oci-archive:oci-archive:v1=app:1", "docker-daemon:app:2"]
manifests:
- name: app
  path: app.yaml
  namespace: web
  imagePullPolicy: IfNotPresent
- name: ingress
  chart:
    source: https://charts.example.com
    name: ingress-nginx
    version: 4.13.2
    values: [values.yaml]
    set: [replicas=2]
- {name: local, chart: {source: chart, release: other}}
files:
- path: /etc/motd
  source: link
- path: /usr/local/bin/hello
  source: `+filepath.Join(dir, "motd")+`
  mode: 0755
  nodes: worker
systemdUnits:
- source: exporter.service
- source: tick.timer
  name: tock.timer
  nodes: control-plane
mirrors: [dl.k8s.io=https://mirror.example.com/k8s]
checksums: [kubelet=sha256:`+strings.Repeat("cd", 32)+`]
checksumFiles: [SHA256SUMS]
require: [crictl]
verifySignatures: require
trustedRoot: root.json
keepCompressedLayers: true
compression: best
output: out/site
`)
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	if f.Version != "v1.29" || !slices.Equal(f.Arches, []string{"arm64", "amd64"}) || !f.KeepCompressed || f.CNI != "none" || f.Level != bundle.Best || f.VerifySignatures != "require" || f.TrustedRoot != in("root.json") || f.Output != in("out/site") ||
		!slices.Equal(f.Images, []string{"docker.io/library/nginx:1.27", "registry.k8s.io/pause:3.9", "oci-archive:" + in("oci-archive") + ":v1=app:1", "docker-daemon:app:2"}) ||
		len(f.Mirrors) != 1 || f.Mirrors[0].Host != "dl.k8s.io" || len(f.Pins) != 2 || f.Pins[1].File != in("SHA256SUMS") || !slices.Equal(f.Require, []string{"crictl"}) {
		t.Errorf("%+v", f)
	}
	at := func(line string) string { return in("bundle.yaml:") + line }
	if len(f.Site.Manifests) != 3 || f.Site.Manifests[0] != (builder.Manifest{Name: "app", Path: in("app.yaml"), Namespace: "web", IfNotPresent: true, At: at("8")}) {
		t.Fatalf("%+v", f.Site.Manifests)
	}
	chart := f.Site.Manifests[1].Chart
	if chart.Source != "https://charts.example.com" || chart.Name != "ingress-nginx" || chart.Version != "4.13.2" || chart.Release != "ingress" ||
		!slices.Equal(chart.Values, []string{in("values.yaml")}) || !slices.Equal(chart.Set, []string{"replicas=2"}) {
		t.Errorf("%+v", chart)
	}
	if chart := f.Site.Manifests[2].Chart; chart.Source != in("chart") || chart.Release != "other" {
		t.Errorf("%+v", chart)
	}
	file := func(path, mode, nodes, source, line string) builder.File {
		return builder.File{SiteFile: bundle.SiteFile{Path: path, Mode: mode, Nodes: nodes}, Source: in(source), At: at(line)}
	}
	if want := []builder.File{
		file("/etc/motd", "0644", "", "link", "21"), file("/usr/local/bin/hello", "0755", "worker", "motd", "23"),
		file("/etc/systemd/system/exporter.service", "0644", "", "exporter.service", "28"),
		file("/etc/systemd/system/tock.timer", "0644", "control-plane", "tick.timer", "29"),
	}; !slices.Equal(f.Site.Files, want) {
		t.Errorf("%+v\nwant %+v", f.Site.Files, want)
	}
	if want := []bundle.SiteUnit{{Name: "exporter.service"}, {Name: "tock.timer", Nodes: "control-plane"}}; !slices.Equal(f.Site.Units, want) {
		t.Errorf("%+v", f.Site.Units)
	}
}

// Nothing but the first two fields is needed, and a list whose items are all comments is an empty
// list.
func TestReadAlmostNothing(t *testing.T) {
	for _, text := range []string{head, head + "images:\nfiles:\ncni:\n", "\ufeff" + head, strings.ReplaceAll(head, "\n", "\r\n"), "---\n" + head + "...\n"} {
		if f, err := read(t, directory(t), text); err != nil || f.Version != "" || f.Output != "" || len(f.Images) != 0 {
			t.Errorf("%q: %+v, %v", text, f, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	dir := directory(t)
	for name, c := range map[string]struct {
		text string // after the head
		line string
		want string
		hint string
	}{
		"image source without path": {"images:\n- \"oci-archive:\"\n", "4", `it has no path`, "oci-archive:FILE"},
		"unknown field":             {"imagse: []\n", "3", `imagse is not known`, `did you mean images?`},
		"unknown field of a file":   {"files:\n- path: /etc/motd\n  sorce: motd\n", "5", `files[0].sorce is not known`, "did you mean source? fields here: mode, nodes, path, source"},
		"field twice":               {"cni: none\ncni: flannel\n", "4", `cni is written twice, first at line 3`, "remove one"},
		"field of an item twice":    {"manifests:\n- name: a\n  path: app.yaml\n  name: b\n", "6", `manifests[0].name is written twice, first at line 4`, "remove one"},
		"other apiVersion":          {"", "1", `apiVersion "airlift/v2" is not supported`, "write apiVersion: airlift/v1"},
		"other kind":                {"", "2", `kind "Cluster" is not supported`, "write kind: Bundle"},
		"no kind":                   {"", "1", "the file has no kind", "write kind: Bundle"},
		"empty file":                {"", "1", "the file is empty", "apiVersion: airlift/v1"},
		"another encoding":          {"cni: \xe4\n", "3", "byte 0xe4 is not UTF-8", "UTF-8"},
		"UTF-16":                    {"cni: n\x00o\x00n\x00e\x00\n", "3", "there is a zero byte", "copy it again"},
		"text after the end":        {"...\ncni: none\n", "4", "a second document", "put a line with --- before it"},
		"second document":           {"---\nkind: Pod\n", "4", "a second document", "its own file"},
		"tab":                       {"files:\n\t- path: /etc/motd\n", "4", "cannot start any token", "indent with spaces"},
		"list as a text":            {"images: nginx\n", "3", `images is the string "nginx" and must be a list`, "after a dash"},
		"text as a list":            {"cni: [none]\n", "3", "cni is a list and must be a string", "one value"},
		"mapping as a text":         {"images:\n- name: nginx\n", "4", "images[0] is a mapping and must be a string", ""},
		"text as a mapping":         {"componentVersions: 3.9\n", "3", "componentVersions is the number 3.9 and must be a mapping", "coredns, crictl, etcd, pause"},
		"text as a chart":           {"manifests:\n- name: a\n  chart: ./chart\n", "5", `manifests[0].chart is the string "./chart" and must be a mapping`, "source"},
		"quoted true":               {"keepCompressedLayers: \"true\"\n", "3", `keepCompressedLayers is the string "true" and must be true or false`, "write true"},
		"yes":                       {"keepCompressedLayers: yes\n", "3", `keepCompressedLayers is the string "yes" and must be true or false`, "write true"},
		"list as a boolean":         {"keepCompressedLayers: [true]\n", "3", "keepCompressedLayers is a list and must be true or false", "write true"},
		"boolean":                   {"output: true\n", "3", "output is the boolean true and must be a string", `"true"`},
		"empty item":                {"images:\n- nginx\n-\n", "5", "images[1] is empty", "remove the dash"},
		"empty file item":           {"files:\n-\n", "4", "files[0] is empty", "remove the dash"},

		"no version":             {"kubernetesVersion: newest\n", "3", `"newest" is not a Kubernetes version`, "v1.29"},
		"old version":            {"kubernetesVersion: v1.2.3\n", "3", `"v1.2.3" is not supported`, "supported minor versions"},
		"newer minor":            {"kubernetesVersion: v1.99.0\n", "3", "needs componentVersions.etcd", "componentVersions.etcd 3."},
		"version of etcd":        {"componentVersions:\n  etcd: new\n", "4", `componentVersions.etcd "new" is not a version of etcd`, "componentVersions.etcd"},
		"contradicting version":  {"kubernetesVersion: v1.29.15\ncomponentVersions:\n  pause: 3.10\n", "3", "componentVersions.pause is 3.10", "remove componentVersions.pause"},
		"architecture":           {"architectures: [amd64, riscv64]\n", "3", `architecture "riscv64" is not supported`, "amd64, arm64"},
		"one architecture":       {"architectures: amd64\n", "3", `architectures is the string "amd64" and must be a list`, "after a dash"},
		"singular":               {"architecture: amd64\n", "3", `architecture is not known`, "did you mean architectures?"},
		"architecture twice":     {"architectures:\n- amd64\n- amd64\n", "5", `the architecture "amd64" is written twice, first at line 4`, "remove one"},
		"pod network":            {"cni: calico\n", "3", `cni "calico" is not supported`, "flannel, none"},
		"add-on":                 {"addons: [dashboard]\n", "3", `add-on "dashboard" does not exist`, "metrics-server"},
		"add-on twice":           {"addons:\n- metrics-server\n- metrics-server\n", "5", `the add-on "metrics-server" is written twice, first at line 4`, "remove one"},
		"policies of no flannel": {"cni: none\naddons: [network-policy]\n", "4", "only for the pod network flannel", "remove it"},
		"compression":            {"compression: most\n", "3", `compression "most" is not supported`, "fastest, default, best"},
		"signatures":             {"verifySignatures: yes\n", "3", `verifySignatures "yes" is not supported`, "require, if-present, off"},
		"require":                {"require: [kubelet]\n", "3", `require "kubelet" is not supported`, "crictl"},
		"require and without":    {"require: [crictl]\nwithout: [crictl]\n", "3", `require and without both name "crictl"`, "remove it"},
		"image":                  {"images:\n- Not An Image\n", "4", `image "Not An Image"`, "registry.example.com/team/app:v1.2.3"},
		"mirror":                 {"mirrors:\n- dl.k8s.io\n", "4", "no = between host and URL", "as HOST=URL"},
		"mirror twice":           {"mirrors:\n- a=http://b\n- A=http://c\n", "5", `host "a" has two mirrors`, "one mirror"},
		"checksum":               {"checksums:\n- kubelet\n", "4", `checksum "kubelet"`, "NAME=sha256:HEX"},
		"no CA":                  {"registryCAs: [registry.example.com=nowhere]\n", "3", "nowhere: no such file", "certs.d"},
		"no certificate":         {"registryCAs: [nosums]\n", "3", "contains no PEM certificate", "certs.d"},
		"no checksum file":       {"checksumFiles: [nowhere]\n", "3", "nowhere: no such file", "relative to the directory of"},
		"bad checksum file":      {"checksumFiles: [nosums]\n", "3", "no sha256 in", "sha256sum"},

		"manifest without name": {"manifests:\n- path: app.yaml\n", "4", "manifest number 1 has no name", "add name"},
		"manifest's name":       {"manifests:\n- path: app.yaml\n  name: My App\n", "5", `"My App" is not a name`, "lower-case"},
		"manifest's long name":  {"manifests:\n- path: app.yaml\n  name: " + strings.Repeat("a", 64) + "\n", "5", "is not a name", "at most 63"},
		"manifest twice":        {"manifests:\n- {name: a, path: app.yaml}\n- {name: a, path: app.yaml}\n", "5", `the name "a" is written twice, first at line 4`, "another name"},
		"manifest of nothing":   {"manifests:\n- name: a\n", "4", "manifest a has no path and no chart", "add path"},
		"manifest of both":      {"manifests:\n- {name: a, path: app.yaml, chart: {source: chart}}\n", "4", "both a path and a chart", "remove one"},
		"missing manifest":      {"manifests:\n- {name: a, path: nowhere.yaml}\n", "4", "nowhere.yaml\" does not exist", "relative to the directory of"},
		"namespace":             {"manifests:\n- {name: a, path: app.yaml, namespace: A/B}\n", "4", `"A/B" is not the name of a namespace`, "lower-case"},
		"pull policy":           {"manifests:\n- {name: a, path: app.yaml, imagePullPolicy: Never}\n", "4", `imagePullPolicy "Never" is not supported`, "IfNotPresent"},
		"chart without source":  {"manifests:\n- {name: a, chart: {version: 1.0.0}}\n", "4", "the chart of manifest a has no source", "add source"},
		"missing chart":         {"manifests:\n- {name: a, chart: {source: nowhere}}\n", "4", "does not exist", "correct the path"},
		"chart by ftp":          {"manifests:\n- {name: a, chart: {source: ftp://x, name: c, version: 1.0.0}}\n", "4", `"ftp://x" is not a source of charts`, "https://"},
		"chart without version": {"manifests:\n- {name: a, chart: {source: oci://x/y}}\n", "4", "has no version", "same bundle"},
		"chart by a range":      {"manifests:\n- {name: a, chart: {source: oci://x/y, version: ~1.2}}\n", "4", `version "~1.2" of the chart of manifest a is not exact`, "1.2.3"},
		"local chart's version": {"manifests:\n- {name: a, chart: {source: chart, version: 1.0.0}}\n", "4", "needs no version", "remove the line"},
		"chart's digest":        {"manifests:\n- {name: a, chart: {source: oci://x/y, version: 1.0.0, digest: abc}}\n", "4", `"abc" is not the digest of a chart`, "sha256sum"},
		"chart without name":    {"manifests:\n- {name: a, chart: {source: https://x, version: 1.0.0}}\n", "4", "has no name", "add name"},
		"chart by two names":    {"manifests:\n- {name: a, chart: {source: chart, name: c}}\n", "4", "needs no name", "remove the line"},
		"missing values":        {"manifests:\n- {name: a, chart: {source: chart, values: [nowhere]}}\n", "4", "does not exist", "correct the path"},
		"set without value":     {"manifests:\n- {name: a, chart: {source: chart, set: [x]}}\n", "4", `"x" has no =`, "KEY=VALUE"},

		"file without path":     {"files:\n- source: motd\n", "4", "file number 1 has no path", "add path"},
		"file without source":   {"files:\n- path: /etc/motd\n", "4", `file "/etc/motd" has no source`, "add source"},
		"relative path":         {"files:\n- {path: etc/motd, source: motd}\n", "4", `path "etc/motd" is not absolute`, "absolute path"},
		"climbing path":         {"files:\n- {path: /etc/../motd, source: motd}\n", "4", "is not a clean path", "without ., .."},
		"path of a directory":   {"files:\n- {path: /etc/, source: motd}\n", "4", "is not a clean path", "slash at the end"},
		"root":                  {"files:\n- {path: /, source: motd}\n", "4", "is not a clean path", ""},
		"path that is not text": {"files:\n- {path: /etc/ü, source: motd}\n", "4", "is not supported", "ASCII"},
		"path twice":            {"files:\n- {path: /etc/motd, source: motd, nodes: worker}\n- {path: /etc/motd, source: motd, nodes: control-plane}\n", "5", `path "/etc/motd" is written twice, first at line 4`, "different paths"},
		"file as a directory":   {"files:\n- {path: /etc/a/b/c, source: motd}\n- {path: /etc/a, source: motd}\n", "4", `"/etc/a/b/c" is below "/etc/a", which is a file at line 5`, "change one"},
		"setuid":                {"files:\n- {path: /etc/motd, source: motd, mode: 4755}\n", "4", `mode "4755" has special bits`, "write 0755"},
		"number of 0644":        {"files:\n- {path: /etc/motd, source: motd, mode: 420}\n", "4", `mode "420" is the decimal number of 0644`, "write 0644, or 0420"},
		"number of 0755":        {"files:\n- {path: /etc/motd, source: motd, mode: 493}\n", "4", `mode "493" is the decimal number of 0755`, "write 0755"},
		"number of 0600":        {"files:\n- {path: /etc/motd, source: motd, mode: \"384\"}\n", "4", `mode "384" is the decimal number of 0600`, "write 0600"},
		"number of 0777":        {"files:\n- {path: /etc/motd, source: motd, mode: 511}\n", "4", `mode "511" is the decimal number of 0777`, "write 0777, or 0511"},
		"symbolic mode":         {"files:\n- {path: /etc/motd, source: motd, mode: u=rw}\n", "4", `mode "u=rw" is not a file mode`, "0644"},
		"decimal mode":          {"files:\n- {path: /etc/motd, source: motd, mode: 0o644}\n", "4", `mode "0o644"`, "0644"},
		"some nodes":            {"files:\n- {path: /etc/motd, source: motd, nodes: masters}\n", "4", `nodes "masters"`, "all, control-plane, worker"},
		"missing source":        {"files:\n- {path: /etc/motd, source: nowhere}\n", "4", "does not exist", "relative to the directory of"},
		"dangling source":       {"files:\n- {path: /etc/motd, source: dangling}\n", "4", `is a symbolic link to "nowhere", which does not exist`, "create the target"},
		"source is a directory": {"files:\n- {path: /etc/motd, source: chart}\n", "4", "is a directory", "list the files"},
		"source is a pipe":      {"files:\n- {path: /etc/motd, source: fifo}\n", "4", "is not a regular file", ""},
		"empty source":          {"files:\n- {path: /etc/motd, source: empty}\n", "4", "is empty", "write content"},

		"unit without source":    {"systemdUnits:\n- name: a.service\n", "4", "unit number 1 has no source", "add source"},
		"unit of another type":   {"systemdUnits:\n- source: motd\n", "4", `unit "motd" is not of a supported type`, ".service, .socket, .timer"},
		"unit for swap":          {"systemdUnits:\n- {source: exporter.service, name: dev-sda.swap}\n", "4", `unit "dev-sda.swap" is not of a supported type`, ""},
		"unit by a path":         {"systemdUnits:\n- {source: exporter.service, name: ../a.service}\n", "4", `"../a.service" is not a unit's name`, "letters"},
		"unit template":          {"systemdUnits:\n- source: worker@.service\n", "4", `unit "worker@.service" is a template`, "worker@1.service"},
		"unit without [Install]": {"systemdUnits:\n- source: oneshot.service\n", "4", "has no [Install] section", "WantedBy=multi-user.target"},
		"Airlift's unit":         {"systemdUnits:\n- {source: exporter.service, name: kubelet.service}\n", "4", `path "/etc/systemd/system/kubelet.service" is not for the site's files`, "belongs to Airlift"},
		"unit and file":          {"files:\n- {path: /etc/systemd/system/exporter.service, source: motd}\nsystemdUnits:\n- source: exporter.service\n", "6", "is written twice, first at line 4", ""},
	} {
		text := head + c.text
		switch name {
		case "other apiVersion":
			text = strings.Replace(head, "v1", "v2", 1)
		case "other kind":
			text = strings.Replace(head, "Bundle", "Cluster", 1)
		case "no kind":
			text = "apiVersion: airlift/v1\n"
		case "empty file":
			text = "# nothing\n"
		}
		_, err := read(t, dir, text)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		want := filepath.Join(dir, "bundle.yaml:"+c.line+": ")
		if fault.ExitCode(err) != fault.Usage || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s…%s", name, err, want, c.want)
		}
		if hint := fault.Hint(err); hint == "" || !strings.Contains(hint, c.hint) {
			t.Errorf("%s: hint %q, want %q", name, hint, c.hint)
		}
	}
}

// JSON needs no separator between two documents.
func TestSecondDocumentOfJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bundle.json")
	text := "{\"apiVersion\": \"airlift/v1\",\n\"kind\": \"Bundle\"}\n{\"kind\": \"Bundle\"}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sitefile.Read(file, func(string) bool { return false }); err == nil || !strings.Contains(err.Error(), "bundle.json:3: the file has a second document") {
		t.Errorf("%v", err)
	}
}

// All problems are reported at once, in the file's order.
func TestAllProblemsAtOnce(t *testing.T) {
	_, err := read(t, directory(t), head+"files:\n- {path: etc/motd, source: motd, mode: 9}\ncni: calico\n")
	if err == nil || !strings.Contains(err.Error(), "has 3 errors:\n") {
		t.Fatal(err)
	}
	at := -1
	for _, want := range []string{`bundle.yaml:4: mode "9"`, "(write the permissions", `bundle.yaml:4: path "etc/motd"`, `bundle.yaml:5: cni "calico"`} {
		next := strings.Index(err.Error(), want)
		if next <= at {
			t.Errorf("%q is missing or out of order in\n%v", want, err)
		}
		at = next
	}
}

// A value that a flag replaces is not checked.
func TestOverridden(t *testing.T) {
	text := head + "kubernetesVersion: v1.99.0\narchitectures: [riscv64]\ncni: calico\ncompression: most\n"
	if _, err := read(t, directory(t), text, "kubernetesVersion", "architectures", "cni", "compression"); err != nil {
		t.Error(err)
	}
	if _, err := read(t, directory(t), text, "architectures", "cni", "compression"); err == nil {
		t.Error("the version was not checked")
	}
}

// The paths of Airlift, kubeadm, the kubelet, containerd and etcd equal the installer's paths.
func TestOwnedPaths(t *testing.T) {
	paths := []string{
		config.KubernetesDir + "/admin.conf", config.ManifestsDir + "/etcd.yaml", config.CertificatesDir + "/ca.key",
		config.KubeletConfigFile, config.KubeletFlagsFile, config.EtcdDataDir + "/member", config.ContainerdSocket,
		config.CNIConfDir + "/10-flannel.conflist",
		render.KubeletUnitPath, render.KubeletDropInPath, render.ContainerdUnitPath, render.ContainerdConfigPath, render.CrictlConfigPath,
		ledger.StateDir, ledger.StateDir + "/ledger.json", host.CommandPath,
		"/etc/modules-load.d/airlift.conf", "/etc/sysctl.d/99-airlift.conf", "/etc/modules-load.d/airlift-next.conf", "/etc/sysctl.d/70-airlift-next.conf",
		"/etc/systemd/system/airlift-rshared.service", "/etc/systemd/system/airlift-service-route.service",
		"/etc/systemd/system/airlift-certs-renew.timer", "/etc/systemd/system/airlift-backup.service", "/etc/airlift-backup-recipients",
		"/etc/systemd/system/timers.target.wants/airlift-backup.timer", "/etc/systemd/system/multi-user.target.wants/kubelet.service",
		host.UpgradeBackups, host.UpgradeBackups + "/x.tar", "/etc/airlift/x", "/etc/site/.airlift-motd", "/etc/motd.airlift-saved", "/var/log/pods/x",
		"/var/lib/containerd/x", "/proc/x", "/sys/x", "/dev/x", "/run/x", "/var/run/x", "/var/lib/kubelet", "/etc/kubernetes",
		"/usr/local/bin/kubelet", "/usr/local/bin/kubectl", "/usr/local/bin/containerd", "/usr/local/bin/crictl", "/usr/local/bin/ctr",
		"/usr/local/bin/containerd-shim-runc-v2", "/usr/local/sbin/runc",
		"/etc/containerd/config.toml/x",
		"/etc", "/usr/local/bin", "/opt/cni/bin", "/etc/systemd/system", "/etc/systemd/system/kubelet.service.d", "/var/lib",
	}
	c, err := release.For("v1.29.15", "amd64", "none", release.Versions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range c.Binaries {
		if b.Contents.Entry != "" {
			paths = append(paths, "/usr/local/"+b.Contents.Entry)
		}
	}
	dir := directory(t)
	for _, p := range paths {
		_, err := read(t, dir, head+"files:\n- {path: "+p+", source: motd}\n")
		if err == nil || !strings.Contains(err.Error(), "is not for the site's files") || !strings.Contains(fault.Hint(err), "choose another path: ") {
			t.Errorf("%s: %v", p, err)
		}
	}
	for _, p := range []string{"/etc/kubernetes-site", "/etc/containerd/conf.d/site.toml", "/etc/systemd/system/kubelet.service.d/20-site.conf", "/usr/local/bin/mine", "/opt/cni/bin/multus", "/etc/runner", "/etc/sysctl.d/90-site.conf", "/var/lib/kubelets", "/etc/systemd/system/airlift-backup.timer.d/site.conf", "/etc/systemd/system/multi-user.target.wants/site.service"} {
		if _, err := read(t, dir, head+"files:\n- {path: "+p+", source: motd}\n"); err != nil {
			t.Error(err)
		}
	}
}

func TestFileThatCannotBeRead(t *testing.T) {
	_, err := sitefile.Read(filepath.Join(t.TempDir(), "bundle.yaml"), func(string) bool { return false })
	if fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), "bundle init") {
		t.Errorf("%v: %s", err, fault.Hint(err))
	}
	if _, err := read(t, directory(t), head+strings.Repeat("# long\n", 1<<20)); err == nil || !strings.Contains(err.Error(), "is larger than 4 MiB") {
		t.Error(err)
	}
}
