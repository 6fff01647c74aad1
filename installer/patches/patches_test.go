package patches_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/patches"
	"airlift/internal/fault"
)

func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func load(t *testing.T, files map[string]string) *patches.Set {
	t.Helper()
	set, warnings, err := patches.Load(directory(t, files))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("loading: %v, warnings %q", err, warnings)
	}
	return set
}

// TestOrder checks the order, the suffixes and the types. Each patch applies to
// the result of the previous one. Package render compares the effect of patches
// with kubeadm.
func TestOrder(t *testing.T) {
	files := map[string]string{
		"kubeletconfiguration.yaml":        "maxPods: 1\npodsPerCore: 1\n",
		"kubeletconfiguration0+merge.json": `{"podsPerCore": null, "address": "10.0.0.1"}`,
		"kubeletconfiguration1+json.yaml":  "# operations\n---\n- {op: replace, path: /maxPods, value: 3}\n---\n- {op: copy, from: /maxPods, path: /podPidsLimit}\n",
	}
	set := load(t, files)
	got, used, err := set.Apply(patches.KubeletConfiguration, []byte("kind: KubeletConfiguration\nfromTheFuture: 1\nmaxPods: 7\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := "address: 10.0.0.1\nfromTheFuture: 1\nkind: KubeletConfiguration\nmaxPods: 3\npodPidsLimit: 3\n"
	if string(got) != want {
		t.Errorf("patched:\n%s\nwant:\n%s", got, want)
	}
	// A dot sorts before a digit.
	if want := []string{"kubeletconfiguration.yaml", "kubeletconfiguration0+merge.json", "kubeletconfiguration1+json.yaml"}; !slices.Equal(used, want) {
		t.Errorf("used %q, want %q", used, want)
	}
	doc := []byte("# untouched\nkind: Pod\n")
	if got, used, err := set.Apply("etcd", doc); err != nil || string(got) != string(doc) || used != nil {
		t.Errorf("without a patch: %q, %q, %v", got, used, err)
	}
}

func TestNone(t *testing.T) {
	set, warnings, err := patches.Load("")
	if set != nil || warnings != nil || err != nil {
		t.Errorf("no directory: %v, %q, %v", set, warnings, err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "etcd"}}
	if got, used, err := set.Pod(pod); err != nil || got.Name != "etcd" || used != nil {
		t.Errorf("a nil set: %v, %q, %v", got, used, err)
	}
	if _, _, err := set.Apply("kubelet", nil); err == nil {
		t.Error("an unknown target is taken")
	}
}

func TestProblemsTogether(t *testing.T) {
	dir := directory(t, map[string]string{
		"etcd+strange.yaml":                "a: b",
		"etcd+.yaml":                       "a: b",
		"etcd2+json.yaml":                  "a: b",
		"kube-apiserver.yaml":              "- a\n",
		"kube-scheduler0.yaml":             "a: b\n---\na: [\n",
		"kube-scheduler1.yaml":             "a: 1\na: 2\n",
		"kubelet.yaml":                     "a: b",
		"readme.md":                        "hello",
		"kube-scheduler2+merge.yaml":       "spec: {hostnetwork: true}",
		"kube-scheduler3.yaml":             "spec: {hostNet: true}",
		"kube-scheduler4+merge.yaml":       "spec: {hostNetwork: maybe}",
		"kube-controller-manager.yaml":     "",
		"kube-controller-manager.yaml.bak": "a: b",
	})
	_, warnings, err := patches.Load(dir)
	if fault.ExitCode(err) != fault.Usage {
		t.Errorf("exit code %d", fault.ExitCode(err))
	}
	for _, want := range []string{`etcd+strange.yaml: unknown patch type "strange"`, `etcd+.yaml: unknown patch type ""`,
		"etcd2+json.yaml: document 1: a JSON patch must be a list", "kube-apiserver.yaml: document 1: a strategic patch must be a part",
		"kube-scheduler0.yaml: document 2", "kube-scheduler1.yaml: document 1",
		`kube-scheduler2+merge.yaml: document 1: line 1: spec.hostnetwork is not known: did you mean hostNetwork?`, "kube-scheduler3.yaml: document 1: ",
		"kube-scheduler4+merge.yaml: document 1: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nothing says %q in: %v", want, err)
		}
	}
	all := strings.Join(warnings, "\n")
	for _, want := range []string{`"kubelet.yaml" is not used: its name must start with one of corednsdeployment, etcd`,
		`"readme.md" is not used: its name does not end`, `"kube-controller-manager.yaml" is not used: it is empty`, `.bak" is not used`} {
		if !strings.Contains(all, want) {
			t.Errorf("no warning says %q in:\n%s", want, all)
		}
	}
	if len(warnings) != 4 {
		t.Errorf("%d warnings:\n%s", len(warnings), all)
	}
	file := filepath.Join(dir, "kubelet.yaml")
	for _, wrong := range []string{file, dir + "/none"} {
		if _, _, err := patches.Load(wrong); fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// The advice fits the error: a name, or a value with its line and text.
func TestAdvice(t *testing.T) {
	for text, want := range map[string]string{
		"metadata: {labels: {b: x, a: 1.30}}":                                `line 1: metadata.labels.a is the number 1.30 and must be a string: put it in quotes, "1.30"`,
		"spec:\n  containers:\n  - name: a\n    image: b\n  - name: no\n":    `line 5: spec.containers[1].name is the boolean no and must be a string: put it in quotes, "no"`,
		"spec:\n  containers:\n  - name: a\n    command: [a,\n      0x1F]\n": `line 5: spec.containers[0].command[1] is the number 0x1F and`,
		"\nspec:\n  hostNetwork: maybe\n":                                    `line 3: spec.hostNetwork is the string "maybe" and must be true or false`,
	} {
		_, _, err := patches.Load(directory(t, map[string]string{"etcd.yaml": text}))
		if err == nil || !strings.Contains(err.Error(), want) || fault.Hint(err) != "correct the file" {
			t.Errorf("%q: %v (hint %q), want %s", text, err, fault.Hint(err), want)
		}
	}
	// Quotes make no duration of 10.
	_, _, err := patches.Load(directory(t, map[string]string{"kubeletconfiguration.yaml": "maxPods: 5\nauthentication: {webhook: {cacheTTL: 10}}\n"}))
	if want := `line 2: authentication.webhook.cacheTTL is the number 10 and must be a duration such as`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	_, _, err = patches.Load(directory(t, map[string]string{"etcd+x.yaml": "a: b"}))
	if !strings.HasPrefix(fault.Hint(err), "name a patch file") {
		t.Errorf("hint %q", fault.Hint(err))
	}
}

// No patch vanishes.
func TestNothingIsIgnored(t *testing.T) {
	const one, two = `{"maxPods": 1}`, `{"podsPerCore": 1}`
	for text, want := range map[string]string{
		one + "\n...\n" + two + "\n":                  "document 2: line 2: not JSON",
		"maxPods: 1\n...\npodsPerCore: 1\n":           "line 3: a second document begins here",
		"# two\n" + one + "\n" + two:                  "line 3: a second document begins here",
		"maxPods: 1\r---\rpodsPerCore: 1\r":           "line 1: a second document begins here",
		"\xff\xfem\x00":                               "line 1: the text is UTF-16",
		`{"maxPods": 1, "maxPods": 2}`:                "line 1: maxPods is written twice",
		"maxPods: 1\n---\npodsPerCore: 1\nmaxPods: [": "document 2: line 4: not YAML",
	} {
		_, _, err := patches.Load(directory(t, map[string]string{"kubeletconfiguration.yaml": text}))
		if err == nil || !strings.Contains(err.Error(), want) || fault.ExitCode(err) != fault.Usage {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	set := load(t, map[string]string{"kubeletconfiguration.yaml": one + "\n" + two})
	got, _, err := set.Apply("kubeletconfiguration", []byte("a: 1\n"))
	if err != nil || string(got) != "a: 1\nmaxPods: 1\npodsPerCore: 1\n" {
		t.Errorf("two JSON patches: %s, %v", got, err)
	}
}

// If a patch does not fit the document, the error names the patch file.
func TestDoesNotFit(t *testing.T) {
	for name, text := range map[string]string{
		"etcd+json.yaml":      "- {op: replace, path: /spec/nothing, value: 1}",
		"etcd0+json.yaml":     "- {op: add, path: /spec/hostnetwork, value: true}",
		"etcd1+json.yaml":     "- {op: add, path: /spec/hostNetwork, value: maybe}",
		"etcd+strategic.yaml": "spec: {containers: [{image: without-a-name}]}",
	} {
		set := load(t, map[string]string{name: text})
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "etcd"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "etcd"}}}}
		_, _, err := set.Pod(pod)
		if fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), "patching etcd with "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Directives of a strategic merge patch do not count as unknown fields.
func TestDirectives(t *testing.T) {
	load(t, map[string]string{"etcd.yaml": `
spec:
  $retainKeys: [containers]
  volumes: [{$patch: delete, name: gone}]
  $setElementOrder/containers: [{name: etcd}]
  tolerations: [{$patch: replace}]
  containers:
  - name: etcd
    $deleteFromPrimitiveList/command: [etcd]
    securityContext: {$patch: delete}
`})
}

func TestAddOn(t *testing.T) {
	set := load(t, map[string]string{
		"corednsdeployment.yaml":        "spec: {replicas: 3}",
		"kubeproxydaemonset+merge.yaml": "metadata: {labels: {x: one}}",
	})
	original := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "coredns"}}
	objects := []runtime.Object{
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "coredns"}},
		original,
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy"}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "kube-flannel-ds"}},
	}
	got, used, err := set.AddOn(objects)
	if err != nil {
		t.Fatal(err)
	}
	if d := got[1].(*appsv1.Deployment); d.Spec.Replicas == nil || *d.Spec.Replicas != 3 {
		t.Errorf("CoreDNS: %+v", d.Spec)
	}
	if d := got[2].(*appsv1.DaemonSet); d.Labels["x"] != "one" {
		t.Errorf("kube-proxy: %+v", d.ObjectMeta)
	}
	if len(used) != 2 || original.Spec.Replicas != nil || objects[1] != original {
		t.Errorf("used %q, or the caller's objects have changed", used)
	}
}
