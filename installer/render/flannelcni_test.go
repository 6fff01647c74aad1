package render_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	appsv1 "k8s.io/api/apps/v1"

	"airlift/installer/config"
	"airlift/installer/render"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/oracle"
	"airlift/scripts/oracle/upstream/components"
	"airlift/scripts/oracle/upstream/image"
)

// TestFlannelHook runs the hook in flannel's image. The hook must write the
// same file as the installer, and must not replace other configuration.
func TestFlannelHook(t *testing.T) {
	root := flannelRoot(t)
	const conflist = "etc/cni/net.d/10-flannel.conflist"
	for _, test := range []struct {
		name, podSubnet, subnetFile string
		podCIDRs                    []string
	}{
		{"IPv4", "10.244.0.0/16", "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n",
			[]string{"10.244.3.0/24"}},
		{"small IPv4", "10.244.0.0/16", "FLANNEL_SUBNET=10.244.3.129/25\nFLANNEL_MTU=1450\n", []string{"10.244.3.128/25"}},
		{"IPv6", "fd00:10:244::/56", "FLANNEL_IPV6_NETWORK=fd00:10:244::/56\nFLANNEL_IPV6_SUBNET=fd00:10:244:3::1/64\nFLANNEL_MTU=1450\n",
			[]string{"fd00:10:244:3::/64"}},
		{"small IPv6", "fd00:10:244::/104", "FLANNEL_IPV6_SUBNET=fd00:10:244::3:1/112\nFLANNEL_MTU=1450\n",
			[]string{"fd00:10:244::3:0/112"}},
		{"dual-stack", "10.244.0.0/16,fd00:10:244::/56", "FLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_IPV6_SUBNET=fd00:10:244:3::1/64\nFLANNEL_MTU=1450\n",
			[]string{"10.244.3.0/24", "fd00:10:244:3::/64"}},
		{"dual-stack, IPv6 first", "fd00:10:244::/56,10.244.0.0/16", "FLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_IPV6_SUBNET=fd00:10:244:3::1/64\nFLANNEL_MTU=1450\n",
			[]string{"fd00:10:244:3::/64", "10.244.3.0/24"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := oracle.Plain(oracle.Version)
			cfg.Networking.PodSubnet = config.ParseCIDRs(test.podSubnet)
			want, err := render.CNIConflist(cfg, test.podCIDRs)
			if err != nil {
				t.Fatal(err)
			}
			// expect runs the hook on a node with these files, and compares the
			// CNI configuration afterwards.
			expect := func(what string, before map[string]string, want string, ok bool) {
				t.Helper()
				reset(t, root, before)
				out, err := hook(t, root, cfg)
				if (err == nil) != ok {
					t.Errorf("%s: the hook: %v\n%s", what, err, out)
				}
				got, _ := os.ReadFile(filepath.Join(root, conflist))
				compare(t, what, want, string(got))
				if left, _ := filepath.Glob(filepath.Join(root, conflist+"?*")); left != nil {
					t.Errorf("%s: left behind: %q", what, left)
				}
			}
			const env = "run/flannel/subnet.env"
			none := map[string]string{}
			subnet := map[string]string{env: test.subnetFile}
			with := func(name, text string) map[string]string {
				return map[string]string{env: test.subnetFile, name: text}
			}
			expect("no configuration", subnet, string(want), true)
			expect("only configuration that sorts later", with("etc/cni/net.d/87-podman-bridge.conflist", "{}"), string(want), true)
			expect("the configuration of another cluster's node", with(conflist, strings.NewReplacer("244", "245").Replace(string(want))), string(want), true)
			own := strings.Replace(string(want), "cbr0", "mine", 1)
			expect("another configuration for this subnet", with(conflist, own), own, true)
			expect("configuration that sorts first", with("etc/cni/net.d/05-other.conf", "{}"), "", true)
			expect("no subnet yet, existing configuration", map[string]string{conflist: own}, own, true)
			expect("no subnet yet", none, "", false)
			// The file is older than this flanneld.
			reset(t, root, subnet)
			written(t, root, env, -time.Hour)
			if out, err := hook(t, root, cfg); err == nil || !strings.Contains(out, "no subnet for this node yet") {
				t.Errorf("an old subnet file: %v\n%s", err, out)
			}
			// A fast flanneld writes it a tenth of a second after its start.
			reset(t, root, subnet)
			written(t, root, env, time.Second/10)
			if out, err := hook(t, root, cfg); err != nil {
				t.Errorf("a subnet file of the second in which the container started: %v\n%s", err, out)
			}
		})
	}
}

// hook runs the command that the kubelet runs after flanneld has started, with
// short waits.
func hook(t *testing.T, root string, cfg *config.Config) (string, error) {
	t.Helper()
	daemon := find[*appsv1.DaemonSet](t, must(render.Flannel(cfg)), "kube-flannel-ds")
	command := daemon.Spec.Template.Spec.Containers[0].Lifecycle.PostStart.Exec.Command
	script := strings.NewReplacer("tries=60", "tries=1", "sleep 1\n", "sleep 0.01\n").Replace(command[2])
	cmd := exec.Command(command[0], command[1], script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// reset creates a node's directories with only these files.
func reset(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for _, dir := range []string{"etc/cni/net.d", "run/flannel", "dev"} {
		if err := os.RemoveAll(filepath.Join(root, dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The kubelet creates this file when it starts a container.
	started := filepath.Join(root, "dev/termination-log")
	files[started] = ""
	for name, text := range files {
		file := filepath.Join(root, strings.TrimPrefix(name, root))
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(started, containerStart, containerStart); err != nil {
		t.Fatal(err)
	}
}

// containerStart is the time at which the kubelet created the container's
// termination log, at the start of a second.
var containerStart = time.Now().Add(-time.Minute).Truncate(time.Second)

// written sets the time of a file to a duration after the container's start.
func written(t *testing.T, root, name string, after time.Duration) {
	t.Helper()
	at := containerStart.Add(after)
	if err := os.Chtimes(filepath.Join(root, name), at, at); err != nil {
		t.Fatal(err)
	}
}

// flannelRoot unpacks flannel's image.
func flannelRoot(t *testing.T) string {
	t.Helper()
	rig.Component(t, oracle.Version, "flanneld")
	release, err := components.Find(oracle.Version)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := components.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	builder := &image.Builder{Cache: cache, Log: &log}
	sites, err := builder.Build(context.Background(), release)
	if err != nil {
		t.Fatalf("making flannel's image: %v\n%s", err, log.String())
	}
	root := t.TempDir()
	for _, list := range sites {
		for _, m := range list {
			if path.Base(m.Repository) != "flannel" || m.MediaType.IsIndex() {
				continue
			}
			var manifest v1.Manifest
			if err := json.Unmarshal(m.Data, &manifest); err != nil {
				t.Fatal(err)
			}
			for _, layer := range manifest.Layers {
				run(t, "tar", "--extract", "--gzip", "--directory", root, "--file", builder.Store().Blob(layer.Digest))
			}
			return root
		}
	}
	t.Fatal("the release has no image of flannel")
	return ""
}
