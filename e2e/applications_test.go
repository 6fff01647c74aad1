//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"airlift/scripts/fixtures/siteregistry"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// appChart is the template of a chart with hooks. Its values are the versions of the tests.
const appChart = `
{{- define "job" }}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      tolerations: [{operator: Exists}]
      containers:
      - {name: hook, image: {{ .Values.image | quote }}, args: [{{ .Values.hook | quote }}]}
{{- end }}
apiVersion: apps/v1
kind: Deployment
metadata: {name: front}
spec:
  selector: {matchLabels: {app: front}}
  template:
    metadata: {labels: {app: front}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations: [{operator: Exists}]
      containers:
      - {name: web, image: {{ .Values.image | quote }}, args: [netexec, --http-port=8080], readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: {{ .Values.mode | quote }}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ printf "only-%s" .Values.mode }}}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {password: {{ printf "password-%s" .Values.mode | quote }}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: migrate, annotations: {helm.sh/hook: "pre-install,pre-upgrade"}}
{{- template "job" . }}
---
apiVersion: batch/v1
kind: Job
metadata: {name: welcome, annotations: {helm.sh/hook: "post-install", helm.sh/hook-delete-policy: hook-succeeded}}
{{- template "job" . }}
---
apiVersion: batch/v1
kind: Job
metadata: {name: bye, annotations: {helm.sh/hook: "pre-delete"}}
{{- template "job" . }}
`

// buildApp builds an additional bundle with a version of the chart, whose image only this version has. A hook with the argument --help
// succeeds.
func buildApp(t *testing.T, registry *siteregistry.Registry, agnhost v1.Image, mode, hook string) (path, image string) {
	t.Helper()
	made, err := mutate.AppendLayers(agnhost, fileLayer(t, "mode.txt", mode))
	if err != nil {
		t.Fatal(err)
	}
	registry.Push("public/app:"+mode, made)
	image = registry.Host + "/public/app:" + mode
	base, err := filepath.Abs(*bundlePath)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "app-"+mode)
	buildFile(t, path, "app.yaml", map[string]string{
		"app/Chart.yaml":         "apiVersion: v2\nname: app\nversion: 1.0.0\n",
		"app/values.yaml":        "",
		"app/templates/app.yaml": appChart,
		"values.yaml":            fmt.Sprintf("image: %s\nmode: %s\nhook: %s\n", image, mode, hook),
		"app.yaml": fmt.Sprintf(`
apiVersion: airlift/v1
kind: Bundle
only: [images, manifests]
base: %s
registryCAs: [%s]
manifests:
- {name: app, namespace: app, chart: {source: app, values: [values.yaml]}}
`, base, registry.CA),
	})
	return path, image
}

