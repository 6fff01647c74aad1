package charts

import (
	"fmt"
	"slices"

	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
)

// hooksOf returns the hooks for an event in the order in which Helm runs them: by weight,
// then by kind and name of the template as Helm sorted them.
func hooksOf(hooks []*release.Hook, event release.HookEvent) (found []*release.Hook) {
	for _, h := range hooks {
		if slices.Contains(h.Events, event) {
			found = append(found, h)
		}
	}
	slices.SortStableFunc(found, func(a, b *release.Hook) int { return a.Weight - b.Weight })
	return found
}

// hookNotes lists what Helm does with a hook and install does not.
func hookNotes(hooks []*release.Hook, event release.HookEvent) (notes []string) {
	for _, h := range hooks {
		switch {
		case h.Kind != "Job" && h.Kind != "Pod":
		case event == release.HookPreInstall:
			notes = append(notes, fmt.Sprintf("%s %s is a pre-install hook: Helm waits until it has succeeded, the hosts do not", h.Kind, h.Name))
		default:
			notes = append(notes, fmt.Sprintf("%s %s is a post-install hook: it starts when it is applied, and restarts until what it needs is ready", h.Kind, h.Name))
		}
	}
	return notes
}

// leftOut lists the objects that Helm ignores because they are hooks for an event that it does not know.
func leftOut(files map[string]string, hooks []*release.Hook, generic []releaseutil.Manifest) (notes []string) {
	used := map[[2]string]bool{}
	for _, h := range hooks {
		used[[2]string{h.Path, h.Manifest}] = true
	}
	for _, m := range generic {
		used[[2]string{m.Name, m.Content}] = true
	}
	for file, content := range files {
		for _, m := range releaseutil.SplitManifests(content) {
			if objects, err := decode(file, m); err == nil && !used[[2]string{file, m}] {
				for _, o := range objects {
					notes = append(notes, fmt.Sprintf("%s: %s is left out: Helm does not know the event of its hook", file, o))
				}
			}
		}
	}
	slices.Sort(notes)
	return notes
}
