package detection

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/installer/host/filesystem"
)

// rooted returns the root of a host in a temporary directory with these files. A text that
// starts with "-> " creates a symbolic link.
func rooted(t *testing.T, files map[string]string) filesystem.Root {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return filesystem.Root(root)
}

func TestResolver(t *testing.T) {
	const stub = "# systemd-resolved\nnameserver 127.0.0.53\noptions edns0\n"
	const usual, resolved = "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"
	for _, c := range []struct {
		name        string
		files       map[string]string
		path        string
		nameservers []string
	}{
		{"plain", map[string]string{usual: "search x\nnameserver 10.0.0.2\nnameserver fd00::2\n"}, usual, []string{"10.0.0.2", "fd00::2"}},
		{"systemd-resolved", map[string]string{usual: stub, resolved: "nameserver 10.0.0.3\n"}, resolved, []string{"10.0.0.3"}},
		{"systemd-resolved and a file of the owner's", map[string]string{usual: "nameserver 10.0.0.2\n", resolved: "nameserver 10.0.0.3\n"}, usual, []string{"10.0.0.2"}},
		{"a local cache only", map[string]string{usual: "nameserver 127.0.0.1\nnameserver ::1\nnameserver fe80::1%eth0\n"}, usual, nil},
		{"no nameserver", map[string]string{usual: "# nameserver 10.0.0.2\nnameserver\n"}, usual, nil},
		{"no file", nil, "", nil},
		{"a link to nowhere", map[string]string{usual: "-> ../run/systemd/resolve/stub-resolv.conf"}, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, nameservers, err := resolver(rooted(t, c.files))
			if err != nil || path != c.path || !slices.Equal(nameservers, c.nameservers) {
				t.Errorf("%q %q %v; want %q %q", path, nameservers, err, c.path, c.nameservers)
			}
		})
	}
}

func TestCgroupDriver(t *testing.T) {
	const booted, container = "/run/systemd/system/x", "/run/systemd/container"
	for _, c := range []struct {
		name    string
		version int
		files   map[string]string
		want    string
	}{
		{"v2 with systemd", 2, map[string]string{booted: ""}, "systemd"},
		{"v2 with systemd in a container", 2, map[string]string{booted: "", container: "lxc"}, "systemd"},
		{"v1 with systemd", 1, map[string]string{booted: ""}, "systemd"},
		{"v1 with systemd in a container", 1, map[string]string{booted: "", container: "systemd-nspawn"}, "cgroupfs"},
		{"another init", 2, nil, "cgroupfs"},
	} {
		if got := cgroupDriver(rooted(t, c.files), c.version); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestRestrictOOMScoreAdj(t *testing.T) {
	const all = "CapPrm:\t000001ffffffffff\nCapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n"
	lacking := strings.ReplaceAll(all, "000001ffffffffff", "000001fffeffffff") // bit 24
	const first = "         0          0 4294967295\n"
	for _, c := range []struct {
		name, status, uids string
		want               bool
	}{
		{"a machine", all, first, false},
		{"a container without CAP_SYS_RESOURCE", lacking, first, true},
		{"a user namespace", all, "0 100000 65536\n", true},
	} {
		got, err := restrictOOMScoreAdj(rooted(t, map[string]string{"/proc/1/status": "Name:\tsystemd\n" + c.status, "/proc/1/uid_map": c.uids}))
		if err != nil || got != c.want {
			t.Errorf("%s: %t %v, want %t", c.name, got, err, c.want)
		}
	}
	if _, err := restrictOOMScoreAdj(rooted(t, map[string]string{"/proc/1/status": "Name:\tx\n"})); err == nil {
		t.Error("a status without capabilities was understood")
	}
}

func TestConntrackWritable(t *testing.T) {
	const max = "/proc/sys/net/netfilter/nf_conntrack_max"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  bool
	}{
		{"writable", map[string]string{max: "65536\n"}, true},
		{"not writable", map[string]string{max + "/directory": ""}, false},
		{"module not loaded, first namespace", map[string]string{"/proc/sys/net/core/netdev_max_backlog": "1000"}, true},
		{"module not loaded, other namespace", map[string]string{"/proc/sys/net/core/somaxconn": "1000"}, false},
	} {
		h := rooted(t, c.files)
		if got := conntrackWritable(h); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
		if data, err := os.ReadFile(h.Path(max)); err == nil && strings.TrimSpace(string(data)) != "65536" {
			t.Errorf("%s: the value is now %q", c.name, data)
		}
	}
}

func TestSwapOn(t *testing.T) {
	const head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	for text, want := range map[string]bool{head: false, head + "/dev/sda2  partition\t1000\t0\t-2\n": true, "": false} {
		if got, err := swapOn(rooted(t, map[string]string{"/proc/swaps": text})); err != nil || got != want {
			t.Errorf("%q: %t %v", text, got, err)
		}
	}
}
