package manifests

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"
)

// Maybe returns what looks like an image outside of the image fields of workloads. Controllers
// in the cluster may create pods with these images: operators, device plugins, autoscalers.
// It looks at
//
//   - environment variables and arguments of containers:
//     RELATED_IMAGE_X=quay.io/team/x:v1, --prometheus-config-reloader=quay.io/team/x:v1;
//   - fields of custom resources: image, and an image in parts (registry, repository or name,
//     tag, digest);
//   - ConfigMaps and Secrets: YAML or JSON with such fields or whole pods, and every other
//     text, such as INI, TOML, XML, properties, templates and scripts, also in base64;
//   - default values in CustomResourceDefinitions, and annotations.
//
// It does not see an image that is compiled into a binary, or that a binary composes from
// a version.
//
// A full reference with registry and tag or digest is found everywhere. A shorter one
// ("busybox:1.36"), or one with few digits as its tag (nvidia.com/gpu:1), is found only where a name or the command of a tool calls it an image. URLs,
// paths, host:port, API versions and comments are no images. Each image is reported once for each object.
func Maybe(objects []*Object) []Image {
	var found []Image
	for _, o := range objects {
		f := finder{object: o, seen: map[string]bool{}, joined: map[string]bool{}}
		for _, s := range slots(o) {
			if s.replacedLater(o) {
				found = append(found, Image{Object: o, Field: s.field.String(), Written: "auto"})
				continue
			}
			// The pod's own images are not findings, but f must not report them either.
			if image, err := s.imageOf(o); err == nil {
				f.seen[image.Reference] = true
			}
		}
		f.look()
		found = append(found, f.found...)
	}
	return found
}

// A finder collects the findings in one object.
type finder struct {
	object *Object
	found  []Image
	seen   map[string]bool // by reference
	joined map[string]bool // by place: values that are a part of an image
}

func (f *finder) add(p path, written string, c confidence) {
	if name, ok := strings.CutPrefix(written, transport); ok {
		written, c = name, max(c, hinted)
		if _, tag, _ := strings.Cut(name, ":"); !versionTag.MatchString(name) && !port.MatchString(tag) {
			c = named // neither a version of the runtime nor the address of a daemon
		}
	}
	ref, ok := looksLikeImage(written, c)
	if !ok || f.seen[ref] || f.joined[place(p, written)] {
		return
	}
	f.seen[ref] = true
	f.found = append(f.found, Image{Object: f.object, Field: p.String(), Written: written, Reference: ref})
}

// transport is before an image in the notation of skopeo, CDI and others.
const transport = "docker://"

// place identifies a value. A text has several values at one path.
func place(p path, value string) string { return p.String() + " " + value }

func (f *finder) look() {
	switch o := f.object; {
	case o.Kind == "CustomResourceDefinition":
		f.defaults()
	case o.group() == "" && o.Kind == "Event":
	default:
		f.tree(nil, o.Content, anywhere)
	}
}

// defaults looks at the default values in the schemas of a CustomResourceDefinition. The
// rest is descriptions and examples.
func (f *finder) defaults() {
	walk(nil, f.object.Content, func(p path, value any) bool {
		switch fields, _ := value.(map[string]any); p.key() {
		case "description", "example":
			return false
		case "properties":
			f.parts(defaultsOf(p, fields))
		case "default": // also a field of that name: its schema has no value that is found
			f.tree(p, value, confidenceOf(p[:len(p)-1].key()))
			return false
		}
		return true
	})
}

// tree looks at structured data. c is the confidence of values without a field of their own.
func (f *finder) tree(root path, content any, c confidence) {
	walk(root, content, func(p path, value any) bool {
		if slices.Contains(unread, p.key()) {
			return false
		}
		switch v := value.(type) {
		case map[string]any:
			f.parts(fieldsOf(p, v))
			f.hub(p, v)
			f.variable(p, v)
			f.arguments(p, v)
			return !f.entries(p, v)
		case []any:
			f.parts(variablesOf(p, v))
			return !slices.Contains(argumentLists, p.key())
		case string:
			f.value(p, v, max(c, p[len(root):].confidence(v)))
		}
		return true
	})
}

