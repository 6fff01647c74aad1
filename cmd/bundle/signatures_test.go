package main

import (
	"debug/elf"
	"path/filepath"
	"strings"
	"testing"

	"airlift/builder"
	"airlift/scripts/fixtures/fakesigstore"
	"airlift/scripts/fixtures/fakesites"
)

// A build prints what was verified and what was not, and inspect shows who signed.
func TestVerifySignatures(t *testing.T) {
	u, s := fakesites.New(t, "v1.29.15"), fakesigstore.New(t)
	mirror, root := s.SignRelease(u, "v1.29.15", "amd64")
	dir := t.TempDir()
	file, exe := filepath.Join(dir, "install"), filepath.Join(dir, "exe")
	fakesites.WriteFiles(t, dir, map[string]string{"exe": string(fakesites.Executable(t, elf.EM_X86_64))})
	args := []string{"build", "--version", "v1.29.15", "--arch", "amd64", "--output", file, "--cache-dir", filepath.Join(dir, "cache"),
		"--launcher", exe, "--installer", exe, "--compression", "fastest", "--mirror", mirror, "--trusted-root", root}
	for _, m := range u.Mirrors() {
		args = append(args, "--mirror", m)
	}
	out, err := command(t, append(args, "--verify-signatures", builder.VerifyRequire)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nsignature verified: kubectl v1.29.15, kubelet v1.29.15, registry.k8s.io/coredns/coredns:",
		"\nonly checksum or digest compared: runc, containerd, cni-plugins, crictl, flannel",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if out, err = command(t, "inspect", file); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out, "signed by "+fakesigstore.BinarySigner.Name+" (https://accounts.google.com)\n"); n != 2 {
		t.Errorf("%d binaries are signed in\n%s", n, out)
	}
	if n := strings.Count(out, "signed by "+fakesigstore.ImageSigner.Name); n != 7 {
		t.Errorf("%d images are signed in\n%s", n, out)
	}
	if out, err = command(t, args...); err == nil || strings.Contains(out, "signature") {
		t.Errorf("--trusted-root without --verify-signatures: %v\n%s", err, out)
	}
}
