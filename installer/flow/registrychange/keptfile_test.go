package registrychange

import (
	"testing"

	"airlift/installer/config"
	"airlift/installer/registry/service"
	"airlift/scripts/fixtures/testhost"
)

// TestKeptFile: a file counts as kept only if the service of this host can serve it.
func TestKeptFile(t *testing.T) {
	b := config.KeptBundle{ID: "one", Size: 200}
	serves := []config.KeptBundle{b}
	for want, local := range map[string]*service.State{
		"no":                    nil,
		"yes":                   {Bundles: serves},
		"copying, 25 %":         {Copy: &service.Copy{ID: "one", Done: 50, Size: 200}},
		"a piece is damaged":    {Bundles: serves, Problems: map[string]string{"one": "a piece is damaged"}},
		"no route to any other": {Problems: map[string]string{"one": "no route to any other", "two": "damaged"}},
	} {
		k := keptFile(testhost.Open(t, t.TempDir()), b, local)
		if k.here() != want || k.Here != (want == "yes") {
			t.Errorf("%+v: %q, want %q", k, k.here(), want)
		}
	}
}
