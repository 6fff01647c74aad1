package apirules

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"airlift/builder/manifests"
)

// reference names an object. The namespace of cluster-scoped objects is empty.
type reference struct{ kind, namespace, name string }

// provided are the namespaces of every cluster.
var provided = []string{corev1.NamespaceDefault, "kube-system", "kube-public", corev1.NamespaceNodeLease}

// creators are objects which allow their users to create what others need: "" if there are none.
type creators struct{ namespaces, definitions string }

// learn keeps an object which allows that.
func (c *creators) learn(o Object) {
	if o.GroupVersionKind().Group != rbacv1.GroupName {
		return
	}
	role := struct {
		Rules   []rbacv1.PolicyRule
		RoleRef rbacv1.RoleRef
	}{}
	content, err := json.Marshal(o.Content)
	if err != nil || json.Unmarshal(content, &role) != nil {
		return
	}
	admin := o.Kind == "ClusterRoleBinding" && role.RoleRef.Name == "cluster-admin"
	allows := func(group, resource string) bool {
		return admin || o.Kind == "ClusterRole" && slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return hasOr(r.APIGroups, group) && hasOr(r.Resources, resource) && hasOr(r.Verbs, "create")
		})
	}
	if allows("", "namespaces") {
		c.namespaces = o.String()
	}
	if allows(extensions, "customresourcedefinitions") {
		c.definitions = o.String()
	}
}

// hasOr reports whether a list of a rule has a name or all names.
func hasOr(list []string, name string) bool {
	return slices.Contains(list, name) || slices.Contains(list, rbacv1.VerbAll)
}

// needs returns the problems with what an object needs and nothing creates.
func (c *checker) needs(o Object) (problems []manifests.Problem) {
	gvk := o.GroupVersionKind()
	builtin := builtIn()[gvk.Group] || !strings.Contains(gvk.Group, ".")
	if !builtin && c.defined[gvk.GroupKind()] == nil && !slices.Contains(c.aggregated, gvk.Group) {
		p := o.problem("kind", fmt.Sprintf("no manifest defines the kind %s of %s", gvk.Kind, gvk.Group), "add its CustomResourceDefinition to a manifest of the bundle")
		return c.missing(p, c.creates.definitions)
	}
	namespaced, ok := c.isNamespaced(gvk)
	namespace := placeOf(o, namespaced)
	if ok && namespaced && !slices.Contains(provided, namespace) && !slices.Contains(c.Namespaces, namespace) && !c.names[reference{"Namespace", "", namespace}] {
		p := o.problem("metadata.namespace", fmt.Sprintf("no manifest creates the namespace %q", namespace), "add the Namespace to a manifest of the bundle, or set namespace: "+namespace+" of a manifest")
		problems = append(problems, c.missing(p, c.creates.namespaces)...)
	}
	if c.Exists {
		return problems
	}
	return append(problems, c.others(o, namespace)...)
}

// missing is a problem, or a warning if the site may have what is missing: the cluster exists, or the
// bundle has something that may create it.
func (c *checker) missing(p manifests.Problem, creator string) []manifests.Problem {
	switch {
	case c.Exists:
		p.Maybe = true
		p.Why += ": the cluster must have it"
	case creator != "":
		p.Maybe = true
		p.Why += ": install waits for it, in case something with the permissions of " + creator + " creates it"
	}
	key := p.Why
	if p.Maybe && c.warned[key] {
		return nil
	}
	c.warned[key] = true
	return []manifests.Problem{p}
}

// others returns warnings about objects that a workload needs and no manifest has. The site may
// create them.
func (c *checker) others(o Object, namespace string) (problems []manifests.Problem) {
	need := func(field, kind, in, name, effect string) {
		if name == "" || c.names[reference{kind, in, name}] {
			return
		}
		c.names[reference{kind, in, name}] = true // one warning for each
		p := o.problem(field, fmt.Sprintf("no manifest has the %s %q: %s", kind, name, effect), "add it to a manifest of the bundle, or create it at the site")
		p.Maybe = true
		problems = append(problems, p)
	}
	const noVolumes = "its volumes are not created"
	spec, _ := o.Content["spec"].(map[string]any)
	switch o.Kind + "." + o.GroupVersionKind().Group {
	case "Ingress.networking.k8s.io":
		need("spec.ingressClassName", "IngressClass", "", text(spec, "ingressClassName"), "no controller serves it")
	case "PersistentVolumeClaim.":
		if text(spec, "volumeName") == "" {
			need("spec.storageClassName", "StorageClass", "", text(spec, "storageClassName"), noVolumes)
		}
	case "StatefulSet.apps":
		templates, _ := spec["volumeClaimTemplates"].([]any)
		for i, t := range templates {
			fields, _ := t.(map[string]any)
			need(fmt.Sprintf("spec.volumeClaimTemplates[%d].spec.storageClassName", i), "StorageClass", "", text(fields, "spec", "storageClassName"), noVolumes)
		}
	}
	if pod, at := o.PodSpec(); pod != nil {
		podNeeds(pod, at, namespace, need)
	}
	return problems
}

// podNeeds calls need for each object that a pod needs before it starts.
func podNeeds(pod map[string]any, at, namespace string, need func(field, kind, namespace, name, effect string)) {
	const waits, notCreated = "the pods wait for it", "the pods are not created without it"
	if name := text(pod, "serviceAccountName"); name != "default" {
		need(at+".serviceAccountName", "ServiceAccount", namespace, name, notCreated)
	}
	if name := text(pod, "priorityClassName"); !strings.HasPrefix(name, "system-") {
		need(at+".priorityClassName", "PriorityClass", "", name, notCreated)
	}
	need(at+".runtimeClassName", "RuntimeClass", "", text(pod, "runtimeClassName"), notCreated)
	for _, list := range []string{"volumes", "initContainers", "containers"} {
		references(at+"."+list, pod[list], func(field, kind, name string) {
			if kind != "ConfigMap" || name != "kube-root-ca.crt" {
				need(field, kind, namespace, name, waits)
			}
		})
	}
}

// referring are the fields of volumes and containers that name an object, and the keys of its name there.
var referring = map[string]struct {
	kind string
	keys []string
}{
	"configMap": {"ConfigMap", []string{"name"}}, "configMapRef": {"ConfigMap", []string{"name"}}, "configMapKeyRef": {"ConfigMap", []string{"name"}},
	"secret": {"Secret", []string{"secretName", "name"}}, "secretRef": {"Secret", []string{"name"}}, "secretKeyRef": {"Secret", []string{"name"}},
	"persistentVolumeClaim": {"PersistentVolumeClaim", []string{"claimName"}},
}

// references calls found for each reference to an object that is not optional.
func references(at string, value any, found func(field, kind, name string)) {
	switch v := value.(type) {
	case map[string]any:
		for _, field := range slices.Sorted(maps.Keys(v)) {
			r, content := referring[field], v[field]
			if fields, ok := content.(map[string]any); ok && fields["optional"] != true {
				for _, key := range r.keys {
					if name, ok := fields[key].(string); ok {
						found(at+"."+field+"."+key, r.kind, name)
					}
				}
			}
			references(at+"."+field, content, found)
		}
	case []any:
		for i, item := range v {
			references(fmt.Sprintf("%s[%d]", at, i), item, found)
		}
	}
}

// text returns a text in an object, or "".
func text(content map[string]any, path ...string) string {
	for _, name := range path[:len(path)-1] {
		content, _ = content[name].(map[string]any)
	}
	s, _ := content[path[len(path)-1]].(string)
	return s
}
