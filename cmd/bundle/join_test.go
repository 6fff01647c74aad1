package main

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/bundle/parts"
	"airlift/bundle/signature"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testbundle"
)

// signedParts writes a small signed bundle in parts, and returns the file's bytes and the public
// key.
func signedParts(t *testing.T, dir string, size int64) (whole []byte, public string) {
	return signedPartsOf(t, dir, bytes.Repeat([]byte("installer"), 300), size)
}

func signedPartsOf(t *testing.T, dir string, installer []byte, size int64) (whole []byte, public string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "install")
	m := &bundle.Manifest{FormatVersion: bundle.FormatVersion, Platform: "linux/amd64", KubernetesVersion: "v1.29.15", CNI: "none"}
	stub := fakesites.Executable(t, elf.EM_X86_64)
	testbundle.WriteFile(t, path, bundle.Executables{Launcher: stub, Installer: installer}, m, bundle.Fastest, nil)
	key := filepath.Join(filepath.Dir(path), "airlift")
	if _, err := signature.WriteKeyPair(key+".key", key+".pub", ""); err != nil {
		t.Fatal(err)
	}
	secret, err := signature.ReadSecretKey(key+".key", nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := signature.Sign(t.Context(), f, secret, filepath.Join(dir, "install.minisig"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := parts.Split(t.Context(), f.Reader(), filepath.Join(dir, "install"), size, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	if whole, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return whole, key + ".pub"
}

// relist writes the list anew, as an attacker does: it names the files that are there, and what cat
// makes of them. sha256sum accepts it.
func relist(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "install.[0-9]*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	var list, all []byte
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
		list = fmt.Appendf(list, "%x  %s\n", sha256.Sum256(b), filepath.Base(path))
	}
	list = fmt.Appendf(list, "%x  install\n", sha256.Sum256(all))
	if err := os.WriteFile(filepath.Join(dir, "install.sha256"), list, 0o644); err != nil {
		t.Fatal(err)
	}
}

// The patterns that join parts in the documentation and in the output of split.
var patterns = []string{"install.0*", "install.[0-9]*"}

// An added file, with a list that knows it or not, is never a part of a file that is complete and
// signed.
func TestAddedPart(t *testing.T) {
	for _, name := range []string{"install.000", "install.0", "install.00", "install.0010", "install.000.bak", "install.01x", "install.999x", "install.0~", "install.9", "install.٠", "install.-1", "install..1"} {
		for _, listed := range []bool{false, true} {
			dir := t.TempDir()
			whole, public := signedParts(t, dir, 1000)
			if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho owned\nexit\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if listed {
				relist(t, dir)
			}
			joined, err := exec.Command("sh", "-c", "cd "+dir+" && cat install.[0-9]*").Output()
			if err != nil {
				t.Fatal(err)
			}
			out, err := command(t, "verify", filepath.Join(dir, "install.sha256"), "--key", public)
			if err == nil && !bytes.Equal(joined, whole) {
				t.Errorf("%s, listed: %t: cat takes it, and verify accepts the parts:\n%s", name, listed, out)
			}
			if err != nil && (fault.ExitCode(err) != fault.Bundle || fault.Hint(err) == "") {
				t.Errorf("%s: %v, exit code %d", name, err, fault.ExitCode(err))
			}
		}
	}
}

// Each changed line of the list is found, including the line of the whole file.
func TestChangedList(t *testing.T) {
	dir := t.TempDir()
	_, public := signedParts(t, dir, 1000)
	list := filepath.Join(dir, "install.sha256")
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	for n := range lines[:len(lines)-1] {
		for what, changed := range map[string]string{"another sum": strings.Repeat("0", 64) + lines[n][64:], "no line": "", "twice": lines[n] + lines[n], "another file": lines[n] + lines[n][:66] + "/etc/passwd\n"} {
			now := slices.Clone(lines)
			now[n] = changed
			if err := os.WriteFile(list, []byte(strings.Join(now, "")), 0o644); err != nil {
				t.Fatal(err)
			}
			for _, verb := range [][]string{{"verify", list, "--key", public}, {"join", list, "--output", filepath.Join(dir, "joined")}} {
				if out, err := command(t, verb...); fault.ExitCode(err) != fault.Bundle || fault.Hint(err) == "" {
					t.Errorf("line %d, %s: %s: %v\n%s", n+1, what, verb[0], err, out)
				}
			}
		}
	}
}

// Whatever is done to a directory with parts, what verify accepts with the key is joined by the
// documented command to the signed bytes, and join writes these bytes or nothing.
func TestRandomParts(t *testing.T) {
	const seed = 37
	r := rand.New(rand.NewPCG(seed, 0))
	pristine := t.TempDir()
	whole, public := signedParts(t, pristine, 900)
	names := []string{"install.000", "install.001", "install.002", "install.003", "install.004", "install.005", "install.006", "install.007", "install.010", "install.0", "install.1", "install.sha256", "install.minisig"}
	accepted, joined := 0, 0
	for round := range 200 {
		dir := filepath.Join(t.TempDir(), "parts")
		if err := os.CopyFS(dir, os.DirFS(pristine)); err != nil {
			t.Fatal(err)
		}
		var did []string
		for range 1 + r.IntN(4) {
			a, b := filepath.Join(dir, names[r.IntN(len(names))]), filepath.Join(dir, names[r.IntN(len(names))])
			content, _ := os.ReadFile(a)
			action := r.IntN(8)
			switch action {
			case 0:
				_ = os.WriteFile(a, content[:r.IntN(len(content)+1)], 0o644)
			case 1:
				_ = os.WriteFile(a, append(content, "more"...), 0o644)
			case 2:
				if len(content) > 0 {
					content[r.IntN(len(content))] ^= 1 << r.IntN(8)
					_ = os.WriteFile(a, content, 0o644)
				}
			case 3:
				_ = os.Remove(a)
			case 4:
				_ = os.Rename(a, b)
			case 5:
				_ = os.WriteFile(b, content, 0o644)
			case 6: // the same bytes, split at another place
				other, _ := os.ReadFile(b)
				both := append(bytes.Clone(content), other...)
				at := r.IntN(len(both) + 1)
				_ = os.WriteFile(a, both[:at], 0o644)
				_ = os.WriteFile(b, both[at:], 0o644)
			case 7:
				_ = os.WriteFile(filepath.Join(dir, "install.001"), whole, 0o644) // and what follows is ignored?
			}
			did = append(did, fmt.Sprintf("%d %s %s", action, filepath.Base(a), filepath.Base(b)))
		}
		if r.IntN(3) > 0 {
			relist(t, dir)
		}
		if _, err := command(t, "verify", filepath.Join(dir, "install.sha256"), "--key", public); err == nil {
			accepted++
			for _, pattern := range patterns {
				if got, err := exec.Command("sh", "-c", "cd "+dir+" && cat "+pattern).Output(); err != nil || !bytes.Equal(got, whole) {
					t.Errorf("seed %d, round %d, %q: verify accepts it, and cat %s makes other bytes of it", seed, round, did, pattern)
				}
			}
		}
		path := filepath.Join(dir, "joined")
		_, err := command(t, "join", filepath.Join(dir, "install.sha256"), "--output", path, "--key", public)
		got, _ := os.ReadFile(path)
		if err == nil {
			joined++
		}
		if err == nil && !bytes.Equal(got, whole) || err != nil && got != nil {
			t.Errorf("seed %d, round %d, %q: join wrote %d other bytes: %v", seed, round, did, len(got), err)
		}
	}
	if accepted == 0 || joined < accepted {
		t.Errorf("%d directories were accepted, %d joined", accepted, joined)
	}
}

// verify reads each part once: all that it prints is about the same bytes, and a slow drive is read
// once. Linux counts what a process reads.
func TestPartsAreReadOnce(t *testing.T) {
	read := func() (n int64) {
		text, err := os.ReadFile("/proc/self/io")
		if err == nil {
			_, err = fmt.Sscanf(string(text), "rchar: %d", &n)
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	dir := t.TempDir()
	installer := make([]byte, 8<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(installer) // it never fails
	whole, public := signedPartsOf(t, dir, installer, 1<<20)
	before := read()
	if out, err := command(t, "verify", filepath.Join(dir, "install.sha256"), "--key", public); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := read() - before; n > int64(len(whole))*3/2 {
		t.Errorf("verify read %d bytes of a file with %d", n, len(whole))
	}
}

// join writes the checked bytes to a new file, executable and without a trace of anything else.
func TestJoin(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	whole, public := signedParts(t, dir, 1000)
	list, path := filepath.Join(dir, "install.sha256"), filepath.Join(out, "install")
	for _, args := range [][]string{{list}, {parts.Path(filepath.Join(dir, "install"), 2), "--key", public}, {list, "--key", public, "--require-version", "v1.29.15"}} {
		text, err := command(t, append([]string{"join", "--output", path}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		i, err := os.Stat(path)
		if got, _ := os.ReadFile(path); err != nil || !bytes.Equal(got, whole) || i.Mode().Perm() != 0o755 {
			t.Errorf("%q: %d bytes, %v, %v", args, len(got), i, err)
		}
		if strings.Contains(text, "signed by key") != (len(args) > 1) || strings.Contains(text, "Who built it was not checked") != (len(args) == 1) {
			t.Errorf("%q: %s", args, text)
		}
		if _, err := command(t, append([]string{"join", "--output", path}, args...)...); fault.ExitCode(err) != fault.Usage {
			t.Errorf("an existing file: %v", err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(signature.Path(path)); (err == nil) != (len(args) > 1) {
			t.Errorf("%q: the signature next to the result: %v", args, err)
		}
	}
	if err := os.WriteFile(signature.Path(path), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := command(t, "join", "--output", path, list, "--key", public); fault.ExitCode(err) != fault.Usage {
		t.Errorf("an existing signature: %v", err)
	}
	if err := os.Remove(signature.Path(path)); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"signed with another key":     {list, "--key", otherKey(t)},
		"older than the required":     {list, "--key", public, "--require-version", "v1.29.16"},
		"is not signed":               {list, "--key", public, "--signature", filepath.Join(dir, "absent")},
		"is not the name of a part":   {filepath.Join(dir, "install")},
		"there are no parts of":       {filepath.Join(out, "install.sha256")},
		"--signature needs --key":     {list, "--signature", "x"},
		"is not a full Kubernetes ve": {list, "--require-version", "new"},
	} {
		if _, err := command(t, append([]string{"join", "--output", path}, args...)...); err == nil || !strings.Contains(err.Error(), want) || fault.Hint(err) == "" {
			t.Errorf("%q: %v, hint %q", args, err, fault.Hint(err))
		}
	}
	if files, _ := os.ReadDir(out); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}

func otherKey(t *testing.T) string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "other")
	if _, err := signature.WriteKeyPair(key+".key", key+".pub", ""); err != nil {
		t.Fatal(err)
	}
	return key + ".pub"
}

// The commands of the documentation, for a site without the bundle command: minisign accepts the
// joined file, and not one with an added part.
func TestMinisignChecksTheJoinedFile(t *testing.T) {
	minisign := rig.Tool(t, "minisign")
	dir := t.TempDir()
	_, public := signedParts(t, dir, 1000)
	for _, added := range []bool{false, true} {
		if added {
			if err := os.WriteFile(filepath.Join(dir, "install.000"), []byte("#!/bin/sh\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		c := exec.Command("sh", "-c", `cat install.0* > install && "$1" -Vm install -p "$2"`, "sh", minisign, public)
		c.Dir = dir
		if out, err := c.CombinedOutput(); (err == nil) == added {
			t.Errorf("an added part: %t: %v\n%s", added, err, out)
		}
		if err := os.Remove(filepath.Join(dir, "install")); err != nil {
			t.Fatal(err)
		}
	}
	// And what join wrote, with the signature that it copied.
	if err := os.Remove(filepath.Join(dir, "install.000")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "joined")
	if _, err := command(t, "join", filepath.Join(dir, "install.sha256"), "--key", public, "--output", path); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(minisign, "-Vm", path, "-p", public).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
