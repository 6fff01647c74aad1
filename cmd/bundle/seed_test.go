package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

func TestSeed(t *testing.T) {
	u := fakesites.New(t, "v1.29.15")
	s := newShell(t)
	s.want(0, "", buildArgs(u)...)
	s.want(0, "", "keygen", "--no-password")
	const cluster = "apiVersion: airlift/v1\nkind: Cluster\nname: plant-7\nhosts:\n- {name: cp-1, role: control-plane, nodeIP: 10.0.0.11, match: {serial: ABC123}, taints: []}\n"
	s.writeAll(map[string]string{"cluster.yaml": cluster, "none.yaml": strings.Replace(cluster, ", match: {serial: ABC123}", "", 1)})
	drive := filepath.Join(s.dir, "drive")
	if err := os.Mkdir(drive, 0o700); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--key is required":            {"seed", "install", "--out", "drive"},
		"--out is required":            {"seed", "install", "--key", "airlift.key"},
		"unknown format":               {"seed", "install", "--key", "airlift.key", "--out", "drive", "--format", "kickstart"},
		"--drive has no effect":        {"seed", "install", "--key", "airlift.key", "--out", "drive", "--drive", "X"},
		"is not the label":             {"seed", "install", "--key", "airlift.key", "--out", "drive", "--format", "ignition", "--drive", "a b"},
		"host cp-1 has no match":       {"seed", "install", "--key", "airlift.key", "--out", "drive", "--file", "none.yaml"},
		"is not a minisign secret key": {"seed", "install", "--key", "airlift.pub", "--out", "drive"},
		"would end before it begins":   {"seed", "install", "--key", "airlift.key", "--out", "drive", "--ttl", "0s"},
	} {
		s.want(fault.Usage, want, args...)
	}
	if left, err := os.ReadDir(drive); err != nil || len(left) > 0 {
		t.Errorf("a refused command wrote %v, %v", left, err)
	}
	for range 2 { // again: the drive gets a new seed
		s.want(0, "host      cp-1 control-plane: serial ABC123", "seed", "install", "--key", "airlift.key", "--out", "drive", "--format", "cloud-init")
	}
	s.want(0, "airlift.ign", "seed", "install", "--key", "airlift.key", "--out", "drive", "--format", "ignition", "--drive", "/srv/drive")
	if s.read("drive/install") != s.read("install") || !strings.HasPrefix(s.read("drive/user-data"), "#cloud-config\n") || !strings.Contains(s.read("drive/meta-data"), "instance-id: airlift-") {
		t.Error("the drive is not complete")
	}
	// What the script of a host checks and runs is the thin file.
	part := regexp.MustCompile(`first=(\d+) last=(\d+) sha256='([0-9a-f]{64})'`).FindStringSubmatch(s.read("drive/user-data"))
	if part == nil {
		t.Fatal("the user data has no sha256")
	}
	first, _ := strconv.Atoi(part[1])
	last, _ := strconv.Atoi(part[2])
	install := s.read("install")
	f, err := bundle.Open(filepath.Join(s.dir, "install"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := bundle.WriteThin(t.Context(), f, filepath.Join(s.dir, "thin")); err != nil {
		t.Fatal(err)
	}
	if cut := install[:first] + install[len(install)-last:]; cut != s.read("thin") || fmt.Sprintf("%x", sha256.Sum256([]byte(cut))) != part[3] {
		t.Errorf("the first %d and the last %d bytes are not the thin file", first, last)
	}
	for _, name := range []string{"user-data", "meta-data", "airlift.ign"} {
		if text := s.read("drive/airlift-seed.json"); strings.Contains(s.read("drive/"+name), text[strings.Index(text, `"token": "`)+10:][:23]) {
			t.Errorf("%s has the token", name)
		}
	}
}
