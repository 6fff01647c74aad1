package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
)

// kubeadmKinds are the documents of kubeadm's own API group.
var kubeadmKinds = map[string]struct {
	of    reflect.Type
	since string
}{
	"InitConfiguration":    {reflect.TypeFor[initConfiguration](), ""},
	"ClusterConfiguration": {reflect.TypeFor[clusterConfiguration](), ""},
	"JoinConfiguration":    {reflect.TypeFor[joinConfiguration](), ""},
	"ResetConfiguration":   {reflect.TypeFor[resetConfiguration](), "v1beta4"},
	"UpgradeConfiguration": {reflect.TypeFor[upgradeConfiguration](), "v1beta4"},
}

// componentKinds are the documents of other groups that kubeadm passes on.
var componentKinds = map[string]struct {
	group, version string
	of             reflect.Type
}{
	"KubeletConfiguration":   {kubeletv1.GroupName, "v1beta1", reflect.TypeFor[kubeletv1.KubeletConfiguration]()},
	"KubeProxyConfiguration": {kubeproxyv1.GroupName, "v1alpha1", reflect.TypeFor[kubeproxyv1.KubeProxyConfiguration]()},
}

// lastReader is the last kubeadm that reads a version of its API that is not
// read here (kubeadm's util/config/common.go, oldKnownAPIVersions).
var lastReader = map[string]string{
	"v1alpha1": "v1.11", "v1alpha2": "v1.12", "v1alpha3": "v1.14", "v1beta1": "v1.15", "v1beta2": "v1.22",
}

// typeOf returns what a document is decoded into. nil is for one that is not
// for us; a mistake has then been noted, unless it is of a group that nothing
// here knows.
func (s *source) typeOf(d *document) reflect.Type {
	known := strings.Join(apiVersions, ", ")
	line := func(key string) int { return s.lineOf(d, key) }
	switch d.group {
	case kubeadmGroup:
		kind, ok := kubeadmKinds[d.kind]
		if reader := lastReader[d.version]; reader != "" {
			s.addf(line("apiVersion"), "kubeadm.k8s.io/%s is too old to be read (%s are): turn it into a newer one with 'kubeadm config migrate --old-config old.yaml --new-config new.yaml' of kubeadm %s", d.version, known, reader)
		} else if !slices.Contains(apiVersions, d.version) {
			s.addf(line("apiVersion"), "there is no kubeadm.k8s.io/%s: the versions are %s", d.version, known)
		} else if !ok {
			names := []string{}
			for name := range kubeadmKinds {
				names = append(names, name)
			}
			s.addf(line("kind"), "kubeadm.k8s.io/%s has no %q%s", d.version, d.kind, didYouMean(d.kind, names))
		} else if !within(kind.since, d.version) {
			s.addf(line("apiVersion"), "%s exists since kubeadm.k8s.io/%s", d.kind, kind.since)
		} else {
			return kind.of
		}
		return nil
	case kubeletv1.GroupName, kubeproxyv1.GroupName:
		for name, kind := range componentKinds {
			switch {
			case kind.group != d.group:
			case kind.version != d.version:
				s.addf(line("apiVersion"), "%s/%s is not read: write %s/%s", d.group, d.version, kind.group, kind.version)
			case name == d.kind:
				return kind.of
			case d.kind == "CredentialProviderConfig" || d.kind == "SerializedNodeConfigSource":
				// Of the kubelet's API, and nothing kubeadm has a use for.
			default:
				s.addf(line("kind"), "%s/%s has no %q: did you mean %s?", d.group, d.version, d.kind, name)
			}
		}
		return nil
	}
	if kind, ok := componentKinds[d.kind]; ok {
		s.addf(line("apiVersion"), "%s is not of %s/%s: write apiVersion: %s/%s", d.kind, d.group, d.version, kind.group, kind.version)
	} else if _, ok := kubeadmKinds[d.kind]; ok {
		s.addf(line("apiVersion"), "%s is not of %s/%s: write apiVersion: %s/v1beta4", d.kind, d.group, d.version, kubeadmGroup)
	}
	return nil
}

// lineOf is the line of a top-level key.
func (s *source) lineOf(d *document, key string) int {
	if k, _ := child(d.node, key); k != nil {
		return d.offset + k.Line
	}
	return d.line
}

