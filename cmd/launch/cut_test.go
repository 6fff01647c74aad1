package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/scripts/fixtures/seed"
)

// cuts are sizes of a copy that is cut off within the launcher: in its headers, at both ends of pages, and in its last bytes.
func cuts(t *testing.T, size int) (list []int) {
	r := rand.New(rand.NewPCG(seed.Value(t), 0))
	for n := 1; n <= 256; n += 1 + r.IntN(8) {
		list = append(list, n)
	}
	for page := 4096; page < size; page += 4096 * (1 + r.IntN(8)) {
		list = append(list, page-1, page, page+r.IntN(4096))
	}
	for n := range 10 {
		list = append(list, size-1-n*n*7)
	}
	return slices.DeleteFunc(list, func(n int) bool { return n >= size })
}

// A copy that is cut off within the launcher is an error wherever it is cut: of the kernel, which does not start it, or of
// the launcher. It never ends with a signal.
func TestCutWithinTheLauncher(t *testing.T) {
	whole, err := os.ReadFile(carrier(t))
	if err != nil {
		t.Fatal(err)
	}
	refused, started := 0, 0
	for _, size := range append(cuts(t, len(programs.Launcher)), 0, len(programs.Launcher), len(programs.Launcher)+1) {
		path := filepath.Join(t.TempDir(), "install")
		if err := os.WriteFile(path, whole[:size], 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := bundle.Open(path); size >= 64 && (err == nil || !strings.Contains(err.Error(), "incomplete copy") && size != len(programs.Launcher)) {
			t.Errorf("cut after %d bytes: a reader prints %v", size, err)
		}
		err := exec.Command(path).Run()
		exit := (*exec.ExitError)(nil)
		switch {
		case err == nil:
			t.Errorf("cut after %d bytes: exit code 0", size)
		case errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EIO), errors.Is(err, syscall.EINVAL):
			refused++
		case errors.As(err, &exit) && exit.ExitCode() > 0:
			started++
		default:
			t.Errorf("cut after %d bytes: %v", size, err)
		}
	}
	t.Logf("launcher of %d bytes: the kernel refused %d copies, and %d printed an error", len(programs.Launcher), refused, started)
}

// A shell runs what the kernel refuses as a script. An empty one does nothing, and no file can change that: the
// documentation says to compare sums. All others are an error.
func TestCutInAShell(t *testing.T) {
	whole, err := os.ReadFile(carrier(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"sh", "bash"} {
		for _, size := range []int{0, 1, 2, 3, 4, 17, 63, 64, 120, 4096, len(programs.Launcher) / 2, len(programs.Launcher) - 1} {
			path := filepath.Join(t.TempDir(), "install")
			if err := os.WriteFile(path, whole[:size], 0o755); err != nil {
				t.Fatal(err)
			}
			c := exec.Command(shell, "-c", path+" preflight; exit $?")
			out, _ := c.CombinedOutput()
			code := c.ProcessState.ExitCode()
			if (code == 0) != (size == 0) || code > 127 || code < 0 {
				t.Errorf("%s, cut after %d bytes: exit code %d\n%s", shell, size, code, out)
			}
		}
	}
}

// The launcher is changed once, and keeps its contents.
func TestHeadersLast(t *testing.T) {
	if again := head.HeadersLast(programs.Launcher); len(again) != len(programs.Launcher) {
		t.Errorf("changed again: %d bytes, then %d", len(programs.Launcher), len(again))
	}
	for _, other := range [][]byte{nil, []byte("#!/bin/sh"), programs.Launcher[:100], append(slices.Clone(programs.Launcher), 0)} {
		if got := head.HeadersLast(other); len(got) != len(other) {
			t.Errorf("%d bytes that are no launcher became %d", len(other), len(got))
		}
	}
}
