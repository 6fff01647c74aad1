package site

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/registry/hosts"
	"airlift/installer/registry/images"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

// TestComesBack: an image comes back if all of its layers are served, under each name with a tag.
func TestComesBack(t *testing.T) {
	app := images.Served{Reference: "site.example/app:1", Digest: "sha256:d", ID: "sha256:i", Complete: true}
	image := func(names ...string) NodeImage {
		return NodeImage{References: names, ID: "sha256:i", Digest: "sha256:d"}
	}
	part, other := app, app
	part.Complete, other.ID = false, "sha256:j"
	for name, c := range map[string]struct {
		served images.Served
		image  NodeImage
		want   bool
	}{
		"by its tag":                  {app, image("site.example/app:1", "site.example/app@sha256:d"), true},
		"by its digest alone":         {app, image("site.example/app@sha256:d"), true},
		"with another tag":            {app, image("site.example/app:1", "site.example/app:latest", "site.example/app@sha256:d"), false},
		"in another repository":       {app, image("site.example/other@sha256:d"), false},
		"a longer repository":         {app, image("site.example/app/more@sha256:d"), false},
		"without a name":              {app, image(), false},
		"a layer cannot be served":    {part, image("site.example/app:1"), false},
		"another image with the name": {other, image("site.example/app:1"), false},
	} {
		n := &NodeImages{served: []images.Served{c.served}}
		if n.comesBack(c.image) != c.want {
			t.Errorf("%s: %t", name, !c.want)
		}
	}
}

func TestNotHere(t *testing.T) {
	served := func(name, id string, complete bool) images.Served {
		return images.Served{Reference: name, ID: id, Digest: "sha256:0123456789abcdef", Size: 2_000_000, Complete: complete}
	}
	n := &NodeImages{served: []images.Served{served("a:1", "1", true), served("b:1", "2", true), served("c:1", "3", false), served("d:1", "4", true)}}
	list := n.NotHere([]NodeImage{{References: []string{"a:1"}, ID: "1"}, {References: []string{"d:1"}, ID: "5"}})
	if len(list) != 2 || list[0].Reference != "b:1" || list[1].Reference != "d:1" {
		t.Fatalf("%+v", list)
	}
	var out strings.Builder
	if err := WriteNotHere(&out, list); err != nil || !strings.Contains(out.String(), "\nSERVED, AND NOT ON THIS NODE   DIGEST") || !strings.Contains(out.String(), "\nb:1 ") {
		t.Errorf("%v\n%s", err, &out)
	}
	out.Reset()
	if err := WriteNotHere(&out, nil); err != nil || out.Len() > 0 {
		t.Errorf("%v\n%s", err, &out)
	}
	yes := true
	if err := WriteNodeImages(&out, []NodeImage{{References: []string{"a:1"}, Served: &yes}}); err != nil || !slices.Contains(strings.Fields(out.String()), "SERVED") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// What prune cannot find out, it warns of: it goes on only if --bundle names files to keep, and counts no image as served.
func TestPruneWarns(t *testing.T) {
	root := t.TempDir()
	var out strings.Builder
	h := testhost.Open(t, root)
	n := &NodeImages{Machine: node.NewMachine(h, &workflow.Console{Out: &out})}
	none := filepath.Join(root, "none.conf")
	if wantFault(t, "without files to keep", n.AskCluster(t.Context(), none), fault.Preflight, "none.conf", "--bundle FILE"); out.Len() > 0 {
		t.Errorf("a warning and an error:\n%s", &out)
	}
	n.keep = []*payload.Bundle{laterBundle(t, "")}
	if err := n.AskCluster(t.Context(), none); err != nil || !strings.Contains(out.String(), "warning: cannot find out which images the cluster's workloads need, so only --bundle protects them: ") || n.needed != nil {
		t.Errorf("%v, %v\n%s", n.needed, err, &out)
	}
	out.Reset()
	if n.AskRegistry(t.Context()); out.Len() > 0 {
		t.Errorf("on a node without the embedded registry:\n%s", &out)
	}
	timer := h.Path(hosts.Timer.UnitPath())
	if err := errors.Join(os.MkdirAll(filepath.Dir(timer), 0o755), os.WriteFile(timer, nil, 0o644), h.Records().SetOwnsRuntime()); err != nil {
		t.Fatal(err)
	}
	if n.AskRegistry(t.Context()); !strings.Contains(out.String(), "warning: cannot find out which images the control planes serve: ") || n.asked {
		t.Errorf("%t\n%s", n.asked, &out)
	}
}
