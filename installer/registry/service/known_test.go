package service

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What could not be stored is stored with the next list, also if that one has nothing new.
func TestKnownIsStoredAfterAnError(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	k := &known{path: filepath.Join(dir, "known.json"), log: slog.New(slog.DiscardHandler)}
	k.setNodes([]string{"one"}) // the directory does not exist
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	k.setNodes([]string{"one"})
	stored := &known{path: k.path}
	if err := stored.load(); err != nil || !slices.Equal(stored.Nodes, []string{"one"}) {
		t.Errorf("stored %v, %v", stored.Nodes, err)
	}
}
