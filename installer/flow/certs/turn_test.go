package certs

import (
	"errors"
	"fmt"
	"testing"

	"airlift/installer/cluster/lease"
	"airlift/installer/node"
)

// TestNoTurn: certificates that have expired everywhere leave no API server, or one whose etcd has no quorum.
func TestNoTurn(t *testing.T) {
	for err, want := range map[error]bool{node.ErrNoAPI: true, lease.ErrRefused: true, lease.ErrNoTurn: false, errors.New("x"): false} {
		if got := noTurn(fmt.Errorf("taking the turn: %w", err)); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
	if noTurn(nil) {
		t.Error("without an error")
	}
}
