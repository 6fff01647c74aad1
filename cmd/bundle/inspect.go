package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/images/release"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

func newInspectCmd() *cobra.Command {
	var output *outputFormat
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show the contents of a bundle",
		Long: `Show the contents of a bundle as a tree, with the unpacked size of each part and its
share of the whole: every component with its upstream URL and checksum, every image with
its digest, their signers if the build verified signatures, and the site's own manifests,
files, systemd units and packages. At the end it prints the command that lists the files with tar.

inspect reads only the manifest and compares it with its sha256. "bundle verify"
reads the whole file. Of a thin file ("install thin"), inspect shows the contents of its
bundle, and which parts are not in the file.`,
		Example: `  bundle inspect install
  bundle inspect install --output json | jq -r '.manifest.images[].reference'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := bundle.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			m, err := f.Manifest()
			if err != nil {
				return err
			}
			parts, err := partsOf(f, m)
			if err != nil {
				return err
			}
			if *output == "json" {
				return inspectJSON(cmd.OutOrStdout(), f, m, parts)
			}
			return inspectText(cmd.OutOrStdout(), f, m, parts)
		},
	}
	output = addOutputFlag(cmd)
	return cmd
}

// inspection is the document that inspect --output json prints.
type inspection struct {
	File         string           `json:"file"`
	Size         int64            `json:"size"`                // of the file, in bytes
	ID           string           `json:"id"`                  // sha256 of the trailer
	Thin         bool             `json:"thin,omitempty"`      // the file has only the part head
	WholeSize    int64            `json:"wholeSize,omitempty"` // of a thin file's bundle, in bytes
	Payload      payload          `json:"payload"`
	Installer    bundle.Entry     `json:"installer"`
	UnpackedSize int64            `json:"unpackedSize"` // of the installer and all entries, in bytes
	Manifest     *bundle.Manifest `json:"manifest"`
}

type payload struct {
	Offset  int64  `json:"offset"`        // in the file, in bytes
	Size    int64  `json:"size"`          // compressed, in bytes
	Digests string `json:"digestsSHA256"` // of the digests of the compressed bytes
	Parts   []part `json:"parts"`
}

// A part is a zstd frame of the payload that can be read without the others.
type part struct {
	Name         string `json:"name"`
	Offset       int64  `json:"offset"`       // in the file, in bytes
	Size         int64  `json:"size"`         // compressed, in bytes
	UnpackedSize int64  `json:"unpackedSize"` // of its files, in bytes
	Files        int    `json:"files"`
	Window       int64  `json:"window,omitempty"` // of the zstd frame, in bytes; 0 if a thin file does not have the part
}

// partsOf describes the payload's parts.
func partsOf(f *bundle.File, m *bundle.Manifest) ([]part, error) {
	var parts []part
	for _, p := range f.Parts() {
		d := part{Name: p.Name, Offset: p.Offset, Size: p.Size}
		if !f.Thin() || p.Name == bundle.HeadPart {
			var err error
			if d.Window, err = f.Window(p); err != nil {
				return nil, err
			}
		}
		for _, e := range p.Entries(m) {
			d.Files++
			d.UnpackedSize += e.Size
		}
		if p.Name == bundle.HeadPart {
			d.Files, d.UnpackedSize = 2, f.ManifestSize()+f.Installer().Size
		}
		parts = append(parts, d)
	}
	return parts, nil
}

func inspectJSON(w io.Writer, f *bundle.File, m *bundle.Manifest, parts []part) error {
	whole := int64(0)
	if f.Thin() {
		whole = f.WholeSize()
	}
	return printJSON(w, inspection{
		File:         f.Path(),
		Size:         f.Size(),
		ID:           f.ID(),
		Thin:         f.Thin(),
		WholeSize:    whole,
		Payload:      payload{f.PayloadOffset(), f.PayloadSize(), f.DigestsSHA256(), parts},
		Installer:    f.Installer(),
		UnpackedSize: m.UnpackedSize() + f.Installer().Size,
		Manifest:     m,
	})
}

func inspectText(w io.Writer, f *bundle.File, m *bundle.Manifest, parts []part) error {
	var b strings.Builder
	if m.Additional() {
		additionalText(&b, m)
	} else {
		fmt.Fprintf(&b, "Kubernetes %s for %s, pod network: %s\n", m.KubernetesVersion, m.Platform, m.CNI)
	}
	if m.NearestKnown != "" {
		fmt.Fprintf(&b, "%s\n", release.Newer(m.KubernetesVersion, m.NearestKnown))
	}

	b.WriteString("\n" + treeText(contents(m, f.Installer().Size), true))

	unpacked := m.UnpackedSize() + f.Installer().Size
	fmt.Fprintf(&b, "\n%d entries; layers that images share are stored once\n", len(m.Entries))
	fmt.Fprintf(&b, "payload of %s, compression ratio %.1f, in parts that can be read separately:\n",
		progress.Bytes(f.PayloadSize()), float64(unpacked)/float64(f.PayloadSize()))
	for _, p := range parts {
		files := fmt.Sprintf("%d files", p.Files)
		if p.Files == 1 {
			files = "1 file"
		}
		state := "window " + progress.Bytes(p.Window)
		if p.Window == 0 {
			state = "not in this file"
		}
		fmt.Fprintf(&b, "  %-8s  %9s, %9s unpacked, %s, %s\n",
			p.Name, progress.Bytes(p.Size), progress.Bytes(p.UnpackedSize), files, state)
	}
	if f.Thin() {
		fmt.Fprintf(&b, "thin file of %s of a bundle of %s, format version %d\n", progress.Bytes(f.Size()), progress.Bytes(f.WholeSize()), m.FormatVersion)
	} else {
		fmt.Fprintf(&b, "file of %s, format version %d, payload at offset %d\n", progress.Bytes(f.Size()), m.FormatVersion, f.PayloadOffset())
		fmt.Fprintf(&b, "\nTo list the files with tar:\n  tail -c +%d %s | tar --zstd -t\n", f.PayloadOffset()+1, fault.Word(f.Path())) // tail counts bytes from 1
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// additionalText describes a bundle without Kubernetes and its base.
func additionalText(b *strings.Builder, m *bundle.Manifest) {
	fmt.Fprintf(b, "additional bundle without Kubernetes: %s for clusters of Kubernetes %s (built for %s) on %s\n",
		strings.Join(m.Only, " and "), release.MinorOf(m.KubernetesVersion), m.KubernetesVersion, m.Platform)
	if m.Base != nil {
		fmt.Fprintf(b, "base: the bundle whose manifest has sha256 %s; only there: %s\n",
			m.Base.ManifestSHA256, layersIn(m.OnlyInBase()))
	}
}
