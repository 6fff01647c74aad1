package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testbundle"
)

// said is the output of the probe; see testdata/probe.
type said struct {
	PID            int
	Args           []string
	Env            []string
	Path, Name     string
	Exe, Input     string
	FileSize       int64
	InheritedFiles []string
}

var programs bundle.Executables

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "launch-")
	if err != nil {
		panic(err)
	}
	build := func(name, pkg string) []byte {
		path := filepath.Join(dir, name)
		cmd := exec.Command("go", "build", "-o", path, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%v\n%s", err, out))
		}
		b, err := os.ReadFile(path)
		if err != nil {
			panic(err)
		}
		return b
	}
	programs = bundle.Executables{Launcher: head.HeadersLast(build("launch", ".")), Installer: build("probe", "./testdata/probe")}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// carrier writes a bundle file with the launcher and the probe.
func carrier(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "install")
	m := &bundle.Manifest{FormatVersion: bundle.FormatVersion, Platform: "linux/" + runtime.GOARCH, KubernetesVersion: "v1.29.15", CNI: "none"}
	testbundle.WriteFile(t, path, programs, m, bundle.Fastest, nil)
	return path
}

// run runs the command and returns the output of the probe.
func run(t *testing.T, cmd *exec.Cmd, code int) said {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("exit code %d, want %d\n%s%s", got, code, out.String(), errs.String())
	}
	var s said
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatalf("%v: %s%s", err, out.String(), errs.String())
	}
	return s
}

func TestInstallerTakesOver(t *testing.T) {
	path := carrier(t)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "input", "--flag", "", "a b")
	cmd.Env = []string{"A=1", "AIRLIFT_FILE=7:/etc/passwd", "B=2"}
	cmd.Stdin = strings.NewReader("typed")
	s := run(t, cmd, 4)
	if s.PID != cmd.Process.Pid {
		t.Errorf("process %d, the launcher was %d", s.PID, cmd.Process.Pid)
	}
	if want := []string{path, "input", "--flag", "", "a b"}; !slices.Equal(s.Args, want) {
		t.Errorf("arguments %q, want %q", s.Args, want)
	}
	if want := []string{"A=1", "B=2"}; !slices.Equal(s.Env, want) {
		t.Errorf("environment %q, want %q", s.Env, want)
	}
	if s.Input != "typed" || s.Name != "install" || s.Path != path || s.FileSize != info.Size() {
		t.Errorf("%+v", s)
	}
	if !strings.HasPrefix(s.Exe, "/memfd:install") {
		t.Errorf("the program is %s", s.Exe)
	}
	// Go's runtime keeps the files with the cgroup's limits open.
	s.InheritedFiles = slices.DeleteFunc(s.InheritedFiles, func(name string) bool { return strings.HasPrefix(name, "/sys/fs/cgroup/") })
	if want := []string{path}; !slices.Equal(s.InheritedFiles, want) {
		t.Errorf("open files %q, want %q alone", s.InheritedFiles, want)
	}
}

