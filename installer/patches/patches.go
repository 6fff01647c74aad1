// Package patches applies the user's patches to the objects that Airlift renders. The directory
// layout is the layout of kubeadm's --patches: files named target[suffix][+type].yaml (or .json),
// such as kube-apiserver1+merge.yaml.
package patches

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"airlift/internal/documents"
	"airlift/internal/documents/problems"
	"airlift/internal/documents/strict"
	"airlift/internal/fault"
)

// Targets other than static pods, which have the pod's name.
const (
	KubeletConfiguration = "kubeletconfiguration"
	// CoreDNSDeployment and KubeProxyDaemonSet work with every Kubernetes
	// version, also where kubeadm does not know them yet.
	CoreDNSDeployment  = "corednsdeployment"
	KubeProxyDaemonSet = "kubeproxydaemonset"
)

// targets lists everything that can be patched, with the type that a strategic
// merge needs to merge lists.
var targets = map[string]func() any{
	"etcd":                    func() any { return &corev1.Pod{} },
	"kube-apiserver":          func() any { return &corev1.Pod{} },
	"kube-controller-manager": func() any { return &corev1.Pod{} },
	"kube-scheduler":          func() any { return &corev1.Pod{} },
	KubeletConfiguration:      func() any { return &kubeletv1.KubeletConfiguration{} },
	CoreDNSDeployment:         func() any { return &appsv1.Deployment{} },
	KubeProxyDaemonSet:        func() any { return &appsv1.DaemonSet{} },
}

// Set is the patches of a directory. A nil Set has none.
type Set struct {
	dir     string
	patches []patch
}

// Line returns where the last patch for a target sets a field, such as "maxPods".
func (s *Set) Line(target, field string) (file string, line int, ok bool) {
	if s == nil {
		return "", 0, false
	}
	for _, p := range slices.Backward(s.patches) {
		if p.target == target && documents.Value(p.data.Node, strings.Split(field, ".")...) != nil {
			return filepath.Join(s.dir, p.file), documents.Value(p.data.Node, strings.Split(field, ".")...).Line, true
		}
	}
	return "", 0, false
}

// patch is one document of a patch file.
type patch struct {
	file     string // relative to the directory
	document int    // counted from 1
	target   string
	kind     string // "strategic", "merge" or "json"
	data     documents.Document
}

// Apply patches a target's JSON or YAML document and returns it as YAML, with
// the names of the patch files that it used. Without a patch for the target it
// returns the document unchanged. The error (fault.Usage) names the file of a
// patch that cannot be applied, or that sets a field that the target does not
// have, which kubeadm would silently drop.
func (s *Set) Apply(target string, doc []byte) ([]byte, []string, error) {
	patched, files, err := s.apply(target, doc)
	if err != nil || len(files) == 0 {
		return doc, nil, err
	}
	if patched, err = yaml.JSONToYAML(patched); err != nil {
		return nil, nil, err
	}
	return patched, files, nil
}

// apply is Apply with a result in JSON.
func (s *Set) apply(target string, doc []byte) ([]byte, []string, error) {
	newObject, ok := targets[target]
	if !ok {
		return nil, nil, fmt.Errorf("%q is not a patch target", target)
	}
	if s == nil {
		return doc, nil, nil
	}
	data, err := yaml.YAMLToJSON(doc)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s before patching it: %w", target, err)
	}
	// The document may already have unknown fields, for example from a newer
	// kubeadm. They are not the patch's fault.
	before, err := unknownFields(data, newObject())
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s before patching it: %w", target, err)
	}
	var files []string
	for _, p := range s.patches {
		if p.target != target {
			continue
		}
		if data, err = p.apply(data, newObject()); err == nil {
			err = checkFields(data, newObject(), before)
		}
		if err != nil {
			const hint = "correct the file in the --patches directory"
			text := fmt.Sprintf("patching %s with %s: %v", target, p, err)
			where := problems.Problem{File: filepath.Join(s.dir, p.file), Line: p.data.Line, Text: text, Hint: hint}
			return nil, nil, fault.Wrap(&problems.Wrong{Problems: []problems.Problem{where}, Text: text}, fault.Usage, hint)
		}
		if !slices.Contains(files, p.file) {
			files = append(files, p.file)
		}
	}
	return data, files, nil
}

