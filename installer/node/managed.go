package node

import (
	"airlift/installer/host"
	"airlift/internal/fault"
)

// Managed refuses a node that Airlift neither installed nor adopted: it has no ledger, in which changes are recorded
// for reset, or one with packages only. otherwise is what the hint names in addition, as "; or …"; it may be empty.
func Managed(h *host.Host, otherwise string) error {
	if h.Records().Manages() {
		return nil
	}
	return fault.New(fault.Preflight, "Airlift did not install this node: it has no ledger, in which changes are recorded for reset").
		Hint("take the node over: ./install adopt" + otherwise)
}
