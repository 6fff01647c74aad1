package store_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// began is a time before all imports. The times in the images are older.
var began = time.Now()

// tree describes every file below root: kind, mode, owner, size, mtime, device, link
// target, content, xattrs, and which names are the same inode.
func tree(t testing.TB, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	first := map[uint64]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		// A directory that a layer uses without listing it has the time of the import,
		// which differs.
		mtime := "import"
		if !d.IsDir() || info.ModTime().Before(began) {
			mtime = info.ModTime().UTC().Format(time.RFC3339Nano)
		}
		desc := fmt.Sprintf("mode=%o uid=%d gid=%d rdev=%x mtime=%s", st.Mode, st.Uid, st.Gid, st.Rdev, mtime)
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			desc += fmt.Sprintf(" sha256=%x", sha256.Sum256(b))
			if st.Nlink > 1 {
				if same, ok := first[st.Ino]; ok {
					desc += " same-as=" + same
				} else {
					first[st.Ino] = name
				}
			}
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			desc += " to=" + target
		}
		files[name] = desc + xattrs(t, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func xattrs(t testing.TB, path string) string {
	t.Helper()
	buf := make([]byte, 4096)
	n, err := unix.Llistxattr(path, buf)
	if err != nil {
		t.Fatal(err)
	}
	names := strings.FieldsFunc(string(buf[:n]), func(r rune) bool { return r == 0 })
	sort.Strings(names)
	out := ""
	for _, name := range names {
		value := make([]byte, 4096)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			t.Fatal(err)
		}
		out += fmt.Sprintf(" %s=%q", name, value[:n])
	}
	return out
}

func compareTrees(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, w := range want {
		if g, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		} else if g != w {
			t.Errorf("%s:\n got %s\nwant %s", name, g, w)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s should not be there", name)
		}
	}
}
