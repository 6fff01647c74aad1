package reconfigure

import (
	"strings"
	"testing"

	"airlift/installer/reconfiguration"
	"airlift/scripts/fixtures/secrets"
	"airlift/scripts/fixtures/seed"
)

// A refusal names values of the user's documents and of files that were edited: none of them shows a secret.
func TestRefusalsHaveNoSecrets(t *testing.T) {
	g := secrets.New(seed.Value(t))
	for _, p := range g.Probes() {
		if p.Source != secrets.Message {
			continue
		}
		secret := strings.ReplaceAll(g.Secret(), "\n", " ")
		shown := func(secret string) string {
			return withoutSecrets([]reconfiguration.Refusal{{Field: "f", From: p.Text(secret), To: p.Text(secret)}})[0].String()
		}
		if piece := secrets.Leak(shown(secret), shown("Zq9xW1kLp0"), secret); piece != "" {
			t.Errorf("%s: %q is left in %s", p.Name, piece, shown(secret))
		}
	}
	r := reconfiguration.Refusal{Field: "networking.podSubnet", From: "10.244.0.0/16", To: "10.245.0.0/16"}
	if got := withoutSecrets([]reconfiguration.Refusal{r}); got[0] != r {
		t.Errorf("%+v", got)
	}
}
