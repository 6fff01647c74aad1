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

	"airlift/builder/manifests"
	"airlift/images/release"
)

// upstreams are the projects' own manifests, in their modules at the catalog's version, and what
// is different here on purpose.
var upstreams = map[string]struct {
	module         string
	paths          []string
	kind           string   // the only kind of facts to compare; empty for all
	without, added []string // facts; all in added are arguments
}{
	release.NetworkPolicy: {"sigs.k8s.io/kube-network-policies", []string{"install.yaml"}, "",
		// At level 2 each packet is in the log. The number of the queue is the default.
		[]string{"--v=2", "--nfqueue-id=98", "--hostname-override=$(MY_NODE_NAME)"},
		[]string{"--hostname-override=$(NODE_NAME)", "--metrics-bind-address=127.0.0.1:9080"}},
	release.LocalPathStorage: {"github.com/rancher/local-path-provisioner", []string{"deploy/local-path-storage.yaml"}, "", []string{"--debug"}, nil},
	release.MetricsServer: {"sigs.k8s.io/metrics-server", []string{"manifests/base"}, "",
		[]string{"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname"},
		[]string{"--kubelet-insecure-tls", "--kubelet-preferred-address-types=InternalIP"}},
	// The module has manifests for permissions, and only examples for the rest.
	release.Ingress: {"github.com/traefik/traefik/v3", []string{
		"docs/content/reference/dynamic-configuration/kubernetes-gateway-rbac.yml",
		"docs/content/reference/dynamic-configuration/kubernetes-crd-rbac.yml",
	}, "permissions", notForIngress(), nil},
}

// notForIngress returns the permissions that Traefik needs for what the add-on does not use: kinds
// of Traefik's own, the API group of Ingress before Kubernetes v1.22, TCP routes of the experimental
// channel, the names of pods in traces.
func notForIngress() (list []string) {
	all := func(verbs, resources string) {
		for resource := range strings.FieldsSeq(resources) {
			for verb := range strings.FieldsSeq(verbs) {
				list = append(list, "ClusterRole "+verb+" "+resource)
			}
		}
	}
	all("get", "/pods")
	all("get list watch", "extensions/ingresses extensions/ingressclasses gateway.networking.k8s.io/tcproutes")
	all("update", "extensions/ingresses/status gateway.networking.k8s.io/tcproutes/status gateway.networking.k8s.io/referencegrants/status")
	for kind := range strings.FieldsSeq("middlewares middlewaretcps ingressroutes traefikservices ingressroutetcps ingressrouteudps tlsoptions tlsstores serverstransports serverstransporttcps") {
		all("get list watch", "traefik.io/"+kind)
	}
	return list
}

// TestUpstreamsFacts compares the objects with the projects' own manifests: permissions, arguments,
// directories of the host, the storage class, the aggregated API.
func TestUpstreamsFacts(t *testing.T) {
	for a, own := range objects(t, release.NewestOf("stable")) {
		if a.Name == release.LoadBalancer {
			continue // it is Airlift's own; installer/loadbalancer/agent has a test with these permissions
		}
		t.Run(a.Name, func(t *testing.T) {
			u := upstreams[a.Name]
			var their []*manifests.Object
			for _, path := range u.paths {
				their = append(their, moduleObjects(t, u.module+"@"+a.Version, path)...)
			}
			want, got := facts(their), facts(own)
			for _, fact := range u.without {
				if !remove(want, fact) {
					t.Fatalf("%s does not have %q any more", u.paths, fact)
				}
			}
			if len(u.added) > 0 {
				want["arguments"] = slices.Sorted(slices.Values(append(want["arguments"], u.added...)))
			}
			if u.kind != "" {
				want, got = map[string][]string{u.kind: want[u.kind]}, map[string][]string{u.kind: got[u.kind]}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("- %s, + Airlift:\n%s", u.module, diff)
			}
		})
	}
}

// remove removes a fact.
func remove(from map[string][]string, fact string) bool {
	for kind, list := range from {
		if n := slices.Index(list, fact); n >= 0 {
			from[kind] = slices.Delete(list, n, n+1)
			return true
		}
	}
	return false
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
