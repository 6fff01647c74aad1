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

// before and after are the events whose hooks a host runs, before and after the other objects of a manifest. Tests are left out.
var (
	before = []release.HookEvent{release.HookPreInstall, release.HookPreUpgrade, release.HookPreRollback, release.HookPreDelete}
	after  = []release.HookEvent{release.HookPostInstall, release.HookPostUpgrade, release.HookPostRollback, release.HookPostDelete}
)

// hooksFor returns the hooks for events, each once, by weight as hooksOf.
func hooksFor(hooks []*release.Hook, events []release.HookEvent) (found []*release.Hook) {
	for _, event := range events {
		for _, h := range hooksOf(hooks, event) {
			if !slices.Contains(found, h) {
				found = append(found, h)
			}
		}
	}
	return found
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
