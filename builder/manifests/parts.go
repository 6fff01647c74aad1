package manifests

import (
	"regexp"
	"strings"
)

// A parted is a group of names and values that may contain an image in parts.
type parted struct {
	context confidence      // of the field or the section that has the parts
	values  map[string]part // by name, as simple returns it
}

// A part is a value and where it is.
type part struct {
	at    path
	value string
}

// simple returns a name without case and separators: IMAGE_TAG and image.tag are imageTag.
func simple(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(name))
}

func (v parted) set(name string, at path, value any) {
	switch n := value.(type) {
	case string:
		v.values[simple(name)] = part{at, strings.TrimPrefix(strings.TrimSpace(n), transport)}
	case int64, float64:
		v.values[simple(name)] = part{at, jsonText(n)}
	}
}

// get returns the first value that is not empty, and its name without the prefix.
func (v parted) get(prefix string, names ...string) (part, string) {
	for _, name := range names {
		if found := v.values[prefix+name]; found.value != "" {
			return found, name
		}
	}
	return part{}, ""
}

func newParted(c confidence) parted { return parted{c, map[string]part{}} }

func fieldsOf(p path, fields map[string]any) parted {
	v := newParted(confidenceOf(p.key()))
	for name, value := range fields {
		v.set(name, p.with(name), value)
	}
	return v
}

// defaultsOf returns the default values of the properties in a schema.
func defaultsOf(p path, properties map[string]any) parted {
	v := newParted(confidenceOf(p[:max(0, len(p)-1)].key()))
	for name, property := range properties {
		if schema, ok := property.(map[string]any); ok {
			v.set(name, p.with(name, "default"), schema["default"])
		}
	}
	return v
}

// variablesOf returns the values of a list of environment variables or parameters.
func variablesOf(p path, list []any) parted {
	v := newParted(anywhere)
	for i, m := range objectsIn(list) {
		if name, ok := m["name"].(string); ok && simple(name) != "version" {
			v.set(name, p.with(i, "value"), m["value"])
		}
	}
	return v
}

// flagsOf returns the values of flags: --image-tag=v1, or --image-tag and v1.
func flagsOf(at []path, list []any) parted {
	v := newParted(anywhere)
	for i, argument := range list {
		flag, _ := argument.(string)
		name, value, ok := strings.Cut(flag, "=")
		if !strings.HasPrefix(name, "-") {
			continue
		}
		if !ok && i+1 < len(list) {
			i++
			value, _ = list[i].(string)
		}
		v.set(name, at[i], value)
	}
	return v
}

// pair matches a name and its value in a text.
var pair = regexp.MustCompile(`([A-Za-z_][\w.-]*)["']?[ \t]*[=:][ \t]*["']?([A-Za-z0-9][^\s"',;{}<>)]*)`)

// pairsOf returns the pairs of a text. A name that is repeated begins other pairs.
func pairsOf(p path, text string, c confidence) []parted {
	v := newParted(c)
	list := []parted{v}
	for _, m := range pair.FindAllStringSubmatch(text, -1) {
		name := simple(m[1])
		if _, repeated := v.values[name]; repeated {
			v = newParted(c)
			list = append(list, v)
		}
		if name != "version" {
			v.set(name, p, m[2])
		}
	}
	return list
}

// parts looks for images in parts: registry, repository or name, tag, digest. All names may have a
// prefix: proxyImage and proxyTag.
func (f *finder) parts(v parted) {
	prefixes := map[string]any{"": nil}
	for name := range v.values {
		for _, suffix := range []string{"repository", "repo", "image", "name", "path"} {
			if prefix, ok := strings.CutSuffix(name, suffix); ok {
				prefixes[prefix] = nil
			}
		}
	}
	for _, prefix := range sortedKeys(prefixes) {
		f.join(v, prefix)
	}
}

