package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/secrets"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testhost"
)

// TestProfileEncryptsNewClusters: a second init leaves an API server that does not encrypt as it is: 'secrets disable', or init with
// --encrypt-secrets=false, has decided that.
func TestProfileEncryptsNewClusters(t *testing.T) {
	const flag = "--encryption-provider-config="
	for name, c := range map[string]struct {
		args            []string
		running, config string // --encryption-provider-config of the API server that the host has, "none" without; of --config
		want            string
	}{
		"plain":                       {nil, "", "", ""},
		"a new cluster":               {[]string{"--profile", "hardened"}, "", "", secrets.File},
		"the user decides":            {[]string{"--profile", "hardened", "--encrypt-secrets=false"}, "", "", ""},
		"an encryption of the site":   {[]string{"--profile", "hardened"}, "", "/etc/kms.yaml", "/etc/kms.yaml"},
		"again":                       {[]string{"--profile", "hardened"}, secrets.File, "", secrets.File},
		"again, after it was removed": {[]string{"--profile", "hardened"}, "none", "", ""},
		"asked for":                   {[]string{"--encrypt-secrets"}, "none", "", secrets.File},
	} {
		h := testhost.Open(t, t.TempDir())
		if c.running != "" {
			pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: kube-apiserver}\nspec:\n  containers:\n  - name: kube-apiserver\n    command: [kube-apiserver"
			if c.running != "none" {
				pod += ", " + flag + c.running
			}
			file := h.Path(node.APIServerManifest)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(pod+"]\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		in, cmd := &initFlags{}, &cobra.Command{}
		in.bind(cmd.Flags())
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		if c.config != "" {
			in.cfg.APIServer.ExtraArgs = config.Args{{Name: "encryption-provider-config", Value: c.config}}
		}
		if err := in.encrypt(cmd, &opened{host: h, console: &workflow.Console{Out: os.Stderr}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if is, _ := config.LastArg(in.cfg.APIServer.ExtraArgs, "encryption-provider-config"); is != c.want {
			t.Errorf("%s: %q, want %q", name, is, c.want)
		}
	}
}
