package adoption_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"airlift/installer/adoption"
	"airlift/scripts/fixtures/seed"
)

// edited gives a random field below v another value, and returns its path. It is "" if there is none.
func edited(r *rand.Rand, v reflect.Value, at string) string {
	switch v.Interface().(type) {
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse(fmt.Sprint(1 + r.IntN(900)))))
		return at
	case intstr.IntOrString:
		v.Set(reflect.ValueOf(intstr.FromInt(1 + r.IntN(60000))))
		return at
	case metav1.Time, metav1.FieldsV1, []metav1.ManagedFieldsEntry:
		return ""
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return edited(r, v.Elem(), at)
	case reflect.Struct:
		for _, i := range r.Perm(v.NumField()) {
			f := v.Type().Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if at == "" && name == "status" || name == "" && !strings.Contains(options, "inline") && !f.Anonymous {
				continue
			}
			if path := edited(r, v.Field(i), at+"."+name); path != "" {
				return path
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte{byte(1 + r.IntN(250))})
			return at
		}
		if n := v.Len(); n > 0 && r.IntN(2) == 0 {
			return edited(r, v.Index(r.IntN(n)), at+"[]")
		}
		one := reflect.New(v.Type().Elem()).Elem()
		path := edited(r, one, at+"[+]")
		if path != "" {
			v.Set(reflect.Append(v, one))
		}
		return path
	case reflect.Map:
		one := reflect.New(v.Type().Elem()).Elem()
		path := edited(r, one, at+"{}")
		if path == "" {
			return ""
		}
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		v.SetMapIndex(reflect.ValueOf(fmt.Sprintf("key%d", r.IntN(1000))).Convert(v.Type().Key()), one)
		return path
	case reflect.String:
		v.SetString(fmt.Sprintf("edited%d", r.IntN(1000)))
		return at
	case reflect.Bool:
		v.SetBool(!v.Bool())
		return at
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1 + int64(r.IntN(100)))
		return at
	}
	return ""
}

// Whatever field of a component's manifest is edited, adopt reports it: an upgrade removes the edit. AIRLIFT_SEED repeats a run.
func TestEveryEditOfAStaticPodIsReported(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Value(t), 1))
	before := adoption.Recognise(base().Input())
	fields := map[string]bool{}
	for range 120 {
		l := base()
		component := []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"}[r.IntN(4)]
		file := "/etc/kubernetes/manifests/" + component + ".yaml"
		var pod corev1.Pod
		if err := yaml.Unmarshal([]byte(l.Files[file]), &pod); err != nil {
			t.Fatal(err)
		}
		path := edited(r, reflect.ValueOf(&pod).Elem(), "")
		data, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		text, err := yaml.JSONToYAML(data)
		if err != nil {
			t.Fatal(err)
		}
		is := func(text string) (fields any) {
			if err := yaml.Unmarshal([]byte(text), &fields); err != nil {
				t.Fatal(err)
			}
			return fields
		}
		if reflect.DeepEqual(is(string(text)), is(l.Files[file])) { // the value is one that is not written
			continue
		}
		l.Files[file] = string(text)
		got := adoption.Recognise(l.Input())
		if !got.Adoptable() { // such as another name of the pod
			continue
		}
		fields[path] = true
		if !slices.ContainsFunc(got.Findings, func(f adoption.Finding) bool {
			return f.Where == file && f.Effect != "" && !slices.Contains(before.Findings, f)
		}) {
			t.Errorf("%s: %s is edited, and is not reported:\n%s", component, path, text)
		}
	}
	t.Logf("%d fields", len(fields))
	if len(fields) < 20 {
		t.Errorf("only %d fields were edited", len(fields))
	}
}

// What the issue of each edit was, and that no value that may be a secret is shown.
func TestEditsOfStaticPods(t *testing.T) {
	const file = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	for edit, want := range map[string]string{
		"spec.containers.0.livenessProbe.failureThreshold=120": "has spec.containers[kube-apiserver].livenessProbe.failureThreshold: 120, and the stored configuration gives 8",
		"spec.priority=7":                                    "has spec.priority: 7, and the stored configuration gives 2000001000",
		"spec.terminationGracePeriodSeconds=90":              "has spec.terminationGracePeriodSeconds: 90, which is not in",
		"metadata.annotations.site/token=hunter2xq":          "has metadata.annotations[site/token]: \"[redacted]\"",
		"metadata.labels.tier=mine":                          `has metadata.labels.tier: "mine", and the stored configuration gives "control-plane"`,
		"spec.hostNetwork=":                                  "has no spec.hostNetwork: true, which the stored configuration gives",
		"spec.containers.0.resources.requests.cpu=1":         `has spec.containers[kube-apiserver].resources.requests.cpu: "1", and the stored configuration gives "250m"`,
		"spec.securityContext.seccompProfile.type=Localhost": `has spec.securityContext.seccompProfile.type: "Localhost", and the stored configuration gives "RuntimeDefault"`,
	} {
		l := base()
		var pod map[string]any
		if err := yaml.Unmarshal([]byte(l.Files[file]), &pod); err != nil {
			t.Fatal(err)
		}
		path, value, _ := strings.Cut(edit, "=")
		at := pod
		names := strings.Split(path, ".")
		for _, name := range names[:len(names)-1] {
			switch next := at[name].(type) {
			case []any:
				at = map[string]any{"0": next[0]}
			case map[string]any:
				at = next
			}
		}
		var parsed any
		if err := yaml.Unmarshal([]byte(value), &parsed); err != nil {
			t.Fatal(err)
		}
		last := names[len(names)-1]
		if at[last] = parsed; last == "cpu" {
			at[last] = value
		}
		text, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		l.Files[file] = string(text)
		got := show(adoption.Recognise(l.Input()))
		if !strings.Contains(got, "EditedManifests: kube-apiserver "+want) || strings.Contains(got, "hunter2xq") {
			t.Errorf("%s: %s", edit, got)
		}
	}
	l := base()
	l.Files["/etc/kubernetes/patches/kube-apiserver1+merge.yaml"] = "spec: {priority: 7}\n"
	l.Files["/etc/kubernetes/patches/README"] = "x"
	if got := show(adoption.Recognise(l.Input())); !strings.Contains(got, "Patches: /etc/kubernetes/patches has patches for kube-apiserver (/etc/kubernetes/patches)") {
		t.Error(got)
	}
}
