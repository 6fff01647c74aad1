//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"airlift/images/release"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
	"airlift/scripts/oracle/upstream/components"
)

// TestNewerMinorVersion builds the bundle's Kubernetes version with an Airlift that does not know
// its minor version, and installs it.
func TestNewerMinorVersion(t *testing.T) {
	var minor int
	if _, err := fmt.Sscanf(version, "v1.%d.", &minor); err != nil {
		t.Fatal(err)
	}
	if minor == release.OldestMinor {
		t.Skip("there is no older minor version that Airlift could know instead")
	}
	s := up(t, lab.Options{Name: "e2e-newer", Hosts: 2})
	known := fmt.Sprintf("v1.%d", minor-1)
	rules := fmt.Sprintf("Kubernetes %s is newer than %s, the newest known minor version: the rules of %s apply", version, known, known)
	bundle := bundleByOlder(t, minor-1)
	for _, h := range s.Hosts {
		if _, err := h.CopyIn(t.Context(), bundle, site.Installer, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	control, worker := s.Hosts[0], s.Hosts[1]
	contains(t, install(t, control, 0, "version"), rules)
	contains(t, install(t, control, 0, "preflight", "init"), "[WARNING KubernetesVersion]: "+rules)
	out := install(t, control, 0, "init")
	contains(t, out, "KubernetesVersion: "+rules)
	join, err := site.JoinArgs(out)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, install(t, worker, 0, join...), "KubernetesVersion: "+rules)
	systemIsUp(t, s, 2)
	if nodes := kubectl(t, s, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"); nodes != version+" "+version {
		t.Errorf("kubelets: %s", nodes)
	}
	pods, err := s.Deploy(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	answersAcrossHosts(t, s, pods)
}

// bundleByOlder builds the bundle with commands whose newest known minor version is known, from
// the rig.
func bundleByOlder(t *testing.T, known int) string {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	do := func(argv ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, argv[0], argv[1:]...)
		c.Dir, c.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		out, err := c.CombinedOutput()
		return string(out), err
	}

	catalog := filepath.Join(root, "images", "release", "minors.go")
	text, err := os.ReadFile(catalog)
	if err != nil {
		t.Fatal(err)
	}
	older := regexp.MustCompile(`(?m)^const OldestMinor, NewestMinor = .*$`).ReplaceAllString(string(text),
		fmt.Sprintf("const OldestMinor, NewestMinor = %d, %d", release.OldestMinor, known))
	if older == string(text) {
		t.Fatal("images/release/minors.go has no line with NewestMinor")
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {catalog: filepath.Join(dir, "minors.go")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"minors.go": older, "overlay.json": string(overlay)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bundle", "launch", "install"} {
		if out, err := do("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-tags", "grpcnotrace", "-trimpath", "-ldflags", "-s -w",
			"-o", filepath.Join(dir, name), "./cmd/"+name); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}

	executables := []string{"--launcher", filepath.Join(dir, "launch"), "--installer", filepath.Join(dir, "install")}
	out, err := do(append([]string{filepath.Join(dir, "bundle"), "build", "--version", version, "--output", filepath.Join(dir, "none")}, executables...)...)
	if exitCode(err) != 2 {
		t.Errorf("without versions: %v\n%s", err, out)
	}
	contains(t, out, "needs --etcd-version, --coredns-version, --pause-version", "hint: ")

	release, err := components.Find(version)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "out")
	args := append([]string{"go", "run", "./scripts/buildbundle", "--version", version, "--bundle", filepath.Join(dir, "bundle"), "--compression", "fastest", "--output", file, "--"}, executables...)
	args = append(args, "--etcd-version", release.Etcd, "--coredns-version", release.CoreDNS, "--pause-version", release.Pause)
	if out, err = do(args...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	contains(t, out, fmt.Sprintf("the rules of v1.%d apply", known), "etcd:"+release.Etcd)
	if out, err = do(filepath.Join(dir, "bundle"), "inspect", file, "--output", "json"); err != nil || !strings.Contains(out, fmt.Sprintf(`"nearestKnown": "v1.%d.`, known)) {
		t.Errorf("%v\n%s", err, out)
	}
	return file
}
