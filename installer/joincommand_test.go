package installer

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"airlift/bundle"
	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/pki"
)

// Nodes that join trust only the CAs whose hashes they get. The join command
// must therefore have the hash of each CA.
func TestJoinCommandHasTheHashOfEachCA(t *testing.T) {
	n, ca := joining(t, "v1.29.15")
	_, next := joining(t, "v1.29.15")
	var out bytes.Buffer
	i := newInit(n.plan, InitOptions{}, n.machine)
	i.credentials.token, i.console.Out = "abcdef.0123456789abcdef", &out
	if err := n.write(pki.File{Path: n.caFile(), Data: append(bytes.Clone(ca), next...), Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if err := i.credentials.show(t.Context()); err != nil {
		t.Fatal(err)
	}
	i.console.close()
	for _, data := range [][]byte{ca, next} {
		hashes, err := pki.CAHashes(data)
		if err != nil || !strings.Contains(out.String(), "--discovery-token-ca-cert-hash "+hashes[0]) {
			t.Errorf("%v (%v) is not in:\n%s", hashes, err, &out)
		}
	}
}

// Nodes join without the bundle's pod network if init did not install it.
func TestJoinCommandHasTheOtherPodNetwork(t *testing.T) {
	for _, tt := range []struct {
		bundles, chosen string
		want            bool
	}{{"flannel", "flannel", false}, {"flannel", "none", true}, {"none", "none", false}} {
		n, _ := joining(t, "v1.29.15")
		var out bytes.Buffer
		n.plan.bundle.manifest, n.config.CNI = &bundle.Manifest{CNI: tt.bundles}, tt.chosen
		i := newInit(n.plan, InitOptions{}, n.machine)
		i.credentials.token, i.console.Out = "abcdef.0123456789abcdef", &out
		if err := i.credentials.show(t.Context()); err != nil {
			t.Fatal(err)
		}
		i.console.close()
		if strings.Contains(out.String(), " --cni none") != tt.want {
			t.Errorf("%+v:\n%s", tt, &out)
		}
	}
}

// join uses an existing admin.conf only if a given hash matches one of its CAs,
// in any order.
func TestKnownClusterIsThePinnedOne(t *testing.T) {
	n, ca := joining(t, "v1.29.15")
	_, next := joining(t, "v1.29.15")
	hashOf := func(data []byte) string {
		hashes, err := pki.CAHashes(data)
		if err != nil {
			t.Fatal(err)
		}
		return hashes[0]
	}
	const closed = "127.0.0.1:1"
	admin := pki.BootstrapKubeconfig("https://"+closed, append(bytes.Clone(ca), next...), "abcdef.0123456789abcdef")
	if err := n.write(pki.File{Path: adminConf, Data: admin, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	for hash, refused := range map[string]bool{hashOf(ca): false, strings.ToUpper(hashOf(next)): false, "sha256:" + strings.Repeat("0", 64): true} {
		n.config.Discovery = config.Discovery{APIServerEndpoint: closed, CACertHashes: []string{hash}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // no server answers at that address
		_, _, err := n.knownCluster(ctx)
		cancel()
		if got := fault.ExitCode(err) == fault.Preflight; got != refused {
			t.Errorf("%s: %v", hash, err)
		}
	}
}
