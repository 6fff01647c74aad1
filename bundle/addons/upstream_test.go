package addons_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"airlift/bundle/manifests"
	"airlift/images"
)

// upstreams are the projects' own manifests, in their modules at the catalog's version, and what
// is different here on purpose.
var upstreams = map[string]struct {
	module, path   string
	without, added []string // of the container's command and arguments
}{
	images.NetworkPolicy: {"sigs.k8s.io/kube-network-policies", "install.yaml",
		// At level 2 each packet is in the log. The number of the queue is the default.
		[]string{"--v=2", "--nfqueue-id=98", "--hostname-override=$(MY_NODE_NAME)"},
		[]string{"--hostname-override=$(NODE_NAME)", "--metrics-bind-address=127.0.0.1:9080"}},
	images.LocalPathStorage: {"github.com/rancher/local-path-provisioner", "deploy/local-path-storage.yaml", []string{"--debug"}, nil},
	images.MetricsServer: {"sigs.k8s.io/metrics-server", "manifests/base",
		[]string{"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname"},
		[]string{"--kubelet-insecure-tls", "--kubelet-preferred-address-types=InternalIP"}},
}

// TestUpstreamsFacts compares the objects with the projects' own manifests: permissions, arguments,
// directories of the host, the storage class, the aggregated API.
func TestUpstreamsFacts(t *testing.T) {
	for a, own := range objects(t, images.NewestRelease("stable")) {
		t.Run(a.Name, func(t *testing.T) {
			u := upstreams[a.Name]
			their := moduleObjects(t, u.module+"@"+a.Version, u.path)
			want, got := facts(their), facts(own)
			for _, arg := range u.without {
				n := slices.Index(want["arguments"], arg)
				if n < 0 {
					t.Fatalf("%s does not have %q any more", u.path, arg)
				}
				want["arguments"] = slices.Delete(want["arguments"], n, n+1)
			}
			want["arguments"] = slices.Sorted(slices.Values(append(want["arguments"], u.added...)))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("- %s, + Airlift:\n%s", u.module, diff)
			}
		})
	}
}

// moduleObjects returns the objects of a file or of the files in a directory of a module.
func moduleObjects(t *testing.T, module, path string) (list []*manifests.Object) {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	if err != nil {
		t.Fatalf("downloading %s: %v\n%s", module, err, out)
	}
	var download struct{ Dir string }
	if err := json.Unmarshal(out, &download); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(download.Dir, path)
	names := []string{path}
	if i, err := os.Stat(path); err == nil && i.IsDir() {
		names, _ = filepath.Glob(path + "/*.yaml")
	}
	for _, name := range names {
		if filepath.Base(name) == "kustomization.yaml" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		more, err := manifests.Decode(name, text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, more...)
	}
	return list
}

// facts are what must be the same, each list sorted.
func facts(list []*manifests.Object) map[string][]string {
	found := map[string][]string{}
	add := func(kind, format string, args ...any) {
		found[kind] = append(found[kind], fmt.Sprintf(format, args...))
	}
	for _, o := range list {
		spec, _ := o.Content["spec"].(map[string]any)
		switch o.Kind {
		case "Role", "ClusterRole":
			for _, rule := range items(o.Content["rules"]) {
				for _, group := range items(rule["apiGroups"]) {
					for _, resource := range items(rule["resources"]) {
						for _, verb := range items(rule["verbs"]) {
							add("permissions", "%s %s %s/%s", o.Kind, verb[""], group[""], resource[""])
						}
					}
				}
			}
		case "ClusterRoleBinding", "RoleBinding":
			role, _ := o.Content["roleRef"].(map[string]any)
			if name, _ := role["name"].(string); strings.HasPrefix(name, "system:") || strings.HasPrefix(name, "extension-") {
				add("bindings", "%s to %s in %q", o.Kind, name, o.Namespace)
			}
		case "StorageClass":
			add("storage", "%s %v %v %v", o.Name, o.Content["provisioner"], o.Content["reclaimPolicy"], o.Content["volumeBindingMode"])
		case "APIService":
			add("API", "%s %v", o.Name, spec)
		case "ConfigMap":
			data, _ := o.Content["data"].(map[string]any)
			for _, script := range []string{"setup", "teardown"} {
				add("scripts", "%v", strings.TrimSpace(fmt.Sprint(data[script])))
			}
			var config any
			_ = json.Unmarshal([]byte(fmt.Sprint(data["config.json"])), &config)
			add("scripts", "%v", config)
		case "Deployment", "DaemonSet":
			template, _ := spec["template"].(map[string]any)
			pod, _ := template["spec"].(map[string]any)
			for _, v := range items(pod["volumes"]) {
				if path, ok := v["hostPath"].(map[string]any); ok {
					add("directories", "%v", path["path"])
				}
			}
			for _, c := range items(pod["containers"]) {
				for _, arg := range append(items(c["command"]), items(c["args"])...) {
					add("arguments", "%v", arg[""])
				}
				for _, mount := range items(c["volumeMounts"]) {
					add("mounts", "%v %v", mount["mountPath"], mount["mountPropagation"])
				}
				for _, probe := range []string{"readinessProbe", "livenessProbe"} {
					if p, ok := c[probe].(map[string]any); ok {
						add("probes", "%s %v", probe, p["httpGet"])
					}
				}
				add("ports", "%v", c["ports"])
			}
			add("kind", "%s, network of the host: %v, priority %v", o.Kind, pod["hostNetwork"] == true, o.Kind == "DaemonSet" || pod["priorityClassName"] != nil)
		}
	}
	for kind := range found {
		slices.Sort(found[kind])
		found[kind] = slices.Compact(found[kind])
	}
	return found
}

// items returns the items of a list. One that is no object is at the key "".
func items(list any) (all []map[string]any) {
	values, _ := list.([]any)
	for _, v := range values {
		if m, ok := v.(map[string]any); ok {
			all = append(all, m)
		} else {
			all = append(all, map[string]any{"": v})
		}
	}
	return all
}
