package apirules

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"airlift/bundle/builder/manifests"
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
	text, err := json.Marshal(o.Content)
	if err != nil || json.Unmarshal(text, &role) != nil {
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
	return append(problems, c.references(o, namespace)...)
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

// references returns warnings about objects that a workload needs and no manifest has. The site may
// create them.
func (c *checker) references(o Object, namespace string) (problems []manifests.Problem) {
	need := func(field, kind, in, name, effect string) {
		if name == "" || c.names[reference{kind, in, name}] {
			return
		}
		c.names[reference{kind, in, name}] = true // one warning for each
		p := o.problem(field, fmt.Sprintf("no manifest has the %s %q: %s", kind, name, effect), "add it to a manifest of the bundle, or create it at the site")
		p.Maybe = true
		problems = append(problems, p)
	}
	claim := func(field string, spec corev1.PersistentVolumeClaimSpec) {
		if spec.StorageClassName != nil {
			need(field+".storageClassName", "StorageClass", "", *spec.StorageClassName, "its volumes are not created")
		}
	}
	switch o.Kind + "." + o.GroupVersionKind().Group {
	case "Ingress.networking.k8s.io":
		need("spec.ingressClassName", "IngressClass", "", text(o.Content, "spec", "ingressClassName"), "no controller serves it")
	case "PersistentVolumeClaim.":
		var spec corev1.PersistentVolumeClaimSpec
		if decode(o.Content["spec"], &spec) && spec.VolumeName == "" {
			claim("spec", spec)
		}
	case "StatefulSet.apps":
		var spec struct {
			VolumeClaimTemplates []corev1.PersistentVolumeClaim
		}
		if decode(o.Content["spec"], &spec) {
			for i, t := range spec.VolumeClaimTemplates {
				claim(fmt.Sprintf("spec.volumeClaimTemplates[%d].spec", i), t.Spec)
			}
		}
	}
	content, at := o.PodSpec()
	var pod corev1.PodSpec
	if content != nil && decode(content, &pod) {
		podNeeds(pod, at, namespace, need)
	}
	return problems
}

// podNeeds calls need for each object that a pod needs before it starts.
func podNeeds(pod corev1.PodSpec, at, namespace string, need func(field, kind, namespace, name, effect string)) {
	const waits = "the pods wait for it"
	if pod.ServiceAccountName != "default" {
		need(at+".serviceAccountName", "ServiceAccount", namespace, pod.ServiceAccountName, "the pods are not created without it")
	}
	if !strings.HasPrefix(pod.PriorityClassName, "system-") {
		need(at+".priorityClassName", "PriorityClass", "", pod.PriorityClassName, "the pods are not created without it")
	}
	if pod.RuntimeClassName != nil {
		need(at+".runtimeClassName", "RuntimeClass", "", *pod.RuntimeClassName, "the pods are not created without it")
	}
	needed := func(optional *bool) bool { return optional == nil || !*optional }
	configMap := func(field, name string, optional *bool) {
		if needed(optional) && name != "kube-root-ca.crt" {
			need(field, "ConfigMap", namespace, name, waits)
		}
	}
	secret := func(field, name string, optional *bool) {
		if needed(optional) {
			need(field, "Secret", namespace, name, waits)
		}
	}
	for i, v := range pod.Volumes {
		field := fmt.Sprintf("%s.volumes[%d]", at, i)
		if v.ConfigMap != nil {
			configMap(field+".configMap.name", v.ConfigMap.Name, v.ConfigMap.Optional)
		}
		if v.Secret != nil {
			secret(field+".secret.secretName", v.Secret.SecretName, v.Secret.Optional)
		}
		if v.PersistentVolumeClaim != nil {
			need(field+".persistentVolumeClaim.claimName", "PersistentVolumeClaim", namespace, v.PersistentVolumeClaim.ClaimName, waits)
		}
		if v.Projected == nil {
			continue
		}
		for j, s := range v.Projected.Sources {
			field := fmt.Sprintf("%s.projected.sources[%d]", field, j)
			if s.ConfigMap != nil {
				configMap(field+".configMap.name", s.ConfigMap.Name, s.ConfigMap.Optional)
			}
			if s.Secret != nil {
				secret(field+".secret.name", s.Secret.Name, s.Secret.Optional)
			}
		}
	}
	for _, list := range []struct {
		name       string
		containers []corev1.Container
	}{{"initContainers", pod.InitContainers}, {"containers", pod.Containers}} {
		for i, container := range list.containers {
			for j, e := range container.EnvFrom {
				field := fmt.Sprintf("%s.%s[%d].envFrom[%d]", at, list.name, i, j)
				if e.ConfigMapRef != nil {
					configMap(field+".configMapRef.name", e.ConfigMapRef.Name, e.ConfigMapRef.Optional)
				}
				if e.SecretRef != nil {
					secret(field+".secretRef.name", e.SecretRef.Name, e.SecretRef.Optional)
				}
			}
			for j, e := range container.Env {
				field := fmt.Sprintf("%s.%s[%d].env[%d].valueFrom", at, list.name, i, j)
				if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
					configMap(field+".configMapKeyRef.name", e.ValueFrom.ConfigMapKeyRef.Name, e.ValueFrom.ConfigMapKeyRef.Optional)
				}
				if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
					secret(field+".secretKeyRef.name", e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Optional)
				}
			}
		}
	}
}

// decode decodes a part of an object, and reports whether that is possible.
func decode(value any, into any) bool {
	text, err := json.Marshal(value)
	return err == nil && json.Unmarshal(text, into) == nil
}

// text returns a text in an object, or "".
func text(content map[string]any, path ...string) string {
	for _, name := range path[:len(path)-1] {
		content, _ = content[name].(map[string]any)
	}
	s, _ := content[path[len(path)-1]].(string)
	return s
}
