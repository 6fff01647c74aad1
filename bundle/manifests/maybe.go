package manifests

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// Maybe returns what looks like an image outside of the image fields of workloads. Controllers
// in the cluster may create pods with these images: operators, device plugins, autoscalers.
// It looks at
//
//   - environment variables and arguments of containers:
//     RELATED_IMAGE_X=quay.io/team/x:v1, --prometheus-config-reloader=quay.io/team/x:v1;
//   - fields of custom resources: image, and repository (or image) with tag (or version) and
//     registry;
//   - ConfigMaps and Secrets: text, and YAML or JSON with such fields or whole pods;
//   - default values in CustomResourceDefinitions, and annotations.
//
// It does not see an image that is compiled into a binary, or that a binary composes from
// a version.
//
// A full reference with registry and tag or digest is found everywhere. A shorter one
// ("busybox:1.36") is found only where a name calls it an image. URLs, paths, host:port and
// API versions are no images. Each image is reported once for each object.
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
	joined map[string]bool // by field: those that are a part of an image
}

func (f *finder) add(p path, written string, c confidence) {
	ref, ok := looksLikeImage(written, c)
	if !ok || f.seen[ref] {
		return
	}
	f.seen[ref] = true
	f.found = append(f.found, Image{Object: f.object, Field: p.String(), Written: written, Reference: ref})
}

func (f *finder) look() {
	o := f.object
	switch {
	case o.Kind == "CustomResourceDefinition":
		f.defaults()
	case o.group() == "" && (o.Kind == "ConfigMap" || o.Kind == "Secret"):
		for _, field := range []string{"data", "stringData", "binaryData"} {
			values, _ := o.Content[field].(map[string]any)
			encoded := field == "binaryData" || o.Kind == "Secret" && field == "data"
			for _, key := range sortedKeys(values) {
				text, ok := values[key].(string)
				// trivy.repository and trivy.tag
				if tag, _ := values[strings.TrimSuffix(key, "repository")+"tag"].(string); ok && !encoded && tag != "" && strings.HasSuffix(key, ".repository") {
					f.add(path{field, key}, text+":"+tag, named)
					continue
				}
				if ok {
					f.entry(path{field, key}, text, encoded)
				}
			}
		}
	case o.group() == "" && o.Kind == "Event":
	default:
		f.tree(nil, o.Content)
	}
}

// defaults looks at the default values in the schemas of a CustomResourceDefinition. The
// rest is descriptions and examples.
func (f *finder) defaults() {
	walk(nil, f.object.Content, func(p path, value any) bool {
		key := p.key()
		if key == "description" || key == "example" {
			return false
		}
		if s, ok := value.(string); ok && key == "default" && len(p) > 1 {
			c := anywhere
			if field, ok := p[len(p)-2].(string); ok {
				c = confidenceOf(field)
			}
			f.add(p, s, c)
		}
		if m, ok := value.(map[string]any); ok && key == "default" {
			f.tree(p, m)
			return false
		}
		return true
	})
}

// entry looks at an entry of a ConfigMap or a Secret.
func (f *finder) entry(p path, text string, encoded bool) {
	if encoded {
		decoded, err := base64.StdEncoding.DecodeString(text)
		if err != nil || !utf8.Valid(decoded) {
			return
		}
		text = string(decoded)
	}
	structured := true
	for _, d := range split([]byte(text)) {
		var value any
		if yaml.Unmarshal(d.text, &value) != nil {
			structured = false
			continue
		}
		switch value.(type) {
		case map[string]any, []any:
			f.tree(p, value)
		case nil:
		default:
			structured = false
		}
	}
	if !structured {
		f.text(p, text, confidenceOf(p.key()))
	}
}

// tree looks at structured data.
func (f *finder) tree(p path, root any) {
	walk(p, root, func(p path, value any) bool {
		switch v := value.(type) {
		case map[string]any:
			f.parts(p, v)
			f.variable(p, v)
		case string:
			f.value(p, v)
		}
		return !slices.Contains(unread, p.key())
	})
}

// unread are fields without images: copies of the object, and texts for people.
var unread = []string{"kubectl.kubernetes.io/last-applied-configuration", "description", "managedFields", "labels", "matchLabels"}

func (f *finder) value(p path, s string) {
	switch key := p.key(); {
	case slices.Contains(unread, key) || f.joined[p.String()]:
	case key == "args" || key == "command":
		f.text(p, s, anywhere)
		if i, ok := p[len(p)-1].(int); ok && i > 0 {
			f.after(p, i, s)
		}
	case key == "value" && len(p) > 2 && p[len(p)-3] == "env":
		// variable looks at it, with the variable's name.
	case strings.Contains(s, "\n"):
		f.entry(p, s, false)
	default:
		f.add(p, s, confidenceOf(key))
	}
}

