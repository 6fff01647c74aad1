//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	randomimage "github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
	"airlift/scripts/oracle/upstream/components"
)

// TestResetLeavesOthersData uses three hosts: a control plane that also runs its external
// etcd, a worker on which the site runs an etcd and a CNI network, and a host with only an
// etcd. The site's data survives init, join and two resets.
func TestResetLeavesOthersData(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-others", Hosts: 3})
	control, worker, bare := s.Hosts[0], s.Hosts[1], s.Hosts[2]
	for _, h := range s.Hosts {
		ownEtcd(t, h)
	}
	guest := connectGuest(t, worker, bare)
	before := map[*lab.Host]string{}
	for _, h := range s.Hosts {
		before[h] = withoutEtcd(untouched(t, h))
	}
	back := func(t *testing.T, h *lab.Host) {
		t.Helper()
		same(t, before[h], withoutEtcd(untouched(t, h)))
		etcdKept(t, h)
	}
	steps := []struct {
		name string
		test func(t *testing.T)
	}{
		{"a bare host with an etcd", func(t *testing.T) {
			for range 2 {
				contains(t, install(t, bare, 0, "reset", "--force"), "Airlift installed nothing on this host")
				back(t, bare)
			}
		}},
		{"init with the etcd of this host as an external one", func(t *testing.T) {
			// A stacked etcd would use the existing data.
			contains(t, install(t, control, 3, "init", "--ignore-preflight-errors", "Port-2379,Port-2380"), "DirAvailable--var-lib-etcd", "/var/lib/etcd is not empty")
			back(t, control)
			run(t, control, "sh", "-c", `cat >/root/kubeadm.yaml <<'END'
apiVersion: kubeadm.k8s.io/v1beta3
kind: ClusterConfiguration
etcd: {external: {endpoints: ["http://127.0.0.1:2379"], caFile: "", certFile: "", keyFile: ""}}
END`)
			join, err := site.JoinArgs(install(t, control, 0, "init", "--config", "/root/kubeadm.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			install(t, worker, 0, join...)
			contains(t, run(t, control, "etcdctl", "get", "--prefix", "/registry/namespaces/", "--keys-only"), "/registry/namespaces/kube-system")
		}},
		{"a pod of the worker has a port, beside the other network's", func(t *testing.T) {
			image, err := site.WorkloadImage(version)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Apply(t.Context(), fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: ported}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 0
  containers:
  - {name: web, image: %q, imagePullPolicy: Never, args: [netexec, --http-port=8080], ports: [{containerPort: 8080, hostPort: 8089}]}
`, worker.Name, image)); err != nil {
				t.Fatal(err)
			}
			eventually(t, time.Minute, func() string {
				out, err := bare.Output(t.Context(), "curl", "--silent", "--max-time", "5", "http://"+worker.Addr.String()+":8089/hostname")
				if err != nil || out != "ported" {
					return fmt.Sprintf("%q %v", out, err)
				}
				return ""
			})
			guest.answers(t)
		}},
		{"reset of the worker", func(t *testing.T) {
			dry := install(t, worker, 0, "reset", "--dry-run")
			contains(t, dry, "Nothing was changed", "network interface cni0", "CNI network cbr0", "/var/lib/kubelet", "/usr/local/bin/kubelet")
			if strings.Contains(dry, "/var/lib/etcd") {
				t.Errorf("it would remove the site's etcd:\n%s", dry)
			}
			out := install(t, worker, 0, "reset", "--force")
			contains(t, out, "left: /var/log/pods")
			if strings.Contains(out, "Nothing is left") {
				t.Errorf("it claims too much:\n%s", out)
			}
			back(t, worker)
			guest.answers(t)
			contains(t, install(t, worker, 0, "reset", "--force"), "Airlift installed nothing")
			back(t, worker)
			guest.answers(t)
		}},
		{"reset of the control plane", func(t *testing.T) {
			for range 2 {
				install(t, control, 0, "reset", "--force")
				back(t, control)
				contains(t, run(t, control, "etcdctl", "get", "--prefix", "/registry/namespaces/", "--keys-only"), "/registry/namespaces/kube-system")
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

// ownEtcd runs an etcd of the site on a host, in the directory of kubeadm's etcd.
func ownEtcd(t *testing.T, h *lab.Host) {
	t.Helper()
	for _, name := range []string{"etcd", "etcdctl"} {
		path, err := components.Path(version, name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.CopyIn(t.Context(), path, "/usr/bin/"+name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run(t, h, "sh", "-c", `cat >/etc/systemd/system/site-etcd.service <<'END'
[Service]
Type=notify
ExecStart=/usr/bin/etcd --data-dir /var/lib/etcd
END
systemctl daemon-reload; systemctl start site-etcd`)
	run(t, h, "etcdctl", "put", "site", "precious")
}

// etcdKept restarts a host's etcd, so that it reads the data from the disk.
func etcdKept(t *testing.T, h *lab.Host) {
	t.Helper()
	run(t, h, "systemctl", "restart", "site-etcd")
	contains(t, run(t, h, "etcdctl", "get", "site"), "precious")
}

var etcdFiles = regexp.MustCompile(`(?m)^/var/lib/etcd/.*\n`)

func withoutEtcd(listing string) string { return etcdFiles.ReplaceAllString(listing, "") }

// A guest is a container of another CNI network, reachable through a port of its host.
type guest struct{ host, from *lab.Host }

// connectGuest runs the real CNI plugins as a CNI runtime does, for a network with another
// name: bridge with masquerading, then portmap.
func connectGuest(t *testing.T, h, from *lab.Host) guest {
	t.Helper()
	for _, plugin := range []string{"bridge", "host-local", "portmap"} {
		path, err := components.Path(version, plugin)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.CopyIn(t.Context(), path, "/srv/cni/"+plugin, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run(t, h, "sh", "-c", "ip netns add cni-site && sysctl -qw net.ipv4.ip_forward=1")
	var result any
	for _, plugin := range []map[string]any{
		{"type": "bridge", "bridge": "site0", "isDefaultGateway": true, "ipMasq": true,
			"ipam": map[string]any{"type": "host-local", "ranges": [][]any{{map[string]any{"subnet": "10.90.0.0/24"}}}}},
		{"type": "portmap", "runtimeConfig": map[string]any{"portMappings": []any{map[string]any{"hostPort": 8088, "containerPort": 80, "protocol": "tcp"}}}},
	} {
		plugin["cniVersion"], plugin["name"], plugin["prevResult"] = "1.0.0", "site", result
		if result == nil {
			delete(plugin, "prevResult")
		}
		config, err := json.Marshal(plugin)
		if err != nil {
			t.Fatal(err)
		}
		out := run(t, h, "sh", "-c", "echo '"+string(config)+"' | CNI_COMMAND=ADD CNI_CONTAINERID=web CNI_NETNS=/run/netns/cni-site CNI_IFNAME=eth0 CNI_PATH=/srv/cni /srv/cni/"+plugin["type"].(string))
		if err := json.Unmarshal([]byte(out), &result); err != nil {
			t.Fatal(err)
		}
	}
	// In the format of libcni.
	run(t, h, "sh", "-c", `mkdir -p -m 0700 /var/lib/cni/results
		echo '{"kind":"cniCacheV1","containerId":"web","networkName":"site","ifName":"eth0","netns":"/run/netns/cni-site"}' >/var/lib/cni/results/site-web-eth0
		systemd-run --quiet --unit site-web ip netns exec cni-site socat TCP-LISTEN:80,fork,reuseaddr EXEC:'echo from the site'`)
	g := guest{h, from}
	g.answers(t)
	contains(t, run(t, h, "cat", "/var/lib/cni/networks/site/10.90.0.2"), "web")
	return g
}

// answers sends a request to the guest through its host's port, and a packet from the guest.
func (g guest) answers(t *testing.T) {
	t.Helper()
	eventually(t, 10*time.Second, func() string {
		out, err := g.from.Output(t.Context(), "socat", "-T", "5", "-", "TCP:"+g.host.Addr.String()+":8088,connect-timeout=5")
		if err != nil || out != "from the site\n" {
			return fmt.Sprintf("through the host's port: %q %v", out, err)
		}
		return ""
	})
	run(t, g.host, "ip", "netns", "exec", "cni-site", "ping", "-c", "1", "-W", "5", g.from.Addr.String())
}

// TestStoppedContainerd: a stopped containerd keeps its images. init does not take over its
// data, and uses containerd when it runs.
func TestStoppedContainerd(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-stopped", Hosts: 1, ExtraPackages: []string{"containerd"}})
	h := s.Hosts[0]
	run(t, h, "sh", "-c", `mkdir -p /etc/containerd && cat >/etc/containerd/config.toml <<'END'
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/opt/cni/bin"
END
systemctl restart containerd`)
	const image = "site.example/app:1"
	img, err := randomimage.Image(4096, 2)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config.OS, config.Architecture = "linux", "amd64"
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(image)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "app.tar")
	if err := tarball.WriteToFile(file, tag, img); err != nil {
		t.Fatal(err)
	}
	if _, err := h.CopyIn(t.Context(), file, "/root/app.tar", 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, h, "ctr", "-n", "site", "images", "import", "--no-unpack", "/root/app.tar")
	kept := func() {
		t.Helper()
		contains(t, run(t, h, "ctr", "-n", "site", "images", "check"), image, "complete (")
	}
	kept()

	run(t, h, "systemctl", "stop", "containerd")
	before := untouched(t, h)
	contains(t, install(t, h, 3, "init"), "DirAvailable--var-lib-containerd", "/var/lib/containerd is not empty", "systemctl start containerd")
	same(t, before, untouched(t, h))
	install(t, h, 0, "reset", "--force")
	same(t, before, untouched(t, h))

	run(t, h, "systemctl", "start", "containerd")
	kept()
	contains(t, install(t, h, 0, "init"), "this host's existing containerd")
	install(t, h, 0, "reset", "--force")
	run(t, h, "systemctl", "is-active", "containerd")
	kept()
	run(t, h, "systemctl", "restart", "containerd")
	kept()
}

// TestResetContinues: a reset that ended after any of its steps is repeated without --force, and nothing else
// works on what it left.
func TestResetContinues(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-reset-continues", Hosts: 1})
	h := s.Hosts[0]
	bare := untouched(t, h)
	steps := []string{"remove-etcd-member", "stop-kubelet", "remove-pods", "cleanup-node/images", "cleanup-node/runtime", "cleanup-node/mounts",
		"cleanup-node/interfaces", "cleanup-node/netfilter", "cleanup-node/routes", "cleanup-node/state"}
	for _, last := range []int{3, len(steps)} {
		install(t, h, 0, "init")
		for _, name := range steps[:last] {
			install(t, h, 0, append([]string{"reset", "phase"}, strings.Split(name, "/")...)...)
		}
		if last == len(steps) {
			contains(t, failure(t, h, 3, "/root/install", "init"), "a reset of this host is not finished", " reset")
			contains(t, failure(t, h, 3, "/root/install", "join", h.Addr.String()+":6443", "--token", "abcdef.0123456789abcdef", "--discovery-token-unsafe-skip-ca-verification"),
				"a reset of this host is not finished", " reset")
		}
		contains(t, run(t, h, "sh", "-c", "echo y | /root/install reset"), "an earlier reset has stopped it", "Everything that Airlift created on this host is removed")
		same(t, bare, untouched(t, h))
	}
}
