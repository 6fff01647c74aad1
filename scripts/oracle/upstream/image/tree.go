package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"sort"
	"time"
)

// tree is the contents of one layer. Its tar is sorted, has every parent directory, and all
// entries are owned by root and dated 1970, so the same contents give the same bytes.
type tree struct {
	arch    string // of its binaries
	entries map[string]*entry
}

type entry struct {
	header tar.Header
	data   []byte
	source string // if set, read instead of data
}

func newTree(arch string) *tree { return &tree{arch: arch, entries: make(map[string]*entry)} }

func (t *tree) add(e *entry) {
	t.parents(e.header.Name)
	t.entries[e.header.Name] = e
}

func (t *tree) parents(name string) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if t.entries[dir] == nil {
			t.entries[dir] = &entry{header: tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}}
		}
	}
}

func (t *tree) dir(name string, mode int64, uid int) {
	t.add(&entry{header: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, Uid: uid, Gid: uid}})
}

func (t *tree) file(name string, mode int64, data []byte) {
	t.add(&entry{header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}, data: data})
}

func (t *tree) link(name, target string) {
	t.add(&entry{header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}})
}

// fileFrom adds a file whose content is read from disk when the layer is written.
func (t *tree) fileFrom(name, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	t.add(&entry{header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(info.Mode().Perm()), Size: info.Size()}, source: source})
	return nil
}

// capNetBindService is what `setcap cap_net_bind_service=+ep` stores: struct vfs_cap_data
// of linux/capability.h, revision 2, effective bit set, with bit 10 in the permitted set,
// little endian.
const capNetBindService = "\x01\x00\x00\x02" + "\x00\x04\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"

// allowLowPorts gives a file in the tree the capability to bind ports below 1024 as any user, in
// docker's form for layers.
func (t *tree) allowLowPorts(name string) {
	t.entries[name].header.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": capNetBindService}
}

func (t *tree) write(w io.Writer) error {
	names := make([]string, 0, len(t.entries))
	for name := range t.entries {
		names = append(names, name)
	}
	sort.Strings(names) // a directory sorts before its contents
	tw := tar.NewWriter(w)
	for _, name := range names {
		if err := t.entries[name].write(tw); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return tw.Close()
}

func (e *entry) write(tw *tar.Writer) error {
	h := e.header
	h.ModTime = time.Unix(0, 0)
	if h.Typeflag == tar.TypeDir {
		h.Name += "/"
	}
	if err := tw.WriteHeader(&h); err != nil {
		return err
	}
	if e.source == "" {
		_, err := io.Copy(tw, bytes.NewReader(e.data))
		return err
	}
	f, err := os.Open(e.source)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(tw, f)
	return err
}
