package initcluster

import (
	"strings"
	"testing"

	"airlift/installer/node"
	"airlift/internal/fault"
)

// TestRemovedMark: somebody has removed the mark while a restore runs.
func TestRemovedMark(t *testing.T) {
	if m, err := restoring(t).ownMark(); m != nil || err == nil || fault.Hint(err) == "" || !strings.Contains(err.Error(), node.RestoreMarkPath+" was removed") {
		t.Errorf("%v, %v", m, err)
	}
}
