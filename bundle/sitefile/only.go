package sitefile

import (
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/bundle/builder"
)

// additional reports whether the file describes a bundle without Kubernetes.
func additional(doc document, overridden func(flag string) bool) bool {
	return len(doc.Only) > 0 || overridden("only")
}

// readOnly checks the fields of an additional bundle, and refuses those that only other bundles
// have.
func (r *reader) readOnly(doc document, f *File, overridden func(flag string) bool) {
	if doc.Only != nil && len(doc.Only) == 0 && !overridden("only") {
		r.problem(r.lineOfField("only"), "list "+strings.Join(bundle.ContentKinds(), ", ")+" or both, or remove the line", "only is an empty list")
	}
	for _, t := range doc.Only {
		if _, err := builder.ParseOnly([]string{t.Value}); err != nil && !overridden("only") {
			r.problem(t.Line, "write one of "+strings.Join(bundle.ContentKinds(), ", "), "only %q is not supported", t.Value)
		}
	}
	r.refuseTwice("content", doc.Only)
	f.Only = values(doc.Only)
	if doc.Base.Value != "" && !overridden("base") {
		f.Base = r.resolve(doc.Base.Value)
		if !overridden("arch") {
			for _, base := range builder.PerArch(f.Base, f.Arches) {
				r.checkExists(doc.Base, base)
			}
		}
	}
	if !additional(doc, overridden) {
		if doc.Base.Value != "" {
			r.problem(doc.Base.Line, "add only: [images, manifests], or remove the line", "base is only for additional bundles")
		}
		return
	}
	for _, other := range []struct {
		field   string
		written bool
		hint    string
	}{
		{"cni", doc.CNI.Value != "" && !overridden("cni"), "the cluster has its pod network"},
		{"componentVersions", doc.ComponentVersions.line() > 0, "the bundle has no components"},
		{"files", len(doc.Files) > 0, "init and join write files, from a bundle without only"},
		{"systemdUnits", len(doc.SystemdUnits) > 0, "init and join start units, from a bundle without only"},
		{"require", len(doc.Require) > 0, "the bundle has no components"},
		{"without", len(doc.Without) > 0, "the bundle has no components"},
		{"images", len(doc.Images) > 0 && !overridden("only") && !slices.Contains(f.Only, bundle.OnlyImages), "only does not list images"},
	} {
		if other.written {
			r.problem(r.lineOfField(other.field), "remove it: "+other.hint, "%s is not for this additional bundle (only)", other.field)
		}
	}
}

// line is the line of the first version; 0 if there is none.
func (c componentVersions) line() int {
	for _, t := range []text{c.Etcd, c.CoreDNS, c.Pause, c.Crictl} {
		if t.Line > 0 {
			return t.Line
		}
	}
	return 0
}
