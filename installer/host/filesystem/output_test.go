package filesystem_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"airlift/installer/host/filesystem"
	"airlift/scripts/fixtures/smallfs"
)

// left fails unless a directory has exactly one file, with this content.
func left(t *testing.T, path, content string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(list) != 1 {
		t.Errorf("left: %v, %v", list, err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != content {
		t.Errorf("%q, %v; want %q", data, err, content)
	}
}

func createOutput(t *testing.T, path, content string) *filesystem.Output {
	t.Helper()
	o, err := filesystem.CreateOutput(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestTwoOutputsWithOneName: two hosts write to a shared drive. Only a complete file gets the name.
func TestTwoOutputsWithOneName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.tar")
	a := createOutput(t, path, "all of A")
	b := createOutput(t, path, "a part ")
	if err := a.Commit(); err == nil {
		t.Error("the first one gave its name to a part of the second one")
	}
	a.Discard()
	if _, err := b.Write([]byte("of B")); err != nil {
		t.Fatal(err)
	}
	if err := b.CommitNew(); err != nil {
		t.Fatal(err)
	}
	left(t, path, "a part of B")

	late := createOutput(t, path, "late")
	if err := late.CommitNew(); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	left(t, path, "a part of B")
	if late = createOutput(t, path, "replaced"); late.Commit() != nil {
		t.Error("an existing file was not replaced")
	}
	left(t, path, "replaced")
}

// TestOutputOnADriveWithoutModes writes to exFAT, which has neither modes nor links.
func TestOutputOnADriveWithoutModes(t *testing.T) {
	for dir, want := range map[string]bool{t.TempDir(): false, smallfs.WithoutModes(t): true} {
		path := filepath.Join(dir, "cluster.tar")
		o := createOutput(t, path, "first")
		if exposed, err := filesystem.Exposed(o.Name()); err != nil || exposed != want {
			t.Errorf("%s: exposed %v, %v", dir, exposed, err)
		}
		if err := o.CommitNew(); err != nil {
			t.Fatal(err)
		}
		left(t, path, "first")
		if err := createOutput(t, path, "second").CommitNew(); !errors.Is(err, fs.ErrExist) {
			t.Error(err)
		}
		left(t, path, "first")
		if err := createOutput(t, path, "third").Commit(); err != nil {
			t.Fatal(err)
		}
		left(t, path, "third")
	}
}
