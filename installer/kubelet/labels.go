package kubelet

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ownLabels and ownNamespaces are the labels in kubernetes.io and k8s.io that a
// kubelet may set on its own node (k8s.io/kubelet/pkg/apis, well_known_labels.go;
// the same from 1.29 to 1.37).
var (
	ownLabels = []string{
		"beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type", "beta.kubernetes.io/os",
		"failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
		"kubernetes.io/arch", "kubernetes.io/hostname", "kubernetes.io/os",
		"node.kubernetes.io/instance-type", "topology.kubernetes.io/region", "topology.kubernetes.io/zone",
	}
	ownNamespaces = []string{"kubelet.kubernetes.io", "node.kubernetes.io"}
)

// under reports whether a namespace is one of names or below it.
func under(namespace string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return namespace == name || strings.HasSuffix(namespace, "."+name)
	})
}

// labels checks --node-labels.
func (c *check) labels() {
	for _, pair := range c.labelPairs {
		key, value, _ := strings.Cut(pair, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			c.fail(NodeLabels, "correct it in --node-labels: key=value,key=value", "--node-labels: %q is not a label's key: %s", key, strings.Join(errs, "; "))
			continue
		}
		if errs := validation.IsValidLabelValue(value); len(errs) > 0 {
			c.fail(NodeLabels, "correct it in --node-labels: key=value,key=value", "--node-labels: %q is not a value for label %s: %s", value, key, strings.Join(errs, "; "))
		}
		namespace, _, ok := strings.Cut(key, "/")
		if !ok || !under(namespace, "kubernetes.io", "k8s.io") || slices.Contains(ownLabels, key) || under(namespace, ownNamespaces...) {
			continue
		}
		later := fmt.Sprintf("remove it from --node-labels, and when the node has joined: kubectl label node NAME %s=%s", key, value)
		switch {
		case under(namespace, "node-restriction.kubernetes.io"):
			c.fail(NodeLabels, later, "--node-labels: only an administrator may set %s: the NodeRestriction admission plugin forbids kubelets every label of node-restriction.kubernetes.io", key)
		case under(namespace, "node-role.kubernetes.io"):
			c.fail(NodeLabels, later, "--node-labels: a kubelet may not give itself the role %s", key)
		default:
			c.fail(NodeLabels, later+"; or use a namespace of your own, or node.kubernetes.io", "--node-labels: a kubelet may not set %s: of kubernetes.io and k8s.io it may set labels of %s, and %s",
				key, strings.Join(ownNamespaces, " and "), strings.Join(ownLabels, ", "))
		}
	}
}

var taintEffects = []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}

// taints checks the taints with which the node registers.
func (c *check) taints() {
	for i, t := range c.config.RegisterWithTaints {
		at := fmt.Sprintf("%s[%d]", c.named("registerWithTaints"), i)
		fix := fmt.Sprintf("correct it in %s", c.where("registerWithTaints"))
		if errs := validation.IsQualifiedName(t.Key); len(errs) > 0 {
			c.fail(Configuration, fix, "%s: %q is not a taint's key: %s", at, t.Key, strings.Join(errs, "; "))
		}
		if errs := validation.IsValidLabelValue(t.Value); len(errs) > 0 {
			c.fail(Configuration, fix, "%s: %q is not a taint's value: %s", at, t.Value, strings.Join(errs, "; "))
		}
		if t.Effect != "" && !slices.Contains(taintEffects, string(t.Effect)) {
			c.fail(Configuration, fix, "%s: %q is not a taint's effect: use one of %s", at, t.Effect, strings.Join(taintEffects, ", "))
		}
		if t.TimeAdded != nil {
			c.fail(Configuration, "remove timeAdded", "%s: the kubelet may not set timeAdded", at)
		}
	}
}

// parseTaints reads --register-with-taints: key=value:effect,key:effect.
func parseTaints(s string) (any, error) {
	var list []any
	seen := make(map[string]bool)
	if s == "" {
		return list, nil
	}
	for _, spec := range strings.Split(s, ",") {
		// A spec that ends in - removes a taint, and the kubelet ignores it.
		if strings.HasSuffix(spec, "-") {
			continue
		}
		before, effect, ok := strings.Cut(spec, ":")
		if !ok || !slices.Contains(taintEffects, effect) {
			return nil, fmt.Errorf("%q: want key=value:effect, with the effect one of %s", spec, strings.Join(taintEffects, ", "))
		}
		key, value, _ := strings.Cut(before, "=")
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			return nil, fmt.Errorf("%q is not a taint's key: %s", key, strings.Join(errs, "; "))
		}
		if errs := validation.IsValidLabelValue(value); len(errs) > 0 {
			return nil, fmt.Errorf("%q is not a taint's value: %s", value, strings.Join(errs, "; "))
		}
		if seen[key+":"+effect] {
			return nil, fmt.Errorf("%s:%s is given twice", key, effect)
		}
		seen[key+":"+effect] = true
		list = append(list, map[string]any{"key": key, "value": value, "effect": effect})
	}
	return list, nil
}
