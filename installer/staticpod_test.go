package installer

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/host"
)

// TestHealthURL: join asks a component for its health where its static pod listens, also
// after the user's arguments or patches moved it.
func TestHealthURL(t *testing.T) {
	root := t.TempDir()
	h, err := host.OpenDirectory(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, config.ManifestsDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"[kube-scheduler, --bind-address=127.0.0.1]":              "https://127.0.0.1:10259/healthz",
		"[kube-scheduler]":                                        "https://127.0.0.1:10259/healthz",
		"[kube-scheduler, --bind-address=::1, --secure-port=999]": "https://[::1]:999/healthz",
	} {
		pod := "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: kube-scheduler\n    command: " + command + "\n"
		if err := os.WriteFile(filepath.Join(dir, "kube-scheduler.yaml"), []byte(pod), 0o600); err != nil {
			t.Fatal(err)
		}
		if url, err := healthURL(h, "kube-scheduler", config.SchedulerPort); err != nil || url != want {
			t.Errorf("%s: %q, %v, want %q", command, url, err, want)
		}
	}
	if url, err := healthURL(h, "kube-controller-manager", config.ControllerManagerPort); err == nil {
		t.Errorf("without a static pod: %q", url)
	}
}

// TestStartedBefore: only a container that runs since a time before the file was written still uses
// what it read then.
func TestStartedBefore(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration, exited bool) store.Container {
		return store.Container{Created: now.Add(d), Exited: exited}
	}
	for name, c := range map[string]struct {
		list    []store.Container
		written time.Duration
		want    bool
	}{
		"older":               {[]store.Container{at(-2*time.Hour, false)}, -time.Hour, true},
		"newer":               {[]store.Container{at(-2*time.Hour, true), at(-time.Minute, false)}, -time.Hour, false},
		"ended":               {[]store.Container{at(-2*time.Hour, true)}, -time.Hour, false},
		"none":                {nil, -time.Hour, false},
		"the clock went back": {[]store.Container{at(-2*time.Hour, false)}, time.Hour, false},
	} {
		if got := startedBefore(c.list, now.Add(c.written), now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestWithAnnotation: the manifest differs in the annotation only.
func TestWithAnnotation(t *testing.T) {
	for name, manifest := range map[string]string{
		"without annotations": "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd}\nspec: {containers: [{name: etcd, ports: [{containerPort: 2381}]}], priority: 2000001000}\n",
		"with another one":    "metadata:\n  annotations: {a: b}\nspec: {noSuchField: 1.5}\n",
	} {
		data, err := withAnnotation([]byte(manifest), "site/x", "now")
		if err != nil {
			t.Fatal(name, err)
		}
		var want, got map[string]any
		if err := errors.Join(yaml.Unmarshal([]byte(manifest), &want), yaml.Unmarshal(data, &got)); err != nil {
			t.Fatal(name, err)
		}
		annotations := got["metadata"].(map[string]any)["annotations"].(map[string]any)
		if annotations["site/x"] != "now" {
			t.Errorf("%s: %v", name, annotations)
		}
		delete(annotations, "site/x")
		if len(annotations) == 0 {
			delete(got["metadata"].(map[string]any), "annotations")
		}
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if _, err := withAnnotation([]byte("{"), "a", "b"); err == nil {
		t.Error("no YAML: no error")
	}
}
