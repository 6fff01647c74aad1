package host

import (
	"context"
	"fmt"
	"os"
)

// StubPath is a copy of the installer without the bundle's contents, which stays
// on the host for the unit that adds routes at every boot.
const StubPath = "/usr/local/lib/airlift/install"

// InstallStub copies the running installer, whose sha256 is in the bundle, to
// StubPath.
func (h *Host) InstallStub(ctx context.Context, sha256 string) error {
	// The binary may have no other path: it was started from memory.
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("reading the installer's own binary: %w", err)
	}
	defer self.Close()
	_, err = h.InstallBinary(ctx, Binary{Path: StubPath, SHA256: sha256}, self)
	return err
}