// join reports the image whose parts have the prefix.
func (f *finder) join(v parted, prefix string) {
	repository, key := v.get(prefix, "newname", "repository", "image", "imagerepository", "imagename", "repo", "imagerepo", "baseimage", "name")
	registry := v.registry(prefix, key, repository.value)
	if at, _ := v.get(prefix, "path"); (key == "" || key == "name" && !strings.Contains(repository.value, "/")) && strings.Contains(at.value, "/") && !strings.HasPrefix(at.value, "/") {
		if found := v.registry(prefix, "path", at.value); found.value != "" {
			registry, repository, key = found, at, "path"
		}
	}
	if repository.value == "" || strings.Contains(repository.value, "//") {
		return
	}
	// NVIDIA's form: a repository of images, the image's name, and its version. If a controller knows the
	// version itself, the image is reported without a version.
	names := []string{"image"}
	if isRegistry(repository.value) {
		names = []string{"image", "imagename", "name"}
	}
	if short, _ := v.get(prefix, names...); short.value != "" && key == "repository" && (isRegistry(repository.value) || !strings.ContainsAny(short.value, "/:@")) {
		f.joined[place(repository.at, repository.value)] = true
		if registry.value == "" || hasHost(repository.value) {
			registry = repository
		} else {
			registry.value = below(registry.value, repository.value)
		}
		repository, key = short, "image"
	}
	tag, tagKey := v.get(prefix, "newtag", "tag", "imagetag", "version", "imageversion")
	if strings.HasSuffix(tagKey, "version") && !strings.Contains(prefix+key, "image") {
		tag = part{} // repository and version also describe a chart or a source
	}
	digests := []string{"digest", "imagedigest"}
	if max(v.context, confidenceOf(prefix)) > anywhere || key != "name" { // a SHA may also belong to a file or a commit
		digests = append(digests, "sha", "sha256")
	}
	digest, _ := v.get(prefix, digests...)
	if !hash.MatchString("@sha256:" + strings.TrimPrefix(digest.value, "sha256:")) {
		digest = part{}
	}
	c := named
	switch complete := tag.value != "" || digest.value != ""; {
	case strings.ContainsAny(lastElement(repository.value), ":@"): // it has a tag or a digest
		if hasHost(repository.value) {
			registry = part{}
		}
		if registry.value == "" && digest.value == "" {
			return // value reports it
		}
		tag = part{} // a digest counts more than the tag in the name
	case isRegistry(repository.value):
		f.joined[place(repository.at, repository.value)] = true
		return // the controller adds the name
	case !complete && (registry.value == "" || key == "name" || key == "path"):
		return
	case !complete:
		c = anywhere
	case key == "name" && registry.value == "" && tagKey != "newtag":
		c = max(v.context, confidenceOf(prefix))
	}
	f.joined[place(tag.at, tag.value)] = true // v1@sha256:e3b0 looks like an image
	f.addJoined(registry, repository, tag.value, digest.value, c)
}

// registry returns what is before a repository: a registry, and the namespace of a bare name there.
func (v parted) registry(prefix, key, repository string) part {
	for _, prefix := range []string{prefix, ""} {
		found, _ := v.get(prefix, "registry", "imageregistry")
		if found.value == "" && !hasHost(repository) {
			if found, _ = v.get(prefix, "hub", "imageprefix"); found.value == "" {
				found, _ = v.get(prefix, "host", "domain")
				if !registries.MatchString(found.value) && !(strings.Contains(key, "repo") && strings.ContainsAny(found.value, ".:")) {
					continue // the application's host
				}
			}
		}
		if found.value == "" {
			continue
		}
		for _, prefix := range []string{prefix, ""} {
			team, _ := v.get(prefix, "organization", "namespace", "imageorganization", "imagenamespace")
			if team.value != "" && isRegistry(found.value) && !strings.Contains(repository, "/") {
				found.value = below(found.value, team.value)
				break
			}
		}
		return found
	}
	return part{}
}

// below returns the name of a repository in a registry.
func below(registry, repository string) string {
	return strings.TrimSuffix(registry, "/") + "/" + repository
}

// hasHost reports whether a repository begins with the host of a registry.
func hasHost(repository string) bool {
	host, _, _ := strings.Cut(repository, "/")
	return isRegistry(host)
}

// isRegistry reports whether a repository is only the name of a registry.
func isRegistry(repository string) bool {
	return strings.Contains(repository, ".") && !strings.Contains(strings.TrimSuffix(repository, "/"), "/")
}

func (f *finder) addJoined(registry, repository part, tag, digest string, c confidence) {
	written := repository.value
	if registry.value != "" {
		written = below(registry.value, written)
	}
	if strings.HasPrefix(tag, "sha256:") {
		tag, digest = "", tag
	}
	if tag != "" {
		written += ":" + tag
	}
	if digest != "" && !strings.Contains(written, "@") {
		written += "@sha256:" + strings.TrimPrefix(digest, "sha256:")
	}
	f.add(repository.at, written, c)
	f.joined[place(repository.at, repository.value)] = true
	f.joined[place(registry.at, registry.value)] = true
}

// hub looks at Istio's form: a hub and a tag, and below them images without either.
func (f *finder) hub(p path, v map[string]any) {
	hub, _ := v["hub"].(string)
	tag, _ := fieldsOf(p, v).get("", "tag", "imagetag", "version")
	if hub == "" || tag.value == "" {
		return
	}
	walk(p, v, func(p path, value any) bool {
		if s, ok := value.(string); ok && p.key() == "image" && !strings.ContainsAny(s, "/:") && s != "" {
			f.addJoined(part{value: hub}, part{p, s}, tag.value, "", named)
		}
		return true
	})
}
