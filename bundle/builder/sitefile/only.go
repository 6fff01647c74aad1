package sitefile

import (
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/bundle/builder"
	"airlift/images/release"
)

// additional reports whether the file describes a bundle without Kubernetes.
func (r *reader) additional(o builder.Options) bool { return len(o.Only) > 0 || r.given("only") }

// checkOnly checks the fields of an additional bundle, and refuses fields that an additional bundle
// cannot have.
func (r *reader) checkOnly(doc document, o builder.Options) {
	if o.Only != nil && len(o.Only) == 0 {
		r.problems.Add(r.lineOfField("only"), "list "+strings.Join(bundle.ContentKinds(), ", ")+" or both, or remove the line", "only is an empty list")
	}
	only := r.texts("only")
	for _, t := range only {
		if _, err := builder.ParseOnly([]string{t.Value}); err != nil {
			r.problems.Add(t.Line, "write one of "+strings.Join(bundle.ContentKinds(), ", "), "only %q is not supported", t.Value)
		}
	}
	r.refuseTwice("content", only)
	base := r.text("base")
	if base.Value != "" && !r.given("architectures") {
		for _, path := range builder.PerArch(o.Base, o.Arches) {
			r.checkExists(base, path)
		}
	}
	if !r.additional(o) {
		if base.Value != "" {
			r.problems.Add(base.Line, "add only: [images, manifests], or remove the line", "base is only for additional bundles")
		}
		return
	}
	for _, other := range []struct {
		field   string
		written bool
		hint    string
	}{
		{"cni", o.CNI != "", "the cluster has its pod network"},
		{"componentVersions", o.Versions != (release.Versions{}), "the bundle has no components"},
		{"files", len(doc.Files) > 0, "init and join write files, from a bundle without only"},
		{"systemdUnits", len(doc.SystemdUnits) > 0, "init and join start units, from a bundle without only"},
		{"require", len(o.Require) > 0, "the bundle has no components"},
		{"without", len(o.Without) > 0, "the bundle has no components"},
		{"images", len(o.Images) > 0 && !r.given("only") && !slices.Contains(o.Only, bundle.OnlyImages), "only does not list images"},
	} {
		if other.written {
			r.problems.Add(r.lineOfField(other.field), "remove it: "+other.hint, "%s is not for this additional bundle (only)", other.field)
		}
	}
}
