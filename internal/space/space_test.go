package space_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"airlift/internal/fault"
	"airlift/internal/space"
	"airlift/scripts/fixtures/smallfs"
)

func TestCheck(t *testing.T) {
	dir := smallfs.Small(t, 1<<20)
	below := filepath.Join(dir, "a")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := space.Check(below, "the bundle", 1<<20-8192); err != nil {
		t.Error(err)
	}
	free, err := space.Free(below)
	if err != nil || free < 1<<20-8192 || free > 1<<20 {
		t.Errorf("%d bytes are free, %v", free, err)
	}
	err = space.Check(below, "the bundle", 1<<20+1)
	for _, want := range []string{"the bundle", below, "(" + dir + ", tmpfs)", fmt.Sprintf("%d bytes free", free), "1048577 are needed"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
	if fault.ExitCode(err) != fault.Failure || !strings.Contains(fault.Hint(err), "df "+below) {
		t.Errorf("%v, %q", fault.ExitCode(err), fault.Hint(err))
	}
	if space.Shared(dir, t.TempDir()) || !space.Shared(dir, below) {
		t.Error("file systems are mistaken for each other")
	}
}

func TestExplain(t *testing.T) {
	dir := smallfs.Small(t, 64<<10)
	full := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1<<20), 0o644)
	if !errors.Is(full, unix.ENOSPC) {
		t.Fatal(full)
	}
	err := space.Explain(dir, full)
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "("+dir+", tmpfs) has 0 bytes free") || fault.Hint(err) == "" {
		t.Errorf("%v, %q", err, fault.Hint(err))
	}
	if again := space.Explain(dir, err); again.Error() != err.Error() {
		t.Errorf("explained twice: %v", again)
	}
	other := errors.New("other")
	if err := space.Explain(dir, other); err != other {
		t.Error(err)
	}
	if err := space.Explain(dir, nil); err != nil {
		t.Error(err)
	}
}
