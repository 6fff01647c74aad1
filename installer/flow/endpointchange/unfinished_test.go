package endpointchange

import (
	"errors"
	"strings"
	"testing"

	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/revision"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/layouts"
	"airlift/scripts/fixtures/testhost"
)

// TestUnfinishedReconfigurationRefusesAnEndpoint: its undo would restore static pods and kubeconfigs with the former endpoint.
func TestUnfinishedReconfigurationRefusesAnEndpoint(t *testing.T) {
	for finished, want := range map[bool]string{true: "", false: "a reconfiguration of this node was not finished"} {
		root := t.TempDir()
		if err := layouts.Kubeadm(layouts.Options{Version: "v1.36.3"}).WriteInside(root); err != nil {
			t.Fatal(err)
		}
		h := testhost.Open(t, root)
		state := &revision.Record{Kind: revision.Reconfigure, From: "v1.36.3", To: "v1.36.3", Change: "ab", Finished: finished}
		if err := errors.Join(h.Records().Adopt(ledger.Adoption{Maker: "kubeadm"}), state.Write(h)); err != nil {
			t.Fatal(err)
		}
		err := (&Change{Machine: node.NewMachine(h, console()), controlPlane: node.NewMachine(h, console()).IsControlPlane()}).checkHost()
		if (err == nil) != (want == "") || err != nil && (fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), want)) {
			t.Errorf("finished %t: %v (hint %q)", finished, err, fault.Hint(err))
		}
	}
}
