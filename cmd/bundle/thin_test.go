package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testbundle"
)

// thinFile writes a bundle of 1 MB and its thin file.
func thinFile(t *testing.T) (whole, thin string) {
	t.Helper()
	noise := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	images := testbundle.NewImages(bundle.OnlyImages)
	images.Add(t, "example.com/app:1", "example.com/app:1", nil, testbundle.Layer(t, "noise", string(noise)))
	whole = images.Write(t, "more").File.Path()
	thin = filepath.Join(t.TempDir(), "thin")
	f, err := bundle.Open(whole)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := bundle.WriteThin(t.Context(), f, thin); err != nil {
		t.Fatal(err)
	}
	return whole, thin
}

func TestInspectThin(t *testing.T) {
	whole, thin := thinFile(t)
	out, err := command(t, "inspect", thin)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"example.com/app:1", "2 files, window ", "files, not in this file\n", "thin file of ", " of a bundle of "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "tail -c") {
		t.Errorf("it prints a command that fails:\n%s", out)
	}
	var whole1, thin1 inspection
	for path, to := range map[string]*inspection{whole: &whole1, thin: &thin1} {
		if out, err = command(t, "inspect", "-o", "json", path); err == nil {
			err = json.Unmarshal([]byte(out), to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if whole1.Thin || !thin1.Thin || thin1.WholeSize != whole1.Size || thin1.ID != whole1.ID || len(thin1.ID) != 64 || thin1.Size >= whole1.Size {
		t.Errorf("%+v\n%+v", whole1, thin1)
	}
}

func TestVerifyThin(t *testing.T) {
	_, thin := thinFile(t)
	out, err := command(t, "verify", thin)
	if err != nil || !strings.Contains(out, "is a complete thin file: its launcher, installer, manifest and digests match") {
		t.Errorf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(thin)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(thin, b, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := command(t, "verify", thin); fault.ExitCode(err) != fault.Bundle || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("damaged: %v", err)
	}
}

// A thin file has its own signature.
func TestSignThin(t *testing.T) {
	whole, thin := thinFile(t)
	dir := filepath.Dir(thin)
	key := filepath.Join(dir, "airlift.key")
	if _, err := command(t, "keygen", "--no-password", "--output", strings.TrimSuffix(key, ".key")); err != nil {
		t.Fatal(err)
	}
	public := strings.TrimSuffix(key, ".key") + ".pub"
	for _, path := range []string{whole, thin} {
		if _, err := command(t, "sign", path, "--key", key); err != nil {
			t.Fatal(err)
		}
		if out, err := command(t, "verify", path, "--key", public); err != nil || !strings.Contains(out, "signed by key") {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if _, err := command(t, "verify", thin, "--key", public, "--signature", whole+".minisig"); fault.ExitCode(err) != fault.Bundle {
		t.Errorf("the signature of the whole file: %v", err)
	}
}

// What needs the whole bundle refuses a thin file, and changes nothing.
func TestThinIsRefused(t *testing.T) {
	whole, thin := thinFile(t)
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	before, err := os.ReadFile(thin)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"split", thin, "--size", "1M", "--output", out},
		{"diff", thin, whole}, {"diff", whole, thin},
		{"delta", thin, whole, "--output", out}, {"delta", whole, thin, "--output", out},
		{"repair", thin, "--from", whole}, {"repair", whole, "--from", thin},
		{"push", thin, "registry.example"},
		{"sbom", thin},
	} {
		_, err := command(t, args...)
		if err == nil || !strings.Contains(err.Error(), thin+" is a thin file: it has only the installer") || !strings.Contains(fault.Hint(err), "whole file") {
			t.Errorf("%q: %v", args, err)
		}
	}
	if list, _ := os.ReadDir(dir); len(list) > 0 {
		t.Errorf("written: %v", list)
	}
	if after, _ := os.ReadFile(thin); string(after) != string(before) {
		t.Error("the thin file was changed")
	}
}
