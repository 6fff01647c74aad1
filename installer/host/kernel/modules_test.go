package kernel_test

import (
	"slices"
	"strings"
	"testing"

	"airlift/installer/host/kernel"
	"airlift/scripts/fixtures/testhost"

	"golang.org/x/sys/unix"
)

func TestKubeProxyModules(t *testing.T) {
	for _, c := range []struct {
		mode, scheduler string
		want            []string
		not             string
	}{
		{"ipvs", "", []string{"ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh"}, ""},
		{"ipvs", "rr", []string{"ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh"}, ""},
		{"ipvs", "lc", []string{"ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh", "ip_vs_lc"}, ""},
		{"ipvs", "lc\nevil", []string{"ip_vs"}, "evil"},
		{"nftables", "", []string{"nf_tables"}, "ip_vs"},
		{"iptables", "lc", nil, "ip_vs"},
		{"", "", nil, "ip_vs"},
	} {
		got := kernel.KubeProxyModules(c.mode, c.scheduler)
		for _, name := range c.want {
			if !slices.Contains(got, name) {
				t.Errorf("%+v: no %s in %v", c, name, got)
			}
		}
		if c.not != "" && strings.Contains(strings.Join(got, " "), c.not) {
			t.Errorf("%+v: %v", c, got)
		}
		slices.Sort(got)
		if len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("%+v: twice in %v", c, got)
		}
	}
}

// LoadModules loads modules now, and systemd-modules-load loads them at every
// boot.
func TestLoadModules(t *testing.T) {
	var release unix.Utsname
	if err := unix.Uname(&release); err != nil {
		t.Fatal(err)
	}
	modules := append(kernel.NodeModules(), kernel.KubeProxyModules("ipvs", "lc")...)
	root := t.TempDir()
	testhost.Write(t, root+"/lib/modules/"+unix.ByteSliceToString(release.Release[:])+"/modules.dep", "", 0o644)
	for _, name := range modules { // mark all as loaded, so that the test loads none here
		testhost.Write(t, root+"/sys/module/"+name+"/refcnt", "0", 0o644)
	}
	warnings, err := kernel.LoadModules(t.Context(), testhost.Open(t, root), modules...)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %v", warnings, err)
	}
	if got, want := testhost.Read(t, root+"/etc/modules-load.d/airlift.conf"), strings.Join(modules, "\n")+"\n"; got != want {
		t.Errorf("at boot: %q, want %q", got, want)
	}
}