// TestApplications installs three versions of a chart one after the other: differences, hooks, objects and images that are no longer
// needed, undo, runs that are killed, and removal.
func TestApplications(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-apps", Hosts: 1})
	host := s.Hosts[0]
	reference, err := site.WorkloadImage(version)
	if err != nil {
		t.Fatal(err)
	}
	registry := siteregistry.Start(t, siteregistry.Options{Auth: "token"})
	agnhost := imageInBundle(t, reference)
	images := map[string]string{}
	for mode, hook := range map[string]string{"one": "--help", "two": "--help", "bad": "no-such-command"} {
		path, image := buildApp(t, registry, agnhost, mode, hook)
		images[mode] = image
		if _, err := host.CopyIn(t.Context(), path, "/root/app-"+mode, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	app := func(t *testing.T, mode string, wantCode int, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		err := host.Exec(t.Context(), nil, &out, &out, append([]string{"/root/app-" + mode}, args...)...)
		if code := exitCode(err); code != wantCode {
			t.Fatalf("app-%s %s: exit code %d, want %d: %v\n%s", mode, strings.Join(args, " "), code, wantCode, err, &out)
		}
		return out.String()
	}
	get := func(t *testing.T, args ...string) string {
		t.Helper()
		return strings.TrimSpace(kubectl(t, s, append([]string{"get", "-n", "app"}, args...)...))
	}
	// isAt fails unless exactly this version of the application runs.
	isAt := func(t *testing.T, mode string) {
		t.Helper()
		contains(t, get(t, "configmap", "settings", "-o", "jsonpath={.data.mode}"), mode)
		contains(t, get(t, "deployment", "front", "-o", "jsonpath={.spec.template.spec.containers[0].image} {.status.updatedReplicas}"), images[mode]+" 1") // the former pod may still end
		if names := get(t, "configmap", "-o", "name"); strings.Count(names, "only-") != 1 || !strings.Contains(names, "only-"+mode) {
			t.Errorf("version %s runs, with these ConfigMaps:\n%s", mode, names)
		}
	}
	for _, step := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"an installation runs the hooks of the chart", func(t *testing.T) {
			install(t, host, 0, "init")
			app(t, "one", 0, "import")
			contains(t, app(t, "one", 0, "apply"), "running the pre-install hook Job.batch app/migrate", "running the post-install hook Job.batch app/welcome", "app (app 1.0.0): 4 objects")
			isAt(t, "one")
			contains(t, get(t, "job", "migrate", "-o", "jsonpath={.status.succeeded}"), "1")
			eventually(t, time.Minute, func() string { return get(t, "job", "welcome", "--ignore-not-found", "-o", "name") })
			contains(t, install(t, host, 0, "apply", "history"), "app", "present, ran", "app-one")
			contains(t, app(t, "one", 0, "apply"), "nothing to change")
			contains(t, app(t, "one", 0, "apply", "--diff", "--detailed-exitcode"), "Nothing to do.")
		}},
		{"a difference is shown without secrets, and changes nothing", func(t *testing.T) {
			out := app(t, "two", 5, "apply", "--diff", "--detailed-exitcode")
			contains(t, out, "-  mode: one\n+  mode: two", "ConfigMap app/only-two would be created", "pre-upgrade Job.batch app/migrate would run", "--prune would remove", "ConfigMap app/only-one", "(secret, after)")
			if strings.Contains(out, "password-") || strings.Contains(out, "cGFzc3dvcmQt") {
				t.Errorf("it shows a secret:\n%s", out)
			}
			isAt(t, "one")
		}},
		{"the next version removes what it no longer has, asked first", func(t *testing.T) {
			app(t, "two", 0, "import")
			contains(t, app(t, "two", 2, "apply", "--prune"), "ConfigMap app/only-one", "--yes")
			isAt(t, "one")
			contains(t, app(t, "two", 0, "apply", "--prune", "--yes"), "1 object removed", "images prune")
			isAt(t, "two")
		}},
		{"what an undo needs is not pruned", func(t *testing.T) {
			eventually(t, time.Minute, func() string { // the kubelet removes the container later
				if out := app(t, "two", 0, "images", "prune", "--yes"); !strings.Contains(out, "kept "+images["one"]+": nothing uses it, but 'apply undo'") {
					return out
				}
				return ""
			})
		}},
		{"an undo, and an undo of it", func(t *testing.T) {
			contains(t, install(t, host, 0, "apply", "undo", "--diff"), "version 1 is applied again", "+  mode: one")
			isAt(t, "two")
			contains(t, install(t, host, 0, "apply", "undo", "--yes"), "from the file app-one", "1 object removed")
			isAt(t, "one")
			install(t, host, 0, "apply", "undo", "--yes", "app")
			isAt(t, "two")
		}},
		{"a hook that fails stops the apply, and an undo helps", func(t *testing.T) {
			app(t, "bad", 0, "import")
			contains(t, app(t, "bad", 1, "apply", "--prune", "--yes"), "pre-upgrade hook Job", "the Job failed", "the last lines of its log", "kubectl logs job/migrate -n app")
			isAt(t, "two")
			install(t, host, 0, "apply", "undo", "--yes")
			isAt(t, "two")
		}},
		{"a run that is killed is continued", func(t *testing.T) {
			// The next run first waits until it is clear that the killed one is gone.
			for i, after := range []string{"1", "1.5", "2", "3"} {
				mode := []string{"one", "two"}[i%2]
				_, _ = host.Output(t.Context(), "timeout", "-s", "KILL", after, "/root/app-"+mode, "apply", "--prune", "--yes")
				app(t, mode, 0, "apply", "--prune", "--yes")
				if isAt(t, mode); t.Failed() {
					t.Fatalf("killed after %s s", after)
				}
			}
			_, _ = host.Output(t.Context(), "timeout", "-s", "KILL", "2", "/root/install", "apply", "undo", "--yes")
			app(t, "one", 0, "apply", "--prune", "--yes")
			isAt(t, "one")
		}},
		{"a removal runs the hook, and leaves nothing but the namespace", func(t *testing.T) {
			contains(t, install(t, host, 0, "apply", "remove", "app", "--dry-run"), "Deployment.apps app/front", "Namespace app: a namespace is only removed if it is named")
			isAt(t, "one")
			contains(t, install(t, host, 0, "apply", "remove", "app", "--yes"), "app: running the pre-delete hook Job.batch app/bye", "removed from the inventory, with its history")
			for _, kind := range []string{"deployment,replicaset,pod,job,secret", "configmap"} {
				eventually(t, time.Minute, func() string {
					return strings.ReplaceAll(get(t, kind, "-o", "name"), "configmap/kube-root-ca.crt", "")
				})
			}
			if left := kubectl(t, s, "get", "-n", "kube-system", "secret", "-l", "airlift.dev/manifest", "-o", "name"); left != "" {
				t.Errorf("the history is still there: %s", left)
			}
			contains(t, install(t, host, 2, "apply", "undo", "--yes", "app"), `no manifest "app"`)
			eventually(t, time.Minute, func() string {
				out := install(t, host, 0, "images", "prune", "--yes")
				list := install(t, host, 0, "images", "list")
				if strings.Contains(list, "/public/app:") {
					return out + list
				}
				return ""
			})
		}},
	} {
		if !t.Run(step.name, step.test) {
			diagnose(t, s)
			t.FailNow()
		}
	}
}
