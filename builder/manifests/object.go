package manifests

import (
	"cmp"
	"fmt"
	"strings"

	"airlift/internal/documents"
	"airlift/internal/fault"
)

// An Object is one Kubernetes object and where it was read.
type Object struct {
	// File is the file's path, as Read was given it. For objects of a kustomization it is
	// the directory, for those of a chart the template.
	File string
	// Line is the first line of the object in File, from 1. It is 0 if there is none: a
	// kustomization computes its objects.
	Line int

	APIVersion, Kind string
	// Namespace is empty if the object names none.
	Namespace string
	Name      string

	// Content is the whole object as JSON values: map[string]any, []any, string, bool, nil,
	// int64 and float64.
	Content map[string]any

	node *documents.Node // Content as it was written, or nil
}

// written continues a hint with the scalar at a path, in quotes.
func (o *Object) written(p ...any) string {
	n := o.node
	for _, e := range p {
		switch e := e.(type) {
		case int:
			n = documents.Item(n, e)
		case string:
			n = documents.Value(n, e)
		}
	}
	if text := documents.Written(n, ""); text != "" {
		return fmt.Sprintf(", in quotes: %q", text)
	}
	return ""
}

// notText reports whether there is a value that is no string.
func notText(value any) bool {
	_, ok := value.(string)
	return value != nil && !ok
}

// String returns the object's kind, namespace and name: "Deployment traefik/traefik".
func (o *Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Position returns the file and the line: "site/app.yaml:12".
func (o *Object) Position() string { return position(o.File, o.Line) }

func position(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// group returns the API group, which is empty for the core objects.
func (o *Object) group() string {
	group, _, ok := strings.Cut(o.APIVersion, "/")
	if !ok {
		return ""
	}
	return group
}

// An Identity identifies an object in the API. The version is not part of it: an object exists in all
// versions of its group.
type Identity struct{ group, kind, namespace, name string }

// Identity returns the identity of an object, in this namespace if it names none.
func (o *Object) Identity(namespace string) Identity {
	return Identity{o.group(), o.Kind, cmp.Or(o.Namespace, namespace, "default"), o.Name}
}

// Hook returns the events for which an object of a chart is a hook: "pre-install,pre-upgrade"; "" if it is none.
func Hook(o *Object) string {
	metadata, _ := o.Content["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	events, _ := annotations["helm.sh/hook"].(string)
	return events
}

// Unique returns an error if two of the objects are the same object, except for hooks of different events. An object without a
// namespace is treated as one in "default".
func Unique(objects []*Object) error {
	first := map[Identity]*Object{}
	for _, o := range objects {
		if f, ok := first[o.Identity("")]; ok && Hook(f) == Hook(o) {
			return fault.New(fault.Usage, "%s: %s is also at %s", o.Position(), o, f.Position()).
				Hint("remove one of them: the second would replace the first")
		}
		first[o.Identity("")] = o
	}
	return nil
}

// newObject checks content and names its object. node is the content with its lines, or nil.
func newObject(file string, line int, node *documents.Node, content map[string]any) (*Object, error) {
	o := &Object{File: file, Line: line, Content: content, node: node}
	at := o.Position()
	o.APIVersion, _ = content["apiVersion"].(string)
	o.Kind, _ = content["kind"].(string)
	metadata, _ := content["metadata"].(map[string]any)
	o.Name, _ = metadata["name"].(string)
	o.Namespace, _ = metadata["namespace"].(string)
	for _, field := range []string{"kind", "apiVersion"} {
		if notText(content[field]) {
			return nil, fault.New(fault.Usage, "%s: %s is %v in YAML, not a string", at, field, content[field]).Hint("write " + field + " as a string" + o.written(field))
		}
	}
	switch {
	case o.Kind == "":
		return nil, fault.New(fault.Usage, "%s: the document has no kind", at).Hint(noKindHint(file, content))
	case o.APIVersion == "":
		return nil, fault.New(fault.Usage, "%s: the %s has no apiVersion", at, o.Kind).
			Hint(`add apiVersion: "kubectl explain ` + strings.ToLower(o.Kind) + `" prints it as VERSION`)
	case strings.HasPrefix(o.APIVersion, "kustomize.config.k8s.io/"):
		return nil, fault.New(fault.Usage, "%s: a %s cannot be applied", at, o.Kind).Hint("give the directory of the kustomization itself")
	case o.Name == "" && metadata["generateName"] != nil:
		return nil, fault.New(fault.Usage, "%s: the %s has generateName %q and no name", at, o.Kind, documents.Written(documents.Value(node, "metadata", "generateName"), metadata["generateName"])).
			Hint("write name instead of generateName: with generateName, each apply creates another object")
	case o.Name == "":
		return nil, fault.New(fault.Usage, "%s: the %s has no name", at, o.Kind).Hint("write metadata.name as a string" + o.written("metadata", "name"))
	case o.Namespace == "" && metadata["namespace"] != nil && metadata["namespace"] != "":
		return nil, fault.New(fault.Usage, "%s: the namespace of the %s is %v in YAML, not a string", at, o, metadata["namespace"]).
			Hint("write the namespace as a string" + o.written("metadata", "namespace"))
	}
	for field, value := range map[string]string{"apiVersion": o.APIVersion, "kind": o.Kind, "metadata.name": o.Name, "metadata.namespace": o.Namespace} {
		if strings.Contains(value, "{{") {
			return nil, notRendered(at, field+" "+fmt.Sprintf("%q", value))
		}
	}
	return o, unrendered(o)
}
