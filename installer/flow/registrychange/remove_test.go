package registrychange

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/registry"
	"airlift/installer/registry/store"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testbundle"
)

// TestNeeded: the last file with the version of a node stays, and a base; one of two does not matter.
func TestNeeded(t *testing.T) {
	full := func(id, version string) config.KeptBundle {
		return config.KeptBundle{ID: id, KubernetesVersion: version, Platform: "linux/amd64", ManifestSHA256: "m" + id}
	}
	more := config.KeptBundle{ID: "more", KubernetesVersion: "v1.37.1", Platform: "linux/amd64", Only: []string{"images"}, Base: "ma"}
	arm := full("arm", "v1.37.1")
	arm.Platform = "linux/arm64"
	nodes := []cluster.NodeState{{Version: "v1.37.1"}, {Version: "v1.36.3"}}
	for name, c := range map[string]struct {
		files  []config.KeptBundle // the first one is to be removed
		refuse string
	}{
		"the last one":                  {[]config.KeptBundle{full("a", "v1.37.1"), full("b", "v1.36.3")}, "last one"},
		"the last one of an older node": {[]config.KeptBundle{full("b", "v1.36.3"), full("a", "v1.37.1")}, "last one"},
		"one of two":                    {[]config.KeptBundle{full("a", "v1.37.1"), full("c", "v1.37.1")}, ""},
		"for another platform":          {[]config.KeptBundle{full("a", "v1.37.1"), arm}, "last one"},
		"no node has it":                {[]config.KeptBundle{full("a", "v1.38.0")}, ""},
		"an additional one":             {[]config.KeptBundle{more, full("a", "v1.37.1")}, ""},
		"a base":                        {[]config.KeptBundle{full("a", "v1.37.1"), full("c", "v1.37.1"), more}, "it was the base"},
	} {
		err := needed(config.EmbeddedRegistry{Used: true, Bundles: c.files}, c.files[0], nodes)
		if (err != nil) != (c.refuse != "") || err != nil && (!strings.Contains(err.Error(), c.refuse) || !strings.Contains(fault.Hint(err), "./install registry ")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRemoveFile: the file leaves the list, with the images of "every node" that only it has. The text of the status names
// what to type.
func TestRemoveFile(t *testing.T) {
	c := newCell(t, withRegistries(1, "quay.io"), "10.0.0.1") // with a file "a", which is not on this host
	h, unlock, err := host.OpenLocked(c.root)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	kept := store.New(h.Path(registry.Directory))
	files := map[string]config.KeptBundle{}
	for _, name := range []string{"old", "new"} {
		images := testbundle.NewImages("images")
		images.Add(t, "site.example/both:1", "site.example/both:1", nil, testbundle.Layer(t, "file", "text"))
		images.Add(t, "site.example/"+name+":1", "site.example/"+name+":1", nil, testbundle.Layer(t, "file", name))
		b := images.Write(t, name)
		if _, err := kept.Keep(context.Background(), b.File, nil); err != nil {
			t.Fatal(err)
		}
		files[name] = registry.Describe(b.File, b.Manifest)
		if _, err := c.client.EditRegistry(t.Context(), func(r *config.EmbeddedRegistry) {
			r.Keep(files[name])
			r.Bring([]string{"site.example/both:1", "site.example/" + name + ":1"})
		}); err != nil {
			t.Fatal(err)
		}
	}
	r := &Remove{Machine: node.NewMachine(h, &workflow.Console{Out: io.Discard}), client: c.client}
	for id, want := range map[string]string{"": "0 kept files", "xyz": "0 kept files"} {
		if err := r.choose(t.Context(), id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if err := r.choose(t.Context(), files["old"].ID[:12]); err != nil {
		t.Fatal(err)
	}
	if q := r.Question(); !strings.Contains(q, files["old"].ID) || !strings.Contains(q, "additional, images") {
		t.Error(q)
	}
	for range 2 {
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	now, err := c.client.Registry(t.Context())
	if err != nil || len(now.Bundles) != 2 || !slices.Equal(now.Images, []string{"site.example/both:1", "site.example/new:1"}) {
		t.Errorf("%+v, %v", now, err)
	}
}

func TestDuplicates(t *testing.T) {
	file := func(id string, only ...string) KeptFile {
		return KeptFile{KeptBundle: config.KeptBundle{ID: id, KubernetesVersion: "v1.37.1", Platform: "linux/amd64", Only: only}}
	}
	s := &Status{Enabled: true, Bundles: []KeptFile{file("a"), file("b", "images"), file("c"), file("d", "images")}}
	var out strings.Builder
	if err := s.Write(&out); err != nil || !strings.Contains(out.String(), "The files a and c both have Kubernetes v1.37.1 for linux/amd64. The first one decides. To remove the other one: ./install registry remove c\n") {
		t.Errorf("%v\n%s", err, &out)
	}
	s.Bundles = s.Bundles[1:]
	if list := s.duplicates(); len(list) > 0 {
		t.Error(list)
	}
}
