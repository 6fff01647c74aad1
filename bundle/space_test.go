package bundle

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/smallfs"
)

// The error names a full file system if it is full before the parts are compressed, and if it
// becomes full when the images are appended from their temporary file. No file remains.
func TestFullFileSystemIsNamed(t *testing.T) {
	for size, want := range map[int64]string{
		1 << 20: "no space left on device",
		5 << 20: "not enough space for the images in the bundle",
		8 << 20: "",
	} {
		for _, level := range []Level{Fastest, Best} {
			t.Run(fmt.Sprintf("%d bytes, %v", size, level), func(t *testing.T) {
				dir := smallfs.Small(t, size)
				if level == Best {
					rig.Tool(t, "zstd")
				}
				s := large()
				path := filepath.Join(dir, "install")
				_, err := writeFile(t.Context(), path, executables(), s.manifest, level, s.open, nil)
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

// A draft has its name only after Replace. Until then it can be read, and Discard removes it.
func TestDraft(t *testing.T) {
	s := newSample()
	dir := t.TempDir()
	path := filepath.Join(dir, "install")
	if err := os.WriteFile(path, []byte("was here"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := WriteDraft(t.Context(), path, executables(), s.manifest, Fastest, s.open, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Discard()
	f, err := d.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Verify(t.Context(), nil); err != nil || f.Path() != path || f.Size() != d.Size {
		t.Errorf("%v, %s, %d bytes", err, f.Path(), f.Size())
	}
	f.Close()
	if b, _ := os.ReadFile(path); string(b) != "was here" {
		t.Error("the file has its name already")
	}
	if err := d.Replace(); err != nil {
		t.Fatal(err)
	}
	d.Discard()
	if b, _ := os.ReadFile(path); int64(len(b)) != d.Size {
		t.Errorf("the file has %d bytes", len(b))
	}
	other, err := WriteDraft(t.Context(), path, executables(), s.manifest, Fastest, s.open, nil)
	if err != nil {
		t.Fatal(err)
	}
	other.Discard()
	if files, _ := os.ReadDir(dir); len(files) != 1 || other.Summary != d.Summary {
		t.Errorf("the directory has %v; %+v, %+v", files, other.Summary, d.Summary)
	}
	if b, _ := os.ReadFile(path); int64(len(b)) != d.Size {
		t.Errorf("after Discard, the file has %d bytes", len(b))
	}
	written, err := writeFile(t.Context(), path, executables(), s.manifest, Fastest, s.open, nil)
	if err != nil || written != d.Summary {
		t.Errorf("%+v, %+v, %v", written, d.Summary, err)
	}
}
