package bundle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/bundle/space/spacetest"
	"airlift/fault"
)

// A full file system is named, whether it is full before the parts are
// compressed or when the images, which waited in a file without a name, are to
// follow the rest. Nothing is left.
func TestFullFileSystemIsNamed(t *testing.T) {
	for size, want := range map[int64]string{
		1 << 20: "no space left on device",
		5 << 20: "no space for the images in the bundle",
		8 << 20: "",
	} {
		for _, level := range []Level{Fastest, Best} {
			t.Run(fmt.Sprintf("%d bytes, %v", size, level), func(t *testing.T) {
				dir := spacetest.Small(t, size)
				s := large()
				path := filepath.Join(dir, "install")
				_, err := WriteFile(t.Context(), path, programs(), s.manifest, Options{Level: level}, s.open, nil)
				if want == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if err == nil || !strings.Contains(strings.ToLower(err.Error()), want) || !strings.Contains(err.Error(), "("+dir+", tmpfs)") || fault.Hint(err) == "" {
					t.Errorf("err = %v, hint = %q", err, fault.Hint(err))
				}
				if files, _ := os.ReadDir(dir); len(files) != 0 {
					t.Errorf("left behind: %v", files)
				}
			})
		}
	}
}

// Complete sees the summary while what was at the path before is still there, and
// may refuse.
func TestCompletePrecedesTheRename(t *testing.T) {
	s := newSample()
	dir := t.TempDir()
	path := filepath.Join(dir, "install")
	if err := os.WriteFile(path, []byte("was here"), 0o600); err != nil {
		t.Fatal(err)
	}
	var seen Summary
	refused := errors.New("refused")
	complete := func(s Summary) error {
		seen = s
		if b, _ := os.ReadFile(path); string(b) != "was here" {
			t.Error("the file is there already")
		}
		return refused
	}
	_, err := WriteFile(t.Context(), path, programs(), s.manifest, Options{Complete: complete}, s.open, nil)
	if b, _ := os.ReadFile(path); !errors.Is(err, refused) || string(b) != "was here" {
		t.Errorf("err = %v, the file has %d bytes", err, len(b))
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("left behind: %v", files)
	}
	written, err := WriteFile(t.Context(), path, programs(), s.manifest, Options{}, s.open, nil)
	if err != nil || written != seen {
		t.Errorf("%+v, %+v, %v", written, seen, err)
	}
}
