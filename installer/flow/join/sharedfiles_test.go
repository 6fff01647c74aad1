package join

import (
	"bytes"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
	"airlift/scripts/fixtures/testcluster/testclient"
)

const policy, policyText = "/etc/kubernetes/audit/policy.yaml", "kind: Policy\n"

// withFiles returns a control plane that joins a cluster whose API servers read a policy, and that keeps these objects.
func withFiles(t *testing.T, objects func(saKey []byte) []runtime.Object) (c *controlPlaneJoin, said *bytes.Buffer) {
	t.Helper()
	c, _ = joining(t, "v1.37.1")
	said = new(bytes.Buffer)
	c.Console.Out = said
	component := &c.node.Config.APIServer.Component
	component.ExtraArgs = []config.Arg{{Name: "audit-policy-file", Value: policy}}
	component.ExtraVolumes = []config.HostPathMount{{Name: "audit", HostPath: path.Dir(policy), MountPath: path.Dir(policy)}}
	c.node.Config.Images = map[string]string{}
	for _, name := range node.ControlPlaneComponents {
		c.node.Config.Images[name] = "registry.k8s.io/" + name + ":v1.37.1"
	}
	key, err := os.ReadFile(c.Host.Path("/etc/kubernetes/pki/sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	c.api.Client, _ = testclient.Fake(objects(key)...)
	return c, said
}

// kept is the Secret with the policy, and a file that no component reads any more.
func kept(saKey []byte) []runtime.Object {
	data, err := reconfiguration.Seal(saKey, []reconfiguration.File{{Path: policy, Data: []byte(policyText)}, {Path: "/srv/unused", Data: []byte("x")}})
	if err != nil {
		panic(err)
	}
	return render.UploadFiles(data)
}

// TestSharedFiles: the files are on the host before the static pod that reads them, with the mode of reconfigure. A second run
// changes nothing, and one on a control plane that runs does not replace a file under its API server.
func TestSharedFiles(t *testing.T) {
	c, _ := withFiles(t, kept)
	l, err := c.staticPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range l.Files {
		paths = append(paths, f.Path)
	}
	if len(paths) != 4 || paths[0] != policy || slices.Contains(paths, "/srv/unused") {
		t.Fatalf("%q", paths)
	}
	// The file is there when the first manifest is written.
	c.local.Hold = func(file pki.File) bool {
		if data, err := os.ReadFile(c.Host.Path(policy)); err != nil || string(data) != policyText {
			t.Errorf("before %s: %q, %v", file.Path, data, err)
		}
		return false
	}
	if err := c.local.ApplyStaticPods(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(c.Host.Path(policy))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if !c.Exists(node.APIServerManifest) {
		t.Error("the API server has no manifest")
	}
	if err := os.WriteFile(c.Host.Path(policy), []byte("edited"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.local.Hold = func(pki.File) bool { return false }
	again, err := c.staticPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.local.ApplyStaticPods(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(c.Host.Path(policy)); err != nil || string(data) != "edited" {
		t.Errorf("%q, %v", data, err)
	}
}

// TestNoSharedFiles: a cluster without such files, or a phase that runs alone without admin.conf, has only the static pods.
func TestNoSharedFiles(t *testing.T) {
	none := func([]byte) []runtime.Object { return nil }
	c, said := withFiles(t, none)
	if l, err := c.staticPods(t.Context()); err != nil || len(l.Files) != 3 || said.Len() > 0 {
		t.Errorf("%d files, %v, %q", len(l.Files), err, said)
	}
	c.api.Client = nil
	if l, err := c.staticPods(t.Context()); err != nil || len(l.Files) != 3 || !strings.Contains(said.String(), "/etc/kubernetes/admin.conf") {
		t.Errorf("%d files, %v, %q", len(l.Files), err, said)
	}
}

// TestSharedFilesOfAnotherKey: with another sa.key, no static pod is written.
func TestSharedFilesOfAnotherKey(t *testing.T) {
	other, _ := joining(t, "v1.37.1")
	key, err := os.ReadFile(other.Host.Path("/etc/kubernetes/pki/sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	c, _ := withFiles(t, func([]byte) []runtime.Object { return kept(key) })
	if l, err := c.staticPods(t.Context()); err == nil || len(l.Files) > 0 || !strings.Contains(err.Error(), "encrypted with another sa.key than this host's") {
		t.Errorf("%d files, %v", len(l.Files), err)
	}
}
