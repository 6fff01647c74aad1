package imagesfound

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"airlift/builder/manifests"
	"airlift/images/release"
)

var (
	// imageKey matches a line of YAML or JSON whose key ends with image.
	imageKey = regexp.MustCompile(`^[ \t]*(?:- )?["']?(?:[A-Za-z]*I|i)mage["']?:[ \t]*["']?([^"'\s#,{}\[\]]+)`)
	// inRegistry matches an image in a public registry, anywhere in the text.
	inRegistry = regexp.MustCompile(`(?:^|[^A-Za-z0-9./-])((?:mirror\.gcr\.io|docker\.io|quay\.io|ghcr\.io|registry\.k8s\.io|gcr\.io|public\.ecr\.aws|mcr\.microsoft\.com|nvcr\.io|docker\.elastic\.co|icr\.io|cr\.fluentbit\.io|cr\.l5d\.io|[a-z0-9-]+\.pkg\.dev)/[a-z0-9._/-]+(?::[A-Za-z0-9_][A-Za-z0-9_.-]*(?:@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64}))`)
	// definition matches a CustomResourceDefinition. Of these, only default values are images:
	// the rest is descriptions and examples.
	definition = regexp.MustCompile(`(?m)^kind: "?CustomResourceDefinition`)
	defaults   = regexp.MustCompile(`(?m)^.*\bdefault: .*$`)
)

// judged returns the references that the text has, normalised.
func judged(text []byte) (found []string) {
	text = installed(text)
	add := func(written string) {
		ref, err := release.Normalize(strings.Trim(written, `.,;:"'`))
		if err == nil && !slices.Contains(incomplete, ref) {
			found = append(found, ref)
		}
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		m := imageKey.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if s := m[1]; s != "auto" && s != "null" && s != "true" && s != "false" && !strings.Contains(s, "{{") && s != "|" && s != ">" {
			add(whole(lines, i, s))
		}
	}
	for _, m := range inRegistry.FindAllSubmatch(text, -1) {
		add(string(m[1]))
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// whole returns the image that line i of the text names. If it is a name only, and its block has
// a repository and a version, these are parts of it: the custom resources of NVIDIA's operator.
func whole(lines []string, i int, name string) string {
	if strings.ContainsAny(name, "/:@") {
		return name
	}
	repository, version := inBlock(lines, i, "repository:"), inBlock(lines, i, "version:")
	switch {
	case repository == "" || version == "":
		return name
	case strings.HasPrefix(version, "sha256:"):
		return repository + "/" + name + "@" + version
	}
	return repository + "/" + name + ":" + version
}

// inBlock returns the value of a key in the block of YAML that line i is in.
func inBlock(lines []string, i int, key string) string {
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	depth := indent(lines[i])
	first, end := i, i
	for first > 0 && indent(lines[first-1]) >= depth {
		first--
	}
	for end < len(lines) && indent(lines[end]) >= depth {
		end++
	}
	for _, line := range lines[first:end] {
		if value, ok := strings.CutPrefix(line[depth:], key); ok {
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return ""
}

// hookLine matches the annotation of a hook.
var hookLine = regexp.MustCompile(`(?m)^[ \t]*"?helm\.sh/hook"?:(.*)$`)

// incomplete are names that the text has without their registry and tag. Istio's ConfigMap has
// these next to it, and Airlift finds docker.io/istio/proxyv2:TAG.
var incomplete = []string{"docker.io/library/proxyv2:latest"}

// runs matches the events of hooks that hosts run.
var runs = regexp.MustCompile("(pre|post)-(install|upgrade|rollback|delete)")

// installed returns the text without the hooks that no host runs, such as tests, and without
// the descriptions of CustomResourceDefinitions.
func installed(text []byte) []byte {
	var kept [][]byte
	for _, d := range bytes.Split(text, []byte("\n---")) {
		if m := hookLine.FindSubmatch(d); m != nil && !runs.Match(m[1]) {
			continue
		}
		if definition.Match(d) {
			d = bytes.Join(defaults.FindAll(d, -1), []byte("\n"))
		}
		kept = append(kept, d)
	}
	return bytes.Join(kept, []byte("\n"))
}

// compare reports whether the text has exactly the objects, in any order.
func compare(objects []*manifests.Object, text []byte) (string, error) {
	others, err := manifests.Decode("output", text)
	if err != nil {
		return "", err
	}
	missing := 0
	var first string
	differ := func(what string) {
		if missing++; first == "" {
			first = what
		}
	}
	for _, o := range objects {
		at := slices.IndexFunc(others, func(x *manifests.Object) bool {
			return x.APIVersion == o.APIVersion && x.String() == o.String() && manifests.Difference(o, x) == ""
		})
		if at < 0 {
			what := o.String()
			for _, x := range others {
				if x.APIVersion == o.APIVersion && x.String() == o.String() {
					what += " " + manifests.Difference(o, x)
				}
			}
			differ(what)
			continue
		}
		others = slices.Delete(others, at, at+1)
	}
	for _, x := range others {
		if otherHook(x) {
			continue
		}
		differ(x.String())
	}
	if missing == 0 {
		return "yes", nil
	}
	return "no: " + first, nil
}

// otherHook reports whether an object is a hook that no host runs.
func otherHook(o *manifests.Object) bool {
	metadata, _ := o.Content["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	hook, ok := annotations["helm.sh/hook"].(string)
	return ok && !runs.MatchString(hook)
}
