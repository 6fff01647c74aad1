package join

import (
	"testing"

	"airlift/bundle"
	"airlift/installer/config"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/workflow"
)

// join leaves out the steps for which the bundle has nothing.
func TestStepsOfTheSite(t *testing.T) {
	m := &bundle.Manifest{Files: []bundle.SiteFile{{Path: "/etc/w", Mode: "0644", Nodes: bundle.Workers}}, Manifests: []bundle.SiteManifest{{Name: "first"}}}
	p := &phases.Plan{Config: &config.Config{}, Bundle: &payload.Bundle{Manifest: m}, Role: phases.Worker}
	steps := newJoin(p, nil).steps
	for name, want := range map[string]bool{"files": true, "units": false} {
		if s, ok := workflow.Find(steps, name); !ok || s.Empty == want {
			t.Errorf("%s: found %v, empty %v", name, ok, s.Empty)
		}
	}
}
