package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"airlift/internal/documents/strict"
	"airlift/internal/fault"
)

// check decodes all documents, and records everything that is wrong with them. Documents of unknown groups are errors or warnings.
func (s *source) check(unknownIsError bool) {
	for _, d := range s.docs {
		known := len(s.Problems)
		d.of = s.typeOf(d)
		switch {
		case d.of != nil:
			d.value = s.decode(d)
		case len(s.Problems) > known:
		case unknownIsError:
			s.addf(s.lineOf(d, "kind"), "%s of %s/%s is not a kind that kubeadm knows", d.kind, d.group, d.version)
		default:
			s.warnf(d.Line, "%s of %s/%s does not apply to this command and is ignored", d.kind, d.group, d.version)
		}
	}
}

func (s *source) decode(d *document) reflect.Value {
	r := &reader{Decoder: strict.Decoder{List: &s.List, Lines: s.lines, EmptyFields: true, EmptyItems: true}}
	r.Unknown, r.Replace, r.Check = r.unknown, r.args, r.positive
	if d.group == kubeadmGroup {
		r.version = d.version
		r.Has = func(tag reflect.StructTag) bool { return within(tag.Get("kubeadm"), r.version) }
	}
	return r.document(d)
}

// A reader reads a document of a version of kubeadm's API.
type reader struct {
	strict.Decoder
	version string // empty for other groups
	lenient bool   // fields and forms of other versions are read, and unknown fields are ignored
}

func (r *reader) document(d *document) reflect.Value {
	into := reflect.New(d.of)
	r.Document(into.Interface(), d.Document, d.kind)
	return into
}

// decoded returns the value of the document of the type's kind, or the zero value if there is none.
func decoded[T any](s *source) *T {
	for _, d := range s.docs {
		if d.of == reflect.TypeFor[T]() && d.value.IsValid() {
			return d.value.Interface().(*T)
		}
	}
	return new(T)
}

// args decodes arguments, which are a mapping in v1beta3, sorted by name, and a list since.
func (r *reader) args(into reflect.Value, value any, at strict.Place) bool {
	if into.Type() != reflect.TypeFor[Args]() {
		return false
	}
	_, isMap := value.(map[string]any)
	switch old := r.version == "v1beta3"; {
	case isMap == old || r.lenient:
	case isMap:
		r.Refuse(at, `write - name: NAME and value: "VALUE"`, `%s is a mapping, as in v1beta3; in %s it must be a list`, at.Path, r.version)
		return true
	default:
		r.Refuse(at, `write NAME: "VALUE"; it is a list of name and value since v1beta4`, `%s must be a mapping in v1beta3`, at.Path)
		return true
	}
	if !isMap {
		return false
	}
	args := map[string]string{}
	r.Decode(reflect.ValueOf(&args).Elem(), "", value, at)
	for _, name := range keys(args) {
		into.Set(reflect.Append(into, reflect.ValueOf(Arg{Name: name, Value: args[name]})))
	}
	return true
}

// positive refuses a duration that is zero or less: later, zero means the default.
func (r *reader) positive(into reflect.Value, tag reflect.StructTag, at strict.Place) {
	if d, ok := into.Interface().(time.Duration); ok && d <= 0 && tag.Get("zero") == "" {
		r.Refuse(at, "remove it to use the default", "%s is %s and must be greater than 0s", at.Path, d)
	}
}

// replaced maps fields that were removed from the API to their replacements.
var replaced = map[string]string{
	"ClusterConfiguration.apiServer.timeoutForControlPlane": "write timeouts.controlPlaneComponentHealthCheck in InitConfiguration, or in JoinConfiguration",
	"JoinConfiguration.discovery.timeout":                   "write timeouts.discovery",
}

// unknown refuses a field of another version, and finds the places that a field belongs to.
func (r *reader) unknown(of reflect.Type, name, near string, at strict.Place) (hint string, refused bool) {
	tag := strict.Fields(of)[name].Tag.Get("kubeadm")
	last, until := strings.CutPrefix(tag, "-")
	kind, _, _ := strings.Cut(at.Path, ".")
	switch component := Kinds[kind].field != nil; {
	case r.lenient && of != reflect.TypeFor[Arg]():
		return "", true
	case until:
		r.Refuse(at, replaced[at.Path], "%s exists up to %s and not in %s", at.Path, last, r.version)
		return "", true
	case tag != "":
		r.Refuse(at, fmt.Sprintf("write apiVersion: %s/%s here, or remove it", kubeadmGroup, tag), "%s is not in %s: %q exists since %s", at.Path, r.version, name, tag)
		return "", true
	case near != "":
	default:
		if places := r.elsewhere(name); len(places) > 0 {
			return "it belongs at " + strings.Join(places, " or "), false
		}
		if names := keys(strict.Fields(of)); component && len(names) > strict.MaxNames {
			hint = "to print fields with their defaults: ./install config print init-defaults --component-configs " + kind
			if similar := fault.Similar(name, names, 3); len(similar) > 0 {
				hint = "similar fields are " + strings.Join(similar, ", ") + "; " + hint
			}
		}
	}
	return hint, false
}

// elsewhere returns the other places that have a field of that name.
func (r *reader) elsewhere(name string) (places []string) {
	version := r.version
	if version == "" {
		version = apiVersions[1]
	}
	var search func(t reflect.Type, path string)
	search = func(t reflect.Type, path string) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[source]().PkgPath() && t.Name() != "" {
			return
		}
		fields := strict.Fields(t)
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
	for _, kind := range keys(Kinds) {
		if k := Kinds[kind]; k.group == kubeadmGroup && within(k.version, version) && kind != "UpgradeConfiguration" {
			search(k.of, kind)
		} else if _, ok := strict.Fields(k.of)[name]; ok && k.field != nil {
			places = append(places, kind+"."+name)
		}
	}
	return places[:min(len(places), 4)]
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// didYouMean returns the end of a message with the nearest candidate.
func didYouMean(written string, candidates []string) string {
	if best := fault.Nearest(written, candidates); best != "" {
		return ": did you mean " + best + "?"
	}
	return ""
}
