package apirules

import (
	"fmt"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/builder/manifests"
)

// definitionProblems returns the problems of a CustomResourceDefinition. The package with all rules
// links the interpreter of CEL.
func definitionProblems(o Object, object runtime.Object) (problems []manifests.Problem) {
	crd, ok := object.(*apiextensions.CustomResourceDefinition)
	if !ok {
		return nil
	}
	add := func(path, format string, args ...any) {
		problems = append(problems, o.problem(path, fmt.Sprintf(format, args...), ""))
	}
	if want := crd.Spec.Names.Plural + "." + crd.Spec.Group; crd.Name != want {
		add("metadata.name", "the name must be spec.names.plural and spec.group: %q", want)
	}
	if crd.Spec.Scope != apiextensions.ClusterScoped && crd.Spec.Scope != apiextensions.NamespaceScoped {
		add("spec.scope", "%q is neither Cluster nor Namespaced", crd.Spec.Scope)
	}
	if crd.Spec.Names.Kind == "" {
		add("spec.names.kind", "required value")
	}
	if len(crd.Spec.Versions) == 0 {
		add("spec.versions", "required value: a version")
		return problems
	}
	stored, names := 0, map[string]bool{}
	for i, v := range crd.Spec.Versions {
		at := fmt.Sprintf("spec.versions[%d]", i)
		if names[v.Name] {
			add(at+".name", "duplicate value: %q", v.Name)
		}
		names[v.Name] = true
		if v.Storage {
			stored++
		}
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			add(at+".schema.openAPIV3Schema", "required value: schemas are required")
		} else if v.Schema.OpenAPIV3Schema.Type != "object" {
			add(at+".schema.openAPIV3Schema.type", "must be object at the root")
		}
	}
	if stored != 1 {
		add("spec.versions", "exactly one version must have storage: true, not %d", stored)
	}
	return problems
}
