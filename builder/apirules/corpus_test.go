package apirules_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"airlift/builder/addons"
	"airlift/builder/apirules"
	"airlift/builder/manifests"
	"airlift/images/release"
	"airlift/scripts/fixtures/rig"
)

var update = flag.Bool("update", false, "rewrite fields.txt")

// moduleDir returns the directory of a module in the module cache.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	var download struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &download)
	}
	if err != nil {
		t.Fatalf("downloading %s: %v\n%s", module, err, out)
	}
	return download.Dir
}

// broken matches manifests of Kubernetes which its API server refuses: of other versions, of tests of
// errors, parts of objects, and texts that a script completes.
var broken = regexp.MustCompile(strings.Join([]string{
	`/kubectl/cmd/(auth|convert|expose|create)/`, `/invalid`, `/test/kubemark/`, `/staticpod/testdata/`, `/api/testing/`,
	`cloud-pvl-admission/mutating`, `/deployment-label-change3`, `/multi-resource-3`, `/pod-apply-status`, `/netexecsvc`,
	`/backup-client-rbac`, `/csi-controller-rbac`, `/high-availability/kube-scheduler`, `/another-resourceclaimtemplate`,
}, "|"))

// Kubernetes' own manifests and the add-ons are accepted, in the versions that have their APIs.
func TestKubernetesOwnManifestsAreAccepted(t *testing.T) {
	root, objects := moduleDir(t, "k8s.io/kubernetes@"+newest), 0
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) || broken.MatchString(name) || strings.HasPrefix(name, root+"/api/") {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		list, err := manifests.Decode(strings.TrimPrefix(name, root), content)
		if err != nil {
			return nil // no objects, or a template
		}
		w := apirules.World{Version: newest, Exists: true}
		for _, o := range list {
			w.Objects = append(w.Objects, apirules.Object{Object: o})
		}
		objects += len(list)
		for _, p := range errorsOf(w.Check()) {
			if !strings.Contains(p, "was removed in v1.") {
				t.Error(p[:min(len(p), 400)])
			}
		}
		return nil
	})
	if err != nil || objects < 500 {
		t.Errorf("%d objects, %v", objects, err)
	}
}

func TestAddOnsAreAccepted(t *testing.T) {
	for minor := release.OldestMinor; minor <= release.NewestMinor; minor++ {
		version := release.NewestOf(fmt.Sprintf("v1.%d", minor))
		known, err := release.AddOns(version)
		if err != nil {
			t.Fatal(err)
		}
		w := apirules.World{Version: version, Namespaces: []string{"kube-flannel"}}
		for _, a := range known {
			text, err := addons.Objects(a)
			if err != nil {
				t.Fatal(err)
			}
			w.Objects = append(w.Objects, decoded(t, a.Name, string(text), "")...)
		}
		for _, p := range w.Check() {
			t.Errorf("%s: %s", version, p)
		}
	}
}

// TestFieldsOfTheVersions compares fields.txt with the schemas of server-side apply in client-go.
func TestFieldsOfTheVersions(t *testing.T) {
	rig.Needs(t, "client-go of each version, from the module proxy")
	all := map[int]map[string][]string{} // fields of types by minor version
	for minor := release.OldestMinor; minor <= release.NewestMinor; minor++ {
		all[minor] = schemaOf(t, minor)
	}
	last := release.NewestMinor
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(all[last])) {
		short, ok := strings.CutPrefix(name, "io.k8s.api.")
		if !ok || strings.HasSuffix(name, "Status") {
			continue
		}
		first := map[string]int{}
		newest := map[string]int{}
		born := 0
		for minor := release.OldestMinor; minor <= last; minor++ {
			fields, ok := all[minor][name]
			if ok && born == 0 {
				born = minor
			}
			for _, f := range fields {
				if first[f] == 0 {
					first[f] = minor
				}
				newest[f] = minor
			}
		}
		for _, f := range slices.Sorted(maps.Keys(first)) {
			if first[f] > born || newest[f] < last {
				lines = append(lines, fmt.Sprintf("%s %s %d %d\n", short, f, first[f], newest[f]))
			}
		}
	}
	want := strings.Join(lines, "")
	if *update {
		if err := os.WriteFile("fields.txt", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile("fields.txt"); err != nil || string(have) != want {
		t.Errorf("fields.txt is not as client-go has it (%v): run this test with -update", err)
	}
}

// schemaOf returns the fields of the types in client-go's schema of server-side apply.
func schemaOf(t *testing.T, minor int) map[string][]string {
	t.Helper()
	f, err := os.Open(filepath.Join(moduleDir(t, fmt.Sprintf("k8s.io/client-go@v0.%d.0", minor)), "applyconfigurations/internal/internal.go"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	types, name := map[string][]string{}, ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if n, ok := strings.CutPrefix(lines.Text(), "- name: "); ok {
			name = n
			types[name] = []string{}
		} else if n, ok := strings.CutPrefix(lines.Text(), "    - name: "); ok {
			types[name] = append(types[name], n)
		}
	}
	return types
}