// The path in messages is the path of the file, for every way to start it.
func TestHoweverItIsStarted(t *testing.T) {
	path := carrier(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	relative := exec.Command("./install")
	relative.Dir = filepath.Dir(path)
	byPath := exec.Command("sh", "-c", "exec install")
	byPath.Env = []string{"PATH=" + filepath.Dir(path) + ":" + os.Getenv("PATH")}
	for name, c := range map[string]struct {
		cmd  *exec.Cmd
		arg0 string
	}{
		"symlink":  {exec.Command(link), link},
		"relative": {relative, "./install"},
		"PATH":     {byPath, "install"},
	} {
		s := run(t, c.cmd, 0)
		if s.Path != path || s.Args[0] != c.arg0 {
			t.Errorf("%s: path %s, argument 0 %s; want %s, %s", name, s.Path, s.Args[0], path, c.arg0)
		}
	}
}

// The running installer keeps its file if the path is removed or replaced, and receives
// signals.
func TestFileGoneAndSignal(t *testing.T) {
	path := carrier(t)
	cmd := exec.Command(path, "wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var s said
	if err := json.NewDecoder(out).Decode(&s); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	list, err := exec.Command("ls", "-l", fmt.Sprintf("/proc/%d/fd", cmd.Process.Pid)).Output()
	if err != nil || !strings.Contains(string(list), path+" (deleted)") {
		t.Errorf("the file is not open any more: %v\n%s", err, list)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("after a signal: exit code %d", code)
	}
}

// A damaged copy causes the same errors as in every reader.
func TestDamagedCopies(t *testing.T) {
	path := carrier(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	payload := int(f.PayloadOffset())
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"launcher alone":    {programs.Launcher, "is an executable without a payload"},
		"cut in the header": {whole[:payload-10], "is an incomplete copy: it ends 54 bytes after its launcher"},
		"cut in the middle": {whole[:len(whole)/3*2], "are missing"},
		"one byte less":     {whole[:len(whole)-1], "1 are missing"},
		"one byte more":     {append(bytes.Clone(whole), 'x'), "data was appended"},
	} {
		damaged := filepath.Join(t.TempDir(), "install")
		if err := os.WriteFile(damaged, c.content, 0o755); err != nil {
			t.Fatal(err)
		}
		_, reader := bundle.Open(damaged)
		want := fmt.Sprintf("error: %v\nhint: %s\n", reader, fault.Hint(reader))
		if !strings.Contains(want, c.want) {
			t.Errorf("%s: a reader says %q, want %q", name, want, c.want)
		}
		refused(t, name, damaged, want)
	}
	// A flipped bit anywhere in what the launcher reads is found.
	damaged := filepath.Join(t.TempDir(), "install")
	if err := os.WriteFile(damaged, whole, 0o755); err != nil {
		t.Fatal(err)
	}
	for at := payload; at < payload+int(f.PayloadSize()); at += 9973 {
		put(t, damaged, at, whole[at]^16)
		refused(t, fmt.Sprintf("byte %d flipped", at), damaged, " of the file do not match their sha256\nhint: ")
		put(t, damaged, at, whole[at])
	}
}

// put replaces one byte of a file.
func put(t *testing.T, path string, at int, b byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // it must be closed when the file is executed
	if _, err := f.WriteAt([]byte{b}, int64(at)); err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, name, path, want string) {
	t.Helper()
	var out, errs strings.Builder
	cmd := exec.Command(path)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != int(fault.Bundle) || !strings.Contains(errs.String(), want) || out.Len() > 0 {
		t.Errorf("%s: exit code %d, %q%q; want 4 and %q", name, code, out.String(), errs.String(), want)
	}
}

// If the kernel forbids to execute memory, a directory is used, and no file remains in it.
func TestMemoryIsForbidden(t *testing.T) {
	rig.Root(t) // to change a kernel parameter
	path := carrier(t)
	// The kernel parameter is separate for each PID namespace.
	forbid := func(more string) *exec.Cmd {
		return exec.Command("unshare", "--pid", "--mount", "--fork", "--mount-proc", "sh", "-c",
			"echo 2 >/proc/sys/vm/memfd_noexec || exit 99; "+more+` exec "$0" x`, path)
	}
	before := files(t)
	s := run(t, forbid(""), 1)
	if !strings.HasPrefix(s.Exe, "/dev/shm/") || !strings.HasSuffix(s.Exe, " (deleted)") || s.Path != path {
		t.Errorf("the program is %s, of %s", s.Exe, s.Path)
	}
	s = run(t, forbid("mount -o remount,bind,noexec /dev/shm 2>/dev/null || mount -t tmpfs -o noexec x /dev/shm; mount -t tmpfs -o noexec x /run;"), 1)
	if !strings.HasPrefix(s.Exe, "/usr/local/lib/") || !strings.HasSuffix(s.Exe, " (deleted)") {
		t.Errorf("the program is %s", s.Exe)
	}
	if after := files(t); !slices.Equal(before, after) {
		t.Errorf("before: %q\nafter: %q", before, after)
	}
	// If no place is possible, the error lists all that were tried.
	var none strings.Builder
	for _, dir := range []string{"/dev/shm", "/run", "/usr/local/lib", "/var/lib", "/var/tmp"} {
		fmt.Fprintf(&none, "mount -t tmpfs -o noexec x %s; ", dir)
	}
	cmd := forbid(none.String() + "mount --bind /tmp /tmp; mount -o remount,bind,noexec /tmp; mount() { :; };")
	cmd.Args[len(cmd.Args)-1] = copyTo(t, path, "/root")
	cmd.Args[len(cmd.Args)-2] = strings.Replace(cmd.Args[len(cmd.Args)-2], " exec ", " ulimit -f 100; exec ", 1) // no room in its own directory
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), "memory: memfd_create: permission denied; /dev/shm: mounted noexec; ") ||
		!strings.Contains(string(out), "/tmp: mounted noexec; /root") || !strings.Contains(string(out), "hint: ") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func copyTo(t *testing.T, path, dir string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir, err = os.MkdirTemp(dir, "launch-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	to := filepath.Join(dir, "install")
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// files lists the files in the directories that are used instead of memory.
func files(t *testing.T) (all []string) {
	t.Helper()
	for _, dir := range []string{"/dev/shm", "/usr/local/lib", "/var/lib"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	return all
}

// If the file system does not support unnamed files, the name is removed at once.
func TestFileWithoutAName(t *testing.T) {
	dir := t.TempDir()
	f, err := unnamed(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("in the directory: %v", entries)
	}
	g, err := unlinked(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("in the directory: %v", entries)
	}
	if _, err := unnamed(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
}
