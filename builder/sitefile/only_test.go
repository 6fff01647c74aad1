package sitefile_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

func TestOnly(t *testing.T) {
	dir := fakesites.Files(t, map[string]string{"base": "base\n", "two-amd64": "base\n", "two-arm64": "base\n", "app.yaml": "kind: Pod\n"})
	const manifests = "manifests:\n- {name: app, path: app.yaml}\n"
	for name, c := range map[string]struct {
		text  string
		given []string
		only  []string
		base  string
	}{
		"both":               {"only: [images, manifests]\nbase: base\n" + manifests, nil, []string{"images", "manifests"}, filepath.Join(dir, "base")},
		"other order":        {"only:\n- manifests\n- images\n", nil, []string{"manifests", "images"}, ""},
		"images":             {"only: [images]\nimages: [nginx]\n", nil, []string{"images"}, ""},
		"manifests":          {"only: [manifests]\n" + manifests, nil, []string{"manifests"}, ""},
		"a later version":    {"only: [images]\nkubernetesVersion: v1.99\n", nil, []string{"images"}, ""},
		"a flag for the cni": {"only: [images]\ncni: none\n", []string{"cni"}, []string{"images"}, ""},
		// Flags replace these values, so they are not checked.
		"another base":   {"only: [images]\nbase: none\n", []string{"base"}, []string{"images"}, ""},
		"a flag":         {"only: [files]\nimages: [nginx]\n", []string{"only"}, nil, ""},
		"an empty list":  {"only: []\n", []string{"only"}, nil, ""},
		"two bases":      {"only: [images]\nbase: two\narchitectures: [amd64, arm64]\n", nil, []string{"images"}, filepath.Join(dir, "two")},
		"base of a flag": {"base: base\n", []string{"only"}, nil, filepath.Join(dir, "base")},
	} {
		f, err := read(t, dir, head+c.text, c.given...)
		if err != nil || !slices.Equal(f.Only, c.only) || f.Base != c.base {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
}

func TestOnlyErrors(t *testing.T) {
	dir := directory(t)
	for _, c := range []struct {
		text  string
		given []string
		want  string
		hint  string
	}{
		{"only: images\n", nil, `:3: only is the string "images" and must be a list`, "after a dash"},
		{"only: []\n", nil, ":3: only is an empty list", "images, manifests or both"},
		{"only: [images, units]\n", nil, `:3: only "units" is not supported`, "images, manifests"},
		{"only:\n- images\n- images\n", nil, `:5: the content "images" is written twice, first at line 4`, "remove one"},
		{"only: [yes]\n", nil, `:3: only "yes" is not supported`, "images, manifests"},
		{"only: [true]\n", nil, ":3: only[0] is the boolean true and must be a string", "quotes"},
		{"only: [images]\nbase: none\n", nil, "none\" does not exist", "relative to the directory of"},
		{"only: [images]\nbase: half\narchitectures: [amd64, arm64]\n", nil, "half-arm64\" does not exist", "relative to the directory of"},
		{"\nbase: app.yaml\n", nil, ":4: base is only for additional bundles", "only: [images, manifests]"},
		{"only: [manifests]\nimages:\n- nginx\n", nil, ":4: images is not for this additional bundle", "only does not list images"},
		{"only: [images]\nkubernetesVersion: v1.20\n", nil, ":4: kubernetes version \"v1.20.0\" is not supported", "v1.29"},
		{"only: [images]\ncni: none\n", nil, ":4: cni is not for this additional bundle", "the cluster has its pod network"},
		{"only: [images]\ncomponentVersions: {etcd: 3.5.16-0}\n", nil, ":4: componentVersions is not for", "no components"},
		{"files:\n- {path: /etc/motd, source: motd}\nonly: [images]\n", nil, ":3: files is not for", "init and join write files"},
		{"files:\n- {path: /etc/motd, source: motd}\n", []string{"only"}, ":3: files is not for", "init and join write files"},
		{"only: [images]\nsystemdUnits:\n- source: exporter.service\n", nil, ":4: systemdUnits is not for", "start units"},
		{"only: [images]\nrequire: [crictl]\n", nil, ":4: require is not for", "no components"},
		{"only: [images]\nwithout: [crictl]\n", nil, ":4: without is not for", "no components"},
	} {
		_, err := read(t, dir, head+c.text, c.given...)
		if fault.ExitCode(err) != fault.Usage || err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(fault.Hint(err), c.hint) {
			t.Errorf("%q: %v; hint %q", c.text, err, fault.Hint(err))
		}
	}
	// All of them at once, in the order of the file.
	_, err := read(t, dir, head+"cni: none\nonly: [images, units]\nfiles:\n- {path: /etc/motd, source: motd}\n")
	if err == nil || !strings.Contains(err.Error(), "has 3 errors:") || strings.Index(err.Error(), "cni is") > strings.Index(err.Error(), "units") {
		t.Error(err)
	}
}
