package apirules

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"airlift/builder/manifests"
)

// object returns the problems of one object.
func (c *checker) object(o Object) (problems []manifests.Problem) {
	content := applied(o)
	gvk := o.GroupVersionKind()
	if d := c.defined[gvk.GroupKind()]; d != nil {
		return c.custom(o, d, content)
	}
	why, hint, maybe, known := c.api(o)
	if why != "" {
		p := o.problem("kind", why, hint)
		p.Maybe = maybe
		problems = append(problems, p)
	}
	if !known {
		return append(problems, metadataProblems(o, content, nil)...)
	}
	typed, err := types().New(gvk)
	if err != nil {
		return problems
	}
	w := walk{o: o, minor: c.minor, newer: c.newer}
	w.value(reflect.TypeOf(typed), content, "")
	problems = append(problems, w.problems...)
	problems = append(problems, listProblems(o, content, w.problems)...)
	text, err := json.Marshal(content)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, typed)
	}
	switch {
	case err == nil && !isPartial(o):
		problems = append(problems, c.rules(o, typed)...)
	case err != nil && len(w.problems) == 0:
		problems = append(problems, o.problem("", err.Error(), ""))
	}
	return problems
}

// applied returns the content of an object as install applies it: without the fields that only the API
// server writes.
func applied(o Object) map[string]any {
	content := maps.Clone(o.Content)
	delete(content, "status")
	metadata, _ := content["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	for _, name := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"} {
		delete(metadata, name)
	}
	content["metadata"] = metadata
	return content
}

// partial are objects of kubeadm and of the pod network, which a manifest may change in part.
var partial = []string{
	"Deployment kube-system/coredns", "DaemonSet kube-system/kube-proxy", "Service kube-system/kube-dns", "Service default/kubernetes",
	"DaemonSet kube-flannel/kube-flannel-ds",
}

func isPartial(o Object) bool {
	return slices.Contains(partial, o.Kind+" "+cmp.Or(o.Object.Namespace, o.Default)+"/"+o.Name)
}

// converter has the schemas of server-side apply. They are parsed when they are needed first.
var converter = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(scheme.Scheme) })

// listProblems finds items of a list that server-side apply cannot tell apart. others are problems that
// are known already.
func listProblems(o Object, content map[string]any, others []manifests.Problem) (problems []manifests.Problem) {
	if !scheme.Scheme.Recognizes(o.GroupVersionKind()) {
		return nil
	}
	_, err := converter().ObjectToTyped(&unstructured.Unstructured{Object: content})
	var all typed.ValidationErrors
	if !errors.As(err, &all) {
		return nil
	}
	for _, e := range all {
		at := o.Locate(e.Path)
		if !strings.HasPrefix(e.ErrorMessage, "duplicate entries") {
			continue // walk finds it, and knows the versions
		}
		if slices.ContainsFunc(others, func(p manifests.Problem) bool {
			return strings.HasPrefix(p.Field, at) || strings.HasPrefix(at, p.Field)
		}) {
			continue
		}
		problems = append(problems, o.problem(at, e.ErrorMessage, "server-side apply needs each item once: remove or merge the others"))
	}
	return problems
}

// custom returns the problems of an object whose kind a CustomResourceDefinition defines.
func (c *checker) custom(o Object, d *manifests.Definition, content map[string]any) (problems []manifests.Problem) {
	why := "its CustomResourceDefinition has no version "
	var served []string
	for _, v := range d.Versions {
		if v.Served && v.Name == o.GroupVersionKind().Version {
			return metadataProblems(o, content, d)
		}
		if v.Name == o.GroupVersionKind().Version {
			why = "its CustomResourceDefinition does not serve version "
		}
		if v.Served {
			served = append(served, d.Group+"/"+v.Name)
		}
	}
	slices.Sort(served)
	problems = append(problems, o.problem("apiVersion", why+o.GroupVersionKind().Version, "write "+strings.Join(served, " or ")))
	return append(problems, metadataProblems(o, content, d)...)
}

// metadataProblems checks the metadata of an object whose type is not known. The rule for the name is
// known only for kinds of a CustomResourceDefinition.
func metadataProblems(o Object, content map[string]any, d *manifests.Definition) (problems []manifests.Problem) {
	w := walk{o: o}
	w.value(reflect.TypeFor[metav1.ObjectMeta](), content["metadata"], "metadata")
	if len(w.problems) > 0 {
		return w.problems
	}
	var meta metav1.ObjectMeta
	fields, _ := content["metadata"].(map[string]any)
	if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &meta) != nil {
		return nil
	}
	name, namespaced := func(string, bool) []string { return nil }, meta.Namespace != ""
	if d != nil {
		name, namespaced = validation.NameIsDNSSubdomain, !d.Cluster
		meta.Namespace = placeOf(o, namespaced)
	}
	return ruleProblems(o, validation.ValidateObjectMeta(&meta, namespaced, name, field.NewPath("metadata")))
}

// placeOf returns the namespace in which an object is applied.
func placeOf(o Object, namespaced bool) string {
	if !namespaced {
		return ""
	}
	return cmp.Or(o.Object.Namespace, o.Default, metav1.NamespaceDefault)
}

// isNamespaced reports whether the objects of a kind have a namespace; ok is false if that is not known.
func (c *checker) isNamespaced(gvk schema.GroupVersionKind) (namespaced, ok bool) {
	if d := c.defined[gvk.GroupKind()]; d != nil {
		return !d.Cluster, true
	}
	if _, known := lifeOf(gvk); !known {
		return false, false
	}
	return !manifests.IsClusterKind(gvk.Group, gvk.Kind), true
}
