package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"airlift/bundle"
	"airlift/bundle/blobs"
	"airlift/bundle/ociarchive"
	"airlift/cmd/output"
	"airlift/internal/atomicfile"
	"airlift/internal/fault"
	"airlift/internal/space"
)

func newImagesExportCmd() *cobra.Command {
	var base string
	cmd := &cobra.Command{
		Use:   "export FILE|- [IMAGE...]",
		Short: "Write images of this file to an OCI archive",
		Long: `Write images of this file to an OCI image layout in a tar archive, which other tools
read: 'ctr images import', 'skopeo copy oci-archive:…'. Without IMAGE, all
images are written. - is the standard output. containerd is not needed.

The images have upstream's digests. This file stores layers uncompressed, so export
compresses them as upstream did. If it cannot do that for some layers, it lists them
and writes nothing: build the bundle with 'bundle build --keep-compressed-layers'.

If this file was built with a base, --base FILE is that base. export reads from it the
layers that this file does not have.`,
		Example: "  ./install images export images.tar\n  ./install images export - registry.k8s.io/pause:3.10 | ctr -n k8s.io images import -\n  ./more images export more.tar --base ./install",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fault.New(fault.Usage, "export needs the name of a file, or - for standard output").Hint("for example: ./install images export images.tar")
			}
			f, err := openOwnFile()
			if err != nil {
				return err
			}
			defer f.Close()
			var other *bundle.File
			if base != "" {
				if other, err = bundle.OpenWhole(base); err != nil {
					return err
				}
				defer other.Close()
			}
			b, err := blobs.Open(f, other)
			if err != nil {
				return err
			}
			images, err := chooseImages(b.Manifest(), args[1:])
			if err != nil {
				return err
			}
			return exportImages(cmd.Context(), cmd, b, images, args[0])
		},
	}
	cmd.Flags().StringVar(&base, "base", "", "the bundle `FILE` that was the base of this file")
	return cmd
}

// chooseImages returns the images with these references, or all.
func chooseImages(m *bundle.Manifest, names []string) (list []bundle.Image, err error) {
	if len(m.Images) == 0 {
		return nil, fault.New(fault.Usage, "this file has no images").Hint("use a file that was built with images")
	}
	if len(names) == 0 {
		return m.Images, nil
	}
	var known []string
	for _, i := range m.Images {
		known = append(known, i.Reference)
	}
	for _, name := range names {
		n := slices.Index(known, name)
		if n < 0 {
			return nil, fault.New(fault.Usage, "this file has no image %q", name).Hint("its images are " + strings.Join(known, ", "))
		}
		if !slices.ContainsFunc(list, func(i bundle.Image) bool { return i.Reference == name }) {
			list = append(list, m.Images[n])
		}
	}
	return list, nil
}

// exportImages writes the archive. A file is replaced when it is complete.
func exportImages(ctx context.Context, cmd *cobra.Command, b *blobs.Bundle, images []bundle.Image, path string) error {
	interrupted := func(err error) error {
		if err != nil && ctx.Err() != nil {
			return fault.Wrap(err, fault.Interrupted, "run the same command again")
		}
		return err
	}
	if path == "-" {
		out := output.Verbatim(cmd.OutOrStdout())
		if f, ok := out.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) {
			return fault.New(fault.Usage, "the archive cannot be written to a terminal").Hint("write to a file, or to a pipe: ./install images export - | ctr -n k8s.io images import -")
		}
		return interrupted(ociarchive.Write(ctx, out, b, images, nil))
	}
	if err := bundle.KeepBundle(path); err != nil {
		return err
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return fault.Wrap(fmt.Errorf("writing %s: %w", path, err), fault.Usage, "choose a file in an existing, writable directory")
	}
	defer f.Discard()
	counted := &countWriter{w: f.File}
	err = ociarchive.Write(ctx, counted, b, images, nil)
	if err == nil {
		err = f.Finish(0o644)
	}
	if err == nil {
		err = f.Replace()
	}
	if err != nil {
		return interrupted(space.Explain(filepath.Dir(path), err))
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d images, %d bytes\n", path, len(images), counted.n)
	return nil
}

type countWriter struct {
	w io.Writer
	n int64
}

func (c *countWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
