package kubeletcheck

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// reserved matches labels in Kubernetes' namespaces. A kubelet may set only some of them on its own
// node.
var reserved = regexp.MustCompile(`^([^/]+\.)?(kubernetes|k8s)\.io/`)

func beOwnLabels(v value) {
	labels, _ := v.is.(map[string]any)
	for _, key := range sortedKeys(labels) {
		label := labels[key].(string)
		why := invalid("label", key, label)
		v.badIf(why != "", "correct it in --node-labels: key=value,key=value", ": %s", why)
		v.badIf(reserved.MatchString(key) && !kubeletapis.IsKubeletLabel(key),
			fmt.Sprintf("remove it from --node-labels, and when the node has joined: kubectl label node NAME %s=%s; "+
				"or use a namespace of your own, or node.kubernetes.io", key, label),
			": a kubelet may not set %s: of kubernetes.io and k8s.io it may set labels of %s, and %s", key,
			strings.Join(kubeletapis.KubeletLabelNamespaces(), " and "), strings.Join(kubeletapis.KubeletLabels(), ", "))
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
func invalidTaint(t corev1.Taint) string {
	effects := []corev1.TaintEffect{"NoSchedule", "PreferNoSchedule", "NoExecute"}
	if t.Effect != "" && !slices.Contains(effects, t.Effect) {
		return fmt.Sprintf("%q is not a taint's effect: use one of %v", t.Effect, effects)
	}
	return invalid("taint", t.Key, t.Value)
}

func beTaints(v value) {
	for i, t := range v.check.config.RegisterWithTaints {
		why := invalidTaint(t)
		v.badIf(why != "", "", "[%d]: %s", i, why)
		v.badIf(t.TimeAdded != nil, "remove timeAdded", "[%d]: the kubelet may not set timeAdded", i)
	}
}

// parseTaints reads --register-with-taints: key=value:effect,key:effect.
func parseTaints(s string) (any, error) {
	var taints []corev1.Taint
	for spec := range strings.SplitSeq(s, ",") {
		// A spec that ends in - removes a taint, and the kubelet ignores it.
		if s == "" || strings.HasSuffix(spec, "-") {
			continue
		}
		before, effect, _ := strings.Cut(spec, ":")
		key, text, _ := strings.Cut(before, "=")
		taint := corev1.Taint{Key: key, Value: text, Effect: corev1.TaintEffect(effect)}
		if effect == "" {
			return nil, fmt.Errorf("%q: want key=value:effect", spec)
		} else if why := invalidTaint(taint); why != "" {
			return nil, errors.New(why)
		} else if slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
			return nil, fmt.Errorf("%s:%s is given twice", key, effect)
		}
		taints = append(taints, taint)
	}
	return taints, nil
}
