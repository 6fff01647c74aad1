package node

import (
	"slices"
	"strings"
	"testing"

	"airlift/images/store"
	"airlift/installer/config"
	"airlift/internal/fault"
)

// An existing containerd must find the CNI plugins and the configuration where Airlift writes
// them. Debian's containerd looks for the plugins in /usr/lib/cni.
func TestExistingRuntimeFindsTheNetwork(t *testing.T) {
	for name, c := range map[string]struct {
		cni     string
		bin     []string
		conf    string
		refused string // "" if it fits
	}{
		"containerd's defaults":       {"flannel", []string{"/opt/cni/bin"}, "/etc/cni/net.d", ""},
		"several directories":         {"flannel", []string{"/usr/lib/cni", "/opt/cni/bin"}, "/etc/cni/net.d/", ""},
		"not reported":                {"flannel", nil, "", ""},
		"Debian's default":            {"flannel", []string{"/usr/lib/cni"}, "/etc/cni/net.d", "it starts CNI plugins from /usr/lib/cni, and Airlift installs them in /opt/cni/bin"},
		"another configuration":       {"flannel", []string{"/opt/cni/bin"}, "/srv/cni", "from /srv/cni, and Airlift writes it to /etc/cni/net.d"},
		"a pod network of the user's": {"none", []string{"/usr/lib/cni"}, "/srv/cni", ""},
	} {
		t.Run(name, func(t *testing.T) {
			info := store.Info{CRI: true, Runtime: store.Condition{Ready: true}, CNIBinDirs: c.bin, CNIConfDir: c.conf}
			err := fits(info, &config.Config{CNI: c.cni})
			if c.refused == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), c.refused) || !strings.Contains(fault.Hint(err), "restart containerd") {
				t.Errorf("%v; hint: %s", err, fault.Hint(err))
			}
		})
	}
}

// A runtime that does not report its pause image may use each of the defaults.
func TestSandboxImages(t *testing.T) {
	for reported, want := range map[string][]string{"": defaultSandboxImages, "pause:3": {"pause:3"}} {
		r := &ExistingRuntime{Info: store.Info{SandboxImage: reported}}
		if got := r.SandboxImages(); len(got) == 0 || !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", reported, got, want)
		}
	}
}
