//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"airlift/bundle"
	"airlift/scripts/fixtures/siteregistry"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// TestEmbeddedRegistry makes a cluster of which only the first host gets the whole file. The others join with a thin one, and
// containerd pulls what is missing from the control planes.
func TestEmbeddedRegistry(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-embedded", Hosts: 5, Virtual: []netip.Addr{netip.MustParseAddr(virtual)}})
	first, planes, workers := s.Hosts[0], s.Hosts[:3], s.Hosts[3:]
	thin := thinFile(t, *bundlePath)
	whole, small := fileSize(t, *bundlePath), fileSize(t, thin)
	t.Logf("the file has %d bytes, the thin one %d", whole, small)
	if small > 20<<20 {
		t.Errorf("the thin file has %d bytes", small)
	}
	before := map[*lab.Host]string{}
	for _, h := range s.Hosts[1:] {
		before[h] = untouched(t, h)
		run(t, h, "rm", site.Installer)
		if _, err := h.CopyIn(t.Context(), thin, site.Installer, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	create := []string{"init", "--upload-certs", "--embedded-registry", "--control-plane-vip", virtual, "--control-plane-balancer"}
	out := install(t, first, 0, create...)
	join, err := site.JoinArgs(out)
	if err != nil {
		t.Fatal(err)
	}
	joinControlPlane := append(slices.Clone(join), "--control-plane", "--certificate-key", certificateKey(t, out))
	for i, h := range s.Hosts[1:] {
		args := join
		if i < 2 {
			args = joinControlPlane
		}
		was := received(t, h)
		install(t, h, 0, args...)
		n := received(t, h) - was
		t.Logf("%s received %d bytes, %.2f of the file", h.Name, n, float64(n)/float64(whole))
		if float64(n) > 1.15*float64(whole) {
			t.Errorf("%s received %d bytes", h.Name, n)
		}
	}
	systemIsUp(t, s, len(s.Hosts))
	for _, h := range planes {
		contains(t, install(t, h, 0, "registry", "status"), planes[0].Addr.String(), planes[1].Addr.String(), planes[2].Addr.String())
	}

	image, err := site.WorkloadImage(version)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("pull", func(t *testing.T) { pullsEverywhere(t, s, image) })
	t.Run("without one of them", func(t *testing.T) {
		run(t, planes[1], "systemctl", "stop", "airlift-registry")
		pullsEverywhere(t, s, image)
		run(t, planes[1], "systemctl", "start", "airlift-registry")
	})
	t.Run("who may read", func(t *testing.T) { strangersAreRefused(t, workers[0], first) })
	t.Run("second run", func(t *testing.T) {
		for i, args := range [][]string{create, joinControlPlane, joinControlPlane, join, join} {
			const files = "find /etc /usr/local /opt /var/lib/airlift -type f ! -name runs.json | sort | xargs sha256sum"
			listing := run(t, s.Hosts[i], "sh", "-c", files)
			install(t, s.Hosts[i], 0, args...)
			same(t, listing, run(t, s.Hosts[i], "sh", "-c", files))
		}
	})
	t.Run("reset", func(t *testing.T) {
		for _, h := range slices.Backward(s.Hosts[1:]) {
			install(t, h, 0, "reset", "--force")
			same(t, before[h], untouched(t, h))
		}
	})
	if counts, err := s.Escapes(t.Context()); err != nil || counts.Escaped != 0 {
		t.Errorf("%d packets tried to leave: %v (%v)", counts.Escaped, counts.Offenders, err)
	}
}

// TestEmbeddedRegistryLater gives a running cluster the embedded registry, brings it images with one command, upgrades it from
// one whole file, and takes the registry away again.
func TestEmbeddedRegistryLater(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-embeddedlater", Hosts: 2})
	plane, worker := s.Hosts[0], s.Hosts[1]
	image, err := site.WorkloadImage(version)
	if err != nil {
		t.Fatal(err)
	}
	later := buildAdditional(t, siteregistry.Start(t, siteregistry.Options{Auth: "token"}), imageInBundle(t, image), aLayer, *bundlePath)
	if _, err := plane.CopyIn(t.Context(), later.path, "/root/more", 0o755); err != nil {
		t.Fatal(err)
	}
	join, err := site.JoinArgs(install(t, plane, 0, "init"))
	if err != nil {
		t.Fatal(err)
	}
	install(t, worker, 0, join...)
	kubectl(t, s, "create", "namespace", "web")
	for _, h := range s.Hosts {
		install(t, h, 0, "registry", "enable")
		contains(t, install(t, h, 0, "registry", "status"), plane.Addr.String()+":7444")
	}

	// The worker has no copy of the additional file.
	images := func() string { return run(t, worker, "ctr", "-n", "k8s.io", "images", "ls", "-q") }
	more(t, plane, 0, "import")
	if list := images(); strings.Contains(list, later.image) {
		t.Errorf("images of the worker:\n%s", list)
	}
	// Its containerd asks for images of a registry that is new to it after the next run of the timer.
	eventually(t, 2*time.Minute, func() string {
		if out := install(t, worker, 0, "images", "list"); !strings.Contains(out, "SERVED, AND NOT ON THIS NODE") || !strings.Contains(out, later.image) {
			return out
		}
		return ""
	})
	more(t, plane, 0, "apply")
	kubectl(t, s, "-n", "web", "rollout", "status", "daemonset/later", "--timeout=2m")
	run(t, worker, "sh", "-c", "ctr -n k8s.io images ls -q | grep later | xargs ctr -n k8s.io images rm --sync")
	more(t, plane, 0, "import", "--all-nodes")
	contains(t, images(), later.image)
	contains(t, run(t, worker, "ctr", "-n", "k8s.io", "images", "ls", "name=="+later.image), "io.cri-containerd.pinned=pinned")

	// Only the control plane gets the whole file of the newer version.
	to := carryNewer(t, plane)
	thin := thinFile(t, *newerPath)
	if _, err := worker.CopyIn(t.Context(), thin, newerFile, 0o755); err != nil {
		t.Fatal(err)
	}
	newer(t, plane, 0, "upgrade", "apply", "--yes")
	newer(t, worker, 0, "upgrade", "node")
	systemIsUp(t, s, 2)
	// The file of the former version stays: it has layers that the additional file leaves out.
	contains(t, newer(t, plane, 0, "registry", "status"), to, version+"      all")
	run(t, worker, "sh", "-c", "ctr -n k8s.io images ls -q | grep -e later -e agnhost | xargs ctr -n k8s.io images rm --sync")
	kubectl(t, s, "-n", "web", "delete", "pod", "--all", "--now")
	kubectl(t, s, "-n", "web", "rollout", "status", "daemonset/later", "--timeout=2m")

	additional := idOf(t, later.path)
	contains(t, newer(t, plane, 3, "registry", "remove", idOf(t, *bundlePath), "--yes"), "it was the base")
	newer(t, plane, 0, "registry", "remove", additional, "--yes")
	if out := newer(t, plane, 0, "registry", "status"); strings.Contains(out, additional[:12]) {
		t.Errorf("the additional file is still kept:\n%s", out)
	}

	newer(t, plane, 0, "registry", "disable")
	for _, h := range s.Hosts {
		const left = "ls -d /etc/containerd/certs.d/* /etc/systemd/system/airlift-registry* /etc/kubernetes/registry.yaml /var/lib/airlift/bundles 2>/dev/null; true"
		eventually(t, 3*time.Minute, func() string { return run(t, h, "sh", "-c", left) })
	}
}

// idOf returns the ID of a bundle.
func idOf(t *testing.T, path string) string {
	t.Helper()
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.ID()
}

// TestEmbeddedRegistryJoins lets eight workers join at once: with a thin file each, and then, after a reset, with the whole file
// each. It logs how long each took, and what the hosts received.
func TestEmbeddedRegistryJoins(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-embeddedjoins", Hosts: 9})
	plane, workers := s.Hosts[0], s.Hosts[1:]
	thin := thinFile(t, *bundlePath)
	join, err := site.JoinArgs(install(t, plane, 0, "init", "--embedded-registry"))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range workers {
		if _, err := h.CopyIn(t.Context(), thin, "/root/thin", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"/root/thin", site.Installer} {
		var sum int64
		for _, h := range workers {
			sum -= received(t, h)
		}
		began := time.Now()
		var all sync.WaitGroup
		for _, h := range workers {
			all.Go(func() {
				if _, err := h.Output(t.Context(), append([]string{file}, join...)...); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		joined := time.Since(began)
		systemIsUp(t, s, len(s.Hosts))
		ready := time.Since(began)
		for _, h := range workers {
			sum += received(t, h)
		}
		t.Logf("eight joins with %s took %.1f s, all pods were Ready after %.1f s; the hosts received %d bytes", file, joined.Seconds(), ready.Seconds(), sum)
		t.Logf("the service: %s", run(t, plane, "sh", "-c", serviceMemory))
		for _, h := range workers {
			install(t, h, 0, "reset", "--force")
			kubectl(t, s, "delete", "node", h.Name)
		}
	}
}

// bigLayer is the size of the layer in TestEmbeddedRegistryBig, in bytes. Ten hosts of one machine need 20 times as much
// space.
const bigLayer = 300 << 20

// TestEmbeddedRegistryBig starts 30 pods of a big image that only the control plane has, on ten nodes at once.
func TestEmbeddedRegistryBig(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-embeddedbig", Hosts: 10})
	plane := s.Hosts[0]
	image, err := site.WorkloadImage(version)
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, bigLayer)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	later := buildAdditional(t, siteregistry.Start(t, siteregistry.Options{}), imageInBundle(t, image), string(content), *bundlePath)
	if _, err := plane.CopyIn(t.Context(), later.path, "/root/more", 0o755); err != nil {
		t.Fatal(err)
	}
	join, err := site.JoinArgs(install(t, plane, 0, "init", "--embedded-registry"))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range s.Hosts[1:] {
		install(t, h, 0, join...)
	}
	systemIsUp(t, s, len(s.Hosts))
	more(t, plane, 0, "import")
	run(t, plane, "sh", "-c", "ctr -n k8s.io images ls -q | grep later | xargs ctr -n k8s.io images rm --sync")
	began := time.Now()
	if err := s.Apply(t.Context(), fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: big}
spec:
  replicas: 30
  selector: {matchLabels: {app: big}}
  template:
    metadata: {labels: {app: big}}
    spec:
      terminationGracePeriodSeconds: 0
      tolerations: [{operator: Exists}]
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: big}}}]
      containers: [{name: big, image: %q, imagePullPolicy: Always, args: [pause]}]
`, later.image)); err != nil {
		t.Fatal(err)
	}
	kubectl(t, s, "rollout", "status", "deployment/big", "--timeout=15m")
	t.Logf("30 pods of an image with a layer of %d MiB on ten nodes were Ready after %s", bigLayer>>20, time.Since(began).Round(time.Second))
	t.Logf("the service: %s", run(t, plane, "sh", "-c", serviceMemory))
}

// serviceMemory prints the memory of the embedded registry's service.
const serviceMemory = "systemctl show airlift-registry -p MemoryPeak -p MemoryCurrent; grep -e VmRSS -e VmHWM /proc/$(systemctl show airlift-registry -p MainPID --value)/status"

// pullsEverywhere removes an image from each node, and then runs it there by tag and by digest with the pull policy Always.
func pullsEverywhere(t *testing.T, s *site.Site, image string) {
	t.Helper()
	digest := strings.TrimSpace(run(t, s.Hosts[0], "sh", "-c", "ctr -n k8s.io images ls name=="+image+" | tail -n 1 | grep -o 'sha256:[0-9a-f]*' | head -n 1"))
	repository, _, _ := strings.Cut(image, ":")
	for _, h := range s.Hosts {
		run(t, h, "sh", "-c", "ctr -n k8s.io images ls -q | grep agnhost | xargs -r ctr -n k8s.io images rm --sync")
		started := time.Now()
		for i, ref := range []string{image, repository + "@" + digest} {
			name := fmt.Sprintf("pull-%s-%d", h.Name, i)
			if err := s.Apply(t.Context(), fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 0
  containers: [{name: client, image: %q, imagePullPolicy: Always, args: [pause]}]
`, name, h.Name, ref)); err != nil {
				t.Fatal(err)
			}
			if out, err := s.Kubectl(t.Context(), "wait", "--for=condition=Ready", "--timeout=2m", "pod/"+name); err != nil {
				events, _ := s.Kubectl(t.Context(), "describe", "pod", name)
				t.Fatalf("%v\n%s\n%s", err, out, events)
			}
			kubectl(t, s, "delete", "pod", name, "--now")
		}
		t.Logf("%s pulled by tag and by digest in %s", h.Name, time.Since(started).Round(10*time.Millisecond))
	}
}

