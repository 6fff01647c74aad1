package kubelet

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// kubeletLabels and kubeletNamespaces are the labels in kubernetes.io and k8s.io that a
// kubelet may set on its own node (k8s.io/kubelet/pkg/apis, well_known_labels.go;
// the same from 1.29 to 1.37).
var (
	kubeletLabels = []string{
		"beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type", "beta.kubernetes.io/os",
		"failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
		"kubernetes.io/arch", "kubernetes.io/hostname", "kubernetes.io/os",
		"node.kubernetes.io/instance-type", "topology.kubernetes.io/region", "topology.kubernetes.io/zone",
	}
	kubeletNamespaces = []string{"kubelet.kubernetes.io", "node.kubernetes.io"}
)

// under reports whether a namespace is one of names or below it.
func under(namespace string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return namespace == name || strings.HasSuffix(namespace, "."+name)
	})
}

// beOwnLabels checks key=value,key=value.
func beOwnLabels(v value) {
	list, _ := v.is.([]any)
	for _, pair := range list {
		key, label, _ := strings.Cut(pair.(string), "=")
		key, label = strings.TrimSpace(key), strings.TrimSpace(label)
		if why := invalid("label", key, label); why != "" {
			v.bad("correct it in --node-labels: key=value,key=value", ": %s", why)
		}
		namespace, _, ok := strings.Cut(key, "/")
		if !ok || !under(namespace, "kubernetes.io", "k8s.io") || slices.Contains(kubeletLabels, key) || under(namespace, kubeletNamespaces...) {
			continue
		}
		v.bad(fmt.Sprintf("remove it from --node-labels, and when the node has joined: kubectl label node NAME %s=%s; or use a namespace of your own, or node.kubernetes.io", key, label),
			": a kubelet may not set %s: of kubernetes.io and k8s.io it may set labels of %s, and %s", key, strings.Join(kubeletNamespaces, " and "), strings.Join(kubeletLabels, ", "))
	}
}

// invalid returns what is wrong with the key or the value of a label or a taint.
func invalid(of, key, text string) string {
	if errs := validation.IsQualifiedName(key); len(errs) > 0 {
		return fmt.Sprintf("%q is not a %s's key: %s", key, of, strings.Join(errs, "; "))
	}
	if errs := validation.IsValidLabelValue(text); len(errs) > 0 {
		return fmt.Sprintf("%q is not a value for %s %s: %s", text, of, key, strings.Join(errs, "; "))
	}
	return ""
}

// invalidTaint returns what is wrong with a taint.
func invalidTaint(key, text, effect string) string {
	effects := []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}
	if effect != "" && !slices.Contains(effects, effect) {
		return fmt.Sprintf("%q is not a taint's effect: use one of %s", effect, strings.Join(effects, ", "))
	}
	return invalid("taint", key, text)
}

func beTaints(v value) {
	for i, t := range v.config.RegisterWithTaints {
		why := invalidTaint(t.Key, t.Value, string(t.Effect))
		v.badIf(why != "", "", "[%d]: %s", i, why)
		v.badIf(t.TimeAdded != nil, "remove timeAdded", "[%d]: the kubelet may not set timeAdded", i)
	}
}

// parseTaints reads --register-with-taints: key=value:effect,key:effect.
func parseTaints(s string) (any, error) {
	var list []any
	seen := make(map[string]bool)
	for spec := range strings.SplitSeq(s, ",") {
		// A spec that ends in - removes a taint, and the kubelet ignores it.
		if s == "" || strings.HasSuffix(spec, "-") {
			continue
		}
		before, effect, _ := strings.Cut(spec, ":")
		key, text, _ := strings.Cut(before, "=")
		switch why := invalidTaint(key, text, effect); {
		case effect == "":
			return nil, fmt.Errorf("%q: want key=value:effect", spec)
		case why != "":
			return nil, errors.New(why)
		case seen[key+":"+effect]:
			return nil, fmt.Errorf("%s:%s is given twice", key, effect)
		}
		seen[key+":"+effect] = true
		list = append(list, map[string]any{"key": key, "value": text, "effect": effect})
	}
	return list, nil
}
