package join

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

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
	if err := n.Write(pki.File{Path: node.AdminConf, Data: admin, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	for hash, refused := range map[string]bool{hashOf(ca): false, strings.ToUpper(hashOf(next)): false, "sha256:" + strings.Repeat("0", 64): true} {
		n.node.Config.Discovery = config.Discovery{APIServerEndpoint: closed, CACertHashes: []string{hash}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // no server answers at that address
		_, _, err := n.knownCluster(ctx)
		cancel()
		if got := fault.ExitCode(err) == fault.Preflight; got != refused {
			t.Errorf("%s: %v", hash, err)
		}
	}
}
