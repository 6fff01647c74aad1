package initcluster

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testhost"
)

// A dry run of the phases that only write files shows the files that these phases then write, and no others.
func TestDryRunShowsWhatInitWrites(t *testing.T) {
	phasesOfFiles := []string{"certs", "kubeconfig", "etcd", "control-plane"}
	plan := func() *phases.Plan {
		return &phases.Plan{Role: phases.FirstControlPlane, Bundle: new(payload.Bundle), Config: testhost.Config(nil)}
	}
	shown, err := host.OpenDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	written, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	before := regularFiles(t, written.Path("/"))
	for _, name := range phasesOfFiles {
		console := &workflow.Console{Out: new(bytes.Buffer)}
		dry := newInit(plan(), phases.InitOptions{}, &node.Machine{Host: shown, Existing: written, Console: console})
		if err := dry.dry().RunPhase(t.Context(), dry.Steps(), name); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, name := range phasesOfFiles {
		i := New(plan(), phases.InitOptions{}, written, &workflow.Console{Out: new(bytes.Buffer)})
		if err := workflow.RunPhase(t.Context(), i.Console, i.Steps(), name); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	is := regularFiles(t, written.Path("/"))
	for name := range before {
		delete(is, name)
	}
	maps.DeleteFunc(is, func(name, _ string) bool { return strings.HasPrefix("/"+name, ledger.StateDir) }) // the ledger
	says := regularFiles(t, shown.Path("/"))
	names, want := slices.Sorted(maps.Keys(says)), slices.Sorted(maps.Keys(is))
	if len(want) < 20 || !slices.Equal(names, want) {
		t.Errorf("shown:\n%s\nwritten:\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
	}
	for name, data := range is {
		if strings.HasPrefix("/"+name, config.ManifestsDir) && says[name] != data { // keys are random
			t.Errorf("%s: shown\n%s\nwritten\n%s", name, says[name], data)
		}
	}
}

// regularFiles returns the files below a directory, the certificate of the kubelet without the time in its name.
func regularFiles(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path.Join(root, name))
		if dir, base := path.Split(name); strings.HasPrefix(base, "kubelet-client-") {
			name = dir + "kubelet-client.pem"
		}
		files[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
