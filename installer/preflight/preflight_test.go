package preflight

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"airlift/installer/config"
	"airlift/installer/endpoint"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/pki"
	"airlift/installer/registry"
	"airlift/installer/runtimecheck"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/port"
	"airlift/scripts/fixtures/rig"
)

const cgroupsV1 = `25 20 0:22 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
26 20 0:23 / /sys/fs/cgroup/cpuset rw,nosuid - cgroup cgroup rw,cpuset
27 20 0:24 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory
28 20 0:25 / /sys/fs/cgroup/devices rw,nosuid - cgroup cgroup rw,devices
29 20 0:26 / /sys/fs/cgroup/freezer rw,nosuid - cgroup cgroup rw,freezer
30 20 0:27 / /sys/fs/cgroup/pids rw,nosuid - cgroup cgroup rw,pids
31 20 0:28 / /sys/fs/cgroup/systemd ro,nosuid - cgroup cgroup rw,name=systemd
`

// healthy returns a root directory and a target without problems, except for problems of the
// machine that runs the test.
func healthy(t *testing.T) *subject {
	t.Helper()
	root := t.TempDir()
	for path, text := range map[string]string{
		"/proc/sys/net/ipv4/ip_forward":              "0",
		"/proc/sys/net/ipv6/conf/all/forwarding":     "0",
		"/proc/sys/net/ipv6/conf/default/forwarding": "0",
		"/proc/config.gz":                            kernelSettings(t, ""),
		"/proc/sys/vm/overcommit_memory":             "0",
		"/proc/sys/vm/panic_on_oom":                  "0",
		"/proc/sys/kernel/panic":                     "0",
		"/proc/sys/kernel/panic_on_oops":             "1",
		"/proc/sys/kernel/keys/root_maxkeys":         "1000000",
		"/proc/sys/kernel/keys/root_maxbytes":        "25000000",
		"/proc/self/uid_map":                         "         0          0 4294967295\n",
		"/proc/self/mountinfo":                       cgroupsV1,
		"/proc/filesystems":                          "nodev\tproc\nnodev\toverlay\n\text4\n",
		"/sys/fs/cgroup/cgroup.controllers":          "cpuset cpu io memory hugetlb pids\n",
		"/dev/kmsg":                                  "",
		"/bin/mount":                                 "",
		"/bin/umount":                                "",
		"/sbin/iptables":                             "",
		"/sbin/losetup":                              "",
		"/usr/bin/crictl":                            "",
		"/run/systemd/system/x":                      "",
	} {
		write(t, root, path, text)
	}
	c := &config.Config{}
	c.KubernetesVersion = "v1.29.15"
	c.LocalAPIEndpoint = config.APIEndpoint{AdvertiseAddress: "10.1.0.5", BindPort: freePort(t)}
	c.NodeRegistration.Name, c.NodeRegistration.CRISocket = "localhost", "unix:///run/containerd/containerd.sock"
	c.Networking = config.Networking{ServiceSubnet: config.ParseCIDRs("10.96.0.0/12"), PodSubnet: config.ParseCIDRs("10.244.0.0/16")}
	c.Facts = config.Facts{CgroupVersion: 1, NumCPU: 2, MemoryBytes: 2 << 30, Nameservers: []string{"10.1.0.1"}, NodeIP: "10.1.0.5"}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"} {
		t.Setenv(name, "")
	}
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return &subject{Target: Target{Config: c, Role: Init, Root: root}, host: h, now: time.Now, lookup: onlyLocalhost, encrypts: func(context.Context, string) bool { return false },
		run: func(context.Context, string, ...string) ([]byte, error) { return nil, errNoCommand }}
}

