package manifests

import "slices"

// podPaths are the kinds that contain a pod, and where its spec is.
var podPaths = []struct {
	group, kind string
	spec        path
}{
	{"", "Pod", path{"spec"}},
	{"", "PodTemplate", path{"template", "spec"}},
	{"", "ReplicationController", path{"spec", "template", "spec"}},
	{"apps", "DaemonSet", path{"spec", "template", "spec"}},
	{"apps", "Deployment", path{"spec", "template", "spec"}},
	{"apps", "ReplicaSet", path{"spec", "template", "spec"}},
	{"apps", "StatefulSet", path{"spec", "template", "spec"}},
	{"batch", "CronJob", path{"spec", "jobTemplate", "spec", "template", "spec"}},
	{"batch", "Job", path{"spec", "template", "spec"}},
	// Before apps/v1. No supported version serves it, and the images are the same.
	{"extensions", "DaemonSet", path{"spec", "template", "spec"}},
	{"extensions", "Deployment", path{"spec", "template", "spec"}},
	{"extensions", "ReplicaSet", path{"spec", "template", "spec"}},
}

// podPath returns the path of the pod's spec in a workload, or nil for another object.
func podPath(o *Object) path {
	for _, p := range podPaths {
		if p.group == o.group() && p.kind == o.Kind {
			return p.spec
		}
	}
	return nil
}

// A slot is a place in a pod for one image.
type slot struct {
	field  path           // of the image
	holder map[string]any // the container, or the volume's image
	image  string         // the key of the image in holder
	policy string         // the key of the pull policy in holder
	name   string         // the container's or the volume's
}

// slots returns the places for images in a workload, in the order of the pod's lists.
func slots(o *Object) (found []slot) {
	spec := podPath(o)
	if spec == nil {
		return nil
	}
	pod := at(o.Content, spec)
	for _, list := range []string{"initContainers", "containers", "ephemeralContainers"} {
		for i, c := range objectsIn(pod[list]) {
			name, _ := c["name"].(string)
			found = append(found, slot{spec.with(list, i, "image"), c, "image", "imagePullPolicy", name})
		}
	}
	for i, v := range objectsIn(pod["volumes"]) {
		if image, ok := v["image"].(map[string]any); ok {
			name, _ := v["name"].(string)
			found = append(found, slot{spec.with("volumes", i, "image", "reference"), image, "reference", "pullPolicy", name})
		}
	}
	return found
}

// at returns the object at the path, or nil.
func at(content map[string]any, p path) map[string]any {
	for _, key := range p {
		content, _ = content[key.(string)].(map[string]any)
	}
	return content
}

// objectsIn returns the elements of a list. Those that are not objects are nil.
func objectsIn(list any) []map[string]any {
	elements, _ := list.([]any)
	found := make([]map[string]any, len(elements))
	for i, e := range elements {
		found[i], _ = e.(map[string]any)
	}
	return found
}

// replacedLater reports whether an image is a placeholder that an admission webhook of Istio
// replaces when the pod is created.
func (s slot) replacedLater(o *Object) bool {
	if s.holder[s.image] != "auto" {
		return false
	}
	spec := podPath(o)
	metadata := at(o.Content, append(slices.Clone(spec[:len(spec)-1]), "metadata"))
	for _, m := range []string{"annotations", "labels"} {
		values, _ := metadata[m].(map[string]any)
		for key := range values {
			if key == "inject.istio.io/templates" || key == "sidecar.istio.io/inject" {
				return true
			}
		}
	}
	return false
}
