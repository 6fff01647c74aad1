package host

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"airlift/installer/host/ledger"
	"airlift/installer/pki"
)

// CommandPath is the copy of the installer without the bundle's contents that each node has: the command airlift, which
// timers and services run too.
const CommandPath = "/usr/local/bin/airlift"

// FormerCommand is where former builds installed it, on nodes with a timer or a service.
const FormerCommand = "/usr/local/lib/airlift/install"

// InstallCommand copies the running installer, whose sha256 is in the bundle, to CommandPath. Units that ran FormerCommand
// run CommandPath from their next start.
func (h *Host) InstallCommand(ctx context.Context, sha256 string) error {
	self, err := h.openSelf()
	if err != nil {
		return err
	}
	defer self.Close()
	if _, err = h.InstallBinary(ctx, Binary{Path: CommandPath, SHA256: sha256}, self); err != nil || !h.Records().Wrote(FormerCommand) {
		return err
	}
	units, err := h.FormerUnits()
	if err != nil {
		return err
	}
	var names []string
	for _, f := range units {
		if _, err := h.WriteFile(f.Path, f.Data, f.Mode); err != nil {
			return err
		}
		names = append(names, path.Base(f.Path))
	}
	if err := h.Systemd().Reread(ctx, names...); err != nil {
		return err
	}
	if err := h.Remove(FormerCommand); err != nil {
		return err
	}
	return h.RemoveEmpty(path.Dir(FormerCommand))
}

// FormerUnits returns the units of Airlift's that run FormerCommand, with CommandPath instead.
func (h *Host) FormerUnits() (units []pki.File, err error) {
	for _, e := range h.Records().Entries(ledger.File) {
		if !strings.HasPrefix(e.Name, "/etc/systemd/system/airlift-") {
			continue
		}
		data, err := h.ReadIfExists(e.Name)
		if err != nil {
			return nil, err
		}
		if now := bytes.ReplaceAll(data, []byte("ExecStart="+FormerCommand+" "), []byte("ExecStart="+CommandPath+" ")); !bytes.Equal(now, data) {
			units = append(units, pki.File{Path: e.Name, Data: now, Mode: 0o644})
		}
	}
	return units, nil
}

// Command returns the running installer as the binary that InstallSelf installs.
func (h *Host) Command() (b Binary, err error) {
	self, err := h.openSelf()
	if err != nil {
		return b, err
	}
	defer self.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, self)
	if err != nil {
		return b, fmt.Errorf("reading the installer's own binary: %w", err)
	}
	return Binary{Path: CommandPath, SHA256: hex.EncodeToString(sum.Sum(nil)), Size: size}, nil
}

// InstallSelf is InstallCommand without a known checksum.
func (h *Host) InstallSelf(ctx context.Context) error {
	b, err := h.Command()
	if err != nil {
		return err
	}
	return h.InstallCommand(ctx, b.SHA256)
}

// openSelf opens the running installer. It may have no other path: it was started from memory.
func (h *Host) openSelf() (*os.File, error) {
	self, err := os.Open(cmp.Or(h.Installer, "/proc/self/exe"))
	if err != nil {
		return nil, fmt.Errorf("reading the installer's own binary: %w", err)
	}
	return self, nil
}