// Pod patches a static pod, whose name is the target. The result is a copy.
func (s *Set) Pod(pod *corev1.Pod) (*corev1.Pod, []string, error) {
	return object(s, pod.Name, pod)
}

// AddOn returns an add-on's objects with CoreDNS's Deployment or kube-proxy's
// DaemonSet patched, and the names of the patch files used.
func (s *Set) AddOn(objects []runtime.Object) ([]runtime.Object, []string, error) {
	objects = slices.Clone(objects)
	var used []string
	for i, o := range objects {
		var files []string
		var err error
		switch o := o.(type) {
		case *appsv1.Deployment:
			if o.Name == "coredns" {
				objects[i], files, err = object(s, CoreDNSDeployment, o)
			}
		case *appsv1.DaemonSet:
			if o.Name == "kube-proxy" {
				objects[i], files, err = object(s, KubeProxyDaemonSet, o)
			}
		}
		if err != nil {
			return nil, nil, err
		}
		used = append(used, files...)
	}
	return objects, used, nil
}

func object[T any](s *Set, target string, obj *T) (*T, []string, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, nil, err
	}
	data, files, err := s.apply(target, data)
	if err != nil {
		return nil, nil, err
	}
	patched := new(T)
	return patched, files, json.Unmarshal(data, patched)
}

// apply patches JSON. like is an empty object of the target's type.
func (p patch) apply(data []byte, like any) ([]byte, error) {
	switch p.kind {
	case "json":
		operations, err := jsonpatch.DecodePatch(p.data.JSON)
		if err != nil {
			return nil, err
		}
		return operations.Apply(data)
	case "merge":
		return jsonpatch.MergePatch(data, p.data.JSON)
	}
	return strategicpatch.StrategicMergePatch(data, p.data.JSON, like)
}

// check finds errors that are visible without a target document, such as a field that the target's
// type does not have.
func (p patch) check() []problems.Problem {
	wrong := func(format string, args ...any) []problems.Problem {
		return []problems.Problem{{Text: fmt.Sprintf(format, args...)}}
	}
	if p.kind == "json" {
		if _, err := jsonpatch.DecodePatch(p.data.JSON); err != nil {
			return wrong("a JSON patch must be a list of operations: %v", err)
		}
		return nil
	}
	var fields map[string]any
	if err := json.Unmarshal(p.data.JSON, &fields); err != nil {
		return wrong("a %s patch must be a part of the object: %v", p.kind, err)
	}
	list := &problems.List{}
	d := strict.Decoder{List: list, Lines: strict.Lines{}, EmptyFields: true, EmptyItems: true,
		Unknown: func(_ reflect.Type, name, _ string, _ strict.Place) (string, bool) {
			return "", strings.HasPrefix(name, "$") // a directive, such as $patch
		}}
	d.Document(targets[p.target](), p.data, "")
	if _, err := p.apply([]byte("{}"), targets[p.target]()); err != nil && len(list.Problems) == 0 {
		return wrong("%v", err)
	}
	return list.Problems
}

func (p patch) String() string {
	return fmt.Sprintf("%s (document %d, %s)", p.file, p.document, p.kind)
}

// checkFields fails if a patched object has fields that its type does not have,
// except those in known.
func checkFields(data []byte, into any, known []string) error {
	unknown, err := unknownFields(data, into)
	if err != nil {
		return err
	}
	unknown = slices.DeleteFunc(unknown, func(field string) bool { return slices.Contains(known, field) })
	if len(unknown) > 0 {
		return errors.New(strings.Join(unknown, ", "))
	}
	return nil
}

// unknownFields distinguishes upper from lower case, as the API server does.
func unknownFields(data []byte, into any) (fields []string, err error) {
	strict, err := strictjson.UnmarshalStrict(data, into)
	for _, e := range strict {
		fields = append(fields, e.Error())
	}
	return fields, err
}