// strangersAreRefused requests what a control plane serves, from a worker, without and with the wrong credentials.
func strangersAreRefused(t *testing.T, from, server *lab.Host) {
	t.Helper()
	url := "https://" + server.Addr.String() + ":7444"
	status := func(args ...string) string {
		return strings.TrimSpace(run(t, from, append([]string{"curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "--path-as-is", "--cacert", "/etc/kubernetes/pki/ca.crt"}, args...)...))
	}
	node := []string{"--cert", "/var/lib/kubelet/pki/kubelet-client-current.pem"}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"200", []string{url + "/readyz"}},
		{"401", []string{url + "/bundles"}},
		{"403", []string{url + "/v2/"}},
		{"401", []string{"-H", "Authorization: Bearer abcdef.0123456789abcdef", url + "/bundles"}},
		{"403", []string{"-H", "Authorization: Bearer abcdef.0123456789abcdef", url + "/v2/"}},
		{"200", append(slices.Clone(node), url+"/bundles")},
		{"200", append(slices.Clone(node), url+"/v2/")},
		{"405", append(slices.Clone(node), "-X", "PUT", url+"/v2/registry.k8s.io/pause/manifests/1")},
		{"404", append(slices.Clone(node), url+"/bundles/../../../../etc/shadow")},
	} {
		if got := status(c.args...); got != c.want {
			t.Errorf("%q: status %s, want %s", c.args, got, c.want)
		}
	}
}

// thinFile writes the thin file of a bundle.
func thinFile(t *testing.T, bundle string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "thin")
	if out, err := exec.CommandContext(t.Context(), bundle, "thin", path).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// received is how many bytes have arrived at a host's first interface.
func received(t *testing.T, h *lab.Host) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(run(t, h, "sh", "-c", "sed -n 's/^ *eth0: *//p' /proc/net/dev | cut -d ' ' -f 1")), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	i, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return i.Size()
}
