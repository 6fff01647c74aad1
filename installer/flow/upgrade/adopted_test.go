package upgrade

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"airlift/bundle"
	"airlift/installer/adoption"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/render"
	"airlift/installer/revision"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	_ "airlift/scripts/fixtures/seed"
	"airlift/scripts/fixtures/testbundle"
	"airlift/scripts/fixtures/testhost"
)

// runningKubelet is a node whose kubelet runs with flags, and the files of its flags.
func runningKubelet(t testing.TB, h *host.Host, file, own string, running []string) *adoption.CarryOver {
	t.Helper()
	for path, text := range map[string]string{config.KubeletFlagsFile: file, preflight.DefaultKubelet: own} {
		if err := os.MkdirAll(filepath.Dir(h.Path(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.Path(path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &adoption.CarryOver{Kubelet: &ledger.AdoptedKubelet{}, Input: adoption.Input{Root: os.DirFS(h.Path("/")), Kubelet: adoption.Process{PID: 1, Args: running}}}
}

// TestCarryFlags: the new kubelet has each flag that the running one has, and none that it does not know.
func TestCarryFlags(t *testing.T) {
	const unit = "--bootstrap-kubeconfig=/a --kubeconfig=/b --config=/c"
	for name, c := range map[string]struct {
		file    string // KUBELET_KUBEADM_ARGS and more
		own     string // KUBELET_EXTRA_ARGS
		running string
		version string
		want    string // "" if the file stays
		notes   string
		refused string
	}{
		"kubeadm": {
			`KUBELET_KUBEADM_ARGS="--node-ip=10.1.2.3 --pod-infra-container-image=p:3.9"`, "--v=2", unit + " --node-ip=10.1.2.3 --pod-infra-container-image=p:3.9 --v=2", "v1.30.4", "", "", ""},
		"kubeadm, a version without the flag": {
			"KUBELET_KUBEADM_ARGS=\"--node-ip=10.1.2.3 --pod-infra-container-image=p:3.9\"\n", "", unit + " --node-ip=10.1.2.3 --pod-infra-container-image=p:3.9", "v1.35.6",
			"KUBELET_KUBEADM_ARGS=\"--node-ip=10.1.2.3\"\n", "v1.35.6 does not have: --pod-infra-container-image", ""},
		"KubeKey's drop-in": {
			`KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock"`, "",
			unit + " --container-runtime-endpoint=unix:///run/containerd/containerd.sock --node-ip=10.1.2.3 --hostname-override=n1 --network-plugin=cni", "v1.30.4",
			"KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock --node-ip=10.1.2.3 --hostname-override=n1\"\n", "does not have: --network-plugin", ""},
		"another order wins": {
			`KUBELET_KUBEADM_ARGS="--node-ip=10.1.2.3"`, "", unit + " --node-ip=10.1.2.3 --node-ip=10.9.9.9", "v1.30.4",
			"KUBELET_KUBEADM_ARGS=\"--node-ip=10.1.2.3 --node-ip=10.9.9.9\"\n", "the kubelet keeps", ""},
		"given twice":                  {`KUBELET_KUBEADM_ARGS="--v=2"`, "--v=2", unit + " --v=2 --v=2", "v1.30.4", "", "", ""},
		"a unit that reads no file":    {`KUBELET_KUBEADM_ARGS="--v=9"`, "", unit + " --node-ip=10.1.2.3", "v1.30.4", "KUBELET_KUBEADM_ARGS=\"--node-ip=10.1.2.3\"\n", "does not run with a flag in /var/lib/kubelet/kubeadm-flags.env, which is removed: --v", ""},
		"separate words, a single one": {`KUBELET_KUBEADM_ARGS="--node-ip 10.1.2.3"`, "", "--config /c --node-ip 10.1.2.3 -v 4 --seccomp-default", "v1.30.4", "KUBELET_KUBEADM_ARGS=\"--node-ip=10.1.2.3 --v=4 --seccomp-default=true\"\n", "the kubelet keeps", ""},
		"other variables": {
			"HTTP_PROXY=http://p\nKUBELET_KUBEADM_ARGS=--v=1\nNO_PROXY=x", "", unit + " --v=1 --node-ip=10.1.2.3", "v1.30.4",
			"HTTP_PROXY=http://p\nNO_PROXY=x\nKUBELET_KUBEADM_ARGS=\"--v=1 --node-ip=10.1.2.3\"\n", "the kubelet keeps", ""},
		"a space in a value":  {`KUBELET_KUBEADM_ARGS=""`, "", "--node-labels=a b", "v1.30.4", "", "", "cannot be written"},
		"a word that is none": {`KUBELET_KUBEADM_ARGS=""`, "", "stray", "v1.30.4", "", "", "cannot be written"},
		"two lines":           {"KUBELET_KUBEADM_ARGS=--v=1 \\\n --x", "", "--v=1 --node-ip=10.1.2.3", "v1.30.4", "", "", "continues on another line"},
	} {
		t.Run(name, func(t *testing.T) {
			running := strings.Fields(c.running)
			if c.refused == "cannot be written" {
				running = []string{c.running}
			}
			h := adoptedHost(t, ledger.Adoption{})
			a := runningKubelet(t, h, c.file, "KUBELET_EXTRA_ARGS="+c.own, running)
			got, err := a.Flags([]byte(c.file), c.version)
			if c.refused != "" {
				if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), c.refused) || fault.Hint(err) == "" {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || string(got) != c.want || !strings.Contains(strings.Join(a.Notes, "\n"), c.notes) || (len(a.Notes) > 0) != (c.notes != "") {
				t.Errorf("%q, %q, %v", got, a.Notes, err)
			}
		})
	}
	h := adoptedHost(t, ledger.Adoption{})
	a := runningKubelet(t, h, "", "", []string{"--v=2"})
	if got, err := a.Flags(nil, "v1.30.4"); err != nil || string(got) != "KUBELET_KUBEADM_ARGS=\"--v=2\"\n" {
		t.Errorf("without a file: %q, %v", got, err)
	}
	if got, err := (*adoption.CarryOver)(nil).Flags([]byte("x"), "v1.30.4"); err != nil || got != nil {
		t.Errorf("another node: %q, %v", got, err)
	}
}

// The flags that systemd gives to the new kubelet are the running ones that its version has, in any split of them over the
// files.
func TestCarryAnyFlags(t *testing.T) {
	h := adoptedHost(t, ledger.Adoption{})
	pool := []string{"--node-ip=10.1.2.3", "--node-ip=10.1.2.4", "--v=2", "--hostname-override=n1", "--max-pods=110", "--node-labels=a=b", "--node-labels=c=d", "--seccomp-default=true", "--network-plugin=cni", "--pod-infra-container-image=p"}
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(name string) []string { return rapid.SliceOfN(rapid.SampledFrom(pool), 0, 4).Draw(rt, name) }
		file, other, own := draw("file"), draw("other"), draw("own")
		running := slices.Concat(strings.Fields("--config=/c --kubeconfig=/k"), file, other, own)
		before := []byte("KUBELET_KUBEADM_ARGS=\"" + strings.Join(file, " ") + "\"\n")
		after, err := runningKubelet(t, h, string(before), "KUBELET_EXTRA_ARGS=\""+strings.Join(own, " ")+"\"\n", running).Flags(before, "v1.35.6")
		if err != nil {
			rt.Fatal(err)
		}
		if after == nil {
			after = before
		}
		got := slices.Clone(own)
		for _, a := range preflight.KubeletFlags("KUBELET_KUBEADM_ARGS", after) {
			got = append(got, "--"+a.Name+"="+a.Value)
		}
		gone := func(f string) bool {
			return strings.HasPrefix(f, "--network-plugin") || strings.HasPrefix(f, "--pod-infra")
		}
		want := append(slices.DeleteFunc(slices.Concat(file, other), gone), own...)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			rt.Errorf("the kubelet gets %q, want %q", got, want)
		}
	})
}

func TestCarryFields(t *testing.T) {
	const running = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 50\nclusterDNS: [169.254.25.10]\nrotateCertificates: true\nevictionHard: {memory.available: 1Gi}\ncgroupDriver: cgroupfs\nfailSwapOn: false\n"
	const shared = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDNS: [10.96.0.10]\nrotateCertificates: true\n"
	a := &adoption.CarryOver{Kubelet: &ledger.AdoptedKubelet{Config: "/etc/kubernetes/kubelet-config.yaml"}}
	got, err := a.Instance([]byte(running), []byte(shared), []byte("containerRuntimeEndpoint: unix:///run/x\nmaxPods: 7\n"))
	const want = "clusterDNS:\n- 169.254.25.10\ncontainerRuntimeEndpoint: unix:///run/x\nevictionHard:\n  memory.available: 1Gi\nfailSwapOn: false\nmaxPods: 50\n"
	if err != nil || string(got) != want || len(a.Notes) != 1 || !strings.HasSuffix(a.Notes[0], "of /etc/kubernetes/kubelet-config.yaml, in /var/lib/kubelet/instance-config.yaml: clusterDNS, evictionHard, failSwapOn, maxPods") {
		t.Errorf("%s, %q, %v", got, a.Notes, err)
	}
	a = &adoption.CarryOver{Kubelet: &ledger.AdoptedKubelet{}}
	if got, err := a.Instance([]byte(shared), []byte(shared), nil); err != nil || got != nil || len(a.Notes) > 0 {
		t.Errorf("equal: %s, %v", got, err)
	}
	if _, err := a.Instance([]byte("{"), []byte(shared), nil); err == nil {
		t.Error("a damaged file is accepted")
	}
}

func put(t *testing.T, h *host.Host, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.Path(path)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.Path(path), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// adoptedHost returns the host of an adopted worker.
func adoptedHost(t *testing.T, a ledger.Adoption) *host.Host {
	t.Helper()
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	if err := h.Records().Adopt(a); err != nil {
		t.Fatal(err)
	}
	return h
}

// listing are the files of a host with their contents, without Airlift's own.
func listing(t *testing.T, h *host.Host) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(h.Path("/"), func(path string, d os.DirEntry, err error) error {
		name := strings.TrimPrefix(path, strings.TrimSuffix(h.Path("/"), "/"))
		if err != nil || strings.HasPrefix(name, "/run") || strings.HasPrefix(name, ledger.StateDir) {
			return err
		}
		found[name] = "directory"
		if !d.IsDir() {
			data, err := os.ReadFile(path)
			found[name] = string(data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// adoptedLayouts are nodes of other tools.
var adoptedLayouts = map[string]struct {
	files    map[string]string
	binary   string
	args     []string
	config   string
	instance string // what the first upgrade writes
	flags    string
}{
	"a package": {
		files: map[string]string{
			"/usr/bin/kubelet":                                          "old kubelet",
			"/usr/lib/systemd/system/kubelet.service":                   "[Service]\nExecStart=/usr/bin/kubelet\n",
			"/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n",
			"/etc/sysconfig/kubelet":                                    "KUBELET_EXTRA_ARGS=--node-ip=10.1.2.3\n",
			config.KubeletConfigFile:                                    "kind: KubeletConfiguration\nmaxPods: 5\n",
			config.KubeletFlagsFile:                                     "KUBELET_KUBEADM_ARGS=\"--v=2\"\n",
		},
		binary: "/usr/bin/kubelet", args: []string{"--config=" + config.KubeletConfigFile, "--v=2", "--node-ip=10.1.2.3"}, config: config.KubeletConfigFile,
		flags: "KUBELET_KUBEADM_ARGS=\"--v=2 --node-ip=10.1.2.3\"\n",
	},
	"KubeKey": {
		files: map[string]string{
			"/usr/local/bin/kubelet":   "old kubelet",
			render.KubeletUnitPath:     "[Service]\nExecStart=/usr/local/bin/kubelet\n",
			render.KubeletDropInPath:   "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--node-ip=10.1.2.3 --hostname-override=n1\"\n",
			config.KubeletConfigFile:   "kind: KubeletConfiguration\n",
			config.KubeletFlagsFile:    "KUBELET_KUBEADM_ARGS=\"--pod-infra-container-image=p:3.9\"\n",
			"/etc/unrelated/something": "stays",
		},
		binary: "/usr/local/bin/kubelet", args: []string{"--config=" + config.KubeletConfigFile, "--pod-infra-container-image=p:3.9", "--node-ip=10.1.2.3", "--hostname-override=n1"}, config: config.KubeletConfigFile,
		flags: "KUBELET_KUBEADM_ARGS=\"--pod-infra-container-image=p:3.9 --node-ip=10.1.2.3 --hostname-override=n1\"\n",
	},
	"kubespray": {
		files: map[string]string{
			"/usr/local/bin/kubelet":              "old kubelet",
			render.KubeletUnitPath:                "[Unit]\nDescription=Kubernetes Kubelet Server\n[Service]\nEnvironmentFile=-/etc/kubernetes/kubelet.env\nExecStart=/usr/local/bin/kubelet $KUBELET_ARGS\n",
			"/etc/kubernetes/kubelet.env":         "KUBELET_ARGS=\"--config=/etc/kubernetes/kubelet-config.yaml --node-ip=10.1.2.3\"\n",
			"/etc/kubernetes/kubelet-config.yaml": "kind: KubeletConfiguration\nclusterDNS: [169.254.25.10]\n",
			config.KubeletConfigFile:              "kind: KubeletConfiguration\n",
		},
		binary: "/usr/local/bin/kubelet", args: []string{"--config=/etc/kubernetes/kubelet-config.yaml", "--node-ip=10.1.2.3"}, config: "/etc/kubernetes/kubelet-config.yaml",
		instance: "clusterDNS:\n- 169.254.25.10\n", flags: "KUBELET_KUBEADM_ARGS=\"--node-ip=10.1.2.3\"\n",
	},
}

// TestFirstUpgradeOfAnAdoptedKubelet: the new kubelet has what the old one had, undo and reset give each file back as it was
// adopted, and systemd's choice of what starts at boot stays.
func TestFirstUpgradeOfAnAdoptedKubelet(t *testing.T) {
	const version = "v1.30.4"
	m := &bundle.Manifest{FormatVersion: bundle.FormatVersion, Platform: "linux/amd64", KubernetesVersion: version, CNI: "none",
		Entries: []bundle.Entry{
			{Name: "bin/kubelet", Size: 11, SHA256: testbundle.Sum([]byte("new kubelet"))},
			{Name: "bin/runc", Size: 4, SHA256: testbundle.Sum([]byte("runc"))},
			{Name: "cni/bridge", Size: 6, SHA256: testbundle.Sum([]byte("bridge"))},
		},
		Components: []bundle.Component{{Name: "x", Version: "v1.0.0", URL: "https://example.com/x", Checksum: "sha256:" + testbundle.Sum(nil), Entries: []string{"bin/kubelet", "bin/runc", "cni/bridge"}}},
	}
	b := testbundle.Write(t, "bundle", []byte("installer"), m, map[string][]byte{"bin/kubelet": []byte("new kubelet"), "bin/runc": []byte("runc"), "cni/bridge": []byte("bridge")})
	for name, c := range adoptedLayouts {
		t.Run(name, func(t *testing.T) {
			sums := map[string]string{}
			for path, text := range c.files {
				sums[path] = testbundle.Sum([]byte(text))
			}
			h := adoptedHost(t, ledger.Adoption{Maker: name, Kubernetes: "v1.29.15", Files: sums, Kubelet: ledger.AdoptedKubelet{Binary: c.binary, Args: c.args, Config: c.config}})
			for path, text := range c.files {
				put(t, h, path, text)
			}
			before := listing(t, h)
			var printed strings.Builder
			console := &workflow.Console{Out: &printed}
			systemctl := testhost.NewUnits(h, time.Now())

			u := New(b, Options{Node: true}, true, h, console)
			u.Goal.From = "v1.29.15"
			u.Observed = node.Observe(u.Existing)
			cfg := &config.Config{Facts: config.Facts{ResolvConf: "/etc/resolv.conf", CgroupVersion: 2, CgroupDriver: "systemd"}}
			cfg.KubernetesVersion = version
			u.Config = cfg
			u.Stored = &cluster.Stored{FetchedConfig: &cluster.FetchedConfig{Kubelet: []byte("kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nclusterDNS: [10.96.0.10]\n")}}
			var err error
			if u.Adopted, err = adoption.ReadCarryOver(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			if got := u.Binaries(); len(got) != 1 || got[0].Path != "/usr/local/bin/kubelet" {
				t.Errorf("the node gets %+v", got)
			}
			if node.KubeletConfigFile(h) != c.config || node.AdoptedKubelet(h) == nil {
				t.Errorf("the kubelet's configuration is %s", node.KubeletConfigFile(h))
			}
			if err := u.carriedOver(); err == nil || !strings.Contains(fault.Hint(err), "./install upgrade node phase kubelet-config") {
				t.Errorf("the phase kubelet alone: %v, hint %q", err, fault.Hint(err))
			}
			files, err := u.KubeletConfig(t.Context())
			if err == nil {
				err = u.WriteKubeletConfig(t.Context(), files)
			}
			if err == nil {
				err = u.carriedOver()
			}
			if err == nil {
				err = h.Upgrades().PrepareUpgrade("/usr/local/bin/kubelet")
			}
			if err != nil {
				t.Fatal(err)
			}
			staged := host.Binary{Path: host.StagedPath("/usr/local/bin/kubelet"), SHA256: testbundle.Sum([]byte("new kubelet"))}
			if _, err := h.InstallBinary(t.Context(), staged, strings.NewReader("new kubelet")); err != nil {
				t.Fatal(err)
			}
			wants, err := u.kubeletFiles(t.Context())
			if err == nil {
				err = u.install(t.Context(), wants.Binaries)
			}
			if err == nil {
				_, err = u.WriteKept(wants.Files...)
			}
			if err == nil {
				_, err = phases.RestartStale(t.Context(), u.Node, "kubelet.service", true)
			}
			if err == nil {
				err = u.Finish()
			}
			if err != nil {
				t.Fatal(err)
			}
			is := listing(t, h)
			if is["/usr/local/bin/kubelet"] != "new kubelet" || is[render.KubeletDropInPath] != render.KubeletDropIn || is[config.KubeletFlagsFile] != c.flags || is[render.KubeletInstanceConfigPath] != c.instance {
				t.Errorf("after the upgrade: %q", is)
			}
			if c.instance != "" && !strings.Contains(is[config.KubeletConfigFile], "169.254.25.10") {
				t.Errorf("the new configuration: %s", is[config.KubeletConfigFile])
			}
			if strings.Contains(printed.String(), "existed before") || !strings.Contains(printed.String(), "the kubelet keeps the other flags") {
				t.Errorf("printed: %s", printed.String())
			}
			if !slices.Equal(systemctl.Done, []string{"restart kubelet.service"}) || node.AdoptedKubelet(h) != nil || node.KubeletConfigFile(h) != config.KubeletConfigFile {
				t.Errorf("%+v, adopted %+v", systemctl, node.AdoptedKubelet(h))
			}
			if u.Adopted, err = adoption.ReadCarryOver(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			if again, err := u.KubeletConfig(t.Context()); err != nil || slices.ContainsFunc(again.Files, changedFile(t, h)) {
				t.Errorf("a second upgrade would write %q: %v", again.Files, err)
			}

			state, err := revision.Read(h, revision.Upgrade)
			if err != nil {
				t.Fatal(err)
			}
			back, err := revision.UndoOf(node.NewMachine(h, &workflow.Console{Out: io.Discard}), state, nil)
			if err != nil {
				t.Fatal(err)
			}
			systemctl.Since = time.Now().Add(-time.Hour)
			for range 2 {
				if err := back.RestoreFiles(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if stale, err := back.KubeletIsStale(t.Context()); err != nil || !stale {
				t.Errorf("the kubelet of the new version goes on: %v", err)
			}
			if err := revision.Remove(h, revision.Upgrade); err != nil {
				t.Fatal(err)
			}
			same(t, before, listing(t, h), "/etc/systemd/system/kubelet.service.d", "/etc/systemd/system", "/etc/systemd", "/usr/local", "/usr/local/bin")
			if node.AdoptedKubelet(h) == nil || node.KubeletConfigFile(h) != c.config {
				t.Errorf("after undo, the kubelet's configuration is %s", node.KubeletConfigFile(h))
			}
			if kept, err := uninstall.RemoveInstalled(t.Context(), h); err != nil || len(kept) > 0 {
				t.Errorf("%q, %v", kept, err)
			}
			same(t, before, listing(t, h))
		})
	}
}

// changedFile returns whether a file on the host differs.
func changedFile(t *testing.T, h *host.Host) func(f pki.File) bool {
	return func(f pki.File) bool {
		now, err := os.ReadFile(h.Path(f.Path))
		return err != nil || string(now) != string(f.Data)
	}
}

// same compares two listings. Directories in more may be left.
func same(t *testing.T, want, got map[string]string, more ...string) {
	t.Helper()
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s is %q, and was %q", name, got[name], text)
		}
	}
	for name := range got {
		if _, was := want[name]; !was && !slices.Contains(more, name) {
			t.Errorf("%s is left", name)
		}
	}
}
