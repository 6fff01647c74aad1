package main

import (
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/installer/flow/site"
)

func TestCommandsThatNeedKubernetes(t *testing.T) {
	images := bundleWith(t, bundle.Manifest{KubernetesVersion: "v1.37.1", Only: []string{bundle.OnlyImages}})
	both := bundleWith(t, bundle.Manifest{KubernetesVersion: "v1.37.1", Only: []string{bundle.OnlyImages, bundle.OnlyManifests}})
	for _, args := range [][]string{
		{"init"}, {"init", "--dry-run"}, {"init", "phase", "manifests"}, {"join", "192.0.2.1:6443", "--token", "abcdef.0123456789abcdef", "--discovery-token-unsafe-skip-ca-verification"},
		{"preflight", "init"}, {"preflight", "join"}, {"config", "images", "list"}, {"config", "images", "pull"},
	} {
		out, code := runBundle(t, images, args...)
		if want := "error: this file has only images and no Kubernetes: '" + images + " " + args[0]; code != 2 || !strings.Contains(out, want) || strings.Contains(out, "'apply'") {
			t.Errorf("%q: exit code %d\n%s", args, code, out)
		}
	}
	out, code := runBundle(t, both, "init")
	if code != 2 || !strings.Contains(out, "hint: use the file that installed the cluster; with this file, run 'import' on every node, then 'apply' on a control plane") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestVersionOfAnAdditionalBundle(t *testing.T) {
	path := bundleWith(t, bundle.Manifest{KubernetesVersion: "v1.36.2", Only: []string{bundle.OnlyImages, bundle.OnlyManifests}})
	if out, code := runBundle(t, path, "version"); code != 0 || !strings.Contains(out, "only images and manifests, for Kubernetes v1.36.2\n") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	out, _ := runBundle(t, path, "version", "-o", "json")
	var v versions
	if err := json.Unmarshal([]byte(out), &v); err != nil || !slices.Equal(v.Only, []string{"images", "manifests"}) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestLaterUsage(t *testing.T) {
	path := bundleFile(t, "v1.37.1")
	additional := bundleWith(t, bundle.Manifest{KubernetesVersion: "v1.37.1", Only: []string{bundle.OnlyManifests}})
	elsewhere := bundleWith(t, bundle.Manifest{Platform: "linux/riscv64", KubernetesVersion: "v1.37.1", Only: []string{bundle.OnlyImages}})
	for _, c := range []struct {
		path string
		args []string
		code int
		want []string
	}{
		{path, []string{"import", "now"}, 2, []string{`"now"`}},
		{path, []string{"import", "-o", "xml"}, 2, []string{`"xml"`, "hint: "}},
		{path, []string{"import", "-o", "json", "--timeline", "-"}, 2, []string{"--timeline", "hint: "}},
		{path, []string{"import", "--pin=maybe"}, 2, []string{"maybe"}},
		{path, []string{"import", "--base", "/nonexistent/base"}, 4, []string{"/nonexistent/base"}},
		{path, []string{"images", "import"}, 2, []string{`"import"`, "hint: did you mean", " import'"}},
		{path, []string{"import", "--base", path}, 2, []string{"--base", "all layers of its images", "hint: "}},
		{elsewhere, []string{"import"}, 3, []string{"linux/riscv64", runtime.GOARCH, "hint: "}},
		{path, []string{"images"}, 0, []string{"prune", "unpin"}},
		{path, []string{"images", "list", "x"}, 2, []string{`"x"`}},
		{path, []string{"images", "prune", "--bundle", "/nonexistent/more"}, 4, []string{"/nonexistent/more"}},
		{path, []string{"images", "unpin"}, 2, []string{"--all", "hint: "}},
		{path, []string{"images", "unpin", "--all", "app:1"}, 2, []string{"--all", "hint: "}},
		{path, []string{"images", "unpin", "app:1", "--bundle", path}, 2, []string{"--bundle", "hint: "}},
		{path, []string{"apply", "--print-manifest", "--timeline", "-"}, 2, []string{"--print-manifest", "hint: "}},
		{path, []string{"apply", "--skip-phases", "preflight"}, 2, []string{`"preflight"`}},
		{path, []string{"apply", "--detailed-exitcode"}, 2, []string{"hint: add --diff"}},
		{path, []string{"apply", "--also", "Namespace web"}, 2, []string{"hint: add --prune"}},
		{path, []string{"apply", "--prune", "--skip-phases", "wait-manifests"}, 2, []string{"hint: "}},
		{path, []string{"apply", "--diff", "--print-manifest"}, 2, []string{"hint: "}},
		{path, []string{"apply", "remove"}, 2, []string{"hint: ", "apply history"}},
		{path, []string{"apply", "remove", "web", "--skip-phases", "remove"}, 2, []string{`"remove"`}},
		{path, []string{"apply", "web"}, 2, []string{`unknown command or argument "web"`}},
		{additional, []string{"apply"}, 0, []string{"Nothing to do: this file has no manifests."}},
		{path, []string{"apply", "--print-manifest"}, 0, nil},
	} {
		out, code := runBundle(t, c.path, c.args...)
		if code != c.code {
			t.Errorf("%q: exit code %d, want %d\n%s", c.args, code, c.code, out)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%q: the output does not contain %q:\n%s", c.args, want, out)
			}
		}
	}
}

func TestImportCompletion(t *testing.T) {
	for _, words := range []string{"import --output", "images list --output", "apply --skip-phases"} {
		args := append([]string{"__complete"}, append(strings.Fields(words), "")...)
		stdout, _, code := install(t, args...)
		want := "json"
		if strings.HasPrefix(words, "apply") {
			want = "wait-manifests"
		}
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%s: %q", words, stdout)
		}
	}
}

// A removal without objects removes the history: it is something to do.
func TestRemovalWithoutObjects(t *testing.T) {
	var out strings.Builder
	in := &applyFlags{options: site.ApplyOptions{Remove: true}}
	if err := in.writeComparison(&out, &site.Comparison{}); err != nil || out.Len() > 0 {
		t.Errorf("%v, %q", err, &out)
	}
}