// unread are fields without images: copies of the object, and texts for people.
var unread = []string{"kubectl.kubernetes.io/last-applied-configuration", "description", "managedFields", "labels", "matchLabels"}

// confidence judges a value by the field that it is in. Fields such as name have the meaning of the
// field above, and so has every field of images.
func (p path) confidence(value string) confidence {
	key := p.key()
	if p.inImages() && !noImages.MatchString("image"+key) && !versionTag.MatchString(value) {
		return named
	}
	if !slices.Contains([]string{"name", "ref", "reference"}, key) {
		return confidenceOf(key)
	}
	if !strings.ContainsAny(value, ":/@") {
		return anywhere // the name of an object, or a part of an image
	}
	return confidenceOf(path(slices.DeleteFunc(slices.Clone(p), func(e any) bool { return e == key })).key())
}

// inImages reports whether p is a field of an object with images by name: images, defaultImages.
func (p path) inImages() bool {
	if len(p) < 2 {
		return false
	}
	_, field := p[len(p)-1].(string)
	above, _ := p[len(p)-2].(string)
	return field && strings.HasSuffix(simple(above), "images")
}

func (f *finder) value(p path, s string, c confidence) {
	if strings.ContainsAny(s, " \t\n,;|=\"'<>()") || glued.MatchString(s) || encoded.MatchString(s) {
		f.text(p, s, c)
	} else {
		f.add(p, s, c)
	}
}

// entries looks at a ConfigMap or a Secret with encoded entries, and reports whether v is one.
func (f *finder) entries(p path, v map[string]any) bool {
	readable := maps.Clone(v)
	kind, _ := v["kind"].(string)
	for _, field := range encodedFields[kind] {
		if entries, ok := v[field].(map[string]any); ok {
			readable[field] = decoded(entries)
			delete(readable, "kind")
		}
	}
	if len(readable) == len(v) {
		return false
	}
	f.tree(p, readable, anywhere)
	return true
}

// encodedFields are the fields with entries in base64, by kind.
var encodedFields = map[string][]string{"ConfigMap": {"binaryData"}, "Secret": {"data"}}

// decoded returns the entries that are texts.
func decoded(entries map[string]any) map[string]any {
	texts := map[string]any{}
	for key, value := range entries {
		encoded, _ := value.(string)
		if content, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			texts[key] = textOf(content)
		}
	}
	return texts
}

// variable looks at an environment variable of a container, and at parameters in the same form.
func (f *finder) variable(p path, v map[string]any) {
	name, _ := v["name"].(string)
	for _, field := range []string{"value", "default"} {
		if value, ok := v[field].(string); ok && name != "" {
			f.text(p.with(field), value, confidenceOf(name))
		}
	}
}

// arguments looks at the command and the arguments of a container as one list of words. It may run a
// tool for images: [crictl, pull, busybox:1.36].
func (f *finder) arguments(p path, v map[string]any) {
	var words []any
	var at []path
	for _, key := range argumentLists {
		list, _ := v[key].([]any)
		words = append(words, list...)
		for i := range list {
			at = append(at, p.with(key, i))
		}
	}
	usual := anywhere
	for _, word := range words {
		s, _ := word.(string)
		if s != "" && tools.FindString(lastElement(s)) == lastElement(s) {
			usual = hinted
		}
	}
	f.parts(flagsOf(at, words))
	before := ""
	for i, word := range words {
		c := usual
		if strings.HasPrefix(before, "-") && !strings.Contains(before, "=") {
			c = max(c, confidenceOf(before))
		}
		s, ok := word.(string)
		if before = s; ok {
			f.text(at[i], s, c)
		} else {
			f.tree(at[i], word, anywhere)
		}
	}
}

var argumentLists = []string{"command", "args"}
