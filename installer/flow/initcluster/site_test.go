package initcluster

import (
	"testing"

	"airlift/bundle"
	"airlift/installer/config"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/workflow"
)

// init leaves out the steps for which the bundle has nothing.
func TestStepsOfTheSite(t *testing.T) {
	m := &bundle.Manifest{Files: []bundle.SiteFile{{Path: "/etc/w", Mode: "0644", Nodes: bundle.Workers}}, Manifests: []bundle.SiteManifest{{Name: "first"}}}
	p := &phases.Plan{Config: &config.Config{}, Bundle: &payload.Bundle{Manifest: m}, Role: phases.FirstControlPlane}
	steps := newInit(p, phases.InitOptions{}, nil).Steps()
	for name, want := range map[string]bool{"files": false, "units": false, "manifests": true, "wait-manifests": true} {
		if s, ok := workflow.Find(steps, name); !ok || s.Empty == want {
			t.Errorf("%s: found %v, empty %v", name, ok, s.Empty)
		}
	}
}
