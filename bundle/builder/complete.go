package builder

import (
	"fmt"
	"strings"

	"airlift/bundle"
	"airlift/bundle/builder/manifests"
	"airlift/images/release"
	"airlift/internal/fault"
)

// checkComplete checks that the bundle has every image that a pod of the manifests needs. For an
// additional bundle, images that the base installs on every node count too.
func (o *objects) checkComplete(t Target, from base, wanted []*wantedImage) error {
	if len(o.of) == 0 {
		return nil
	}
	var set []string
	place := "the bundle"
	for _, i := range from.onEveryNode() {
		set = append(set, i.Reference, release.Repository(i.Reference)+"@"+i.Target.Digest) // an import records both
	}
	for _, i := range wanted {
		set = append(set, i.Reference)
	}
	if !t.carries(bundle.OnlyImages) && from.path != "" {
		place = "the base"
	}
	var lines []string
	for _, p := range manifests.Check(o.applied, set) {
		if p.Missing && !t.carries(bundle.OnlyImages) {
			p.Hint = from.addImages()
		}
		if p.Maybe {
			o.warn(p)
		} else {
			lines = append(lines, listed(p))
		}
	}
	// What is not in the bundle is for the user to correct at any time.
	for _, p := range manifests.Check(o.others, set) {
		o.warn(p)
	}
	if len(lines) > 0 {
		return fault.New(fault.Usage, "the manifests need a registry at the site:%s", strings.Join(lines, "")).
			Hint("correct the manifests; imagePullPolicy: IfNotPresent of a manifest in the file of --file replaces Always in its workloads")
	}
	o.complete = fmt.Sprintf("every image that the workloads in %s name is in %s", strings.Join(o.of, ", "), place)
	switch {
	case len(o.applied) == 0:
	case len(o.others) == 0:
		o.complete += ", and they contact no registry"
	default:
		o.complete += ", and the workloads of the bundle's manifests contact no registry"
	}
	return nil
}

// listed is a problem in an error that lists several.
func listed(p manifests.Problem) string {
	text := "\n  " + p.String()
	if p.Hint != "" {
		text += "\n    (" + p.Hint + ")"
	}
	return text
}
