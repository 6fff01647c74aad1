package manifests_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"airlift/builder/manifests"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

func decode(t *testing.T, text string) []*manifests.Object {
	t.Helper()
	objects, err := manifests.Decode("app.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func describe(objects []*manifests.Object) (lines []string) {
	for _, o := range objects {
		lines = append(lines, o.Position()+" "+o.APIVersion+" "+o.String())
	}
	return lines
}

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"documents", "# comment\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n# only a comment\n--- # second\n\nkind: Role\napiVersion: rbac.authorization.k8s.io/v1\nmetadata:\n  name: b\n  namespace: ns\n...\n",
			[]string{"app.yaml:3 v1 ConfigMap a", "app.yaml:10 rbac.authorization.k8s.io/v1 Role ns/b"}},
		{"list", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: b}\n",
			[]string{"app.yaml:4 v1 ConfigMap a", "app.yaml:7 v1 ConfigMap b"}},
		{"list of a kind", "apiVersion: v1\nkind: ConfigMapList\nitems:\n- metadata: {name: a}\n",
			[]string{"app.yaml:4 v1 ConfigMap a"}},
		{"json", "{\"apiVersion\":\"v1\",\n\t\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}\n{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"b\"}}",
			[]string{"app.yaml:1 v1 ConfigMap a", "app.yaml:3 v1 ConfigMap b"}},
		{"object on the line of the dashes", "--- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n", []string{"app.yaml:1 v1 ConfigMap a"}},
		{"json and yaml", jsonMap("a") + "\n" + jsonMap("b") + "\n---\n" + jsonMap("c") + "\n---\n" + configMap("d"),
			[]string{"app.yaml:1 v1 ConfigMap a", "app.yaml:2 v1 ConfigMap b", "app.yaml:4 v1 ConfigMap c", "app.yaml:6 v1 ConfigMap d"}},
		{"marks between files", "\ufeff" + configMap("a") + "---\n\ufeff" + configMap("b"), []string{"app.yaml:1 v1 ConfigMap a", "app.yaml:5 v1 ConfigMap b"}},
		{"windows", "\ufeffapiVersion: v1\r\nkind: ConfigMap\r\nmetadata:\r\n  name: a\r\n---\r\napiVersion: v1\r\nkind: ConfigMap\r\nmetadata:\r\n  name: b\r\n",
			[]string{"app.yaml:1 v1 ConfigMap a", "app.yaml:6 v1 ConfigMap b"}},
		{"dashes in a text", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: |\n    ---\n    y\n", []string{"app.yaml:1 v1 ConfigMap a"}},
	} {
		if diff := cmp.Diff(c.want, describe(decode(t, c.text))); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestRefusedDocuments(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\n"
	for _, c := range []struct{ text, want, hint string }{
		{"a: b\n\tc: d\n", "app.yaml:2: not YAML: ", "indented with spaces"},
		{head + "metadata: {name: a}\n---\nkind: [\n", "app.yaml:5: not YAML: ", ""},
		{"- a\n", "app.yaml:1: the document is not a Kubernetes object", ""},
		{"\nhello: there\n", "app.yaml:2: the document has no kind", ""},
		{"services: {}\n", "app.yaml:1: the document has no kind", "Docker Compose"},
		{"kind: Pod\nmetadata: {name: a}\n", "app.yaml:1: the Pod has no apiVersion", "kubectl explain pod"},
		{head, "app.yaml:1: the ConfigMap has no name", ""},
		{head + "metadata: {name: 7}\n", "app.yaml:1: the ConfigMap has no name", "string"},
		{head + "metadata: {name: a, namespace: no}\n", "app.yaml:1: the namespace of the ConfigMap a is false", "in quotes"},
		{head + "metadata: {generateName: a-}\n", `app.yaml:1: the ConfigMap has generateName "a-" and no name`, "write name instead"},
		{head + "metadata:\n  name: {{ .Release.Name }}\n", "app.yaml:4: the document is a template", "list it as a chart"},
		{head + "metadata:\n  name: '{{ .Release.Name }}'\n", `app.yaml:1: metadata.name "{{ .Release.Name }}" is a template`, "list it as a chart"},
		{head + "metadata:\n  {{- if .Values.a }}\n  name: a\n", "app.yaml:4: the document is a template", "list it as a chart"},
		{"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: '{{ .Values.replicas }}'}\n",
			"app.yaml:1: spec.replicas of Deployment a is a template", "list it as a chart"},
		{"apiVersion: v1\nkind: List\nitems:\n- 1\n", "app.yaml:4: items[0] of the List is not a Kubernetes object", ""},
		{"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n", "app.yaml:1: a Kustomization cannot be applied", "directory"},
	} {
		_, err := manifests.Decode("app.yaml", []byte(c.text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || !strings.Contains(fault.Hint(err), c.hint) || fault.Hint(err) == "" {
			t.Errorf("%q: %v (hint %q), want %q (hint %q)", c.text, err, fault.Hint(err), c.want, c.hint)
		}
	}
}

func jsonMap(name string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`
}

// No object vanishes: kubectl would apply only a part of these.
func TestNothingIsIgnored(t *testing.T) {
	utf16 := "\xff\xfe" + strings.Join(strings.Split(configMap("a")+"---\n"+configMap("b"), ""), "\x00") + "\x00"
	for _, c := range []struct{ text, want string }{
		{utf16, "app.yaml:1: the text is UTF-16, not UTF-8"},
		{utf16[2:], "app.yaml:1: there is a zero byte, as in UTF-16LE"},
		{configMap("a") + configMap("b"), "app.yaml:4: ConfigMap.apiVersion is written twice, first at line 1"},
		{configMap("a") + "...\n" + configMap("b"), "app.yaml:5: a second document begins here"},
		{strings.ReplaceAll(configMap("a")+"---\n"+configMap("b"), "\n", "\r"), "app.yaml:1: a second document begins here"},
		{jsonMap("a") + ",\n" + jsonMap("b"), "app.yaml:1: not JSON: invalid character ','"},
		{"# comment\n" + jsonMap("a") + "\n# comment\n" + jsonMap("b"), "app.yaml:4: a second document begins here"},
		{"---\n" + jsonMap("a") + "\n" + jsonMap("b"), "app.yaml:3: a second document begins here"},
		{jsonMap("a") + "\ngarbage: [", "app.yaml:2: not JSON"},
		{"[" + jsonMap("a") + "]\n", "app.yaml:1: the document is not a Kubernetes object"},
		{strings.Replace(jsonMap("a"), "{", `{"kind":"Pod",`, 1), "app.yaml:1: Pod.kind is written twice"},
		{configMap("a") + "\ufeff" + configMap("b"), "app.yaml:4: "},
		{configMap("a") + "---\napiVersion: v1\nkind: List\nItems: [" + jsonMap("b") + "]\n", "app.yaml:7: the List has a field Items"},
		{"apiVersion: v1\nkind: List\nitems: {a: " + jsonMap("b") + "}\n", "app.yaml:1: items of the List is not a list"},
		{"apiVersion: v1\nkind: List\nitems: [" + jsonMap("a") + "]\nItems:\n- " + jsonMap("b"), "app.yaml:4: the List has a field Items"},
		{"apiVersion: v1\nkind: ConfigMapList\nitems: []\nspec: {items: [" + jsonMap("b") + "]}", "app.yaml:4: the ConfigMapList has a field spec"},
		{"apiVersion: v1\nitems: [" + jsonMap("a") + "]\n", "app.yaml:1: the document has no kind"},
		{configMap("a") + "data: {a: '{{ .x }}'}\ndata: {}\n", "app.yaml:5: ConfigMap.data is written twice"},
	} {
		objects, err := manifests.Decode("app.yaml", []byte(c.text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || fault.Hint(err) == "" || fault.ExitCode(err) != fault.Usage {
			t.Errorf("%q: %v, %v, want %q", c.text, describe(objects), err, c.want)
		}
	}
}

// Advice has the text of the file, not the value that YAML reads from it.
func TestAdviceKeepsTheText(t *testing.T) {
	for _, text := range []string{"1.30", "0123", "no", "0x1F", "1e3", "1_000", "on", "123456789012345678901234567890"} {
		for _, field := range []string{"name: ", "name: a, namespace: "} {
			_, err := manifests.Decode("app.yaml", []byte(configMap("x")+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {"+field+text+"}\n"))
			if want := `in quotes: "` + text + `"`; err == nil || !strings.HasSuffix(fault.Hint(err), want) {
				t.Errorf("%s%s: %v (hint %q), want %s", field, text, err, fault.Hint(err), want)
			}
		}
		for _, object := range []string{"apiVersion: %s\nkind: Pod\n", "apiVersion: v1\nkind: %s\n", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: %s}\n"} {
			_, err := manifests.Decode("app.yaml", []byte(strings.Replace(object, "%s", text, 1)+"metadata: {name: a}\n"))
			if want := `as a string, in quotes: "` + text + `"`; err == nil || !strings.HasSuffix(fault.Hint(err), want) {
				t.Errorf("%q, %s: %v (hint %q), want %s", object, text, err, fault.Hint(err), want)
			}
		}
		pod := decode(t, "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: b, image: 'c:1'}, {name: c, image: "+text+"}]}}")
		_, err := manifests.Images(pod)
		want := `as a string, in quotes: "` + text + `"`
		if found := manifests.Check(pod, nil); !strings.HasSuffix(fault.Hint(err), want) || !strings.HasSuffix(found[len(found)-1].Hint, want) {
			t.Errorf("image: %s: %v (hint %q), %v, want %s", text, err, fault.Hint(err), found, want)
		}
	}
}

// Strings with braces in other objects are ordinary.
func TestTemplatesInStrings(t *testing.T) {
	decode(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '{{ .Values.y }} {{ pod }}'}\n")
	decode(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: b, args: ['--template={{ .Name }}']}]}\n")
}

func configMap(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
}

func TestReadDirectory(t *testing.T) {
	dir := fakesites.Files(t, map[string]string{
		"b.yml": configMap("b"), "a.yaml": configMap("a"), "sub/c.json": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`,
		"D.YAML": configMap("d"), "e.Yml": configMap("e"), "readme.md": "text", ".hidden.yaml": "x", ".git/d.yaml": "x",
	})
	objects, err := manifests.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{dir + "/D.YAML:1 v1 ConfigMap d", dir + "/a.yaml:1 v1 ConfigMap a", dir + "/b.yml:1 v1 ConfigMap b", dir + "/e.Yml:1 v1 ConfigMap e", dir + "/sub/c.json:1 v1 ConfigMap c"}
	if diff := cmp.Diff(want, describe(objects)); diff != "" {
		t.Error(diff)
	}
}

func TestRefusedFiles(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"duplicate":     {map[string]string{"a.yaml": configMap("a"), "b.yaml": configMap("b") + "---\n" + configMap("a")}, "b.yaml:5: ConfigMap a is also at "},
		"default":       {map[string]string{"a.yaml": configMap("a"), "b.yaml": configMap("a, namespace: default")}, "b.yaml:1: ConfigMap default/a is also at "},
		"empty":         {map[string]string{"readme.md": "text"}, "has no Kubernetes objects"},
		"chart":         {map[string]string{"Chart.yaml": "name: x\nversion: 1.0.0\n"}, "the document has no kind"},
		"kustomization": {map[string]string{"a/kustomization.yaml": "resources: []\n"}, "is a kustomization, but "},
	} {
		_, err := manifests.Read(fakesites.Files(t, c.files))
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.Hint(err) == "" {
			t.Errorf("%s: %v (hint %q)", name, err, fault.Hint(err))
		}
	}
	if _, err := manifests.Read("/nonexistent"); err == nil || fault.ExitCode(err) != fault.Usage {
		t.Errorf("no such file: %v", err)
	}
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: app, namespace: ns}
spec:
  template:
    spec:
      initContainers: [{name: i, image: busybox}]
      containers:
      - {name: a, image: "nginx:1.27"}
      - {name: b, image: "quay.io/team/b:latest@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
      - {name: c, image: "quay.io/team/c:v1", imagePullPolicy: Always}
      - {name: d, image: "localhost:5000/d@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", imagePullPolicy: Never}
      ephemeralContainers: [{name: e, image: e:1}]
      volumes: [{name: v, image: {reference: "quay.io/team/v:v2"}}, {name: w, emptyDir: {}}]
`

const digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestImages(t *testing.T) {
	found, err := manifests.Images(decode(t, deployment))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range found {
		line := i.Field + " " + i.Reference + " " + i.PullPolicy
		if i.Default {
			line += " default"
		}
		got = append(got, line)
	}
	want := []string{
		"spec.template.spec.initContainers[0].image docker.io/library/busybox:latest Always default",
		"spec.template.spec.containers[0].image docker.io/library/nginx:1.27 IfNotPresent default",
		"spec.template.spec.containers[1].image quay.io/team/b" + digest + " Always default",
		"spec.template.spec.containers[2].image quay.io/team/c:v1 Always",
		"spec.template.spec.containers[3].image localhost:5000/d" + digest + " Never",
		"spec.template.spec.ephemeralContainers[0].image docker.io/library/e:1 IfNotPresent default",
		"spec.template.spec.volumes[0].image.reference quay.io/team/v:v2 IfNotPresent default",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestImagesOfEachKind(t *testing.T) {
	for apiVersionKind, want := range map[string]string{
		"v1 Pod": "spec", "v1 PodTemplate": "template.spec", "v1 ReplicationController": "spec.template.spec",
		"apps/v1 Deployment": "spec.template.spec", "apps/v1 StatefulSet": "spec.template.spec", "apps/v1 DaemonSet": "spec.template.spec",
		"apps/v1 ReplicaSet": "spec.template.spec", "batch/v1 Job": "spec.template.spec", "batch/v1 CronJob": "spec.jobTemplate.spec.template.spec",
	} {
		apiVersion, kind, _ := strings.Cut(apiVersionKind, " ")
		spec := "{containers: [{name: a, image: busybox}]}"
		parts := strings.Split(want, ".")
		for i := len(parts) - 1; i >= 0; i-- {
			spec = "{" + parts[i] + ": " + spec + "}"
		}
		text := "{apiVersion: " + apiVersion + ", kind: " + kind + ", metadata: {name: a}, " + spec[1:]
		found, err := manifests.Images(decode(t, text))
		if err != nil || len(found) != 1 || found[0].Field != want+".containers[0].image" {
			t.Errorf("%s: %v, %v", apiVersionKind, found, err)
		}
	}
}

func TestRefusedImages(t *testing.T) {
	for image, want := range map[string]string{
		"''": `is missing or not a string`, "7": `is missing or not a string`, "Nginx": `image "Nginx": `, "a b": `image "a b": `,
	} {
		_, err := manifests.Images(decode(t, "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: "+image+"}]}}"))
		if err == nil || !strings.HasPrefix(err.Error(), "app.yaml:1: Pod a: spec.containers[0].image") || !strings.Contains(err.Error(), want) || fault.Hint(err) == "" {
			t.Errorf("%s: %v", image, err)
		}
	}
}

func TestCheckAndSetPullPolicy(t *testing.T) {
	objects := decode(t, deployment)
	set := []string{"busybox", "docker.io/library/nginx:1.27", "quay.io/team/b:latest", "quay.io/team/c:v2", "mirror.example.com/x/e:1"}
	got := problems(manifests.Check(objects, set))
	const at, spec = "app.yaml:", ": Deployment ns/app: spec.template.spec."
	want := []string{
		at + "7" + spec + `initContainers[0].imagePullPolicy: imagePullPolicy is not set, and the default for "busybox" is Always: each start of the container contacts the registry | write imagePullPolicy: IfNotPresent`,
		at + "10" + spec + `containers[1].image: image "quay.io/team/b:latest` + digest + `" is not in the bundle: containerd looks for quay.io/team/b` + digest + `, and the bundle has the image as quay.io/team/b:latest | remove the digest, or add the image to the bundle: --image quay.io/team/b` + digest,
		at + "10" + spec + `containers[1].imagePullPolicy: imagePullPolicy is not set, and the default for "quay.io/team/b:latest` + digest + `" is Always: each start of the container contacts the registry | write imagePullPolicy: IfNotPresent`,
		at + "11" + spec + `containers[2].image: image "quay.io/team/c:v1" is not in the bundle: the bundle has quay.io/team/c:v2 | write quay.io/team/c:v2, or add the image to the bundle: --image quay.io/team/c:v1`,
		at + "11" + spec + `containers[2].imagePullPolicy: imagePullPolicy is Always: each start of the container contacts the registry of "quay.io/team/c:v1" | write imagePullPolicy: IfNotPresent`,
		at + "12" + spec + `containers[3].image: image "localhost:5000/d` + digest + `" is not in the bundle | add the image to the bundle: --image localhost:5000/d` + digest,
		at + "13" + spec + `ephemeralContainers[0].image: image "e:1" is docker.io/library/e:1 and not in the bundle: the bundle has mirror.example.com/x/e:1 | write mirror.example.com/x/e:1, or add the image to the bundle: --image docker.io/library/e:1`,
		at + "14" + spec + `volumes[0].image.reference: image "quay.io/team/v:v2" is not in the bundle | add the image to the bundle: --image quay.io/team/v:v2`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	fields := manifests.SetPullPolicy(objects)
	if diff := cmp.Diff([]string{
		"spec.template.spec.initContainers[0].imagePullPolicy", "spec.template.spec.containers[1].imagePullPolicy", "spec.template.spec.containers[2].imagePullPolicy",
	}, fields); diff != "" {
		t.Error(diff)
	}
	if again := manifests.SetPullPolicy(objects); len(again) > 0 {
		t.Errorf("a second call changes %v", again)
	}
	found, err := manifests.Images(objects)
	if err != nil {
		t.Fatal(err)
	}
	set = nil
	for _, i := range found {
		set = append(set, i.Reference)
	}
	if left := manifests.Check(objects, set); len(left) > 0 {
		t.Errorf("problems are left: %v", problems(left))
	}
}

func problems(list []manifests.Problem) (lines []string) {
	for _, p := range list {
		line := p.String() + " | " + p.Hint
		if p.Maybe {
			line = "maybe " + line
		}
		lines = append(lines, line)
	}
	return lines
}

func TestCheckOtherPolicies(t *testing.T) {
	got := problems(manifests.Check(decode(t, `
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {containers: [{name: c, image: "a:1", imagePullPolicy: always, args: [--image-pull-policy=Always]}]}
---
apiVersion: example.com/v1
kind: Cache
metadata: {name: b}
spec: {image: "a:2", imagePullPolicy: Always}
`), []string{"a:1"}))
	want := []string{
		`app.yaml:5: Pod a: spec.containers[0].imagePullPolicy: "always" is not a pull policy, so the API server rejects the object | write imagePullPolicy: IfNotPresent`,
		`maybe app.yaml:10: Cache b: spec.image: image "a:2" is not in the bundle: the bundle has docker.io/library/a:1 | write docker.io/library/a:1, or add the image to the bundle: --image docker.io/library/a:2`,
		`maybe app.yaml:5: Pod a: spec.containers[0].args[0]: --image-pull-policy=Always: pods that the container creates contact the registry | write IfNotPresent`,
		`maybe app.yaml:10: Cache b: spec.imagePullPolicy: it is Always: pods that a controller creates from it contact the registry | write IfNotPresent`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEncode(t *testing.T) {
	const text = `---
apiVersion: v1
data:
  bool: "yes"
  mode: "0644"
  number: "1.10"
  text: |
    a
    b
kind: ConfigMap
metadata:
  name: a
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: a
spec:
  big: 9007199254740993
  half: 0.5
  replicas: 3
`
	objects := decode(t, text)
	got, err := manifests.Encode(objects)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, string(got)); diff != "" {
		t.Error(diff)
	}
	again, err := manifests.Encode(decode(t, string(got)))
	if err != nil || string(again) != string(got) {
		t.Errorf("encoding twice: %v\n%s", err, again)
	}
}

func TestEncodeLimit(t *testing.T) {
	objects := decode(t, configMap("a"))
	objects[0].Content["data"] = map[string]any{"x": strings.Repeat("x", 17<<20)}
	if _, err := manifests.Encode(objects); err == nil || !strings.Contains(err.Error(), "ConfigMap a") {
		t.Error(err)
	}
}
