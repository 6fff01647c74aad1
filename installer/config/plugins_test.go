package config

import (
	"strings"
	"testing"
)

func TestAPIServerLists(t *testing.T) {
	c := Cluster{KubernetesVersion: "v1.30.14"}
	c.APIServer.ExtraArgs = []Arg{
		{Name: "enable-admission-plugins", Value: "NodeRestriction, AlwaysPullImages,"},
		{Name: "disable-admission-plugins", Value: "SecurityContextDeny,PersistentVolumeLabel"},
		{Name: "runtime-config", Value: "api/alpha=true, scheduling.k8s.io/v1alpha2"},
		{Name: "enable-admission-plugins", Value: "SecurityContextDeny"},
	}
	if !c.EnablesPlugin(AlwaysPullImages) || !c.EnablesPlugin("NodeRestriction") || c.EnablesPlugin("PersistentVolumeLabel") || c.EnablesPlugin("") {
		t.Error("enabled plugins")
	}
	for version, want := range map[string]string{
		"v1.29.15": "", "v1.30.14": "SecurityContextDeny", "v1.31.0": "SecurityContextDeny PersistentVolumeLabel",
	} {
		c.KubernetesVersion = version
		if got := strings.Join(c.RemovedPlugins(), " "); got != want {
			t.Errorf("%s: %q", version, got)
		}
	}
	if got := strings.Join(c.ServedAPIs(), " "); got != "api/alpha scheduling.k8s.io/v1alpha2" {
		t.Errorf("served: %q", got)
	}
}