// kernelSettings returns a /proc/config.gz with all required options except one.
func kernelSettings(t *testing.T, without string) string {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for _, option := range slices.Concat(kernelNeeds, kernelNeedsV1, kernelNeedsV2) {
		value := "=m"
		if option == without {
			value = "=n"
		}
		_, name, other := strings.Cut(option, "|")
		if !other {
			name = option
		}
		fmt.Fprintln(z, "CONFIG_"+name+value)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.String()
}

func TestKernelVersion(t *testing.T) {
	for _, c := range []struct {
		release    string
		kubernetes int
		errors     bool
		warns      bool
	}{
		{"3.9.1", 29, true, false},
		{"3.10.0-1160.el7.x86_64", 29, false, false},
		{"3.10.0-1160.el7.x86_64", 32, true, false},
		{"4.18.0-553.el8.x86_64", 31, false, false},
		{"4.18.0-553.el8.x86_64", 33, true, false},
		{"4.19.0-27-amd64", 33, false, false},
		{"4.19.0-27-amd64", 34, false, true},
		{"5.4.0", 37, false, false},
		{"5.14.0-427.el9.x86_64", 33, false, false},
		{"5.14.0-427.el9.x86_64", 37, false, true},
		{"5.15.0-100-generic", 37, false, false},
		{"6.18.44", 37, false, false},
		{"10.0.1", 37, false, false},
		{"linux", 29, true, false},
	} {
		found := kernelVersion(c.release, c.kubernetes)
		if got := len(found) > 0 && !found[0].Warning; got != c.errors {
			t.Errorf("%s for 1.%d: %v", c.release, c.kubernetes, found)
		}
		if got := len(found) > 0 && found[0].Warning; got != c.warns {
			t.Errorf("%s for 1.%d: %v", c.release, c.kubernetes, found)
		}
	}
}

// A port is free if it is in use only on another address.
func TestPortOfAnAddress(t *testing.T) {
	s := healthy(t)
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	for address, want := range map[string]int{"127.0.0.1": 0, "127.0.0.2": 1, "": 1} {
		found := s.port(port, "x", config.Arg{Name: "bind-address", Value: address}).run(context.Background())
		if len(found) != want {
			t.Errorf("listening on %q: %v", address, found)
		}
	}
}

// A process that ends while the check looks for it does not use its port any more. The look-up
// reads a pipe here, so that the process ends meanwhile.
func TestPortOfAProcessThatEnds(t *testing.T) {
	s := healthy(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.Root, "/proc/self/net/tcp6", "")
	table := s.Root + "/proc/self/net/tcp"
	remove(t, s, "/proc/self/net/tcp")
	if err := unix.Mkfifo(table, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		f, err := os.OpenFile(table, os.O_WRONLY, 0) // waits for the look-up
		if err == nil {
			l.Close()
			err = f.Close()
		}
		ended <- err
	}()
	if found := s.port(l.Addr().(*net.TCPAddr).Port, "x", config.Arg{Name: "bind-address", Value: "127.0.0.1"}).run(t.Context()); len(found) > 0 {
		t.Errorf("%v", found)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, root, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(root+path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, s *subject, path string) {
	t.Helper()
	if err := os.RemoveAll(s.Root + path); err != nil {
		t.Fatal(err)
	}
}

// onlyLocalhost is a resolver for a host whose /etc/hosts has only localhost.
func onlyLocalhost(_ context.Context, name string) ([]string, error) {
	if name == "localhost" {
		return []string{"127.0.0.1"}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func freePort(t *testing.T) int32 {
	t.Helper()
	ports, err := port.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	return int32(ports[0])
}

// runOne runs the check of that name.
func (s *subject) runOne(t *testing.T, name string) []Problem {
	t.Helper()
	for _, c := range s.checks() {
		if c.name == name {
			return c.run(context.Background())
		}
	}
	t.Fatalf("there is no check %s for %s", name, s.Role)
	return nil
}

// kubeletFlag returns a function that adds a flag of the user to the kubelet's.
func kubeletFlag(name, value string) func(*testing.T, *subject) {
	return func(_ *testing.T, s *subject) {
		s.Config.NodeRegistration.KubeletExtraArgs = []config.Arg{{Name: name, Value: value}}
	}
}

// Configuration that repeats the defaults, and a --cert-dir that kubelet.conf uses
// too.
func TestKubeletSettingsThatAreFollowed(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *subject){
		"cert-dir": kubeletFlag("cert-dir", "/data/pki"),
		"cert-dir, in both places": func(t *testing.T, s *subject) {
			kubeletFlag("cert-dir", "/data/pki")(t, s)
			write(t, s.Root, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--cert-dir=/data/pki/\n")
		},
		"root-dir":                   kubeletFlag("root-dir", "/var/lib/kubelet/"),
		"container-runtime-endpoint": kubeletFlag("container-runtime-endpoint", "/var/run/containerd/containerd.sock"),
		"staticPodPath":              kubeletSetting("staticPodPath: /etc/kubernetes/manifests"),
		"a worker's staticPodPath": func(t *testing.T, s *subject) {
			s.Role = Join
			kubeletSetting("staticPodPath: /etc/pods")(t, s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			change(t, s)
			for _, check := range []string{"KubeletFlags", "KubeletConfiguration"} {
				for _, found := range s.runOne(t, check) {
					if !found.Warning {
						t.Errorf("%s: %s", check, found.Message)
					}
				}
			}
		})
	}
}

func kubeletSetting(line string) func(*testing.T, *subject) {
	return func(_ *testing.T, s *subject) {
		s.Kubelet = []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + line + "\n")
	}
}

// The checks that depend on the cluster can run alone.
// --ignore-preflight-errors applies to them too.
func TestKubeletAlone(t *testing.T) {
	s := healthy(t)
	s.Config.Facts.NumCPU = 1 // a problem that Discovered does not check
	kubeletSetting("maxPods: -1")(t, s)
	report, err := Discovered(context.Background(), s.Target, nil)
	if fault.ExitCode(err) != fault.Preflight || len(report.Errors) != 1 || report.Errors[0].Name != "KubeletConfiguration" {
		t.Errorf("%+v %v", report, err)
	}
	if report, err := Discovered(context.Background(), s.Target, []string{"kubeletconfiguration"}); err != nil || len(report.Warnings) != 1 {
		t.Errorf("ignored: %+v %v", report, err)
	}
}

// A joining host knows the API server's flags and the kubelet's configuration only after discovery.
func TestImportedImagesAlone(t *testing.T) {
	s := healthy(t)
	s.Role, s.Config.KubernetesVersion = Join, "v1.37.2"
	s.Config.APIServer.ExtraArgs = []config.Arg{{Name: "enable-admission-plugins", Value: ",AlwaysPullImages", MergeMethod: "append"}}
	kubeletSetting("imagePullCredentialsVerificationPolicy: AlwaysVerify")(t, s)
	report, err := Discovered(context.Background(), s.Target, nil)
	if err != nil || len(report.Warnings) != 2 || report.Warnings[0].Name != "KubeletConfiguration" || report.Warnings[1].Name != "APIServerFlags" {
		t.Errorf("%+v %v", report, err)
	}
}

// Swap is accepted if the kubelet's configuration or flags accept it. A joining node may know
// its configuration only after discovery.
func TestSwap(t *testing.T) {
	flag := func(value string) []config.Arg { return []config.Arg{{Name: "fail-swap-on", Value: value}} }
	for name, c := range map[string]struct {
		role    Role
		fails   *bool
		known   bool
		flags   []config.Arg
		own     string // KUBELET_EXTRA_ARGS
		warning bool
		says    string
	}{
		"init":                         {role: Init, known: true, says: "would not start"},
		"accepted":                     {role: Init, known: true, fails: new(false), warning: true, says: "is configured to accept that"},
		"refused":                      {role: Init, known: true, fails: new(true), says: "would not start"},
		"accepted by a flag":           {role: Init, known: true, flags: flag("false"), warning: true, says: "is configured to accept that"},
		"refused by a flag":            {role: Init, known: true, fails: new(false), flags: flag("true"), says: "would not start"},
		"accepted by an administrator": {role: Init, known: true, own: "--fail_swap_on=false", warning: true, says: "is configured to accept that"},
		"a worker before discovery":    {role: Join, warning: true, says: "join checks that when it has found the cluster"},
		"a worker":                     {role: Join, known: true, says: "the cluster's KubeletConfiguration does not accept that"},
		"a worker, accepted":           {role: Join, known: true, fails: new(false), warning: true, says: "is configured to accept that"},
		"a worker, accepted by a flag": {role: Join, flags: flag("false"), warning: true, says: "is configured to accept that"},
	} {
		s := healthy(t)
		s.Role, s.Config.Facts.SwapOn, s.FailSwapOn, s.Config.NodeRegistration.KubeletExtraArgs = c.role, true, c.fails, c.flags
		if c.known {
			s.Kubelet = []byte("kind: KubeletConfiguration\n")
		}
		write(t, s.Root, DefaultKubelet, "KUBELET_EXTRA_ARGS="+c.own+"\n")
		found := s.runOne(t, "Swap")
		if len(found) != 1 || found[0].Warning != c.warning || !strings.Contains(found[0].Message, c.says) {
			t.Errorf("%s: %+v", name, found)
		}
	}
	s := healthy(t)
	s.Config.Facts.SwapOn, s.Role = true, Join
	kubeletSetting("maxPods: 10")(t, s)
	report, err := Discovered(context.Background(), s.Target, nil)
	if fault.ExitCode(err) != fault.Preflight || len(report.Errors) != 1 || report.Errors[0].Name != "Swap" {
		t.Errorf("after discovery: %+v %v", report, err)
	}
}

// A name that resolves passes, and so does an address: it needs no lookup.
func TestControlPlaneEndpoint(t *testing.T) {
	for endpoint, lookups := range map[string]int{"": 0, "10.1.0.9": 0, "10.1.0.9:6443": 0, "[fd00::1]:6443": 0, "k8s.site.example": 1, "k8s.site.example:7443": 1} {
		s := healthy(t)
		asked := 0
		s.lookup = func(_ context.Context, name string) ([]string, error) {
			if asked++; name != "k8s.site.example" {
				t.Errorf("%s: looks up %q", endpoint, name)
			}
			return []string{"10.1.0.9"}, nil
		}
		s.Config.ControlPlaneEndpoint = endpoint
		if found := s.runOne(t, "ControlPlaneEndpoint"); len(found) != 0 || asked != lookups {
			t.Errorf("%q: %v, %d lookups", endpoint, found, asked)
		}
	}

	s := healthy(t)
	s.Config.ControlPlaneEndpoint = "k8s.site.example:7443"
	found := s.runOne(t, "ControlPlaneEndpoint")
	if len(found) != 1 || found[0].Warning || !strings.Contains(found[0].Fix, "echo '10.1.0.5 k8s.site.example' >> /etc/hosts") {
		t.Errorf("%+v", found)
	}
}

// A new cluster does not get the endpoint of one that runs, for example because cluster.yaml has only new control planes. A host that
// joins, and a second run of init, need the API there.
func TestEndpointOfAnotherCluster(t *testing.T) {
	api := httptest.NewTLSServer(nil)
	defer api.Close()
	plain := httptest.NewServer(nil)
	defer plain.Close()
	for _, c := range []struct {
		address string
		role    Role
		rerun   bool
		want    int
	}{
		{api.Listener.Addr().String(), Init, false, 1}, {api.Listener.Addr().String(), Init, true, 0}, {api.Listener.Addr().String(), JoinControlPlane, false, 0},
		{plain.Listener.Addr().String(), Init, false, 0}, {fmt.Sprint("127.0.0.1:", freePort(t)), Init, false, 0},
	} {
		s := healthy(t)
		s.Config.ControlPlaneEndpoint, s.Role, s.Rerun, s.encrypts = c.address, c.role, c.rerun, encrypts
		if found := s.runOne(t, "ControlPlaneEndpoint"); len(found) != c.want {
			t.Errorf("%+v: %+v", c, found)
		}
		for _, check := range s.endpointChecks() { // of a cluster that runs: it is the cluster's own
			if check.name != "ControlPlaneEndpoint" {
				continue
			}
			if found := check.run(t.Context()); len(found) > 0 {
				t.Errorf("a change of the endpoint, %+v: %+v", c, found)
			}
		}
	}
}

func TestEachCheck(t *testing.T) {
	unwritable := func(path string) func(*testing.T, *subject) {
		return func(t *testing.T, s *subject) { remove(t, s, path) }
	}
	for _, c := range []struct {
		check   string
		breaks  func(*testing.T, *subject)
		says    string
		warning bool
	}{
		{check: "NumCPU", breaks: func(_ *testing.T, s *subject) { s.Config.Facts.NumCPU = 1 }, says: "1 CPU"},
		{check: "Mem", breaks: func(_ *testing.T, s *subject) { s.Config.Facts.MemoryBytes = 1 << 30 }, says: "1024 MB"},
		{check: "KubernetesVersion", breaks: func(_ *testing.T, s *subject) { s.Config.KubernetesVersion = "1.29" }, says: `"1.29"`},
		{check: "KubernetesVersion", warning: true, says: "the rules of v1.37 apply",
			breaks: func(_ *testing.T, s *subject) {
				s.Config.KubernetesVersion, s.Config.NearestKnown = "v1.38.0", "v1.37.1"
			}},
		{check: "KubernetesVersion", warning: true, says: "assumed to be as in v1.29.15",
			breaks: func(_ *testing.T, s *subject) {
				s.Role, s.Config.KubernetesVersion, s.Config.NearestKnown = Join, "v1.29.16", "v1.29.15"
			}},
		{check: "FileAvailable--etc-kubernetes-manifests-kube-apiserver.yaml",
			breaks: func(t *testing.T, s *subject) { write(t, s.Root, "/etc/kubernetes/manifests/kube-apiserver.yaml", "") }, says: "already exists"},
		{check: "FileAvailable--etc-kubernetes-manifests-etcd.yaml",
			breaks: func(t *testing.T, s *subject) { write(t, s.Root, "/etc/kubernetes/manifests/etcd.yaml", "") }, says: "already exists"},
		{check: "FileAvailable--etc-kubernetes-kubelet.conf",
			breaks: func(t *testing.T, s *subject) { s.Role = Join; write(t, s.Root, "/etc/kubernetes/kubelet.conf", "") }, says: "already exists"},
		{check: "FileAvailable--etc-kubernetes-pki-ca.crt",
			breaks: func(t *testing.T, s *subject) { s.Role = Join; write(t, s.Root, "/etc/kubernetes/pki/ca.crt", "") }, says: "already exists"},
		{check: "DirAvailable--var-lib-etcd",
			breaks: func(t *testing.T, s *subject) { write(t, s.Root, "/var/lib/etcd/member/wal", "") }, says: "not empty"},
		{check: "HTTPProxy", warning: true,
			breaks: func(t *testing.T, s *subject) { t.Setenv("HTTPS_PROXY", "http://proxy:3128") }, says: "proxy:3128"},
		{check: "HTTPProxy", warning: true,
			breaks: func(t *testing.T, s *subject) { t.Setenv("HTTPS_PROXY", "http://s3cr3t@proxy:3128") }, says: "through the proxy http://proxy:3128"},
		{check: "HTTPProxyCIDR", warning: true,
			breaks: func(t *testing.T, s *subject) { t.Setenv("HTTPS_PROXY", "http://proxy:3128") }, says: "10.96.0.0/12"},
		{check: "ControlPlaneEndpoint", breaks: func(_ *testing.T, s *subject) { s.Config.ControlPlaneEndpoint = "k8s.site.example:6443" },
			says: `"k8s.site.example" cannot be resolved on this host`},
		{check: "ControlPlaneVIP", breaks: func(_ *testing.T, s *subject) { s.Config.Endpoint.VIPs = []string{"fdc3:2a17:9e4b:1::100"} },
			says: "no interface of this host has a subnet with the virtual address fdc3:2a17:9e4b:1::100"},
		{check: "CRI", breaks: func(_ *testing.T, s *subject) {
			s.Runtime = fault.New(fault.Preflight, "the CRI plugin is disabled").Hint("enable it")
		}, says: "plugin is disabled"},
		{check: "ContainerRuntimeVersion", warning: true, breaks: func(_ *testing.T, s *subject) {
			s.RuntimeInUse, s.RuntimeVersion, s.Config.KubernetesVersion = true, "1.6.20~ds1", "v1.37.1"
		}, says: "containerd 1.6.20~ds1"},
		{check: "ContainerRuntimeVersion", breaks: func(_ *testing.T, s *subject) {
			s.RuntimeInUse, s.RuntimeVersion, s.Config.KubernetesVersion, s.Config.NearestKnown = true, "1.7.29", "v1.38.0", ""
		}, says: "containerd 1.7.29 does not report its cgroup driver to the kubelet, which Kubernetes requires since v1.38"},
		{check: "ContainerdFiles", breaks: func(_ *testing.T, s *subject) {
			s.ContainerdFiles = []runtimecheck.Problem{{Message: "/etc/containerd/conf.d/a.toml: the pause image", Fix: "mv a b"}}
		}, says: "conf.d/a.toml"},
		{check: "ContainerdFiles", warning: true, breaks: func(_ *testing.T, s *subject) {
			s.ContainerdFiles = []runtimecheck.Problem{{Message: "/etc/containerd/config.d/a.toml: containerd does not read this file", Fix: "mv a b", Warning: true}}
		}, says: "config.d/a.toml"},
		{check: "GPU", warning: true, breaks: func(t *testing.T, s *subject) {
			write(t, s.Root, "/sys/bus/pci/devices/0000:3b:00.0/vendor", "0x10de\n")
			write(t, s.Root, "/sys/bus/pci/devices/0000:3b:00.0/class", "0x030200\n")
		}, says: "the NVIDIA GPU at 0000:3b:00.0 has no driver"},
		{check: "APIServerFlags", warning: true, breaks: func(_ *testing.T, s *subject) {
			s.Config.APIServer.ExtraArgs = []config.Arg{{Name: "enable-admission-plugins", Value: "NodeRestriction, AlwaysPullImages"}}
		}, says: "AlwaysPullImages makes each pod pull its images, also imported ones"},
		{check: "APIServerFlags", breaks: func(_ *testing.T, s *subject) {
			s.Config.KubernetesVersion, s.Config.APIServer.ExtraArgs = "v1.30.14", []config.Arg{{Name: "enable-admission-plugins", Value: "SecurityContextDeny"}}
		}, says: "kube-apiserver v1.30.14 has no admission plugin SecurityContextDeny"},
		{check: "APIServerFlags", breaks: func(_ *testing.T, s *subject) {
			s.Config.KubernetesVersion, s.Config.APIServer.ExtraArgs = "v1.37.2", []config.Arg{{Name: "runtime-config", Value: "api/alpha=true,scheduling.k8s.io/v1alpha2=true"}}
		}, says: "kube-apiserver v1.37.2 does not know the API scheduling.k8s.io/v1alpha2"},
		{check: "Swap", breaks: func(_ *testing.T, s *subject) { s.Config.Facts.SwapOn = true }, says: "swap is on"},
		{check: "FileExisting-mount", breaks: func(t *testing.T, s *subject) { remove(t, s, "/bin/mount") }, says: "mount"},
		{check: "FileExisting-umount", breaks: func(t *testing.T, s *subject) { remove(t, s, "/bin/umount") }, says: "umount"},
		{check: "FileExisting-losetup", breaks: func(t *testing.T, s *subject) { remove(t, s, "/sbin/losetup") }, says: "the kubelet attaches block volumes with it"},
		{check: "FileExisting-iptables", warning: true, breaks: func(t *testing.T, s *subject) { remove(t, s, "/sbin/iptables") }, says: "iptables"},
		{check: "SystemVerification", breaks: func(t *testing.T, s *subject) {
			write(t, s.Root, "/proc/self/mountinfo", strings.Replace(cgroupsV1, "memory rw,nosuid", "memory ro,nosuid", 1))
		}, says: "/sys/fs/cgroup/memory is mounted read-only"},
		{check: "SystemVerification", breaks: func(t *testing.T, s *subject) {
			write(t, s.Root, "/proc/self/mountinfo", strings.ReplaceAll(cgroupsV1, "cpuset", "other"))
		}, says: "missing cgroup controllers: cpuset"},
		{check: "SystemVerification", breaks: func(t *testing.T, s *subject) {
			s.Config.Facts.CgroupVersion = 2
			write(t, s.Root, "/sys/fs/cgroup/cgroup.controllers", "cpu io pids\n")
		}, says: "missing cgroup controllers: cpuset, memory"},
		{check: "SystemVerification", breaks: func(t *testing.T, s *subject) {
			write(t, s.Root, "/proc/config.gz", kernelSettings(t, "MEMCG"))
		}, says: "the kernel was built without CONFIG_MEMCG"},
		{check: "SystemVerification", breaks: func(t *testing.T, s *subject) { write(t, s.Root, "/proc/config.gz", "x") }, says: "unpacking /proc/config.gz"},
		{check: "SystemVerification", warning: true, breaks: func(t *testing.T, s *subject) { remove(t, s, "/proc/config.gz") }, says: "build configuration is not available"},
		{check: "SystemVerification", warning: true, breaks: func(_ *testing.T, s *subject) { s.Config.KubernetesVersion = "v1.35.6" }, says: "cgroup v1"},
		{check: "Hostname", breaks: func(_ *testing.T, s *subject) { s.Config.NodeRegistration.Name = "a_b" }, says: `"a_b"`},
		{check: "Hostname", warning: true, breaks: func(_ *testing.T, s *subject) { s.Config.NodeRegistration.Name = "nobody.invalid" }, says: "resolved"},
		{check: "FileContent--proc-sys-net-ipv4-ip_forward", breaks: unwritable("/proc/sys/net/ipv4/ip_forward"), says: "ip_forward"},
		{check: "FileContent--proc-sys-net-ipv6-conf-all-forwarding", breaks: func(t *testing.T, s *subject) {
			s.Config.Networking.PodSubnet = config.ParseCIDRs("fd01::/48")
			remove(t, s, "/proc/sys/net/ipv6/conf/all/forwarding")
		}, says: "forwarding"},
		{check: "Systemd", breaks: func(t *testing.T, s *subject) { remove(t, s, "/run/systemd/system") }, says: "not booted with systemd"},
		{check: "UserNamespace", breaks: func(t *testing.T, s *subject) { write(t, s.Root, "/proc/self/uid_map", "0 100000 65536\n") }, says: "user namespace"},
		{check: "NodeAddress", breaks: func(_ *testing.T, s *subject) {
			s.Role, s.Config.Facts.Interface, s.Config.Networking.ServiceSubnet = Join, "eth0", config.ParseCIDRs("10.0.0.0/12")
		}, says: "10.1.0.5 (interface eth0) is in the cluster's range of Service addresses, 10.0.0.0/12"},
		{check: "NodeAddress", breaks: func(_ *testing.T, s *subject) {
			s.Role, s.Config.LocalAPIEndpoint.AdvertiseAddress = JoinControlPlane, "fd00::5"
			s.Config.Networking.ServiceSubnet = config.ParseCIDRs("10.96.0.0/12")
		}, says: "fd00::5, is not IPv4"},
		{check: "CRIPods", breaks: func(_ *testing.T, s *subject) { s.Pods = []string{"default/web", "kube-system/etcd"} }, says: "has 2 pod(s): default/web, kube-system/etcd;"},
		{check: "KernelLog", breaks: func(t *testing.T, s *subject) { remove(t, s, "/dev/kmsg") }, says: "/dev/kmsg"},
		{check: "KernelTunables", breaks: unwritable("/proc/sys/vm/overcommit_memory"), says: "overcommit_memory"},
		{check: "Overlayfs", breaks: func(t *testing.T, s *subject) { write(t, s.Root, "/proc/filesystems", "nodev\tproc\n") }, says: "overlayfs"},
		{check: "DiskSpace", breaks: func(_ *testing.T, s *subject) {
			s.Disk = []Space{{Path: "/var/lib", Bytes: 1 << 60}, {Path: "/usr/local", Bytes: 1 << 60}}
		}, says: "MB are needed: 1152921504607 MB in /var/lib, 1152921504607 MB in /usr/local"},
		{check: "DiskSpace", warning: true, breaks: func(_ *testing.T, s *subject) {
			var st unix.Statfs_t
			if err := unix.Statfs(s.Root, &st); err != nil {
				panic(err)
			}
			free, total := st.Bavail*uint64(st.Bsize), st.Blocks*uint64(st.Bsize)
			s.Disk = []Space{{Path: "/var/lib", Bytes: free - min(free, total)/20, KeepFree: 15}} // 5 % of either will be left: less than KeepFree
		}, says: "the kubelet evicts pods"},
		{check: "DirOwner", breaks: func(t *testing.T, s *subject) {
			rig.Root(t) // to create a directory that belongs to another user
			write(t, s.Root, "/opt/cni/bin/README.md", "from a release archive")
			if err := os.Chown(filepath.Join(s.Root, "/opt/cni/bin"), 1001, 127); err != nil {
				t.Fatal(err)
			}
			s.Binaries = []host.Binary{{Path: "/opt/cni/bin/bridge", SHA256: strings.Repeat("0", 64)}}
		}, says: "/opt/cni/bin belongs to user 1001"},
		{check: "DirOwner", breaks: func(t *testing.T, s *subject) {
			rig.Root(t)
			write(t, s.Root, "/etc/containerd/certs.d/README.md", "from a release archive")
			if err := os.Chown(filepath.Join(s.Root, "/etc/containerd"), 1001, 127); err != nil {
				t.Fatal(err)
			}
		}, says: "/etc/containerd belongs to user 1001"},
		{check: "DirWritable", breaks: func(t *testing.T, s *subject) {
			bind(t, s, "/usr/local", unix.MS_RDONLY)
			s.Disk = []Space{{Path: "/usr/local/bin", Bytes: 1}}
		}, says: "the file system at /usr/local is mounted read-only, and files must be written to /usr/local/bin"},
		{check: "DirWritable", breaks: func(t *testing.T, s *subject) { bind(t, s, "/etc", unix.MS_RDONLY) },
			says: "the file system at /etc is mounted read-only, and files must be written to /etc, /etc/cni/net.d, /etc/containerd, /etc/kubernetes, "},
		{check: "DirWritable", breaks: func(t *testing.T, s *subject) {
			bind(t, s, "/usr", unix.MS_RDONLY)
			s.Config.ControllerManager.ExtraArgs = nil
		}, says: "the controller manager mounts /usr/libexec/kubernetes/kubelet-plugins/volume/exec, which does not exist, and the file system there is read-only"},
		{check: "DirWritable", breaks: func(t *testing.T, s *subject) {
			bind(t, s, "/opt", unix.MS_NOEXEC)
			s.Binaries = []host.Binary{{Path: "/opt/cni/bin/bridge"}}
		}, says: "the file system at /opt is mounted noexec, and binaries in /opt/cni/bin must be executable"},
		{check: "PodNetwork", breaks: func(t *testing.T, s *subject) {
			s.Config.CNI = "flannel"
			write(t, s.Root, "/etc/cni/net.d/10-containerd-net.conflist", "{}")
			write(t, s.Root, "/etc/cni/net.d/87-podman.conflist", "{}")
		}, says: "/etc/cni/net.d/10-containerd-net.conflist configures another pod network"},
		{check: "Binaries", breaks: func(t *testing.T, s *subject) {
			write(t, s.Root, "/usr/local/bin/kubelet", "theirs")
			s.Binaries = []host.Binary{{Path: "/usr/local/bin/kubelet", SHA256: strings.Repeat("0", 64)}}
		}, says: "version conflict: /usr/local/bin/kubelet"},
		{check: "ImagePull", breaks: func(_ *testing.T, s *subject) { s.MissingImages = []string{"etcd"} }, says: "no image for etcd"},
		{check: "KubeletVersion", warning: true, breaks: func(t *testing.T, s *subject) {
			write(t, s.Root, "/usr/bin/kubelet", "#!/bin/sh\necho Kubernetes v1.27.3\n")
			if err := os.Chmod(filepath.Join(s.Root, "/usr/bin/kubelet"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, says: "v1.27.3"},
		{check: "FileExisting-crictl", warning: true, breaks: func(t *testing.T, s *subject) { remove(t, s, "/usr/bin/crictl") }, says: "crictl"},
		{check: "FileContent--proc-sys-net-bridge-bridge-nf-call-iptables", breaks: func(t *testing.T, s *subject) {
			write(t, s.Root, "/proc/sys/net/bridge/bridge-nf-call-iptables/x", "") // a directory cannot be read as a sysctl
		}, says: "bridge-nf-call-iptables"},
		{check: "Clock", breaks: func(_ *testing.T, s *subject) { s.now = func() time.Time { return time.Unix(0, 0) } }, says: "1970-01-01"},
		{check: "KubeletConfiguration", breaks: kubeletSetting("maxPods: -1"), says: "maxPods"},
		{check: "KubeletFlags", breaks: func(_ *testing.T, s *subject) {
			s.Config.NodeRegistration.KubeletExtraArgs = []config.Arg{{Name: "no-such-flag", Value: "1"}}
		}, says: "--no-such-flag"},
		{check: "KubeletFlags", breaks: kubeletFlag("root-dir", "/data/kubelet"), says: "must be \"/var/lib/kubelet\""},
		{check: "KubeletFlags", breaks: kubeletFlag("config", "/etc/kubelet.yaml"), says: "/var/lib/kubelet/config.yaml"},
		{check: "KubeletFlags", breaks: kubeletFlag("kubeconfig", "/etc/kubelet.conf"), says: "/etc/kubernetes/kubelet.conf"},
		{check: "KubeletFlags", breaks: kubeletFlag("bootstrap-kubeconfig", "/etc/bootstrap.conf"), says: "/etc/kubernetes/bootstrap-kubelet.conf"},
		{check: "KubeletFlags", breaks: kubeletFlag("hostname_override", "another"), says: "--hostname-override is \"another\""},
		{check: "KubeletFlags", breaks: kubeletFlag("container-runtime-endpoint", "unix:///run/crio/crio.sock"), says: "--container-runtime-endpoint"},
		{check: "KubeletFlags", breaks: kubeletFlag("image-service-endpoint", "unix:///run/crio/crio.sock"), says: "--image-service-endpoint"},
		{check: "KubeletFlags", breaks: kubeletFlag("pod-manifest-path", "/etc/pods"), says: "/etc/kubernetes/manifests"},
		{check: "KubeletFlags", breaks: kubeletFlag("cert-dir", "pki"), says: "absolute"},
		{check: "KubeletFlags", breaks: func(t *testing.T, s *subject) {
			write(t, s.Root, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--cert-dir=/data/pki\n")
		}, says: "--cert-dir is \"/data/pki\", and must be \"/var/lib/kubelet/pki\""},
		{check: "KubeletConfiguration", breaks: kubeletSetting("staticPodPath: /etc/pods"), says: "staticPodPath is \"/etc/pods\""},
		{check: "KubeletConfiguration", breaks: kubeletSetting("imageServiceEndpoint: unix:///run/crio/crio.sock"), says: "imageServiceEndpoint"},
		{check: "KubeletFlags", warning: true, breaks: func(t *testing.T, s *subject) {
			s.Kubelet = []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 60\n")
			write(t, s.Root, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\"--max-pods=50\"\n")
		}, says: "50"},
		{check: "KubeletNodeLabels", breaks: func(_ *testing.T, s *subject) {
			s.Config.NodeRegistration.KubeletExtraArgs = []config.Arg{{Name: "node-labels", Value: "node-role.kubernetes.io/worker="}}
		}, says: "node-role.kubernetes.io/worker"},
		{check: "KubeletFeatureGates", breaks: kubeletSetting("featureGates: {NoSuchGate: true}"), says: "NoSuchGate"},
		{check: "KubeletTLS", breaks: kubeletSetting("tlsMinVersion: VersionTLS99"), says: "VersionTLS99"},
		{check: "KubeletClientCA", breaks: kubeletSetting("authentication: {x509: {clientCAFile: /etc/none.crt}}"), says: "/etc/none.crt"},
		{check: "KubeletReserved", breaks: kubeletSetting("systemReserved: {memory: 900Ti}"), says: "900Ti"},
		{check: "KubeletReserved", breaks: func(t *testing.T, s *subject) {
			write(t, s.Root, "/proc/sys/kernel/pid_max", "32768\n")
			kubeletSetting("systemReserved: {pid: \"40000\"}")(t, s)
		}, says: "32768"},
		{check: "Nameservers", warning: true, breaks: func(_ *testing.T, s *subject) { s.Config.Facts.Nameservers = nil }, says: "nameserver"},
	} {
		t.Run(c.check, func(t *testing.T) {
			s := healthy(t)
			if c.check != "Systemd" && c.check != "NodeAddress" && !strings.Contains(c.check, "ipv6") && !(strings.Contains(c.check, "kubelet.conf") || strings.Contains(c.check, "ca.crt")) {
				if found := s.runOne(t, c.check); len(found) != 0 {
					t.Fatalf("on a healthy host: %v", found)
				}
			}
			c.breaks(t, s)
			found := s.runOne(t, c.check)
			if len(found) == 0 {
				t.Fatal("found nothing")
			}
			if f := found[0]; !strings.Contains(f.Message, c.says) || f.Warning != c.warning || f.Fix == "" {
				t.Errorf("%+v; want it to say %q, warning %t, with a fix", f, c.says, c.warning)
			}
		})
	}
}

func TestPorts(t *testing.T) {
	s := healthy(t)
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s.Config.LocalAPIEndpoint.BindPort = int32(l.Addr().(*net.TCPAddr).Port)
	name := fmt.Sprintf("Port-%d", s.Config.LocalAPIEndpoint.BindPort)
	// The check finds listeners in the real /proc.
	remove(t, s, "/proc")
	if err := os.Symlink("/proc", s.Root+"/proc"); err != nil {
		t.Fatal(err)
	}
	own := filepath.Base(os.Args[0])
	found := s.runOne(t, name)
	if len(found) != 1 || !strings.Contains(found[0].Message, fmt.Sprintf("in use by %s (process %d)", own, os.Getpid())) {
		t.Errorf("found %v", found)
	}
	s.Rerun = true
	if found := s.runOne(t, name); len(found) != 1 {
		t.Errorf("a stranger's port was taken for ours: %v", found)
	}
	if found := s.port(int(s.Config.LocalAPIEndpoint.BindPort), own).run(context.Background()); len(found) != 0 {
		t.Errorf("our own listener, on a rerun: %v", found)
	}
	s.Rerun = false
	if found := s.port(int(s.Config.LocalAPIEndpoint.BindPort), own).run(context.Background()); len(found) != 1 {
		t.Errorf("a listener of the same name on a fresh host: %v", found)
	}
	l.Close()
	if found := s.runOne(t, name); len(found) != 0 {
		t.Errorf("a free port: %v", found)
	}
}

// TestPortOfTheBalancer: a worker learns from the cluster that it will have a balancer.
func TestPortOfTheBalancer(t *testing.T) {
	s := healthy(t)
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(config.BalancerPort)))
	switch {
	case err == nil:
		defer l.Close()
	case !errors.Is(err, unix.EADDRINUSE):
		t.Fatal(err)
	}
	used := func() bool {
		t.Helper()
		report, _ := Discovered(t.Context(), s.Target, nil) // the error lists the report's problems
		return slices.ContainsFunc(report.Errors, func(p Problem) bool { return p.Name == "Port-7443" && strings.Contains(p.Message, "7443 is in use") })
	}
	if s.Role = Join; used() {
		t.Error("a node without a balancer needs no port for it")
	}
	if s.Config.Endpoint.Balancer = true; !used() {
		t.Error("the port is in use")
	}
	for _, role := range []Role{Init, Join, JoinControlPlane} {
		s.Role = role
		if found := s.runOne(t, "Port-7443"); len(found) != 1 {
			t.Errorf("%s: %+v", role, found)
		}
	}
}

// TestPortOfTheRegistry: only control planes of a cluster with the embedded registry listen on its port.
func TestPortOfTheRegistry(t *testing.T) {
	s := healthy(t)
	for _, used := range []bool{false, true} {
		for _, role := range []Role{Init, Join, JoinControlPlane} {
			s.Config.Registry.Used, s.Role = used, role
			if has := slices.Contains(Names(s.Target), "Port-7444"); has != (used && role != Join) {
				t.Errorf("%s, used %t: the port is checked: %t", role, used, has)
			}
		}
	}
}

func TestRerunAcceptsItsOwn(t *testing.T) {
	s := healthy(t)
	for _, path := range []string{"/etc/kubernetes/manifests/etcd.yaml", "/etc/kubernetes/kubelet.conf"} {
		if _, err := s.host.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The ledger lists the file: an earlier run was interrupted.
	if found := s.runOne(t, "FileAvailable--etc-kubernetes-manifests-etcd.yaml"); len(found) != 0 {
		t.Errorf("our own file: %v", found)
	}
	for _, claim := range ledger.Claims(s.Config, true, true) {
		if err := s.host.Claim(claim); err != nil {
			t.Fatal(err)
		}
		write(t, s.Root, claim.Path+"/data", "")
		if found := s.runOne(t, claim.Check()); len(found) != 0 {
			t.Errorf("%s, which an earlier run claimed: %v", claim.Path, found)
		}
	}
}

// TestTakesOverNothing: each directory that Kubernetes and containerd fill has its own check. The
// check reports what to do, and the effect of ignoring it.
func TestTakesOverNothing(t *testing.T) {
	s := healthy(t)
	s.Config.CNI = "flannel"
	for _, path := range []string{"/var/lib/etcd", "/var/lib/kubelet", "/var/lib/containerd", "/run/containerd", "/run/flannel"} {
		name := "DirAvailable" + strings.ReplaceAll("-"+path, "/", "-")
		write(t, s.Root, path+"/lost+found/x", "")
		if found := s.runOne(t, name); len(found) != 0 {
			t.Errorf("a new disk at %s: %v", path, found)
		}
		write(t, s.Root, path+"/data", "")
		found := s.runOne(t, name)
		if len(found) != 1 || !strings.Contains(found[0].Message, path+" is not empty (it contains data)") || !strings.Contains(found[0].Fix, "reset keeps it") {
			t.Errorf("%s: %v", path, found)
		}
		if path == "/var/lib/containerd" && !strings.Contains(found[0].Fix, "systemctl start containerd") {
			t.Errorf("%s: %v", path, found)
		}
	}
	s.RuntimeInUse = true
	for _, name := range Names(s.Target) {
		if strings.HasSuffix(name, "-containerd") && strings.HasPrefix(name, "DirAvailable") {
			t.Errorf("%s, though the host's own containerd is used", name)
		}
	}
}

func TestEverythingIsReportedTogether(t *testing.T) {
	s := healthy(t)
	s.Config.Facts.NumCPU = 1
	s.Config.Facts.SwapOn = true
	write(t, s.Root, "/var/lib/etcd/member/wal", "")
	ctx := context.Background()
	rig.Root(t) // other users get only the check IsPrivilegedUser
	report, err := Run(ctx, s.Target, []string{"Systemd", "numcpu"})
	if fault.ExitCode(err) != fault.Preflight || fault.Hint(err) == "" {
		t.Fatalf("err = %v (exit code %d)", err, fault.ExitCode(err))
	}
	for _, want := range []string{"[ERROR Swap]: ", "[ERROR DirAvailable--var-lib-etcd]: ", "fix: swapoff -a"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "NumCPU") || !slices.ContainsFunc(report.Warnings, func(p Problem) bool { return p.Name == "NumCPU" }) {
		t.Errorf("the ignored check is not a warning: %+v\n%v", report, err)
	}
	var text bytes.Buffer
	report.Write(&text)
	if !strings.Contains(text.String(), "[WARNING NumCPU]: ") || !strings.Contains(text.String(), "[ERROR Swap]: ") {
		t.Errorf("report:\n%s", &text)
	}
	data, err := json.Marshal(report)
	if err != nil || !strings.Contains(string(data), `{"name":"Swap","message":`) {
		t.Errorf("%s %v", data, err)
	}
	if report, err := Run(ctx, s.Target, []string{"all"}); err != nil || len(report.Errors) != 0 || len(report.Warnings) < 3 {
		t.Errorf("ignoring all: %+v %v", report, err)
	}
	if _, err := Run(ctx, s.Target, []string{"Swapp", "NumCPU"}); fault.Hint(err) != "did you mean --ignore-preflight-errors=Swap?" {
		t.Errorf("a misspelt name: hint %q", fault.Hint(err))
	}
	for want, names := range map[string][]string{"": {"IsPrivilegedUser", "Systemd"}, "to ignore an error that you know to be harmless: --ignore-preflight-errors=Swap": {"Systemd", "Swap"}} {
		r := NewReport()
		for _, name := range names {
			r.Add(Problem{Name: name}, false, nil)
		}
		if got := r.IgnoreHint(); got != want {
			t.Errorf("%q: hint %q", names, got)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Run(cancelled, s.Target, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A preflight run must not change the host.
func TestNothingIsChanged(t *testing.T) {
	s := healthy(t)
	listing := func() string {
		var b strings.Builder
		err := filepath.WalkDir(s.Root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil {
				fmt.Fprintln(&b, path, info.Mode(), info.ModTime().UnixNano(), info.Size())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	before := listing()
	if _, err := Run(context.Background(), s.Target, []string{"all"}); err != nil {
		t.Fatal(err)
	}
	if after := listing(); before != after {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

func TestNamesAreKubeadms(t *testing.T) {
	s := healthy(t)
	s.Config.LocalAPIEndpoint.BindPort = 6443
	s.Config.Discovery.APIServerEndpoint = "10.1.0.5:6443"
	s.Config.Networking.PodSubnet = config.ParseCIDRs(s.Config.Networking.PodSubnet.String() + ",fd01::/48")
	for role, want := range map[Role][]string{
		Init: {"IsPrivilegedUser", "NumCPU", "Mem", "KubernetesVersion", "Firewalld", "Port-6443", "Port-10259", "Port-10257", "Port-10250", "Port-2379", "Port-2380",
			"FileAvailable--etc-kubernetes-manifests-kube-apiserver.yaml", "FileAvailable--etc-kubernetes-manifests-kube-controller-manager.yaml",
			"FileAvailable--etc-kubernetes-manifests-kube-scheduler.yaml", "FileAvailable--etc-kubernetes-manifests-etcd.yaml", "DirAvailable--var-lib-etcd",
			"HTTPProxy", "HTTPProxyCIDR", "CRI", "Swap", "FileExisting-crictl", "FileExisting-conntrack", "FileExisting-ip", "FileExisting-iptables", "FileExisting-mount",
			"FileExisting-nsenter", "FileExisting-ethtool", "FileExisting-tc", "FileExisting-touch", "FileExisting-losetup", "FileExisting-cp",
			"SystemVerification", "Hostname", "KubeletVersion", "Service-Kubelet", "ImagePull",
			"FileContent--proc-sys-net-bridge-bridge-nf-call-iptables", "FileContent--proc-sys-net-ipv4-ip_forward",
			"FileContent--proc-sys-net-bridge-bridge-nf-call-ip6tables", "FileContent--proc-sys-net-ipv6-conf-default-forwarding"},
		Join: {"IsPrivilegedUser", "FileAvailable--etc-kubernetes-kubelet.conf", "FileAvailable--etc-kubernetes-bootstrap-kubelet.conf",
			"FileAvailable--etc-kubernetes-pki-ca.crt", "HTTPProxy", "Port-10250", "CRI", "Swap", "SystemVerification", "Hostname", "KubeletVersion", "Service-Kubelet",
			"FileContent--proc-sys-net-bridge-bridge-nf-call-iptables", "FileContent--proc-sys-net-ipv4-ip_forward", "FileExisting-nsenter"},
		JoinControlPlane: {"IsPrivilegedUser", "NumCPU", "Mem", "Port-6443", "Port-2379", "DirAvailable--var-lib-etcd", "FileAvailable--etc-kubernetes-kubelet.conf",
			"FileAvailable--etc-kubernetes-manifests-etcd.yaml", "HTTPProxy", "HTTPProxyCIDR", "Port-10250", "ImagePull"},
	} {
		target := s.Target
		target.Role = role
		names := Names(target)
		for _, name := range want {
			if !slices.Contains(names, name) {
				t.Errorf("%s has no check %s", role, name)
			}
		}
		if role == Join && slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "Port-2") || n == "NumCPU" }) {
			t.Errorf("a worker is checked for what only a control plane needs: %v", names)
		}
	}
}

// The add-on ingress takes ports of every node: what listens there would no longer be reached.
func TestPortsOfIngress(t *testing.T) {
	s := healthy(t)
	for _, role := range []Role{Init, Join, JoinControlPlane} {
		for _, addOn := range []bool{false, true} {
			target := s.Target
			target.Role, target.Ingress = role, addOn
			for _, name := range []string{"Port-80", "Port-443"} {
				if slices.Contains(Names(target), name) != addOn {
					t.Errorf("%s, with the add-on: %v: %v", role, addOn, Names(target))
				}
			}
		}
	}
}

func TestFailSwapOnOfAFile(t *testing.T) {
	for text, want := range map[string]string{"": "not set", "failSwapOn: false\n": "false", "failSwapOn: true\n": "true", "maxPods: 10\n": "not set", "a: [": "not set"} {
		got := "not set"
		if fails := FailSwapOn([]byte(text)); fails != nil {
			got = strconv.FormatBool(*fails)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestOwnServices: on a node, the ports of the balancer and of the embedded registry may belong to the processes that their units start.
func TestOwnServices(t *testing.T) {
	units := 0
	for _, list := range []func() ([]pki.File, error){(&registry.Settings{}).Files, (&endpoint.Settings{}).Files} {
		files, err := list()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			_, command, ok := strings.Cut(string(f.Data), "ExecStart=")
			if !ok {
				continue
			}
			units++
			if name := path.Base(strings.Fields(command)[0]); name != ownName {
				t.Errorf("a unit starts %s, and the check of its port expects %s", name, ownName)
			}
		}
	}
	if units != 2 {
		t.Errorf("%d units", units)
	}
}
