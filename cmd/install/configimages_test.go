package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"airlift/scripts/fixtures/rig"
)

// TestImagesPull: a script that pulls before init goes on.
func TestImagesPull(t *testing.T) {
	path := bundleFile(t, "v1.29.15")
	out, code := runBundle(t, path, "config", "images", "pull", "--cri-socket", "unix:///run/containerd/containerd.sock", "--kubernetes-version", "v1.29.15")
	if code != 0 || !strings.Contains(out, "Nothing to pull") {
		t.Errorf("%d %s", code, out)
	}
	for _, args := range [][]string{{"--kubernetes-version", "v1.28.0"}, {"--feature-gates", "NoSuchGate=true"}} {
		if out, code := runBundle(t, path, append([]string{"config", "images", "pull"}, args...)...); code != 2 || !strings.Contains(out, "error: ") {
			t.Errorf("%v: %d %s", args, code, out)
		}
	}
	if _, errs, code := install(t, "config", "images", "pull"); code != 4 || !strings.Contains(errs, "without a payload") {
		t.Errorf("without a payload: %d %s", code, errs)
	}
}

// TestImagesOutputsAreKubeadms: like TestTokenListIsKubeadms, for the images that kubeadm has
// too. It lists them in another order.
func TestImagesOutputsAreKubeadms(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		for _, format := range []string{
			"text", "jsonpath={range .images[*]}{@}{\"\\n\"}{end}", "jsonpath={.kind}\n{.apiVersion}\n",
		} {
			args := []string{"config", "images", "list", "--kubernetes-version", version, "--feature-gates", "RootlessControlPlane=false", "-o", format}
			want := strings.Fields(strings.ReplaceAll(kubeadmOutput(t, version, args...), "/v1alpha2", "/v1alpha3"))
			out, errs, code := install(t, args...)
			var got []string
			for _, line := range strings.Fields(out) {
				if !strings.Contains(line, "flannel") {
					got = append(got, line)
				}
			}
			if diff := cmp.Diff(count(want), count(got)); code != 0 || len(want) == 0 || diff != "" {
				t.Errorf("%s -o %s: %d %s\n%s", version, format, code, errs, diff)
			}
		}
		args := []string{"config", "images", "list", "--kubernetes-version", version, "--feature-gates", "NoSuchGate=true"}
		if exec.Command(rig.Component(t, version, "kubeadm"), args...).Run() == nil {
			t.Errorf("kubeadm %s accepts an unknown feature gate", version)
		}
		if _, errs, code := install(t, args...); code != 2 || !strings.Contains(errs, "NoSuchGate") {
			t.Errorf("an unknown feature gate: %d %s", code, errs)
		}
	}
}

func count(lines []string) map[string]int {
	n := map[string]int{}
	for _, line := range lines {
		n[line]++
	}
	return n
}
