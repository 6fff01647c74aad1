package initcluster

import (
	"bytes"
	"testing"

	"airlift/installer/config"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testhost"
)

// initOn returns the Init of a host directory that has the static pods of a control plane.
func initOn(t *testing.T, change func(*config.Config)) *Init {
	t.Helper()
	h, cfg := testhost.ControlPlane(t, change)
	return New(&phases.Plan{Role: phases.FirstControlPlane, Bundle: new(payload.Bundle), Config: cfg}, phases.InitOptions{}, h, &workflow.Console{Out: new(bytes.Buffer)})
}
