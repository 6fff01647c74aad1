package sitefile

import (
	"slices"
	"strings"

	"airlift/builder"
	"airlift/bundle"
	"airlift/images/release"
)

// additional reports whether the file describes a bundle without Kubernetes.
func (r *reader) additional() bool { return len(r.Only) > 0 || r.given("only") }

// checkOnly checks the fields of an additional bundle, and refuses fields that an additional bundle
// cannot have.
func (r *reader) checkOnly() {
	if r.Only != nil && len(r.Only) == 0 {
		r.refuse("only", "list "+strings.Join(bundle.ContentKinds(), ", ")+" or both, or remove the line", "only is an empty list")
	}
	for i, kind := range r.Only {
		r.choose(item("only", i), "only", kind, bundle.ContentKinds())
	}
	r.refuseTwice("only", "content", r.Only)
	if r.Base != "" && !r.given("architectures") {
		arches := r.Arches
		if len(arches) == 0 {
			arches = []string{""} // this machine's
		}
		for _, path := range builder.PerArch(r.Base, arches) {
			r.checkExists("base", path)
		}
	}
	if !r.additional() {
		if r.Base != "" {
			r.refuse("base", "add only: [images, manifests], or remove the line", "base is only for additional bundles")
		}
		return
	}
	for _, other := range []struct {
		field   string
		written bool
		hint    string
	}{
		{"cni", r.CNI != "", "the cluster has its pod network"},
		{"componentVersions", r.Versions != (release.Versions{}), "the bundle has no components"},
		{"files", len(r.Files) > 0, "init and join write files, from a bundle without only"},
		{"systemdUnits", len(r.SystemdUnits) > 0, "init and join start units, from a bundle without only"},
		{"packages", len(r.Packages) > 0, "init, join and the command packages install them, from a bundle without only"},
		{"require", len(r.Require) > 0, "the bundle has no components"},
		{"without", len(r.Without) > 0, "the bundle has no components"},
		{"images", len(r.Images) > 0 && !r.given("only") && !slices.Contains(r.Only, bundle.OnlyImages), "only does not list images"},
	} {
		if other.written {
			r.refuse(other.field, "remove it: "+other.hint, "%s is not for this additional bundle (only)", other.field)
		}
	}
}