// check notes all that keeps the documents from being decoded into their types
// without a loss. Documents of groups that nothing here knows are a warning, or
// a mistake where that is said.
func (s *source) check(foreignIsMistake bool) {
	for _, d := range s.docs {
		known := len(s.problems)
		t := s.typeOf(d)
		switch {
		case t != nil:
			d.of = t
			w := &walker{source: s, doc: d}
			if d.group == kubeadmGroup {
				w.version = d.version
			}
			w.walk(t, d.value, place{d.kind, d.node, d.line})
			d.bad = len(s.problems) > known
		case len(s.problems) > known:
			d.bad = true
		case foreignIsMistake:
			s.addf(s.lineOf(d, "kind"), "%s of %s/%s is no kind that kubeadm knows", d.kind, d.group, d.version)
		default:
			s.warnf(d.line, "%s of %s/%s is not for this command and is ignored", d.kind, d.group, d.version)
		}
	}
}

// decode decodes the document of that kind if there is one that check found
// nothing wrong with. What the decoder still finds is noted. It reports whether
// into was filled.
func (s *source) decode(kind string, into any) bool {
	d := s.find(kind)
	if d == nil || d.of == nil || d.bad {
		return false
	}
	data, err := json.Marshal(d.value)
	if err != nil {
		s.addf(d.line, "%s: %v", d.kind, err)
		return false
	}
	strict, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		strict = append(strict, err)
	}
	for _, e := range strict {
		s.addf(d.line, "%s: %v", d.kind, e)
	}
	return len(strict) == 0
}

// walker compares a document with the type it is for.
type walker struct {
	*source
	doc     *document
	version string // of kubeadm's API; empty for other groups
}

// place is where a value was written.
type place struct {
	path string
	node *yamlnode.Node // nil when it is not known
	line int
}

func (w *walker) walk(t reflect.Type, value any, at place) {
	w.lines[at.path] = at.line
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil { // which means the default everywhere
		return
	}
	if t == reflect.TypeFor[wireArgs]() {
		if _, isMap := value.(map[string]any); isMap != (w.version == "v1beta3") {
			w.wrongArgs(isMap, at)
			return
		}
		if t = reflect.TypeFor[[]wireArg](); w.version == "v1beta3" {
			t = reflect.TypeFor[map[string]string]()
		}
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		w.leaf(t, value, at)
		return
	}
	switch t.Kind() {
	case reflect.Interface:
	case reflect.Struct:
		m, ok := value.(map[string]any)
		if !ok {
			w.addf(at.line, "%s is %s and must be a mapping with the fields %s", at.path, described(value), strings.Join(w.names(t), ", "))
			return
		}
		fields := fieldsOf(t)
		for _, name := range keys(m) {
			to := w.child(at, name)
			field, ok := fields[name]
			switch {
			case !ok:
				w.unknown(t, name, to)
			case !within(field.Tag.Get("kubeadm"), w.version) && w.version != "":
				w.misplaced(field.Tag.Get("kubeadm"), name, to)
			default:
				w.walk(field.Type, m[name], to)
			}
		}
	case reflect.Map:
		m, ok := value.(map[string]any)
		if !ok {
			w.addf(at.line, "%s is %s and must be a mapping of names to values", at.path, described(value))
			return
		}
		for _, name := range keys(m) {
			w.walk(t.Elem(), m[name], w.child(at, name))
		}
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			w.addf(at.line, "%s is %s and must be a list: write [%s] or one item a line after dashes", at.path, described(value), example(t.Elem()))
			return
		}
		for i, item := range list {
			w.walk(t.Elem(), item, w.item(at, i))
		}
	default:
		w.leaf(t, value, at)
	}
}

func (w *walker) leaf(t reflect.Type, value any, at place) {
	data, err := json.Marshal(value)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, reflect.New(t).Interface())
	}
	if err == nil {
		return
	}
	what := described(value)
	switch {
	case t == reflect.TypeFor[metav1.Duration]():
		w.addf(at.line, `%s is %s and must be a duration such as 4m0s, 90s or 8760h`, at.path, what)
	case t == reflect.TypeFor[metav1.Time]():
		w.addf(at.line, `%s is %s and must be a time such as "2030-01-02T15:04:05Z"`, at.path, what)
	case t.Kind() == reflect.String && isScalar(value):
		w.addf(at.line, "%s is %s and must be text: put it in quotes, %q", at.path, what, fmt.Sprint(value))
	case t.Kind() == reflect.String:
		w.addf(at.line, "%s is %s and must be text", at.path, what)
	case t.Kind() == reflect.Bool:
		w.addf(at.line, "%s is %s and must be true or false, without quotes", at.path, what)
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		w.addf(at.line, "%s is %s and must be a whole number of at most %d bits, without quotes", at.path, what, t.Bits())
	default:
		w.addf(at.line, "%s is %s: %v", at.path, what, err)
	}
}

