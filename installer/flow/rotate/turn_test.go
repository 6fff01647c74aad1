package rotate

import (
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/installer/cluster/lease"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/pods"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

// A stage of a rotation whose turn was lost writes no manifest, and leaves the turn to its holder.
func TestNoStageWithoutTheTurn(t *testing.T) {
	api := &testhost.LeaseAPI{}
	server := httptest.NewServer(api)
	defer server.Close()
	h := testhost.OfServer(t, server.URL, true)
	p, err := pods.NewStaticPods(&config.Config{}, h, &workflow.Console{Out: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 2 { // it does not take it twice
		if err := p.TakeTurn(t.Context(), node.AdminConf); err != nil {
			t.Fatal(err)
		}
	}
	api.Give("host2_X")
	before := manifests(t, h)
	r := newRotation(Options{Stage: Distribute}, p.Machine)
	r.components.pods = p
	steps := r.steps()
	i := slices.IndexFunc(steps, func(s workflow.Step) bool { return s.Name == "next-cas" })
	err = steps[i].Run(t.Context())
	if !errors.Is(err, lease.ErrNoTurn) || !strings.Contains(err.Error(), "has lost its turn to host2") || !strings.Contains(fault.Hint(err), "when the command on host2 has finished") {
		t.Errorf("%v, hint %q", err, fault.Hint(err))
	}
	if after := manifests(t, h); after != before {
		t.Errorf("manifests changed:\n%s", after)
	}
	p.Close()
	if !api.Held() {
		t.Error("it dropped the turn of host2")
	}
}

// manifests returns the names and contents of a host's manifests.
func manifests(t *testing.T, h *host.Host) (all string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(h.Path(config.ManifestsDir), "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all += filepath.Base(file) + "\n" + string(data)
	}
	return all
}
