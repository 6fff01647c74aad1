// Package thin has the command that writes a thin installer.
package thin

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/cmd/output"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// written is the document that the command prints with --output.
type written struct {
	File              string `json:"file"`
	Size              int64  `json:"size"`      // of the file, in bytes
	WholeSize         int64  `json:"wholeSize"` // of the bundle, in bytes
	ID                string `json:"id"`        // of the bundle
	KubernetesVersion string `json:"kubernetesVersion"`
	Platform          string `json:"platform"`
}

// New returns the command. open opens the file of this process.
func New(open func() (*bundle.File, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "thin FILE",
		Short: "Write a thin installer: this file without the binaries and images",
		Long: `Write a thin installer to FILE: the start of this file with the installer, without the
binaries and the images. Copy FILE, instead of this file, to a host that joins a cluster,
and to the nodes. There, join, upgrade, import and apply read the rest from a control plane
that serves this file: run "registry enable" of this file on a control plane.

FILE has the digests of the whole file. Each piece that a control plane sends is compared
with them before it is used. So a control plane cannot send anything else.

init and "etcd restore" have no cluster to read from, and need the whole file.`,
		Example: "  ./install thin thin\n  ./thin join 10.1.2.3:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:…\n  ./more thin more-thin -o json",
		Args:    output.OneArg("thin requires the name of one file", "for example: ./install thin thin"),
	}
	cmd.Flags().SortFlags = false
	return output.Show(cmd, func(cmd *cobra.Command, args []string) (*written, error) {
		f, err := open()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return write(cmd, f, args[0])
	}, (*written).print)
}

// write writes the thin file of f to path.
func write(cmd *cobra.Command, f *bundle.File, path string) (*written, error) {
	m, err := f.Manifest()
	if err != nil {
		return nil, err
	}
	size, err := bundle.WriteThin(cmd.Context(), f, path)
	if err != nil && cmd.Context().Err() != nil {
		return nil, fault.Wrap(err, fault.Interrupted, "run the same command again")
	}
	if err != nil {
		return nil, err
	}
	return &written{File: path, Size: size, WholeSize: f.WholeSize(), ID: f.ID(), KubernetesVersion: m.KubernetesVersion, Platform: m.Platform}, nil
}

func (w *written) print(out io.Writer) error {
	_, err := fmt.Fprintf(out, `%s: %s of %s, Kubernetes %s for %s

Copy it to a host and run it there instead of the whole file. A control plane must serve the
whole file. If none does, run 'registry enable' of the whole file on a control plane.
`, w.File, progress.Bytes(w.Size), progress.Bytes(w.WholeSize), w.KubernetesVersion, w.Platform)
	return err
}
