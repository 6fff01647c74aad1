package compare

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/buildinfo"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/internal/interrupt"
)

// maxBinary is the maximum size in bytes of a binary whose modules are read. It is read into
// memory; kube-apiserver has 100 MB.
const maxBinary = 512 << 20

// A Binary is a Go binary in both bundles, with the modules whose versions differ. The Go
// version is the module "go".
type Binary struct {
	Name    string   `json:"name"` // "bin/kubelet", or "kube-apiserver: /usr/local/bin/kube-apiserver"
	Modules []Change `json:"modules"`
}

// modules compares the Go modules of binaries that differ: binaries for the hosts, and binaries in
// layers that only one bundle has.
func modules(ctx context.Context, before, after *bundle.File, x, y *bundle.Manifest) ([]Binary, error) {
	old, err := readModules(ctx, before, x, y)
	if err != nil {
		return nil, err
	}
	now, err := readModules(ctx, after, y, x)
	if err != nil {
		return nil, err
	}
	list := []Binary{}
	for name, info := range old {
		if other, ok := now[name]; ok {
			if c := changes(info, other); len(c) > 0 {
				list = append(list, Binary{name, c})
			}
		}
	}
	slices.SortFunc(list, func(a, b Binary) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// readModules returns the modules of each binary that other has not, by the binary's name.
func readModules(ctx context.Context, f *bundle.File, m, other *bundle.Manifest) (map[string]map[string]string, error) {
	has := map[bundle.Entry]bool{}
	for _, e := range other.Entries {
		has[e] = true
	}
	users := map[string][]string{} // names of images by the entry of a layer
	for _, i := range m.Images {
		for _, l := range i.Layers {
			users[bundle.BlobName(l.DiffID)] = append(users[bundle.BlobName(l.DiffID)], bundle.Untagged(i.Name))
		}
	}
	binary := func(e bundle.Entry) bool {
		return strings.HasPrefix(e.Name, bundle.BinDir) || strings.HasPrefix(e.Name, bundle.CNIDir)
	}
	wanted := func(e bundle.Entry) bool { return !has[e] && (binary(e) || users[e.Name] != nil) }
	found := map[string]map[string]string{}
	return found, f.Each(ctx, wanted, func(e bundle.Entry, content bundle.Content) error {
		if binary(e) {
			return readBinary(content, e.Size, func(info map[string]string) { found[e.Name] = info })
		}
		return readLayer(content, func(path string, info map[string]string) {
			for _, user := range users[e.Name] {
				found[user+": /"+path] = info
			}
		})
	})
}

// readLayer finds the Go binaries in the tar of a layer. A layer that is not a tar has no binaries.
func readLayer(content bundle.Content, found func(path string, info map[string]string)) error {
	source := &interrupt.Input{Reader: content} // distinguishes errors of the bundle from errors in the tar
	t := tar.NewReader(source)
	for {
		h, err := t.Next()
		if err != nil {
			return source.Err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		path := strings.TrimPrefix(strings.TrimPrefix(h.Name, "./"), "/")
		if err := readBinary(t, h.Size, func(info map[string]string) { found(path, info) }); err != nil {
			return source.Err
		}
	}
}

// readBinary calls found if content is an ELF file with the build information of Go.
func readBinary(content io.Reader, size int64, found func(info map[string]string)) error {
	magic := make([]byte, 4)
	if size > maxBinary || size < 64 {
		return nil
	}
	if _, err := io.ReadFull(content, magic); err != nil || string(magic) != "\x7fELF" {
		return err
	}
	b := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	b.Write(magic)
	if _, err := b.ReadFrom(content); err != nil {
		return err
	}
	if info, err := buildinfo.Read(bytes.NewReader(b.Bytes())); err == nil {
		found(versions(info))
	}
	return nil
}

// versions returns the version of each module, and of Go. A replaced module has the version of the
// replacement.
func versions(info *debug.BuildInfo) map[string]string {
	all := map[string]string{"go": strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range append(slices.Clone(info.Deps), &info.Main) {
		version := m.Version
		if m.Replace != nil {
			version = joined(m.Replace.Path, m.Replace.Version)
		}
		if m.Path != "" {
			all[m.Path] = version
		}
	}
	return all
}