func isScalar(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

func (w *walker) wrongArgs(isMap bool, at place) {
	if isMap {
		w.addf(at.line, `%s is a mapping, which it was up to v1beta3; in %s it is a list: write - name: NAME and value: "VALUE"`, at.path, w.version)
	} else {
		w.addf(at.line, `%s must be a mapping in v1beta3: write NAME: "VALUE"; it is a list of name and value since v1beta4`, at.path)
	}
}

// Fields that were taken out of the API, and what took their place.
var replaced = map[string]string{
	"ClusterConfiguration.apiServer.timeoutForControlPlane": "write timeouts.controlPlaneComponentHealthCheck in InitConfiguration, or in JoinConfiguration",
	"JoinConfiguration.discovery.timeout":                   "write timeouts.discovery",
}

func (w *walker) misplaced(tag, name string, at place) {
	last, until := strings.CutPrefix(tag, "-")
	switch {
	case until && replaced[at.path] != "":
		w.addf(at.line, "%s was in %s and is not in %s: %s", at.path, last, w.version, replaced[at.path])
	case until:
		w.addf(at.line, "%s was in %s and is not in %s", at.path, last, w.version)
	default:
		w.addf(at.line, "%s is not in %s: %q exists since %s, so write apiVersion: %s/%s here, or take it away", at.path, w.version, name, tag, kubeadmGroup, tag)
	}
}

// unknown says that there is no such field, and which was meant.
func (w *walker) unknown(t reflect.Type, name string, at place) {
	hint := didYouMean(name, w.names(t))
	if hint == "" {
		if places := w.elsewhere(name); len(places) > 0 {
			hint = ": it belongs at " + strings.Join(places, " or ")
		}
	}
	if hint == "" {
		hint = ": there is no such field here; the fields are " + strings.Join(w.names(t), ", ")
	}
	w.addf(at.line, "%s is not known%s", at.path, hint)
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

// elsewhere returns the places that do have a field of that name.
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

// fieldsOf returns a struct's fields by the names they have in JSON, those of
// embedded structs included.
func fieldsOf(t reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}
	for f := range fieldsIn(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			for inner, field := range fieldsOf(f.Type) {
				if _, own := fields[inner]; !own {
					fields[inner] = field
				}
			}
		} else if f.IsExported() && name != "-" {
			fields[cmp.Or(name, f.Name)] = f
		}
	}
	return fields
}

func fieldsIn(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

// child is the place of a field in a mapping; the mapping's own where the
// library that tells lines spells the key otherwise.
func (w *walker) child(at place, name string) place {
	to := place{at.path + "." + name, nil, at.line}
	if key, value := child(at.node, name); key != nil {
		to.node, to.line = value, w.doc.offset+key.Line
	}
	return to
}

func (w *walker) item(at place, i int) place {
	to := place{fmt.Sprintf("%s[%d]", at.path, i), nil, at.line}
	if node := resolved(at.node); node != nil && node.Kind == yamlnode.SequenceNode && i < len(node.Content) {
		to.node, to.line = node.Content[i], w.doc.offset+node.Content[i].Line
	}
	return to
}

// child finds a key and its value in a mapping, or in what is merged into it.
func child(node *yamlnode.Node, name string) (key, value *yamlnode.Node) {
	node = resolved(node)
	if node == nil || node.Kind != yamlnode.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i], node.Content[i+1]
		}
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Tag != "!!merge" {
			continue
		}
		merged := resolved(node.Content[i+1])
		list := []*yamlnode.Node{merged}
		if merged != nil && merged.Kind == yamlnode.SequenceNode {
			list = merged.Content
		}
		for _, m := range list {
			if key, value = child(m, name); key != nil {
				return key, value
			}
		}
	}
	return nil, nil
}

// resolved follows an alias to what it stands for.
func resolved(node *yamlnode.Node) *yamlnode.Node {
	for node != nil && node.Kind == yamlnode.AliasNode {
		node = node.Alias
	}
	return node
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

// didYouMean names the candidate that what was written begins, or that differs
// least from it, if by no more than a slip.
func didYouMean(written string, candidates []string) string {
	best, least := "", 1+min(3, len(written)/3)
	for _, c := range candidates {
		if len(written) > 3 && strings.HasPrefix(strings.ToLower(c), strings.ToLower(written)) {
			best = c
			break
		}
		if d := distance(strings.ToLower(written), strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// distance is Levenshtein's: how many letters to add, drop or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
