//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/crane"
	ref "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// TestOwnContainerd installs on a host with a running Debian containerd: Airlift uses it,
// and reset leaves it unchanged.
func TestOwnContainerd(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-containerd", Hosts: 1, ExtraPackages: []string{"containerd"}})
	h := s.Hosts[0]
	if _, err := h.Output(t.Context(), "systemctl", "is-active", "containerd"); err != nil {
		t.Fatal(err)
	}
	// Its default configuration cannot start a pod on a host without CAP_SYS_RESOURCE.
	// Preflight finds this, and the hint has the fix.
	contains(t, install(t, h, 3, "init"), "restrict_oom_score_adj", "hint: ")
	run(t, h, "sh", "-c", `mkdir -p /etc/containerd && cat >/etc/containerd/config.toml <<'END'
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/opt/cni/bin"
END
systemctl restart containerd`)
	config := run(t, h, "cat", "/etc/containerd/config.toml")
	// The flags for registries would have no effect on it.
	contains(t, install(t, h, 3, "init", "--registry-mirror", "docker.io=https://mirror.example"), "containerd 1.6", "--registry-mirror", "hint: ")
	// Existing images: one with the name of this containerd's sandbox image, which init
	// changes to the bundle's pause image, and an unrelated one.
	importTiny(t, h, "registry.k8s.io/pause:3.6", "docker.io/library/unrelated:1")
	before := containerdHas(t, h)
	// After a run that is killed during the import, the next run must not treat its images
	// as existing ones.
	run(t, h, "sh", "-c", site.Installer+" init >/dev/null 2>&1 & sleep 4; kill -9 $! 2>/dev/null; wait; true")
	contains(t, install(t, h, 0, "init"), "this host's existing containerd 1.6")
	if containerdHas(t, h) == before {
		t.Error("init has imported nothing")
	}
	systemIsUp(t, s, 1)
	if got := run(t, h, "cat", "/etc/containerd/config.toml"); got != config {
		t.Errorf("containerd's settings became:\n%s", got)
	}
	if _, err := s.Deploy(t.Context(), version); err != nil {
		t.Error(err)
	}

	// Without Airlift's ledger, the pods are not managed by Airlift.
	run(t, h, "mv", "/var/lib/airlift", "/root/aside")
	contains(t, install(t, h, 3, "preflight", "init"), "[ERROR CRIPods]", "kube-system/etcd-")
	run(t, h, "mv", "/root/aside", "/var/lib/airlift")

	install(t, h, 0, "reset", "--force")
	run(t, h, "systemctl", "is-active", "containerd")
	if out := run(t, h, "ctr", "-n", "k8s.io", "containers", "ls", "-q"); out != "" {
		t.Errorf("containers left: %s", out)
	}
	same(t, before, containerdHas(t, h))
}

// importTiny imports an image of one file for each name, and waits until the CRI lists them
// and the remains of ctr are collected.
func importTiny(t *testing.T, h *lab.Host, names ...string) {
	t.Helper()
	for i, name := range names {
		img, err := crane.Image(map[string][]byte{"name": []byte(name)})
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		config.OS, config.Architecture = "linux", runtime.GOARCH
		if img, err = mutate.ConfigFile(img, config); err != nil {
			t.Fatal(err)
		}
		tag, err := ref.NewTag(name)
		if err != nil {
			t.Fatal(err)
		}
		local := filepath.Join(t.TempDir(), "image.tar")
		if err := tarball.WriteToFile(local, tag, img); err != nil {
			t.Fatal(err)
		}
		remote := fmt.Sprintf("/root/image-%d.tar", i)
		if _, err := h.CopyIn(t.Context(), local, remote, 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, h, "ctr", "-n", "k8s.io", "images", "import", remote)
	}
	eventually(t, time.Minute, func() string {
		if ids := strings.Count(run(t, h, "ctr", "-n", "k8s.io", "images", "ls", "-q"), "sha256:"); ids < len(names) {
			return fmt.Sprintf("the CRI has given %d of %d images its names", ids, len(names))
		}
		return ""
	})
	run(t, h, "ctr", "-n", "k8s.io", "content", "prune", "references")
}

// containerdHas lists the images, blobs, snapshots and leases of the CRI's
// namespace.
func containerdHas(t *testing.T, h *lab.Host) string {
	t.Helper()
	return run(t, h, "sh", "-c", `
		ctr -n k8s.io images ls | awk '{print $1, $2, $3, $NF}'
		ctr -n k8s.io content ls -q
		ctr -n k8s.io snapshots ls | awk '{print $1, $2, $3}'
		ctr -n k8s.io leases ls`)
}

