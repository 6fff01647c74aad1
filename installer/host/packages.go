package host

import (
	"context"
	"io"
	"path"

	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
)

// PackagesDir is the one of the ledger.
const PackagesDir = ledger.PackagesDir

// BeginPackages creates PackagesDir, without what an earlier run left. The caller must call EndPackages.
func (h *Host) BeginPackages() error {
	if err := h.makeState(); err != nil {
		return err
	}
	if err := h.Claim(ledger.Claim{Path: PackagesDir, Contents: "packages that are being installed", Fix: "rm -r " + PackagesDir}); err != nil {
		return err
	}
	if err := h.RemoveTree(PackagesDir); err != nil {
		return err
	}
	return h.MakeDir(PackagesDir, 0o700)
}

// PutPackage writes a package with this sha256 to PackagesDir and returns its path.
func (h *Host) PutPackage(ctx context.Context, name, sha256 string, r io.Reader) (string, error) {
	to := h.Path(path.Join(PackagesDir, path.Base(name)))
	err := h.Change(path.Join(PackagesDir, path.Base(name)), func() error {
		staged, err := filesystem.Stage(ctx, to, r, 0o600, sha256)
		if err != nil {
			return err
		}
		return staged.Settle()
	})
	return to, err
}

// EndPackages removes PackagesDir. If the ledger has nothing else, it goes too.
func (h *Host) EndPackages() error {
	if err := h.RemoveTree(PackagesDir); err != nil {
		return err
	}
	if err := h.records.Forget(ledger.Owned, PackagesDir); err != nil {
		return err
	}
	return h.ForgetUnused()
}

// ForgetUnused removes the ledger and its directory if Airlift has nothing on this host.
func (h *Host) ForgetUnused() error {
	if h.records.Used() {
		return nil
	}
	return h.records.Remove(false, func() error { return h.RemoveTree(ledger.StateDir) })
}
