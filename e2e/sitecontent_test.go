//go:build e2e

package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"airlift/bundle"
	"airlift/scripts/fixtures/fakesites"
	"airlift/scripts/fixtures/siteregistry"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// exporter is a script of more than 1 MiB, so it follows the images in the bundle.
var exporter = "#!/bin/sh\n# " + strings.Repeat("x", 1<<20) + `
echo "configured with $(cat "$1")"
exec sleep infinity
`

const exporterUnit = `[Unit]
Description=An exporter of the site
[Service]
ExecStart=/usr/local/bin/exporter /etc/site/exporter.conf
[Install]
WantedBy=multi-user.target
`

// kinds is a manifest with a custom resource before its definition.
const kinds = `
apiVersion: example.com/v1
kind: Site
metadata: {name: here}
spec: {rack: 3}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sites.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {kind: Site, plural: sites, singular: site, listKind: SiteList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}
`

// webChart is the template of a chart: a workload for workers, one for all nodes, and a Job.
const webChart = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: front}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: front}}
  template:
    metadata: {labels: {app: front}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: web, image: {{ .Values.front | quote }}, imagePullPolicy: Never, args: [netexec, --http-port=8080], readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations: [{operator: Exists}]
      containers:
      - {name: agent, image: {{ .Values.agent | quote }}, args: [pause]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    spec:
      restartPolicy: Never
      tolerations: [{operator: Exists}]
      containers:
      - {name: once, image: {{ .Values.once | quote }}, args: [--help]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web-config, namespace: {{ .Release.Namespace }}}
data: {mode: plain}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: capabilities, namespace: {{ .Release.Namespace }}}
data: {versions: {{ .Capabilities.APIVersions | join " " | quote }}}
`

// localImage is the name of an image that is only in an OCI layout.
const localImage = "registry.site.example/tools/once:1"

// carrySite builds a bundle with "bundle build --file", and replaces the hosts' bundle by it.
// Its images are from the release's registries, from the site's registry with a CA of its own,
// and from a directory. The result is a bundle that follows it later.
func carrySite(t *testing.T, image string, hosts ...*lab.Host) additional {
	t.Helper()
	registry := siteregistry.Start(t, siteregistry.Options{Auth: "token"})
	agnhost := imageInBundle(t, image)
	registry.Push("public/agent:1", agnhost)
	dir := t.TempDir()
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: agnhost, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}})
	if _, err := layout.Write(filepath.Join(dir, "once"), index); err != nil {
		t.Fatal(err)
	}
	fakesites.WriteFiles(t, dir, map[string]string{
		"kinds.yaml":             kinds,
		"web/Chart.yaml":         "apiVersion: v2\nname: web\nversion: 1.2.3\n",
		"web/values.yaml":        "replicas: 1\n",
		"web/templates/web.yaml": webChart,
		"values.yaml":            fmt.Sprintf("front: %s\nagent: %s/public/agent:1\nonce: %s\n", image, registry.Host, localImage),
		"motd":                   "Welcome to the site.\n",
		"exporter.conf":          "the site's configuration\n",
		"worker.conf":            "for workers\n",
		"sysctl.conf":            "kernel.domainname = site.example\n",
		"exporter":               exporter,
		"exporter.service":       exporterUnit,
		"bundle.yaml": fmt.Sprintf(`
apiVersion: airlift/v1
kind: Bundle
images: ["oci:once=%s"]
registryCAs: [%s]
manifests:
- {name: kinds, path: kinds.yaml}
- {name: web, namespace: web, chart: {source: web, values: [values.yaml], set: [replicas=2]}}
files:
- {path: /etc/motd, source: motd}
- {path: /etc/site/exporter.conf, source: exporter.conf, mode: 0640}
- {path: /etc/site/worker.conf, source: worker.conf, mode: 0600, nodes: worker}
- {path: /etc/sysctl.d/90-site.conf, source: sysctl.conf}
- {path: /usr/local/bin/exporter, source: exporter, mode: 0755}
systemdUnits:
- {source: exporter.service}
`, localImage, registry.CA),
	})
	path := filepath.Join(t.TempDir(), "site")
	out := buildBundle(t, path, "--", "--file", filepath.Join(dir, "bundle.yaml"))
	contains(t, out, "every image that the workloads in kinds, web name is in the bundle")
	later := buildAdditional(t, registry, agnhost, aLayer, path)
	for _, h := range hosts {
		for source, target := range map[string]string{path: "/root/install", later.path: "/root/more"} {
			if _, err := h.CopyIn(t.Context(), source, target, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return later
}

// imageInBundle returns an image of the tested bundle.
func imageInBundle(t *testing.T, reference string) v1.Image {
	t.Helper()
	f, err := bundle.Open(*bundlePath)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := f.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	n := slices.IndexFunc(m.Images, func(i bundle.Image) bool { return i.Reference == reference })
	if n < 0 {
		t.Fatalf("%s is not in %s", reference, *bundlePath)
	}
	files := map[string]string{bundle.BlobName(m.Images[n].Config.Digest): ""}
	for _, l := range m.Images[n].Layers {
		files[bundle.BlobName(l.DiffID)] = ""
	}
	unpack(t, f, files)
	data, err := os.ReadFile(files[bundle.BlobName(m.Images[n].Config.Digest)])
	if err != nil {
		t.Fatal(err)
	}
	config, err := v1.ParseConfigFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	image := empty.Image
	for _, l := range m.Images[n].Layers {
		// As upstream compresses them: so the layers have the same digests, as in an image that is built from this one.
		layer, err := tarball.LayerFromFile(files[bundle.BlobName(l.DiffID)], tarball.WithCompressionLevel(gzip.DefaultCompression))
		if err != nil {
			t.Fatal(err)
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			t.Fatal(err)
		}
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	return image
}

// unpack writes the entries of a bundle that are in files to a new directory, and sets their
// paths.
func unpack(t *testing.T, f *bundle.File, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	s, err := f.Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Skip(func(e bundle.Entry) bool { _, wanted := files[e.Name]; return !wanted })
	for {
		e, content, err := s.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name] = filepath.Join(dir, filepath.Base(e.Name))
		to, err := os.Create(files[e.Name])
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(to, content)
		if err := errors.Join(err, to.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// servedVersions returns the API versions and their kinds, sorted, as the API server lists them.
func servedVersions(t *testing.T, s *site.Site) []string {
	t.Helper()
	found := map[string]bool{}
	for _, version := range strings.Fields(kubectl(t, s, "api-versions")) {
		found[version] = true
		path := "/apis/" + version
		if version == "v1" {
			path = "/api/v1"
		}
		var list struct{ Resources []struct{ Kind string } }
		if err := json.Unmarshal([]byte(kubectl(t, s, "get", "--raw", path)), &list); err != nil {
			t.Fatal(err)
		}
		for _, r := range list.Resources {
			found[version+"/"+r.Kind] = true // as Helm does, also for subresources
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// TestSiteContent installs a bundle with the site's own manifests, files and a systemd unit:
// a control plane, then a worker on which the workload starts. A second init changes nothing,
// edits are kept or saved, and reset leaves the hosts as they were.
func TestSiteContent(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-site", Hosts: 2})
	control, worker := s.Hosts[0], s.Hosts[1]
	image, err := site.WorkloadImage(version)
	if err != nil {
		t.Fatal(err)
	}
	later := carrySite(t, image, s.Hosts...)
	const motd = "/etc/motd"
	before := map[*lab.Host]string{}
	for _, h := range s.Hosts {
		run(t, h, "sh", "-c", "echo the host own text >"+motd)
		before[h] = untouched(t, h)
	}
	onNode := func(t *testing.T, h *lab.Host) {
		t.Helper()
		contains(t, run(t, h, "cat", motd), "Welcome to the site.")
		contains(t, run(t, h, "sh", "-c", "stat -c '%a %U' /etc/site/exporter.conf /usr/local/bin/exporter"), "640 root\n755 root")
		contains(t, run(t, h, "sh", "-c", "systemctl is-active exporter; systemctl is-enabled exporter; journalctl -u exporter -o cat"), "active\nenabled", "configured with the site's configuration")
	}
	pid := func(h *lab.Host) string { return run(t, h, "systemctl", "show", "-p", "MainPID", "exporter") }
	var join []string
	steps := []struct {
		name string
		test func(t *testing.T)
	}{
		{"preflight finds a directory in place of a file", func(t *testing.T) {
			run(t, control, "mkdir", "-p", "/etc/site/exporter.conf")
			contains(t, install(t, control, 3, "preflight", "init"), "SiteFiles", "/etc/site/exporter.conf")
			run(t, control, "rm", "-r", "/etc/site")
		}},
		{"a dry run shows files and manifests", func(t *testing.T) {
			out := install(t, control, 0, "init", "--dry-run")
			contains(t, out, "files", "manifests")
			contains(t, run(t, control, "sh", "-c", "cat /tmp/airlift-*/etc/motd; ls /tmp/airlift-*/cluster; rm -r /tmp/airlift-*"), "Welcome", "manifests-web.yaml")
			same(t, before[control], untouched(t, control))
		}},
		{"init on a control plane alone", func(t *testing.T) {
			out := install(t, control, 0, "init")
			contains(t, out, "] files ", "] units ", "] manifests ", "/etc/motd existed before", "kinds: 2 objects, 2 created or changed",
				"web (web 1.2.3): 5 objects, 6 created or changed", "Deployment.apps web/front: the cluster has only control planes with taints")
			if join, err = site.JoinArgs(out); err != nil {
				t.Fatal(err)
			}
			onNode(t, control)
			if text, err := control.Output(t.Context(), "cat", "/etc/site/worker.conf"); err == nil {
				t.Errorf("the control plane has the workers' file: %s", text)
			}
			contains(t, kubectl(t, s, "get", "sites.example.com", "here", "-o", "jsonpath={.spec.rack}"), "3")
			contains(t, kubectl(t, s, "get", "-n", "web", "job", "once", "-o", "jsonpath={.status.succeeded}"), "1")
			contains(t, install(t, control, 1, "status"), "control-plane, "+version+", Ready", "web 1.2.3", "applied", "4/5", "Wrong:", "web: Deployment.apps web/front: the cluster has only")
		}},
		{"the chart was rendered with the API versions that the cluster serves", func(t *testing.T) {
			rendered := strings.Fields(kubectl(t, s, "get", "-n", "web", "configmap", "capabilities", "-o", "jsonpath={.data.versions}"))
			slices.Sort(rendered)
			if diff := cmp.Diff(servedVersions(t, s), rendered); diff != "" {
				t.Errorf("- served, + rendered:\n%s", diff)
			}
		}},
		{"a worker starts the workload", func(t *testing.T) {
			contains(t, install(t, worker, 0, join...), "] files ", "] units ", "/etc/motd existed before")
			onNode(t, worker)
			contains(t, run(t, worker, "sh", "-c", "stat -c %a /etc/site/worker.conf"), "600")
			eventually(t, 2*time.Minute, func() string {
				out, _ := control.Output(t.Context(), "/root/install", "status", "-o", "json") // it fails until the workload is ready
				status := struct {
					Node      struct{ Role string }
					Manifests []struct {
						Name, State string
						Objects     []struct{ Ready bool }
					}
				}{}
				if err := json.Unmarshal([]byte(out), &status); err != nil {
					t.Fatalf("%v:\n%s", err, out)
				}
				if status.Node.Role != "control-plane" || len(status.Manifests) != 2 {
					t.Fatalf("%+v", status)
				}
				for _, m := range status.Manifests {
					for _, o := range m.Objects {
						if m.State != "applied" || !o.Ready {
							return out
						}
					}
				}
				return ""
			})
			contains(t, install(t, worker, 0, "status"), "worker, "+version+", Ready", "this host is a worker")
		}},
		{"a second init and join change nothing", func(t *testing.T) {
			before, inventory := pid(control), kubectl(t, s, "get", "-n", "kube-system", "configmap", "airlift-manifests", "-o", "yaml")
			contains(t, install(t, control, 0, "init"), "kinds: 2 objects, nothing to change", "web (web 1.2.3): 5 objects, nothing to change", "Nothing was changed")
			contains(t, install(t, worker, 0, join...), "Nothing was changed")
			if after := pid(control); after != before {
				t.Errorf("exporter was restarted: %s, %s", before, after)
			}
			if after := kubectl(t, s, "get", "-n", "kube-system", "configmap", "airlift-manifests", "-o", "yaml"); after != inventory {
				t.Errorf("the inventory changed from\n%s\nto\n%s", inventory, after)
			}
		}},
		{"edits are kept in the cluster, and saved on the host", func(t *testing.T) {
			kubectl(t, s, "scale", "-n", "web", "deployment", "front", "--replicas=1")
			kubectl(t, s, "patch", "-n", "web", "configmap", "web-config", "--patch", `{"data": {"mode": "edited", "more": "yes"}}`)
			run(t, control, "sh", "-c", "echo edited >>/etc/site/exporter.conf")
			before := pid(control)
			out := install(t, control, 0, "init")
			contains(t, out, "Deployment.apps web/front: .spec.replicas was changed by \"kubectl\" and is kept: it is 1, and 2 in the manifest",
				"ConfigMap web/web-config: .data.mode was changed by \"kubectl-patch\" and is kept", "--force-conflicts", "/etc/site/exporter.conf was edited after Airlift wrote it")
			contains(t, kubectl(t, s, "get", "-n", "web", "configmap", "web-config", "-o", "jsonpath={.data}"), `"mode":"edited"`, `"more":"yes"`)
			contains(t, kubectl(t, s, "get", "-n", "web", "deployment", "front", "-o", "jsonpath={.spec.replicas}"), "1")
			contains(t, run(t, control, "cat", "/etc/site/exporter.conf.airlift-saved"), "edited")
			if after := pid(control); after == before {
				t.Error("exporter was not restarted although a file that its unit names was written")
			}
			onNode(t, control)
			contains(t, install(t, control, 0, "init", "phase", "manifests", "--force-conflicts"), "web (web 1.2.3): 5 objects, 2 created or changed")
			contains(t, kubectl(t, s, "get", "-n", "web", "configmap", "web-config", "-o", "jsonpath={.data}"), `"mode":"plain"`, `"more":"yes"`)
			contains(t, kubectl(t, s, "get", "-n", "web", "deployment", "front", "-o", "jsonpath={.spec.replicas}"), "2")
		}},
		{"a unit that fails is reported with its log", func(t *testing.T) {
			run(t, worker, "sh", "-c", "mv /usr/bin/sleep /usr/bin/sleep.before && systemctl stop exporter")
			contains(t, install(t, worker, 1, append(slices.Clone(join[:1]), append([]string{"phase", "units"}, join[1:]...)...)...), "starting exporter.service", "sleep")
			run(t, worker, "sh", "-c", "mv /usr/bin/sleep.before /usr/bin/sleep && systemctl reset-failed exporter")
			install(t, worker, 0, join...)
			onNode(t, worker)
		}},
		{"an additional bundle is refused before its images are on the node", func(t *testing.T) {
			contains(t, more(t, worker, 2, "init"), "and no Kubernetes", "hint: ")
			contains(t, more(t, control, 3, "apply"), later.image, "import")
		}},
		{"an additional bundle brings an image and a manifest", func(t *testing.T) {
			for _, h := range s.Hosts {
				contains(t, more(t, h, 0, "import"), later.image)
				contains(t, more(t, h, 0, "import"), "Nothing to do")
			}
			contains(t, more(t, control, 0, "apply"), "later: 1 object, 1 created or changed")
			eventually(t, time.Minute, func() string {
				ready := kubectl(t, s, "get", "-n", "web", "daemonset", "later", "-o", "jsonpath={.status.numberReady}")
				if ready != "2" {
					return ready + " pods are ready"
				}
				return ""
			})
			for pod := range strings.FieldsSeq(kubectl(t, s, "get", "-n", "web", "pods", "-l", "app=later", "-o", "jsonpath={.items[*].metadata.name}")) {
				contains(t, kubectl(t, s, "exec", "-n", "web", pod, "--", "cat", "/later.txt"), "only the additional bundle")
			}
			contains(t, install(t, control, 0, "status"), "later", "web 1.2.3")
			contains(t, install(t, control, 0, "init"), "Nothing was changed")
		}},
		{"images are listed, unpinned and pruned", func(t *testing.T) {
			list := more(t, worker, 0, "images", "list")
			contains(t, list, later.image)
			contains(t, more(t, worker, 0, "images", "unpin", later.image), later.image)
			contains(t, install(t, worker, 3, "images", "prune", "--dry-run"), "--kubeconfig FILE", "--bundle FILE")
			const admin = "/root/prune-admin.conf"
			run(t, worker, "sh", "-c", "umask 077; echo "+strings.TrimSpace(run(t, control, "base64", "-w0", "/etc/kubernetes/admin.conf"))+" | base64 -d > "+admin)
			contains(t, install(t, worker, 0, "images", "prune", "--dry-run", "--kubeconfig", admin), "Nothing to remove.")
			kubectl(t, s, "delete", "-n", "web", "daemonset", "later", "--wait", "--cascade=foreground")
			eventually(t, time.Minute, func() string { // the kubelet removes the container later
				if out := install(t, worker, 0, "images", "prune", "--dry-run", "--kubeconfig", admin); !strings.Contains(out, later.image) {
					return out
				}
				return ""
			})
			contains(t, install(t, worker, 0, "images", "prune", "--yes", "--kubeconfig", admin), "removed "+later.image)
			if out := install(t, worker, 0, "images", "list"); strings.Contains(out, later.image) {
				t.Errorf("it was not removed:\n%s", out)
			}
			contains(t, install(t, worker, 0, "images", "list"), "agnhost", "pause")
			run(t, worker, "rm", admin)
		}},
		{"reset leaves what was there before", func(t *testing.T) {
			for _, h := range []*lab.Host{worker, control} {
				contains(t, install(t, h, 0, "reset", "--dry-run"), "/etc/motd: the original file is restored", "systemd unit exporter.service")
				install(t, h, 0, "reset", "--force")
				contains(t, run(t, h, "cat", motd), "the host own text")
			}
			contains(t, run(t, control, "cat", "/etc/site/exporter.conf.airlift-saved"), "edited")
			run(t, control, "sh", "-c", "rm /etc/site/exporter.conf.airlift-saved; rmdir /etc/site")
			for _, h := range s.Hosts {
				same(t, before[h], untouched(t, h))
			}
		}},
	}
	for _, step := range steps {
		if !t.Run(step.name, step.test) {
			diagnose(t, s)
			t.FailNow()
		}
	}
}
