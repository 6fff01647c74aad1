package runtimecheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"airlift/images/store"
	"airlift/scripts/fixtures/docs"
	"airlift/scripts/fixtures/rig"
	_ "airlift/scripts/fixtures/seed"
)

// root has the values of Airlift's own file, with the directory of a test in place of /etc/containerd.
const root = `version = 3
imports = ['/etc/containerd/conf.d/*.toml']
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = '/etc/containerd/certs.d'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'registry.k8s.io/pause:3.10.1'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['/opt/cni/bin']
  conf_dir = '/etc/cni/net.d'
[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = 'runc'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = true
`

// toolkit is the file that NVIDIA's container toolkit wrote for containerd 1.x (nvidia-container-toolkit#1222): the tables of the
// CRI are copied, with the values of another host.
const toolkit = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.8"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "nvidia"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
  BinaryName = "/usr/bin/nvidia-container-runtime"
`

// gpu is the recipe of docs/gpu.md.
var gpu = recipe()

func recipe() string {
	pages, err := docs.Read("../..")
	if err != nil {
		panic(err)
	}
	for _, p := range pages {
		for _, b := range p.Blocks {
			if b.File == "/etc/containerd/conf.d/50-nvidia.toml" {
				return b.Text
			}
		}
	}
	panic("docs/gpu.md has no file for containerd")
}

func containerd(t testing.TB) Binary { return Binary{Path: rig.Component(t, "v1.29.15", "containerd")} }

// host returns files of a host, of which conf.d has those without a directory.
func host(files map[string]string) fstest.MapFS {
	h := fstest.MapFS{"etc/containerd/config.toml": {Data: []byte(root)}, "usr/bin/nvidia-container-runtime": {Mode: 0o755}}
	for name, text := range files {
		if !strings.Contains(name, "/") {
			name = "etc/containerd/conf.d/" + name
		}
		h[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return h
}

// TestRecipeForGPUs: with the file of docs/gpu.md, containerd has the handler, and what it has without it stays. It reads files of CDI from the
// directories of the page without being configured.
func TestRecipeForGPUs(t *testing.T) {
	c := containerd(t)
	effective := func(files map[string]string) Effective {
		t.Helper()
		texts, err := store.ReadConfigTexts(host(files), "/etc/containerd/config.toml")
		if err != nil {
			t.Fatal(err)
		}
		e, err := c.Effective(t.Context(), texts)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	before, after := effective(nil), effective(map[string]string{"50-nvidia.toml": gpu})
	before.Runtimes["nvidia"] = Runtime{Type: runcType, SystemdCgroup: true, Binary: "/usr/bin/nvidia-container-runtime"}
	if !reflect.DeepEqual(after, before) {
		t.Errorf("%+v\nwant %+v", after, before)
	}
	out, err := exec.Command(c.Path, "config", "default").Output()
	if err != nil || !regexp.MustCompile(`cdi_spec_dirs = \['/etc/cdi', '/var/run/cdi'\]`).Match(out) || strings.Contains(string(out), "enable_cdi") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestProblems shows what each kind of file of other software does to a node, as the real containerd sees it.
func TestProblems(t *testing.T) {
	c := containerd(t)
	const dir = "/etc/containerd/conf.d/"
	for name, test := range map[string]struct {
		files map[string]string
		want  map[string][]string // parts of the message, by the file that must be named; "warning" for a warning
	}{
		"none":                        {nil, nil},
		"a runtime for GPUs":          {map[string]string{"50-gpu.toml": gpu}, nil},
		"copied tables of version 2":  {map[string]string{"50-ok.toml": "version = 3\n", "99-nvidia.toml": toolkit}, map[string][]string{dir + "99-nvidia.toml": {`pause image is "registry.k8s.io/pause:3.8"`, `from "/usr/lib/cni"`, "SystemdCgroup is false for the runtime nvidia"}}},
		"a version of the future":     {map[string]string{"a.toml": "version = 5\n"}, map[string][]string{dir + "a.toml": {"does not start", "equal to or less than `4`"}}},
		"no TOML":                     {map[string]string{"a.toml": "version = = 3\n"}, map[string][]string{dir + "a.toml": {"does not start"}}},
		"another type":                {map[string]string{"a.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nrestrict_oom_score_adj = 'no'\n"}, map[string][]string{dir + "a.toml": {"does not start"}}},
		"Docker's file":               {map[string]string{"a.toml": "disabled_plugins = ['cri']\n"}, map[string][]string{dir + "a.toml": {"disables the CRI plugin"}}},
		"the socket by a link":        {map[string]string{"a.toml": "version = 2\n[grpc]\naddress = '/var/run/containerd/containerd.sock'\n"}, nil},
		"another socket":              {map[string]string{"a.toml": "version = 2\n[grpc]\naddress = '/run/other.sock'\n"}, map[string][]string{dir + "a.toml": {`socket is "/run/other.sock"`}}},
		"another directory":           {map[string]string{"a.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/etc/other'\n"}, map[string][]string{dir + "a.toml": {`read from "/etc/other"`}}},
		"one more directory":          {map[string]string{"a.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/usr/lib/cni', '/opt/cni/bin']\n"}, nil},
		"registries in the file":      {map[string]string{"a.toml": "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.registry.mirrors.'docker.io']\nendpoint = ['https://mirror.example']\n"}, map[string][]string{dir + "a.toml": {"registry.mirrors of docker.io"}}},
		"another path of registries":  {map[string]string{"a.toml": "version = 3\n[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = '/etc/other'\n"}, map[string][]string{dir + "a.toml": {`config_path of the registries is "/etc/other"`}}},
		"OOM scores":                  {map[string]string{"a.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nrestrict_oom_score_adj = false\n"}, map[string][]string{dir + "a.toml": {"restrict_oom_score_adj is false"}}},
		"cgroup driver":               {map[string]string{"a.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\nSystemdCgroup = false\n"}, map[string][]string{dir + "a.toml": {"SystemdCgroup is false for the runtime runc"}}},
		"no default runtime":          {map[string]string{"a.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'nvidia'\n"}, map[string][]string{dir + "a.toml": {"there is no such runtime"}}},
		"two files, one default":      {map[string]string{"50-gpu.toml": gpu, "60.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'nvidia'\n"}, nil},
		"a runtime that is missing":   {map[string]string{"a.toml": strings.ReplaceAll(gpu, "/usr/bin/nvidia", "/opt/nvidia")}, map[string][]string{dir + "a.toml": {"warning", "/opt/nvidia-container-runtime, which does not exist"}}},
		"another driver of a runtime": {map[string]string{"a.toml": strings.ReplaceAll(gpu, "= true", "= false")}, map[string][]string{dir + "a.toml": {"warning", "SystemdCgroup is false for the runtime nvidia"}}},
		"a later file repairs it":     {map[string]string{"a.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/etc/other'\n", "b.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/etc/cni/net.d'\n"}, nil},
		"two files, one problem each": {map[string]string{"a.toml": "disabled_plugins = []\n[grpc]\naddress = '/run/other.sock'\n", "b.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/etc/other'\n"}, map[string][]string{dir + "a.toml": {"socket"}, dir + "b.toml": {"/etc/other"}}},
		"a missing import":            {map[string]string{"a.toml": "version = 3\nimports = ['none.toml']\n"}, map[string][]string{dir + "none.toml": {"warning", "does not exist"}}},
		"a folder that is not read":   {map[string]string{"etc/containerd/config.d/99-nvidia.toml": toolkit, "etc/containerd/certs.d/_default/hosts.toml": "", "etc/containerd/certs.d/x.toml": ""}, map[string][]string{"/etc/containerd/config.d/99-nvidia.toml": {"warning", "does not read this file"}}},
		"imported by another file":    {map[string]string{"a.toml": "version = 3\nimports = ['../more/*.toml']\n", "etc/containerd/more/b.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/etc/other'\n"}, map[string][]string{"/etc/containerd/more/b.toml": {"/etc/other"}}},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := Check{Open: open(c), Files: host(test.files), Config: "/etc/containerd/config.toml", Written: true}.Problems(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]Problem{}
			for _, p := range list {
				found[p.File] = p
			}
			if is, want := slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(test.want)); !slices.Equal(is, want) || len(found) != len(list) {
				t.Fatalf("%+v; the files to name are %q", list, want)
			}
			for file, parts := range test.want {
				p := found[file]
				if warns := slices.Contains(parts, "warning"); p.Warning != warns {
					t.Errorf("%+v: a warning is %v", p, warns)
				}
				for _, part := range parts {
					if part != "warning" && !strings.Contains(p.Message, part) {
						t.Errorf("%q does not have %q", p.Message, part)
					}
				}
				if strings.Contains(p.Message, "/proc/") || p.Fix == "" {
					t.Errorf("%+v", p)
				}
			}
		})
	}
}

// TestSnapshotter: another snapshotter has none of the images that were imported.
func TestSnapshotter(t *testing.T) {
	c := containerd(t)
	const file = "/etc/containerd/conf.d/a.toml"
	native := map[string]string{"a.toml": "version = 3\n[plugins.'io.containerd.cri.v1.images']\nsnapshotter = 'native'\n"}
	for running, want := range map[string]string{"overlayfs": `the snapshotter is "native", and the images of this node are unpacked in overlayfs`, "native": "", "": ""} {
		list, err := Check{Open: open(c), Files: host(native), Config: "/etc/containerd/config.toml", Written: true, Adjust: func(n *Need) { n.Snapshotter = running }}.Problems(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want == "" && len(list) > 0 || want != "" && (len(list) != 1 || list[0].File != file || list[0].Warning || !strings.Contains(list[0].Message, want)) {
			t.Errorf("images are in %q: %+v", running, list)
		}
	}
	kata := map[string]string{"a.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata]\nruntime_type = 'io.containerd.kata.v2'\nsnapshotter = 'nydus'\n"}
	list, err := Check{Open: open(c), Files: host(kata), Config: "/etc/containerd/config.toml", Written: true, Adjust: func(n *Need) { n.Snapshotter = "overlayfs" }}.Problems(t.Context())
	if want := `the snapshotter of the runtime kata is "nydus", and the images of this node are unpacked in overlayfs: its pods do not start`; err != nil || len(list) != 1 || !list[0].Warning || !strings.Contains(list[0].Message, want) {
		t.Errorf("a runtime with a snapshotter: %+v, %v", list, err)
	}
	if e, err := parse([]byte("[plugins.'io.containerd.grpc.v1.cri'.containerd]\nsnapshotter = 'btrfs'\n")); err != nil || e.Snapshotter != "btrfs" { // up to 1.7
		t.Errorf("%+v, %v", e, err)
	}
}

// old is root for containerd 1.x.
const old = `version = 2
imports = ['/etc/containerd/conf.d/*.toml']
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.8"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = true
`

// oldRuntime adds a runtime to old, as toolkits do.
const oldRuntime = `version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
  SystemdCgroup = true
