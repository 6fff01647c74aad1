//go:build !windows

package atomicfile_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/internal/atomicfile"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("ATOMICFILE_TEST_CREATE"); path != "" {
		f, err := atomicfile.Create(path)
		if err != nil {
			panic(err)
		}
		if os.Getenv("ATOMICFILE_TEST_FINISH") != "" {
			if err := f.Finish(0o644); err != nil {
				panic(err)
			}
		}
		os.Stdout.WriteString("created\n")
		select {} // until it is killed
	}
	os.Exit(m.Run())
}

// temporaries lists the hidden files in a directory.
func temporaries(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}

// The file of a process that was killed is removed by the next one, and the file of one that runs is kept, also if it is
// finished. Other files that look like it are kept, too.
func TestFilesOfKilledProcesses(t *testing.T) {
	for _, finished := range []string{"", "1"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "install")
		others := []string{".install.old.partial", ".install.5.123.partial", ".install.123", ".other.123.partial", "install.123.partial"}
		for _, name := range others {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		others = slices.DeleteFunc(others, func(name string) bool { return !strings.HasPrefix(name, ".") })
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(self)
		c.Env = append(os.Environ(), "ATOMICFILE_TEST_CREATE="+path, "ATOMICFILE_TEST_FINISH="+finished)
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		write := func(content string) {
			t.Helper()
			if err := atomicfile.Write(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write("while it runs")
		if got := temporaries(t, dir); len(got) != len(others)+1 {
			t.Errorf("finished %q: while another process runs: %q", finished, got)
		}
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		write("afterwards")
		if got := temporaries(t, dir); len(got) != len(others) {
			t.Errorf("finished %q: after it was killed: %q", finished, got)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != "afterwards" {
			t.Errorf("%q, %v", got, err)
		}
	}
}