// after looks at an argument that follows a flag: --image busybox.
func (f *finder) after(p path, i int, s string) {
	list := f.object.Content
	var value any = list
	for _, e := range p[:len(p)-1] {
		switch e := e.(type) {
		case string:
			m, _ := value.(map[string]any)
			value = m[e]
		case int:
			l, _ := value.([]any)
			if e >= len(l) {
				return
			}
			value = l[e]
		}
	}
	arguments, _ := value.([]any)
	if i >= len(arguments) {
		return
	}
	flag, _ := arguments[i-1].(string)
	if strings.HasPrefix(flag, "-") && !strings.Contains(flag, "=") {
		f.add(p, s, confidenceOf(flag))
	}
}

// variable looks at an environment variable of a container.
func (f *finder) variable(p path, v map[string]any) {
	if len(p) < 2 || p[len(p)-2] != "env" {
		return
	}
	name, _ := v["name"].(string)
	value, ok := v["value"].(string)
	if ok {
		f.text(p.with("value"), value, confidenceOf(name))
	}
}

// parts looks at an image in parts: registry, repository, tag, digest.
func (f *finder) parts(p path, v map[string]any) {
	text := func(keys ...string) (string, string) {
		for _, k := range keys {
			switch s := v[k].(type) {
			case string:
				if s != "" {
					return s, k
				}
			case int64, float64:
				return strings.Trim(jsonText(s), `"`), k
			}
		}
		return "", ""
	}
	repository, key := text("repository", "image", "imageName", "repo", "baseImage")
	registry, _ := text("registry", "imageRegistry")
	tag, tagKey := text("tag", "imageTag", "version")
	digest, _ := text("digest", "sha")
	if hub, _ := text("hub"); hub != "" && tag != "" {
		f.hub(p, v, hub, tag)
	}
	// NVIDIA's form: a repository of images, the image's name, and its version. The field of a
	// controller that knows the version itself is reported without one.
	inParts := false
	if name, ok := v["image"].(string); ok && name != "" && key == "repository" && !strings.ContainsAny(name, "/:@") && !strings.Contains(repository, "//") {
		repository = strings.TrimSuffix(repository, "/") + "/" + name
		f.joined[p.with("image").String()], f.joined[p.with("repository").String()] = true, true
		key, tagKey, inParts = "image", "", true
		if strings.HasPrefix(tag, "sha256:") {
			tag, digest = "", tag
		}
	}
	if repository == "" || tag == "" && digest == "" && !inParts {
		return
	}
	if strings.Contains(lastElement(repository), ":") || strings.Contains(repository, "@") {
		return // value reports it
	}
	// "repository" with "version" is also what describes a chart or a source.
	if key == "repository" && tagKey == "version" || key == "repo" && tagKey != "tag" {
		return
	}
	written := repository
	if registry != "" {
		written = strings.TrimSuffix(registry, "/") + "/" + repository
	}
	if tag != "" {
		written += ":" + tag
	}
	if tag == "" && digest != "" {
		if !strings.Contains(digest, ":") {
			digest = "sha256:" + digest
		}
		written += "@" + digest
	}
	f.joined[p.with(key).String()] = true
	f.add(p.with(key), written, named)
}

// hub looks at Istio's form: a hub and a tag, and below them images without either.
func (f *finder) hub(p path, v map[string]any, hub, tag string) {
	walk(p, v, func(p path, value any) bool {
		if s, ok := value.(string); ok && p.key() == "image" && !strings.ContainsAny(s, "/:") && s != "" {
			f.joined[p.String()] = true
			f.add(p, strings.TrimSuffix(hub, "/")+"/"+s+":"+tag, named)
		}
		return true
	})
}

// token matches a part of a text that may be a reference.
var token = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9._:/@-]*[A-Za-z0-9]`)

// imageLine matches a line of YAML that did not parse, because it is a template.
var imageLine = regexp.MustCompile(`(?m)^[\s-]*"?(?:image|[a-z]+Image)"?:\s*"?([^\s"{}]+)"?,?\s*$`)

// text looks at a value that may contain more than a reference: an argument, a script, a
// list with commas.
func (f *finder) text(p path, s string, c confidence) {
	trimmed := strings.TrimSpace(s)
	if name, value, ok := strings.Cut(trimmed, "="); ok && !strings.ContainsAny(trimmed, " \n") {
		f.add(p, value, confidenceOf(name))
	}
	f.add(p, trimmed, c)
	if !strings.ContainsAny(trimmed, " \n,;=") {
		return
	}
	for _, m := range imageLine.FindAllStringSubmatch(s, -1) {
		f.add(p, m[1], named)
	}
	for _, t := range token.FindAllStringIndex(s, -1) {
		// The rest of a URL or of a path is none.
		if t[0] > 0 && strings.ContainsRune("/.@$}", rune(s[t[0]-1])) {
			continue
		}
		f.add(p, s[t[0]:t[1]], anywhere)
	}
}
