package preflight

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"airlift/installer/config"
)

// TestDocumented checks that docs/preflight.md and the table of checks list the
// same checks.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/preflight.md")
	if err != nil {
		t.Fatal(err)
	}
	_, ours, _ := strings.Cut(string(text), "## kubeadm's checks")
	here, kubelets, ok := strings.Cut(ours, "## The kubelet's rules")
	if !ok {
		t.Fatal("the document's headings have changed")
	}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (error|warning) \\| .* \\|$")
	documented := func(part string) (patterns []string) {
		for _, m := range row.FindAllStringSubmatch(part, -1) {
			patterns = append(patterns, m[1])
		}
		return patterns
	}
	local, external := &config.Config{}, &config.Config{}
	local.Networking.PodSubnet = config.ParseCIDRs("10.244.0.0/16,fd01::/48")
	external.Etcd.External = &config.ExternalEtcd{}
	var names []string
	for _, c := range []*config.Config{local, external} {
		c.Discovery.APIServerEndpoint = "10.1.0.5:6443"
		for _, role := range []Role{Init, Join, JoinControlPlane} {
			names = append(names, Names(Target{Config: c, Role: role})...)
		}
	}
	among := func(name string, patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, name); return ok })
	}
	all := append(documented(here), documented(kubelets)...)
	for _, name := range names {
		if !among(name, all) {
			t.Errorf("docs/preflight.md does not have %s", name)
		}
	}
	for _, pattern := range documented(here) {
		if !slices.ContainsFunc(names, func(n string) bool { return among(n, []string{pattern}) }) {
			t.Errorf("docs/preflight.md has %s, which is no check", pattern)
		}
	}
}
