package atomicfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"airlift/internal/atomicfile"
)

// state returns the content at path, and fails if anything else is in the directory.
func state(t *testing.T, path string) string {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Name() != filepath.Base(path) {
			t.Errorf("left in the directory: %s", e.Name())
		}
	}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "(none)"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, content := range []string{"first", "second"} {
		if err := atomicfile.Write(path, []byte(content), 0o640); err != nil || state(t, path) != content {
			t.Fatalf("%q: %v", state(t, path), err)
		}
	}
	if i, err := os.Stat(path); err != nil || i.Mode() != 0o640 {
		t.Errorf("%v, %v", i.Mode(), err)
	}
	if err := atomicfile.WriteNew(path, []byte("third"), 0o600); !errors.Is(err, fs.ErrExist) || state(t, path) != "second" {
		t.Errorf("an existing file: %q, %v", state(t, path), err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.WriteNew(path, []byte("third"), 0o600); err != nil || state(t, path) != "third" {
		t.Errorf("%q, %v", state(t, path), err)
	}
}

func TestPathThatCannotBeReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir")
	if err := os.MkdirAll(filepath.Join(path, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(path, []byte("content"), 0o644); err == nil {
		t.Error("a directory was replaced")
	}
	if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 1 {
		t.Errorf("left: %v, %v", list, err)
	}
}

// A file has its name only after Replace, and Remove also removes it then.
func TestSteps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f, err := atomicfile.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("content"); err != nil {
		t.Fatal(err)
	}
	if err := f.Finish(0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before Replace: %v", err)
	}
	if err := f.Replace(); err != nil || state(t, path) != "content" {
		t.Errorf("%q, %v", state(t, path), err)
	}
	f.Discard()
	if state(t, path) != "content" {
		t.Error("Discard removed the file")
	}
	f.Remove()
	if state(t, path) != "(none)" {
		t.Error("Remove left the file")
	}
	g, err := atomicfile.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	g.Discard()
	if state(t, path) != "(none)" {
		t.Error("Discard left the file")
	}
}
