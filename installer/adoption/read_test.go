package adoption_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"airlift/installer/adoption"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/systemd"
	"airlift/scripts/fixtures/layouts"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testcluster"
)

// hostOf writes a layout to a directory, and opens that as a host.
func hostOf(t *testing.T, l *layouts.Layout) *host.Host {
	t.Helper()
	dir := t.TempDir()
	if err := l.WriteHost(dir); err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	h.ConnectSystemd = l.Systemd
	return h
}

// serve serves a certificate, to clients that have one, and returns the port.
func serve(t *testing.T, cert, key string, version uint16) int {
	t.Helper()
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert, MaxVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// TestRead reads a layout from a directory, a fake API and real TLS servers: the same comes back.
func TestRead(t *testing.T) {
	rig.Tool(t, "dpkg-query")
	l := layouts.KubeKey4(layouts.Options{Version: "v1.36.3", Target: "v1.37.1", Worker: true})
	l.Cluster.Forbidden = nil // the fake API forbids nothing
	h := hostOf(t, l)
	api, _, _ := testcluster.Fake(l.Objects()...)
	in, err := adoption.Read(t.Context(), h, api, "v1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Unread) != 1 || in.Unread[0].What != "the container runtime at /run/containerd/containerd.sock" {
		t.Errorf("unread: %+v", in.Unread)
	}
	if !reflect.DeepEqual(in.Kubelet, l.Kubelet) || in.Containerd.Exe != l.Containerd.Exe {
		t.Errorf("processes: %+v, %+v", in.Kubelet, in.Containerd)
	}
	for name, want := range l.Units {
		if is := in.Units[name]; is.File != want.File || !slices.Equal(is.DropIns, want.DropIns) || is.Enabled != want.Enabled || is.Active != want.Active {
			t.Errorf("%s: %+v, want %+v", name, is, want)
		}
	}
	if len(in.Units) != len(l.Units) {
		t.Errorf("units: %+v", in.Units)
	}
	if in.Cluster == nil || in.Cluster.Node == nil || in.Cluster.ConfigMaps["kube-system/kubeadm-config"] == nil || in.Cluster.Services["kube-system/coredns"] == nil || !slices.Equal(in.Cluster.Nodes, []string{"one"}) {
		t.Errorf("cluster: %+v", in.Cluster)
	}
	in.Unread, in.Runtime = nil, l.Runtime
	if r := adoption.Recognise(in); r.Maker != "KubeKey" || !r.Adoptable() {
		t.Error(show(r))
	}
}

// TestReadControlPlane compares the served certificates, which two servers show in different versions of TLS.
func TestReadControlPlane(t *testing.T) {
	l := base()
	apiserver := serve(t, l.Files["/etc/kubernetes/pki/apiserver.crt"], l.Files["/etc/kubernetes/pki/apiserver.key"], tls.VersionTLS13)
	etcd := serve(t, l.Files["/etc/kubernetes/pki/apiserver.crt"], l.Files["/etc/kubernetes/pki/apiserver.key"], tls.VersionTLS12)
	for file, text := range l.Files {
		if strings.HasPrefix(file, config.ManifestsDir) {
			text = strings.ReplaceAll(text, "advertise-address="+layouts.Address, "advertise-address=127.0.0.1")
			text = strings.ReplaceAll(text, "secure-port=6443", "secure-port="+strconv.Itoa(apiserver))
			l.Files[file] = strings.ReplaceAll(text, "advertise-client-urls=https://"+layouts.Address+":2379", fmt.Sprintf("advertise-client-urls=https://127.0.0.1:%d", etcd))
		}
	}
	h := hostOf(t, l)
	api, _, _ := testcluster.Fake(l.Objects()...)
	in, err := adoption.Read(t.Context(), h, api, "v1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	r := adoption.Recognise(in)
	served := slices.DeleteFunc(slices.Clone(r.Findings), func(f adoption.Finding) bool { return f.Name != "ServedCertificate" })
	if len(in.Served) != 2 || len(served) != 1 || served[0].Where != "/etc/kubernetes/pki/etcd/server.crt" {
		t.Errorf("served %+v; unread %+v; %s", in.Served, in.Unread, show(r))
	}
}

// TestUnread: what cannot be read is a refusal, and never left out.
func TestUnread(t *testing.T) {
	forbid := func(resource string) clienttesting.ReactionFunc {
		return func(a clienttesting.Action) (bool, runtime.Object, error) {
			return a.GetResource().Resource == resource, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
		}
	}
	for title, c := range map[string]struct {
		worker     bool
		forbidden  string
		systemd    error
		noAPI      bool
		want       string // in Unread; "" if nothing
		notRead    string // in Forbidden
		brokenProc bool
	}{
		"a control plane that may not read":       {forbidden: "daemonsets", want: "daemonsets"},
		"a worker that may not read":              {worker: true, forbidden: "daemonsets", notRead: "daemonsets"},
		"a worker that may not read what it must": {worker: true, forbidden: "configmaps", want: "ConfigMap kube-system/kubeadm-config"},
		"a worker without its Node":               {worker: true, forbidden: "nodes", want: "Node one"},
		"no systemd":                              {worker: true, systemd: errors.New("no bus"), want: "systemd"},
		"no API":                                  {worker: true, noAPI: true, want: "the API"},
		"no process":                              {worker: true, brokenProc: true, want: "the process of kubelet.service"},
	} {
		t.Run(title, func(t *testing.T) {
			l := layouts.Kubeadm(layouts.Options{Version: "v1.36.3", Worker: c.worker})
			l.Packages = nil
			h := hostOf(t, l)
			if err := os.RemoveAll(h.Path("/var/lib/dpkg")); err != nil {
				t.Fatal(err)
			}
			if c.brokenProc {
				if err := os.Remove(h.Path("/proc/700/exe")); err != nil {
					t.Fatal(err)
				}
			}
			if c.systemd != nil {
				h.ConnectSystemd = func(context.Context) (systemd.Conn, error) { return nil, c.systemd }
			}
			api, _, _ := testcluster.Fake(l.Objects()...)
			if c.forbidden != "" {
				api.PrependReactor("*", c.forbidden, forbid(c.forbidden))
			}
			var in adoption.Input
			var err error
			if c.noAPI {
				in, err = adoption.Read(t.Context(), h, nil, "v1.37.1")
			} else {
				in, err = adoption.Read(t.Context(), h, api, "v1.37.1")
			}
			if err != nil {
				t.Fatal(err)
			}
			has := slices.ContainsFunc(in.Unread, func(u adoption.Unread) bool { return u.What == c.want && u.Why != "" })
			if has != (c.want != "") {
				t.Errorf("unread: %+v", in.Unread)
			}
			if c.notRead != "" && !slices.Contains(in.Cluster.Forbidden, c.notRead) {
				t.Errorf("forbidden: %q", in.Cluster.Forbidden)
			}
			r := adoption.Recognise(in)
			if refused := slices.ContainsFunc(r.Refusals, func(f adoption.Finding) bool { return f.Name == "Unreadable" && f.Where == c.want }); refused != (c.want != "") {
				t.Error(show(r))
			}
		})
	}
}

// TestPackages asks the real dpkg for the owners of files.
func TestPackages(t *testing.T) {
	rig.Tool(t, "dpkg-query")
	l := base()
	l.Packages["/usr/bin/containerd"] = adoption.Package{Name: "containerd.io", Version: "2.2.1-1~debian", Manager: "dpkg"}
	l.Files["/usr/local/bin/kubectl"] = "kubectl"
	in := adoption.ReadHost(t.Context(), hostOf(t, l))
	if len(in.Unread) > 0 || !reflect.DeepEqual(in.Packages, l.Packages) {
		t.Errorf("packages %+v, unread %+v", in.Packages, in.Unread)
	}
}

// TestLocalDiversion asks the real dpkg for a file that the administrator diverted.
func TestLocalDiversion(t *testing.T) {
	rig.Tool(t, "dpkg-query")
	h := hostOf(t, base())
	if err := os.WriteFile(h.Path("/var/lib/dpkg/diversions"), []byte("/usr/bin/kubelet\n/usr/bin/kubelet.distrib\n:\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	in := adoption.ReadHost(t.Context(), h)
	if p := in.Packages["/usr/bin/kubelet"]; len(in.Unread) > 0 || p.Name != "kubelet" || !strings.Contains(p.String(), "held, diverted)") || in.Packages["/usr/bin/kubectl"].Diverted {
		t.Errorf("packages %+v, unread %+v", in.Packages, in.Unread)
	}
}

// TestRPM asks an rpm that answers as the real one.
func TestRPM(t *testing.T) {
	l := base()
	l.Packages = nil
	h := hostOf(t, l)
	if err := os.RemoveAll(h.Path("/var/lib/dpkg")); err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	script := "#!/bin/sh\nfor last; do :; done\ncase $last in /usr/bin/kubelet) printf 'kubelet\\t1.36.3-150500.1.1\\n';; *) echo \"file $last is not owned by any package\"; exit 1;; esac\n"
	for name, text := range map[string]string{filepath.Join(bin, "rpm"): script, h.Path("/etc/dnf/dnf.conf"): "[main]\nexclude=kernel* kubelet\n"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(h.Path("/var/lib/rpm"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	in := adoption.ReadHost(t.Context(), h)
	want := map[string]adoption.Package{"/usr/bin/kubelet": {Name: "kubelet", Version: "1.36.3-150500.1.1", Manager: "rpm", Held: true}}
	if len(in.Unread) > 0 || !reflect.DeepEqual(in.Packages, want) {
		t.Errorf("packages %+v, unread %+v", in.Packages, in.Unread)
	}
	if err := os.WriteFile(filepath.Join(bin, "rpm"), []byte("#!/bin/sh\necho error: no database >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if in := adoption.ReadHost(t.Context(), h); len(in.Unread) != 1 || !strings.Contains(in.Unread[0].Why, "no database") {
		t.Errorf("unread %+v", in.Unread)
	}
}

func TestRPMHolds(t *testing.T) {
	for text, want := range map[string]struct {
		file string
		held bool
	}{
		"kubelet-0:1.36.3-150500.1.1.*\n":                 {"etc/dnf/plugins/versionlock.list", true},
		"0:kubelet-1.36.3-0.*\n":                          {"etc/yum/pluginconf.d/versionlock.list", true},
		"kubelet-extra-0:1-1.*\n":                         {"etc/dnf/plugins/versionlock.list", false},
		"# kubelet-0:1.36.3-1.*\n":                        {"etc/dnf/plugins/versionlock.list", false},
		"[[packages]]\nname = \"kubelet\"\n":              {"etc/dnf/versionlock.toml", true},
		"[kubernetes]\nexclude=kubelet kubeadm kubectl\n": {"etc/yum.repos.d/kubernetes.repo", true},
		"[main]\nexcludepkgs = kube*,cri-tools\n":         {"etc/dnf/dnf.conf", true},
		"[main]\nexclude=kubeadm\n":                       {"etc/yum.conf", false},
		"[main]\nexclude = kernel*,\n  kubelet\n":         {"etc/dnf/dnf.conf", true},
		"[main]\nexclude=kernel*\nskip=\n  kubelet\n":     {"etc/dnf/dnf.conf", false},
		"[main]\nexcludepkgs=kubelet\n":                   {"etc/dnf/libdnf5.conf.d/10.conf", true},
		"kubelet-2:1.36.3-0.*\n":                          {"etc/dnf/plugins/versionlock.list", true},
		"2:kubelet-1.36.3-0.x86_64\n":                     {"etc/yum/pluginconf.d/versionlock.list", true},
		"kube*-1.36.*\n":                                  {"etc/dnf/plugins/versionlock.list", true},
		"kubelet\n":                                       {"etc/dnf/plugins/versionlock.list", true},
		"!kubelet-0:1.36.3-0.*\n":                         {"etc/dnf/plugins/versionlock.list", false},
		"type: package\nsolvable_name: kubelet\n":         {"etc/zypp/locks", true},
		"type: package\nsolvable_name: kube*\n":           {"etc/zypp/locks", true},
		"type: package\nsolvable_name: kubeadm\n":         {"etc/zypp/locks", false},
	} {
		held, err := adoption.RPMHolds(fstest.MapFS{want.file: {Data: []byte(text)}}, "kubelet")
		if err != nil || held != want.held {
			t.Errorf("%s: %q: %t, %v", want.file, text, held, err)
		}
	}
}

// TestRPMHoldsOfNothing: links to nothing and directories with names of such files hold nothing.
func TestRPMHoldsOfNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "etc/yum.repos.d/old.repo"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/run/none", filepath.Join(dir, "etc/yum.repos.d/redhat.repo")); err != nil {
		t.Fatal(err)
	}
	if held, err := adoption.RPMHolds(os.DirFS(dir), "kubelet"); err != nil || held {
		t.Errorf("%t, %v", held, err)
	}
}

// TestUnitsOfSoundKubelets: the flags that systemd gives to the kubelet are the ones that are read from its unit. Each drop-in stays.
func TestUnitsOfSoundKubelets(t *testing.T) {
	for text, flags := range map[string]string{
		`Environment="KUBELET_EXTRA_ARGS=--node-labels=\"a=b\" --max-pods=50"`:                    "--node-labels=a=b --max-pods=50",
		`Environment='KUBELET_EXTRA_ARGS=--max-pods=50' A=b`:                                      "--max-pods=50",
		"Environment=A=b \\\n# x \\\n; y\n  \"KUBELET_EXTRA_ARGS=--max-pods=50\"":                 "--max-pods=50",
		`Environment="KUBELET_EXTRA_ARGS=--eviction-hard=nodefs.available<10%%"`:                  "--eviction-hard=nodefs.available<10%",
		`Environment="KUBELET_EXTRA_ARGS=--hostname-override=%H"`:                                 "--hostname-override=one",
		`EnvironmentFile=-/etc/kubelet.d/*.env`:                                                   "--max-pods=51",
		"# Environment=KUBELET_EXTRA_ARGS=--v=9 \\\nEnvironment=KUBELET_EXTRA_ARGS=--max-pods=50": "--max-pods=50",
	} {
		l := base()
		l.Files["/etc/kubelet.d/10.env"] = "KUBELET_EXTRA_ARGS=--max-pods=51\n"
		dropIn("20-site.conf", "[Service]\n"+text+"\n")(l)
		l.Restart(strings.Fields(flags)...)
		in := l.Input()
		var got []string
		is, err := in.ExtraFlags()
		for _, a := range is {
			got = append(got, "--"+a.Name+"="+a.Value)
		}
		if err != nil || !slices.Equal(got, strings.Fields(flags)) {
			t.Errorf("%s: %q, %v", text, got, err)
		}
		if r := adoption.Recognise(in); !r.Adoptable() {
			t.Errorf("%s: %s", text, show(r))
		}
	}
}

// TestRootedFiles: links, also absolute ones, lead to files below the root.
func TestRootedFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"etc/a/b": "b", "outside": "outside"} {
		if err := os.MkdirAll(filepath.Join(dir, "root", filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "root", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"abs": "/etc/a/b", "up": "../../../etc/a/b", "etc/rel": "a/b", "dir": "/etc/./a/../a", "chain": "dir/b", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, "root", name)); err != nil {
			t.Fatal(err)
		}
	}
	files := adoption.Rooted(os.DirFS(filepath.Join(dir, "root")))
	for _, name := range []string{"abs", "up", "etc/rel", "dir/b", "chain", "etc/a/b"} {
		if data, err := fs.ReadFile(files, name); err != nil || string(data) != "b" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if _, err := fs.ReadFile(files, "loop"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a loop: %v", err)
	}
	if _, err := fs.ReadFile(files, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if list, err := fs.Glob(files, "dir/*"); err != nil || !slices.Equal(list, []string{"dir/b"}) {
		t.Errorf("glob: %q, %v", list, err)
	}
}
