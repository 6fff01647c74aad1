package builder_test

import (
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"airlift/builder"
	"airlift/bundle"
	"airlift/images/release"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// addOnUpstream serves a release and the images of its add-ons.
func addOnUpstream(t *testing.T) (*fakesites.Upstream, []release.AddOn) {
	u := siteUpstream(t)
	list, err := release.AddOns(version)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		u.PushIndex(a.Image, map[string]v1.Image{"amd64": fakesites.Image(t, "amd64", a.Name), "arm64": fakesites.Image(t, "arm64", a.Name)})
	}
	u.Forget()
	return u, list
}

// Add-ons precede the site's own manifests, in the order of the catalog, and their images are in
// the bundle for every node.
func TestAddOns(t *testing.T) {
	t.Parallel()
	u, list := addOnUpstream(t)
	o := options(t, u)
	o.Site = site(t)
	o.AddOns = []string{release.MetricsServer, release.NetworkPolicy, release.LocalPathStorage, release.MetricsServer, release.LoadBalancer}
	r := run(t, o)
	m := r.Manifest
	var want []bundle.SiteManifest
	for _, a := range list {
		want = append(want, bundle.SiteManifest{Name: a.Name, AddOn: a.Version})
		if !m.HasAddOn(a.Name) {
			t.Errorf("HasAddOn(%s) is false", a.Name)
		}
		if !slices.ContainsFunc(m.Images, func(i bundle.Image) bool { return i.Reference == a.Image }) {
			t.Errorf("the bundle does not have %s", a.Image)
		}
	}
	if !slices.Equal(m.Manifests[:4], want) || len(m.Manifests) != 6 || m.HasAddOn("web") {
		t.Errorf("%+v", m.Manifests)
	}
	if !strings.Contains(r.Complete, "network-policy, local-path-storage, metrics-server, load-balancer, web, config") {
		t.Errorf("%q", r.Complete)
	}
	if text := content(t, r.Path)["manifests/metrics-server.yaml"]; !strings.Contains(text, "image: "+list[2].Image) || !strings.Contains(text, "kind: APIService") {
		t.Errorf("%s", text)
	}
	for _, w := range r.Warnings {
		if !strings.HasPrefix(w, "mirror ") && !strings.Contains(w, "quay.io/team/tool") {
			t.Errorf("warning: %s", w)
		}
	}
}

// Without --addon, a bundle is as before.
func TestNoAddOns(t *testing.T) {
	t.Parallel()
	u, list := addOnUpstream(t)
	r := run(t, options(t, u))
	if len(r.Manifest.Manifests) != 0 {
		t.Errorf("%+v", r.Manifest.Manifests)
	}
	for _, i := range r.Manifest.Images {
		if slices.ContainsFunc(list, func(a release.AddOn) bool { return a.Image == i.Reference && a.Name != release.LoadBalancer }) {
			t.Errorf("the bundle has %s", i.Reference)
		}
	}
}

func TestAddOnsInAnAdditionalBundle(t *testing.T) {
	t.Parallel()
	u, list := addOnUpstream(t)
	o := options(t, u)
	o.Only, o.AddOns = []string{bundle.OnlyImages, bundle.OnlyManifests}, []string{release.MetricsServer}
	r := run(t, o)
	if m := r.Manifest; len(m.Images) != 1 || m.Images[0].Reference != list[2].Image || len(m.Manifests) != 1 || m.Manifests[0].AddOn != list[2].Version {
		t.Errorf("%+v", m)
	}
}

func TestBadAddOns(t *testing.T) {
	t.Parallel()
	u, _ := addOnUpstream(t)
	for name, c := range map[string]struct {
		change func(*builder.Options)
		want   string
	}{
		"unknown": {func(o *builder.Options) { o.AddOns = []string{"dashboard"} }, `add-on "dashboard" does not exist`},
		"another pod network": {func(o *builder.Options) { o.AddOns, o.CNI = []string{release.NetworkPolicy}, release.NoCNI },
			"only for the pod network flannel"},
		"a release that is too old": {func(o *builder.Options) { o.AddOns = []string{release.Ingress} },
			"the add-on ingress needs Kubernetes v1.31 or later, and this bundle has " + version},
		"policies later": {func(o *builder.Options) {
			o.AddOns, o.Only = []string{release.NetworkPolicy}, []string{bundle.OnlyImages, bundle.OnlyManifests}
		}, "needs a bundle that installs nodes"},
		"the name of a manifest": {func(o *builder.Options) {
			o.AddOns, o.Site = []string{release.MetricsServer}, site(t)
			o.Site.Manifests[1].Name = release.MetricsServer
		}, `bundle.yaml:5: the manifest "metrics-server" has the name of an add-on`},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, u)
			c.change(&o)
			_, err := runOne(t.Context(), o)
			if fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v (%s)", err, fault.Hint(err))
			}
		})
	}
}