// TestSeveralAddresses: with two networks and no default route, the address is ambiguous, so init
// requires it as a flag.
func TestSeveralAddresses(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-addresses", Hosts: 1, Interfaces: 2})
	h := s.Hosts[0]
	bare := untouched(t, h)
	second := h.Addrs[1].Addr().String()
	contains(t, install(t, h, 2, "init"), "eth0 "+h.Addr.String(), "eth1 "+second, "--apiserver-advertise-address")
	same(t, bare, untouched(t, h))
}

// TestFlags sets every flag that changes the cluster to a value other than its default, on
// a host with two networks and a noexec /tmp.
func TestFlags(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-flags", Hosts: 2, Interfaces: 2, NoexecTmp: true})
	control, worker := s.Hosts[0], s.Hosts[1]
	second := control.Addrs[1].Addr().String()
	const token = "airlif.0123456789abcdef"
	out := install(t, control, 0, "init",
		"--apiserver-advertise-address", second, "--apiserver-bind-port", "7443",
		"--control-plane-endpoint", second+":7443", "--apiserver-cert-extra-sans", "k8s.site.example,192.0.2.7",
		"--pod-network-cidr", "10.60.0.0/16", "--service-cidr", "10.50.0.0/16", "--service-dns-domain", "site.example",
		"--node-name", "first", "--token", token, "--token-ttl", "1h", "--upload-certs", "-v", "1")
	join, err := site.JoinArgs(out)
	if err != nil {
		t.Fatal(err)
	}
	if join[1] != second+":7443" || join[3] != token {
		t.Errorf("join command %q", join)
	}
	install(t, worker, 0, append(join, "--node-name", "second")...)
	systemIsUp(t, s, 2)

	nodes := kubectl(t, s, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.addresses[?(@.type=="InternalIP")].address} {.spec.podCIDR}{"\n"}{end}`)
	contains(t, nodes, "first "+second+" 10.60.", "second "+worker.Addrs[1].Addr().String()+" 10.60.")
	contains(t, kubectl(t, s, "get", "service", "-A"), "10.50.0.1 ", "10.50.0.10 ")
	contains(t, kubectl(t, s, "-n", "kube-system", "get", "configmap", "kubeadm-config", "-o", "yaml"),
		"dnsDomain: site.example", "controlPlaneEndpoint: "+second+":7443", "podSubnet: 10.60.0.0/16", "serviceSubnet: 10.50.0.0/16")
	contains(t, run(t, control, "cat", "/etc/kubernetes/admin.conf"), "https://"+second+":7443")
	contains(t, run(t, worker, "sh", "-c", "cat /etc/kubernetes/kubelet.conf"), "https://"+second+":7443")
	if secret := kubectl(t, s, "-n", "kube-system", "get", "secret", "kubeadm-certs", "-o", "jsonpath={.data.ca\\.key}"); secret == "" {
		t.Error("--upload-certs stored no CA key")
	}
	tokens := install(t, control, 0, "token", "list")
	contains(t, tokens, token)
	for line := range strings.Lines(tokens) {
		if strings.HasPrefix(line, token) && !strings.Contains(line, "59m") && !strings.Contains(line, "58m") && !strings.Contains(line, "1h0m") {
			t.Errorf("the token does not live an hour: %s", line)
		}
	}
	s.Domain = "site.example"
	pods, err := s.Deploy(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	if len(pods) != 2 || !strings.HasPrefix(pods[0].IP, "10.60.") {
		t.Errorf("pods %v", pods)
	}
}

// TestInterrupted interrupts and kills init, and completes it with a second run.
func TestInterrupted(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-interrupted", Hosts: 1})
	h := s.Hosts[0]
	bare := untouched(t, h)

	t.Run("Ctrl-C", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		out, err := site.Install(ctx, h, io.Discard, "init", "--timeline", timelineFile)
		if err == nil {
			t.Fatal("init was done before it could be interrupted")
		}
		contains(t, out, "interrupted", "hint: ", timelineFile)
		if tr, text := takeTimeline(t, h); tr.OtherData["outcome"] != "interrupted" || len(tr.rows()["steps"]) == 0 {
			t.Errorf("the timeline of an interrupted run:\n%s", text)
		}
	})
	t.Run("lost session", func(t *testing.T) {
		out, err := h.Output(t.Context(), "sh", "-c", "env --default-signal=HUP "+site.Installer+" init >/root/init.log 2>&1 & sleep 2; kill -HUP $!; wait $!")
		if code := exitCode(err); code != 130 {
			t.Errorf("exit code %d: %v\n%s", code, err, out)
		}
		contains(t, run(t, h, "cat", "/root/init.log"), "interrupted by SIGHUP", "hint: ")
	})
	t.Run("output that nobody reads", func(t *testing.T) {
		out := run(t, h, "bash", "-c", site.Installer+" init 2>/root/init.log | head -n 1; echo ${PIPESTATUS[0]}")
		contains(t, out, "preflight", "130")
		contains(t, run(t, h, "cat", "/root/init.log"), "interrupted: /dev/stdout was closed", "hint: ")
	})
	t.Run("kill -9", func(t *testing.T) {
		for _, after := range []string{"0.5", "2", "4", "7"} {
			run(t, h, "sh", "-c", site.Installer+" init >/dev/null 2>&1 & sleep "+after+"; kill -9 $! 2>/dev/null; wait; true")
		}
	})
	t.Run("power cut", func(t *testing.T) {
		if err := h.PowerCut(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := h.Boot(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("init finishes", func(t *testing.T) {
		install(t, h, 0, "init")
		systemIsUp(t, s, 1)
	})
	t.Run("reset", func(t *testing.T) {
		install(t, h, 0, "reset", "--force")
		same(t, bare, untouched(t, h))
	})
}

// TestDryRun changes nothing and prints everything.
func TestDryRun(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-dryrun", Hosts: 1})
	h := s.Hosts[0]
	bare := untouched(t, h)
	contains(t, install(t, h, 0, "init", "--dry-run", "--timeline", timelineFile), "Nothing was changed")
	if tr, text := takeTimeline(t, h); tr.OtherData["outcome"] != "done" || len(tr.rows()["steps"]) == 0 {
		t.Errorf("the timeline of a dry run:\n%s", text)
	}
	same(t, bare, untouched(t, h))
	contains(t, run(t, h, "sh", "-c", "cd /tmp/airlift-init-dry-run-*; find . -type f"),
		"./etc/kubernetes/manifests/kube-apiserver.yaml", "./etc/kubernetes/pki/ca.crt", "./var/lib/kubelet/config.yaml", "./cluster/upload-config-kubeadm.yaml", "./cluster/addon-coredns.yaml")
	run(t, h, "env", "KUBEADM_INIT_DRYRUN_DIR=/root/dry", "/root/install", "init", "phase", "certs", "ca", "--dry-run")
	contains(t, run(t, h, "find", "/root/dry", "-name", "ca.key"), "/etc/kubernetes/pki/ca.key")
	same(t, bare, untouched(t, h))

	shown := map[string]string{}
	for name, sum := range checksums(t, h, "/tmp/airlift-init-dry-run-*/etc /tmp/airlift-init-dry-run-*/var") {
		if name = "/" + strings.SplitN(name, "/", 4)[3]; !strings.HasPrefix(name, "/var/lib/kubelet/pki/") { // has a time in its name
			shown[name] = sum
		}
	}
	before := checksums(t, h, configured)
	install(t, h, 0, "init")
	after := checksums(t, h, configured)
	if is := slices.Sorted(maps.Keys(shown)); !slices.Equal(is, written(before, after, nil)) {
		t.Errorf("the dry run shows\n%s\ninit wrote\n%s", strings.Join(is, "\n"), strings.Join(written(before, after, nil), "\n"))
	}
	for name, sum := range shown {
		if !strings.HasPrefix(name, "/etc/kubernetes/pki/") && !strings.HasSuffix(name, ".conf") && after[name] != sum { // keys are random
			t.Errorf("%s: init wrote another content than the dry run", name)
		}
	}
}

// TestSkipPhases skips the phases that a user of a bundle without a pod network skips, and
// phases that cannot be skipped.
func TestSkipPhases(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-skip", Hosts: 1})
	h := s.Hosts[0]
	bare := untouched(t, h)
	contains(t, install(t, h, 2, "init", "--skip-phases", "nonsense"), `"nonsense"`, "addon/kube-proxy")
	contains(t, install(t, h, 2, "init", "--skip-phases", "runtime"), `"runtime"`)
	contains(t, install(t, h, 2, "init", "--cni", "calico"), `"calico"`, "hint: ")
	same(t, bare, untouched(t, h))
	out := install(t, h, 0, "init", "--cni", "none", "--skip-phases", "preflight,addon/kube-proxy,bootstrap-token")
	contains(t, out, "Install a pod network next")
	if strings.Contains(out, "./install join") {
		t.Errorf("a join command without a token:\n%s", out)
	}
	objects := kubectl(t, s, "get", "-A", "-o", "name", "daemonsets,deployments,secrets")
	if strings.Contains(objects, "kube-proxy") || strings.Contains(objects, "flannel") || strings.Contains(objects, "bootstrap-token") {
		t.Errorf("skipped and made all the same:\n%s", objects)
	}
	contains(t, objects, "deployment.apps/coredns")
}
