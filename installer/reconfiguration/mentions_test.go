package reconfiguration

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"airlift/installer/config"
)

// TestMentions: the names and addresses of a node are found in any form, and not in others.
func TestMentions(t *testing.T) {
	of := []string{"cp-1", "10.0.0.1", "fd00::1", ""}
	for value, want := range map[string]bool{
		"/var/log/cp-1.log": true, "cp-1.site.example": true, "/var/log/CP-1": true, "cp-1_audit": true, "a=b,cp-1=https://10.0.0.9:2380": true,
		"https://10.0.0.1:2379": true, "10.0.0.1/32": true, "https://[FD00::1]:2379": true, "[fd00:0:0::1]": true, "::ffff:10.0.0.1": true, "http://x,https://10.0.0.1:2379": true,
		"10.0.0.11": false, "110.0.0.1": false, "10.0.0.1.5": false, "fd00::11": false, "fd00::1:1": false, "cp-11": false, "xcp-1": false, "x-cp-1": false, "cp-1-x": false, "": false, "10.0.0.0/24": false,
	} {
		if got := Mentions(value, of); got != want {
			t.Errorf("%q: %t", value, got)
		}
	}
}

// TestOfOneNode: an edit that has the name or an address of its node, anywhere, is refused, and another one is kept.
func TestOfOneNode(t *testing.T) {
	of := []string{"cp1", "10.0.0.1", "fd00::1"}
	rapid.Check(t, func(t *rapid.T) {
		own := rapid.Bool().Draw(t, "own")
		name := rapid.SampledFrom([]string{"cp2", "10.0.0.2", "fd00::2", "cp11", "10.0.0.11"}).Draw(t, "other")
		if own {
			name = rapid.SampledFrom(of).Draw(t, "name")
			if a, err := netip.ParseAddr(name); err == nil && a.Is6() && rapid.Bool().Draw(t, "expanded") {
				name = strings.ToUpper(a.StringExpanded())
			}
		}
		form := rapid.SampledFrom([]string{"%s", "/srv/%s/data", "https://[%s]:1", "a,%s"}).Draw(t, "form")
		value := fmt.Sprintf(form, name)
		edited := ""
		switch rapid.SampledFrom([]string{"flag", "variable", "volume"}).Draw(t, "place") {
		case "flag":
			edited = strings.Replace(schedulerPod, "    - kube-scheduler\n", fmt.Sprintf("    - kube-scheduler\n    - %q\n", "--site="+value), 1)
		case "variable":
			edited = strings.Replace(schedulerPod, "    image:", fmt.Sprintf("    env:\n    - {name: SITE, value: %q}\n    image:", value), 1)
		case "volume":
			edited = strings.Replace(schedulerPod, "  volumes:\n", fmt.Sprintf("  volumes:\n  - {name: site, hostPath: {path: %q, type: DirectoryOrCreate}}\n", value), 1)
			edited = strings.Replace(edited, "    volumeMounts:\n", "    volumeMounts:\n    - {name: site, mountPath: /site}\n", 1)
		}
		if edited == schedulerPod {
			t.Fatal("the edit has no place")
		}
		refused, err := AdoptPod(&config.Cluster{}, of, "kube-scheduler", "/kube-scheduler.yaml", []byte(schedulerPod), []byte(edited))
		if err != nil || slices.ContainsFunc(refused, func(r Refusal) bool { return r.Reason == ofOneNode }) != own {
			t.Fatalf("%s: refused %v, %v", value, refused, err)
		}
	})
}
