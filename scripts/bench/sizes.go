package main

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"airlift/scripts/lab/kubeadm"
	"airlift/scripts/oracle/upstream/components"
)

// plugins are the CNI plugins that a node runs.
var plugins = []string{"bridge", "host-local", "loopback", "portmap"}

// sizes sums the sizes of the files to copy to the hosts.
func sizes(ctx context.Context, t *table, o options, kit *kubeadm.Kit, releases []kubeadm.Release) error {
	images, err := blobs(kit.Archives)
	if err != nil {
		return err
	}
	all, few := images, images
	parts := []string{fmt.Sprintf("images %.1f", float64(images)/1e6)}
	for _, r := range releases {
		n, err := fileSize(r.Path)
		if err != nil {
			return err
		}
		parts = append(parts, fmt.Sprintf("%s %.1f", filepath.Base(r.Path), float64(n)/1e6))
		all += n
		if !strings.HasPrefix(filepath.Base(r.Path), "cni-plugins") {
			few += n
		}
	}
	for _, name := range plugins {
		program, err := components.Path(kit.Version, name)
		if err != nil {
			return err
		}
		n, err := gzipped(ctx, program)
		if err != nil {
			return err
		}
		few += n
	}
	t.tell("Carried by hand, in MB: " + strings.Join(parts, ", ") + ".")
	own, hand := &airlift{}, &byHand{}
	size, err := fileSize(o.bundle)
	if err != nil {
		return err
	}
	t.bytes(sizeRow, hand, all)
	t.bytes(sizeRow, own, size)
	t.bytes(sizeFewRow, hand, few)
	t.bytes(sizeFewRow, own, size)
	if o.best == "" {
		return nil
	}
	if size, err = fileSize(o.best); err != nil {
		return err
	}
	t.bytes(sizeBestRow, hand, all)
	t.bytes(sizeBestRow, own, size)
	return nil
}

func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// blobs returns the size of the blobs in image archives, each blob counted once.
func blobs(archives []kubeadm.Archive) (total int64, err error) {
	seen := map[string]bool{}
	for _, a := range archives {
		f, err := os.Open(a.Path)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		for tr := tar.NewReader(f); ; {
			h, err := tr.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return 0, fmt.Errorf("reading %s: %w", a.Path, err)
			}
			if strings.HasPrefix(h.Name, "blobs/") && !seen[h.Name] {
				seen[h.Name] = true
				total += h.Size
			}
		}
	}
	return total, nil
}

// gzipped is the size of a file after gzip -6, in bytes.
func gzipped(ctx context.Context, path string) (int64, error) {
	var n counter
	cmd := exec.CommandContext(ctx, "gzip", "-6", "-n", "-c", path)
	cmd.Stdout = &n
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("compressing %s: %w", path, err)
	}
	return int64(n), nil
}

type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}
