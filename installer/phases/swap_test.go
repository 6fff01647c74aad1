package phases

import (
	"os"
	"path/filepath"
	"testing"

	"airlift/installer/config"
	"airlift/installer/patches"
)

// The preflight checks see the user's failSwapOn, and not the value that Airlift sets on a host
// with swap.
func TestFailSwapOnIsTheUsers(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kubeletconfiguration+merge.yaml"), []byte("failSwapOn: false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	patched, _, err := patches.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	const kind = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for _, tt := range []struct {
		cluster string
		patches *patches.Set
		want    string
	}{
		{"", nil, "not set"},
		{kind, nil, "not set"},
		{kind + "failSwapOn: true\n", nil, "true"},
		{kind + "failSwapOn: false\n", nil, "false"},
		{kind, patched, "false"},
	} {
		n := controlPlane(t, func(c *config.Config) { c.Facts.SwapOn = true })
		n.Plan.Patches = tt.patches
		var cluster []byte
		if tt.cluster != "" {
			cluster = []byte(tt.cluster)
		}
		got := "not set"
		if fails := n.failSwapOn(cluster); fails != nil {
			got = map[bool]string{true: "true", false: "false"}[*fails]
		}
		if got != tt.want {
			t.Errorf("%q, patched %t: %s, want %s", tt.cluster, tt.patches != nil, got, tt.want)
		}
	}
}
