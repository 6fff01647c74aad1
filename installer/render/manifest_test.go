package render_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/config"
	"airlift/installer/render"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/oracle"
)

// TestKubectlReadsManifests reads the add-ons from a file with the real
// kubectl.
func TestKubectlReadsManifests(t *testing.T) {
	kubectl := rig.Component(t, oracle.Version, "kubectl")
	for _, version := range oracle.Versions {
		for name, build := range map[string]func(*config.Config) ([]runtime.Object, error){
			"coredns": render.CoreDNS, "kube-proxy": render.KubeProxy, "flannel": render.Flannel,
		} {
			objects := must(build(oracle.Plain(version)))
			data, err := render.Manifest(objects...)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), name+".yaml")
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			// kubectl makes this change without a cluster.
			cmd := exec.Command(kubectl, "annotate", "--local", "--output", "json", "--filename", file, "seen=yes")
			cmd.Env = []string{"HOME=" + t.TempDir()}
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s %s: %v\n%s", version, name, err, out)
			}
			var got []string
			for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
				var item json.RawMessage
				if err := decoder.Decode(&item); err != nil {
					t.Fatal(err)
				}
				got = append(got, oracle.Key(t, oracle.Object(t, item)))
			}
			var want []string
			for _, o := range objects {
				want = append(want, oracle.Key(t, o))
			}
			compare(t, version+" "+name, want, got)
		}
	}
}
