package builder

import (
	"cmp"
	"fmt"
	"strings"

	"airlift/bundle/builder/charts"
	"airlift/bundle/builder/manifests"
	"airlift/internal/fault"
)

// objects are the Kubernetes objects that the user named.
type objects struct {
	// applied are the objects of the manifests in the bundle. others are objects of which the
	// bundle has only the images.
	applied, others []*manifests.Object
	byName          map[string]*manifests.Object // applied, by group, kind, namespace and name
	scopes          manifests.Scopes             // of all kinds that are known here
	// of names the manifests and the paths for messages.
	of []string
	// complete is the result of checkComplete. warnings are about images that containers of the
	// site may need.
	complete string
	warnings []string
	// charts are the rendered charts, downloads the archives of these charts and their
	// dependencies.
	charts    []ProvenanceChart
	downloads []charts.Download
}

// apply adds the objects of a manifest. Several manifests may contain the same object, such as a
// Namespace, if its definitions are equal.
func (o *objects) apply(m Manifest, list []*manifests.Object) error {
	if o.byName == nil {
		o.byName = map[string]*manifests.Object{}
	}
	o.scopes.Add(list)
	for _, object := range list {
		group, _, ok := strings.Cut(object.APIVersion, "/")
		if !ok {
			group = ""
		}
		namespace := cmp.Or(object.Namespace, m.Namespace, "default")
		if o.scopes.Cluster(object) {
			namespace = ""
		}
		key := fmt.Sprintf("%q", []string{group, object.Kind, namespace, object.Name})
		if first, ok := o.byName[key]; ok {
			if field := manifests.Conflict(first, object); field != "" {
				return fault.New(fault.Usage, "%s: %s is also at %s, with another %s",
					object.Position(), object, first.Position(), field).Hint("remove one of them: the second would replace the first")
			}
		}
		o.byName[key] = object
	}
	o.applied = append(o.applied, list...)
	return nil
}

// noteAll keeps what is different from an installation of a chart with Helm.
func (o *objects) noteAll(name string, notes []string) {
	for _, n := range notes {
		o.warnings = append(o.warnings, name+": "+n)
	}
}

func (o *objects) warn(p manifests.Problem) {
	text := p.String()
	if p.Hint != "" {
		text += " (" + p.Hint + ")"
	}
	o.warnings = append(o.warnings, text)
}
