package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"airlift/internal/fault"
)

func (w *walker) wrongArgs(isMap bool, at place) {
	if isMap {
		w.addf(at.line, `%s is a mapping, as in v1beta3; in %s it must be a list: write - name: NAME and value: "VALUE"`, at.path, w.version)
	} else {
		w.addf(at.line, `%s must be a mapping in v1beta3: write NAME: "VALUE"; it is a list of name and value since v1beta4`, at.path)
	}
}

// replaced maps fields that were removed from the API to their replacements.
var replaced = map[string]string{
	"ClusterConfiguration.apiServer.timeoutForControlPlane": "write timeouts.controlPlaneComponentHealthCheck in InitConfiguration, or in JoinConfiguration",
	"JoinConfiguration.discovery.timeout":                   "write timeouts.discovery",
}

func (w *walker) misplaced(tag, name string, at place) {
	last, until := strings.CutPrefix(tag, "-")
	switch {
	case until && replaced[at.path] != "":
		w.addf(at.line, "%s exists up to %s and not in %s: %s", at.path, last, w.version, replaced[at.path])
	case until:
		w.addf(at.line, "%s exists up to %s and not in %s", at.path, last, w.version)
	default:
		w.addf(at.line, "%s is not in %s: %q exists since %s, so write apiVersion: %s/%s here, or remove it", at.path, w.version, name, tag, kubeadmGroup, tag)
	}
}

// unknown reports an unknown field, with a hint which one was meant.
func (w *walker) unknown(t reflect.Type, name string, at place) {
	hint := didYouMean(name, w.names(t))
	if hint == "" {
		if places := w.elsewhere(name); len(places) > 0 {
			hint = ": it belongs at " + strings.Join(places, " or ")
		}
	}
	if hint == "" {
		hint = w.fieldsLike(name, t)
	}
	w.addf(at.line, "%s is not known%s", at.path, hint)
}

// maxNames is the maximum number of fields in a message.
const maxNames = 12

// fieldsLike lists the fields that may be meant, or all if there are few.
func (w *walker) fieldsLike(name string, t reflect.Type) string {
	names := w.names(t)
	if len(names) <= maxNames {
		return ": the known fields here are " + strings.Join(names, ", ")
	}
	hint := ""
	if similar := fault.Similar(name, names, 3); len(similar) > 0 {
		hint = ": similar fields are " + strings.Join(similar, ", ")
	}
	if _, ok := componentKinds[w.doc.kind]; ok {
		hint += "; './install config print init-defaults --component-configs " + w.doc.kind + "' prints fields with their defaults"
	}
	return hint
}

// names are the fields of a struct in this version, sorted.
func (w *walker) names(t reflect.Type) (names []string) {
	for name, field := range fieldsOf(t) {
		if w.version == "" || within(field.Tag.Get("kubeadm"), w.version) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// firstNames shortens a list for a message.
func firstNames(names []string) []string {
	if len(names) <= maxNames {
		return names
	}
	return append(slices.Clone(names[:maxNames]), fmt.Sprintf("and %d more", len(names)-maxNames))
}

// elsewhere returns the other places that have a field of that name.
func (w *walker) elsewhere(name string) (places []string) {
	version := cmp.Or(w.version, apiVersions[1])
	var search func(t reflect.Type, path string)
	search = func(t reflect.Type, path string) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || !strings.HasPrefix(t.PkgPath(), reflect.TypeFor[source]().PkgPath()) && t.Name() != "" {
			return
		}
		fields := fieldsOf(t)
		for _, n := range keys(fields) {
			if !within(fields[n].Tag.Get("kubeadm"), version) {
				continue
			}
			if n == name {
				places = append(places, path+"."+n)
			}
			search(fields[n].Type, path+"."+n)
		}
	}
	for _, kind := range keys(kubeadmKinds) {
		if within(kubeadmKinds[kind].since, version) && kind != "UpgradeConfiguration" {
			search(kubeadmKinds[kind].of, kind)
		}
	}
	for _, kind := range keys(componentKinds) {
		if _, ok := fieldsOf(componentKinds[kind].of)[name]; ok {
			places = append(places, kind+"."+name)
		}
	}
	return places[:min(len(places), 4)]
}

func keys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// example is an item of a list, for messages.
func example(t reflect.Type) string {
	if t.Kind() == reflect.String {
		return `"…"`
	}
	return "{…}"
}

// didYouMean returns the end of a message with the nearest candidate.
func didYouMean(written string, candidates []string) string {
	if best := fault.Nearest(written, candidates); best != "" {
		return ": did you mean " + best + "?"
	}
	return ""
}
