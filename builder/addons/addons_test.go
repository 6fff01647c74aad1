package addons_test

import (
	"slices"
	"strings"
	"testing"

	"airlift/builder/addons"
	"airlift/builder/manifests"
	"airlift/images/release"
)

// objects returns the objects of all add-ons of a release, by the add-on's name.
func objects(t *testing.T, version string) map[release.AddOn][]*manifests.Object {
	t.Helper()
	list, err := release.AddOns(version)
	if err != nil {
		t.Fatal(err)
	}
	all := map[release.AddOn][]*manifests.Object{}
	for _, a := range list {
		text, err := addons.Objects(a)
		if err != nil {
			t.Fatal(err)
		}
		if all[a], err = manifests.Decode(a.Name, text); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// The build finds the image of the catalog in the objects and no other, also where it looks for
// what may be an image. With it, no pod contacts a registry.
func TestImagesAreFound(t *testing.T) {
	for _, minor := range release.Known() {
		for a, list := range objects(t, release.NewestOf(minor)) {
			if err := manifests.Unique(list); err != nil {
				t.Errorf("%s: %v", a.Name, err)
			}
			found, err := manifests.Images(list)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, i := range found {
				names = append(names, i.Reference)
			}
			if !slices.Equal(names, []string{a.Image}) {
				t.Errorf("%s for %s: %v, want %s", a.Name, minor, names, a.Image)
			}
			for _, p := range manifests.Check(list, names) {
				t.Errorf("%s: %s", a.Name, p)
			}
			for _, m := range manifests.Maybe(list) {
				if m.Reference != a.Image {
					t.Errorf("%s: %+v", a.Name, m)
				}
			}
		}
	}
}

// A bundle has each of them with any other.
func TestObjectsOfAddOnsDiffer(t *testing.T) {
	var all []*manifests.Object
	for _, list := range objects(t, release.NewestOf("stable")) {
		all = append(all, list...)
	}
	if err := manifests.Unique(all); err != nil || len(all) < 20 {
		t.Errorf("%d objects: %v", len(all), err)
	}
}

func TestVolumesDirectory(t *testing.T) {
	for a, list := range objects(t, release.NewestOf("stable")) {
		for _, o := range list {
			if a.Name != release.LocalPathStorage || o.Kind != "ConfigMap" {
				continue
			}
			if text, _ := o.Content["data"].(map[string]any)["config.json"].(string); !strings.Contains(text, `"`+release.VolumesDir+`"`) {
				t.Errorf("the provisioner uses another directory than reset reports: %s", text)
			}
			return
		}
	}
	t.Error("the add-on has no configuration")
}

func TestUnknownAddOn(t *testing.T) {
	if _, err := addons.Objects(release.AddOn{Name: "other"}); err == nil {
		t.Error("an add-on without objects was accepted")
	}
}
