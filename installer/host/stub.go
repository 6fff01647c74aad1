package host

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// StubPath is a copy of the installer without the bundle's contents, which stays
// on the host for the unit that adds routes at every boot.
const StubPath = "/usr/local/lib/airlift/install"

// InstallStub copies the running installer, whose sha256 is in the bundle, to
// StubPath.
func (h *Host) InstallStub(ctx context.Context, sha256 string) error {
	self, err := h.openSelf()
	if err != nil {
		return err
	}
	defer self.Close()
	_, err = h.InstallBinary(ctx, Binary{Path: StubPath, SHA256: sha256}, self)
	return err
}

// InstallSelf is InstallStub without a known checksum.
func (h *Host) InstallSelf(ctx context.Context) error {
	self, err := h.openSelf()
	if err != nil {
		return err
	}
	defer self.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, self); err != nil {
		return fmt.Errorf("reading the installer's own binary: %w", err)
	}
	return h.InstallStub(ctx, hex.EncodeToString(sum.Sum(nil)))
}

// openSelf opens the running installer. It may have no other path: it was started from memory.
func (h *Host) openSelf() (*os.File, error) {
	self, err := os.Open(cmp.Or(h.Installer, "/proc/self/exe"))
	if err != nil {
		return nil, fmt.Errorf("reading the installer's own binary: %w", err)
	}
	return self, nil
}