`

// TestExisting checks the containerd of a host, whose node needs what its kubelet and its pods have. 1.x replaces the whole table of
// the CRI by that of an imported file (containerd#5837), 2.x merges both.
func TestExisting(t *testing.T) {
	for name, c := range map[string]Binary{"1.x": debian(t), "2.x": containerd(t)} {
		t.Run(name, func(t *testing.T) {
			need := Need{Socket: "/run/containerd/containerd.sock", CgroupDriver: "systemd", CNIBinDirs: []string{"/usr/lib/cni"}, CNIConfDir: "/etc/cni/net.d", HasImage: func(name string) bool { return name == "registry.k8s.io/pause:3.8" }}
			files := host(map[string]string{"etc/containerd/config.toml": old})
			check := Check{Open: open(c), Files: files, Config: "/etc/containerd/config.toml", Need: &need}
			problems := func() []Problem {
				t.Helper()
				list, err := check.Problems(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return list
			}
			if list := problems(); len(list) != 0 {
				t.Errorf("%+v", list)
			}
			const added = "/etc/containerd/conf.d/99-nvidia.toml"
			files[added[1:]] = &fstest.MapFile{Data: []byte(oldRuntime)}
			switch list := problems(); {
			case name == "2.x" && len(list) != 0:
				t.Errorf("%+v", list)
			case name == "1.x" && (len(list) != 1 || list[0].File != added || list[0].Warning || !strings.Contains(list[0].Message, "pause image") || !strings.Contains(list[0].Message, "CNI plugins")):
				t.Errorf("%+v: the file replaces the table", list)
			}
			files[added[1:]] = &fstest.MapFile{Data: []byte(gpu)} // of version 3
			switch list := problems(); {
			case name == "2.x" && len(list) != 0:
				t.Errorf("%+v", list)
			case name == "1.x" && (len(list) != 1 || list[0].File != added || !list[0].Warning || !strings.Contains(list[0].Message, "has no runtime nvidia")):
				t.Errorf("%+v: 1.x does not know the tables of version 3", list)
			}
			delete(files, added[1:])
			need.CgroupDriver = "cgroupfs"
			if list := problems(); len(list) != 1 || list[0].Warning || list[0].File != check.Config || !strings.Contains(list[0].Message, "for the runtime runc") {
				t.Errorf("%+v: the file itself has another cgroup driver", list)
			}
		})
	}
}

func open(b Binary) func(context.Context) (Binary, error) {
	return func(context.Context) (Binary, error) { return b, nil }
}

func debian(t testing.TB) Binary {
	return Binary{Path: filepath.Join(rig.DebianContainerd(t)[0], "containerd")}
}

// TestUnlinked runs a binary that is not installed.
func TestUnlinked(t *testing.T) {
	data, err := os.ReadFile(containerd(t).Path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Executable(data)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	e, err := b.Effective(t.Context(), []store.ConfigText{{Path: "/etc/containerd/config.toml", Data: []byte(root)}})
	if err != nil || e.SandboxImage != "registry.k8s.io/pause:3.10.1" {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestEffective compares what containerd makes of copies in memory with what it makes of the same files on the disk.
func TestEffective(t *testing.T) {
	t.Run("1.x", func(t *testing.T) { compareWithFiles(t, debian(t), old) })
	t.Run("2.x", func(t *testing.T) { compareWithFiles(t, containerd(t), root) })
}

func compareWithFiles(t *testing.T, c Binary, root string) {
	dir := t.TempDir()
	values := map[string][]string{
		"sandbox_image = %q": {"a/pause:1", "b/pause:2"}, "restrict_oom_score_adj = %v": {"true", "false"},
		"cni.bin_dir = %q": {"/opt/cni/bin", "/usr/lib/cni"}, "cni.bin_dirs = [%q]": {"/opt/cni/bin", "/x"}, "cni.conf_dir = %q": {"/etc/cni/net.d", "/y"},
		"containerd.default_runtime_name = %q": {"runc", "nvidia"}, "containerd.runtimes.nvidia.runtime_type = %q": {"io.containerd.runc.v2", "other"},
		"containerd.runtimes.runc.options.SystemdCgroup = %v": {"true", "false"}, "registry.config_path = %q": {"/a:/b", "/etc/containerd/certs.d"},
		"registry.mirrors.'docker.io'.endpoint = [%q]": {"https://x.example"}, "pinned_images.sandbox = %q": {"c/pause:3"},
	}
	keys := slices.Sorted(maps.Keys(values))
	plugins := []string{"cri", plugin1, imagesPlugin, runtimePlugin}
	file := rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		if v := rapid.IntRange(0, 5).Draw(t, "version"); v > 0 {
			fmt.Fprintf(&b, "version = %d\n", v)
		}
		switch rapid.IntRange(0, 9).Draw(t, "more") {
		case 0:
			b.WriteString("disabled_plugins = ['cri']\n")
		case 1:
			b.WriteString("disabled_plugins = ['io.containerd.grpc.v1.cri']\n")
		case 2:
			b.WriteString("imports = ['more.toml']\n")
		case 3:
			b.WriteString("]\n")
		}
		if rapid.Bool().Draw(t, "grpc") {
			b.WriteString("[grpc]\naddress = '/run/x.sock'\n")
		}
		list := rapid.SliceOfNDistinct(rapid.SampledFrom(plugins), 0, 2, rapid.ID[string]).Draw(t, "plugins")
		if slices.Contains(list, "cri") { // with both names of it, containerd takes one of them at random
			list = slices.DeleteFunc(list, func(s string) bool { return s == plugin1 })
		}
		for _, plugin := range list {
			fmt.Fprintf(&b, "[plugins.'%s']\n", plugin)
			for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 0, 4, rapid.ID[string]).Draw(t, "keys") {
				value := rapid.SampledFrom(values[key]).Draw(t, "value")
				fmt.Fprintf(&b, key+"\n", value)
			}
		}
		return b.String()
	})
	refused, ok := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		_ = os.RemoveAll(dir)
		write := func(name, text string) {
			name = filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(path.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		write("config.toml", strings.ReplaceAll(root, "/etc/containerd/conf.d", dir+"/conf.d"))
		for i := range rapid.IntRange(0, 3).Draw(t, "files") {
			write(fmt.Sprintf("conf.d/%d.toml", i), file.Draw(t, "file"))
		}
		if rapid.Bool().Draw(t, "more.toml") {
			write("conf.d/more.toml", file.Draw(t, "more"))
		}
		config := filepath.Join(dir, "config.toml")
		out, failed := exec.Command(c.Path, "--config", config, "config", "dump").Output()
		texts, err := store.ReadConfigTexts(os.DirFS("/"), config)
		if bad := (*store.BadConfigError)(nil); errors.As(err, &bad) {
			if refused++; failed == nil {
				t.Fatalf("containerd reads %s: %v", bad.Path, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		is, err := c.Effective(t.Context(), texts)
		if failed != nil {
			if refused++; !errors.As(err, new(*RefusedError)) {
				t.Fatalf("containerd refuses the files, and not the copies: %v", err)
			}
			return
		}
		ok++
		want, parseErr := parse(out)
		if err != nil || parseErr != nil || !reflect.DeepEqual(is, want) {
			t.Fatalf("%v, %v\n%+v\non the disk:\n%+v", err, parseErr, is, want)
		}
	})
	if refused == 0 || ok == 0 {
		t.Errorf("containerd refused %d configurations and accepted %d", refused, ok)
	}
	t.Logf("containerd refused %d configurations and accepted %d", refused, ok)
}
