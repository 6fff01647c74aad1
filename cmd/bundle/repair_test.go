package main

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// built builds a bundle install, with copies of it called copy and good.
func (s shell) built(u *fakesites.Upstream) (content []byte) {
	s.t.Helper()
	s.want(0, "", buildArgs(u)...)
	content, err := os.ReadFile(filepath.Join(s.dir, "install"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("good", content)
	s.write("copy", content)
	return content
}

func (s shell) write(name string, b []byte) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), b, 0o755); err != nil {
		s.t.Fatal(err)
	}
}

func (s shell) same(name string, want []byte) {
	s.t.Helper()
	if b, err := os.ReadFile(filepath.Join(s.dir, name)); err != nil || !bytes.Equal(b, want) {
		s.t.Errorf("%s is not the original: %v", name, err)
	}
}

func TestRepair(t *testing.T) {
	u := fakesites.New(t, "v1.29.15")
	s := newShell(t)
	b := s.built(u)
	f, err := bundle.Open(filepath.Join(s.dir, "install"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	images := f.Parts()[len(f.Parts())-1]
	damaged := bytes.Clone(b)
	damaged[images.Offset+images.Size-1] ^= 1
	s.write("install", damaged)

	out := s.want(fault.Bundle, "bytes in 1 section(s) are damaged", "verify", "install")
	for _, want := range []string{"  bytes ", " (payload)\n", `    part "images", `, "\nerror: ", "bundle repair install --from COPY"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	t.Log(out)
	s.want(0, "is complete again", "repair", "install", "--from", "copy")
	s.same("install", b)
	s.want(0, "nothing was changed", "repair", "install", "--from", "copy")

	// An incomplete copy.
	s.write("install", b[:len(b)-300])
	s.want(fault.Bundle, "", "verify", "install")
	s.want(0, "rewritten: bytes", "repair", "install", "--from", "copy")
	s.same("install", b)

	// From parts, of which one is missing and not needed.
	s.want(0, "cat copy.0* > copy", "split", "copy", "--size", "1048576")
	s.write("install", append(bytes.Clone(b), "more"...))
	s.want(0, "removed: 4 bytes", "repair", "install", "--from", "copy.001")
	s.same("install", b)

	s.want(fault.Usage, "--from is required", "repair", "install")
	s.want(fault.Usage, "is the file that is repaired", "repair", "install", "--from", "install")
	s.want(fault.Usage, "no such file", "repair", "install", "--from", "absent")
	s.want(fault.Bundle, "no such file", "repair", "absent", "--from", "copy")
	s.want(fault.Usage, "is not a regular file", "repair", ".", "--from", "copy")

	// Another bundle.
	s.want(0, "", buildArgs(u, "--cni", "none", "--output", "other")...)
	s.write("install", damaged)
	s.want(fault.Bundle, "are different bundles", "repair", "install", "--from", "other")
	s.same("install", damaged)
}

func TestSplitAndVerifyParts(t *testing.T) {
	u := fakesites.New(t, "v1.29.15")
	s := newShell(t)
	// An installer of 3 MB makes the bundle large enough for parts.
	stub, err := os.ReadFile(filepath.Join(s.dir, "stub"))
	if err != nil {
		t.Fatal(err)
	}
	s.write("installer", append(bytes.Clone(stub), incompressible(3<<20)...))
	s.want(0, "", buildArgs(u, "--installer", "installer")...)
	b, err := os.ReadFile(filepath.Join(s.dir, "install"))
	if err != nil {
		t.Fatal(err)
	}
	out := s.want(0, "install.001\ninstall.002\ninstall.003\n", "split", "install", "--size", "1M")
	if !strings.Contains(out, "install.sha256") || !strings.Contains(out, "install.minisig") {
		t.Errorf("%s", out)
	}
	s.want(fault.Usage, "exists", "split", "install", "--size", "1M")
	s.want(fault.Usage, "--size is required", "split", "install")
	s.want(fault.Usage, "is not a size", "split", "install", "--size", "floppy")
	s.want(fault.Usage, "name an existing directory", "split", "install", "--size", "1M", "--output", "absent/install")

	s.want(0, "Together they are a bundle with Kubernetes v1.29.15", "verify", "install.sha256")
	s.want(0, "", "verify", "install.002", "install.001")
	s.want(0, "", "verify", "./install.001", "install.002")
	s.want(fault.Usage, "is not a part of", "verify", "install.002", "install")
	s.want(fault.Bundle, "does not exist", "verify", "install.099")
	s.want(fault.Usage, "verify accepts one file", "verify", "install", "install.001")

	// The signature is for the whole file.
	s.want(0, "", "keygen", "--no-password")
	s.want(0, "", "sign", "install", "--key", "airlift.key")
	s.want(0, "signed by key", "verify", "install.sha256", "--key", "airlift.pub")
	s.want(fault.Usage, "--key needs all parts", "verify", "install.001", "--key", "airlift.pub")

	// A damaged byte is found in its part and in the file.
	damaged := bytes.Clone(b[1<<20 : 2<<20])
	damaged[300_000] ^= 1
	s.write("install.002", damaged)
	s.want(0, "", "verify", "install.001")
	out = s.want(fault.Bundle, "install.002 is damaged", "verify", "install.002")
	if !strings.Contains(out, "  install.002: bytes ") || !strings.Contains(out, " of the file (payload)") {
		t.Errorf("%s", out)
	}
	s.want(fault.Bundle, "install.002 is damaged", "verify", "install.sha256")
	s.write("install", b)
	s.want(0, "nothing was changed", "repair", "install", "--from", "install.001")
	whole := bytes.Clone(b)
	whole[2<<20+5] ^= 1
	s.write("install", whole)
	s.want(0, "from the parts of install", "repair", "install", "--from", "install.sha256")
	s.same("install", b)

	s.remove("install.003")
	s.want(fault.Bundle, "install.003 is missing", "verify", "install.sha256")
	s.damage("install")
	s.want(fault.Bundle, "is damaged", "split", "install", "--size", "1M", "--output", "new")
	if list, _ := filepath.Glob(filepath.Join(s.dir, "new*")); len(list) > 0 {
		t.Errorf("parts of a damaged file: %q", list)
	}
}

func (s shell) remove(name string) {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
		s.t.Fatal(err)
	}
}

// incompressible returns bytes of a linear congruential generator.
func incompressible(size int) []byte {
	b, x := make([]byte, size), uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// A forged copy with the same payload and another launcher: the trailer decides which launcher is
// right, and the signed file's trailer is damaged.
func TestForgedCopyDoesNotReplaceASignedFile(t *testing.T) {
	u := fakesites.New(t, "v1.29.15")
	s := newShell(t)
	b := s.built(u)
	s.want(0, "", "keygen", "--no-password")
	s.want(0, "", "sign", "install", "--key", "airlift.key")

	end := len(b) - head.TrailerSize
	trailer, err := head.DecodeTrailer(b[end:])
	if err != nil {
		t.Fatal(err)
	}
	forged := bytes.Clone(b)
	forged[60] ^= 1 // in the launcher
	trailer.LauncherSHA256 = sha256.Sum256(forged[:trailer.PayloadOffset-head.HeaderSize])
	copy(forged[end:], trailer.Encode())
	s.write("forged", forged)
	s.want(0, "", "verify", "forged") // without a key, nothing is wrong with it

	damaged := bytes.Clone(b)
	damaged[len(b)-1] ^= 1
	s.write("install", damaged)
	s.want(fault.Usage, `"install" is signed`, "repair", "install", "--from", "forged")
	s.same("install", damaged)
	s.want(fault.Bundle, "is not the file that was signed", "repair", "install", "--from", "forged", "--key", "airlift.pub")
	s.same("install", damaged)
	s.want(0, "is complete again", "repair", "install", "--from", "copy", "--key", "airlift.pub")
	s.same("install", b)

	// Everything else of the file may be damaged too.
	for n := 0; n < len(damaged); n += 100_000 {
		damaged[n] ^= 1
	}
	s.write("install", damaged)
	s.want(fault.Bundle, "", "repair", "install", "--from", "forged", "--key", "airlift.pub")
	s.same("install", damaged)
	s.want(0, "is complete again", "repair", "install", "--from", "copy", "--key", "airlift.pub")
	s.same("install", b)

	// With its own trailer, the file decides, and needs no key.
	damaged = bytes.Clone(b)
	damaged[60] ^= 2
	s.write("install", damaged)
	s.want(fault.Bundle, "are different bundles", "repair", "install", "--from", "forged")
	s.want(0, "is complete again", "repair", "install", "--from", "copy")
	s.same("install", b)
}
