package reconfigure

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"airlift/installer/config"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
	_ "airlift/scripts/fixtures/seed"
)

// TestKeep: an edit that gives a manifest what kubeadm's documents would give it is found in the fields of these documents. Any other
// edit needs a patch.
func TestKeep(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		component := rapid.SampledFrom([]string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"}).Draw(rt, "component")
		version := rapid.SampledFrom([]string{"v1.29.15", "v1.31.0", "v1.37.1"}).Draw(rt, "version")
		rendered := func(c config.Component, edit func(*corev1.Pod)) (*config.Config, []byte) {
			cfg := &config.Config{LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: "10.1.2.3", BindPort: 6443}}
			cfg.KubernetesVersion, cfg.NodeRegistration.Name, cfg.Facts.NodeIP = version, "one", "10.1.2.3"
			cfg.Images = map[string]string{}
			for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "pause"} {
				cfg.Images[name] = "registry.k8s.io/" + name + ":" + version
			}
			cfg.APIServer.Component, cfg.ControllerManager, cfg.Scheduler, cfg.Etcd.Local.ExtraArgs, cfg.Etcd.Local.ExtraEnvs = c, c, c, c.ExtraArgs, c.ExtraEnvs
			cfg.CompleteInit()
			pods, err := render.ControlPlane(cfg, os.DirFS("/nonexistent"))
			if err == nil {
				pods["etcd"], err = render.Etcd(cfg)
			}
			if err != nil {
				rt.Fatal(err)
			}
			edit(pods[component])
			data, err := render.YAML(pods[component])
			if err != nil {
				rt.Fatal(err)
			}
			return cfg, data
		}
		var c config.Component
		args := func(label string) {
			for range rapid.IntRange(0, 3).Draw(rt, label) {
				name := rapid.SampledFrom([]string{"v", "profiling", "leader-elect", "feature-gates"}).Draw(rt, "name")
				c.ExtraArgs = append(c.ExtraArgs, config.Arg{Name: name, Value: rapid.SampledFrom([]string{"2", "false", "0.0.0.0", "", "a=b,c=d", "'x: y'"}).Draw(rt, "value")})
			}
		}
		args("stored")
		stored, gives := rendered(c, func(*corev1.Pod) {})
		if rapid.Bool().Draw(rt, "removes") {
			c.ExtraArgs = nil
		}
		args("flags")
		for range rapid.IntRange(0, 2).Draw(rt, "variables") {
			c.ExtraEnvs = append(c.ExtraEnvs, corev1.EnvVar{Name: rapid.StringMatching("[A-Z]{4}").Draw(rt, "variable"), Value: "x"})
		}
		if component != "etcd" && rapid.Bool().Draw(rt, "volume") {
			c.ExtraVolumes = []config.HostPathMount{{Name: "site", HostPath: "/srv", MountPath: "/site"}}
		}
		other := rapid.SampledFrom([]func(*corev1.Pod){
			nil, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "other" }, func(p *corev1.Pod) { p.Spec.HostNetwork = false },
			func(p *corev1.Pod) { p.Spec.Containers[0].TTY = true }, func(p *corev1.Pod) { p.Labels["site"] = "a" },
		}).Draw(rt, "other edit")
		_, documents := rendered(c, func(*corev1.Pod) {})
		_, now := rendered(c, func(p *corev1.Pod) {
			if other != nil {
				other(p)
			}
		})
		got := reconfiguration.PodFields(&stored.Cluster, component, gives, now)
		if (len(got) == 0) != reconfiguration.SamePod(gives, now) || slices.Contains(got, reconfiguration.Patch) != (other != nil) {
			rt.Fatalf("%q for\n%s\ninstead of\n%s", got, now, gives)
		}
		if len(got) == 1 && other != nil && !reconfiguration.SamePod(gives, documents) {
			rt.Fatalf("the documents have fields for a part of it, and it names only %q", got)
		}
	})
}

// TestOrderOfFlags: the file with the kubelet's flags stays if the documents give it the same flags, in another order.
func TestOrderOfFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeadm.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nnodeRegistration: {kubeletExtraArgs: [{name: v, value: \"3\"}, {name: event-qps, value: \"9\"}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	given, _, err := config.ReadReconfigureNode(file)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := reconfiguring(t, Options{Node: true, Given: given})
	r.Config.NodeRegistration.KubeletExtraArgs = given.Config.NodeRegistration.KubeletExtraArgs
	for flags, stays := range map[string]bool{
		"--v=3 --node-ip=10.0.0.1 --event-qps=9": true, "--node-ip=10.0.0.1 --event-qps=9 --v=3": true, "--event-qps=9 --v=3": true,
		"--v=4 --event-qps=9": false, "--v=3": false, "--v=3 --event-qps=9 --max-pods=9": false, "": false,
	} {
		now := "KUBELET_KUBEADM_ARGS=\"" + flags + "\"\n"
		if got, err := r.KubeletFlags([]byte(now)); err != nil || (string(got) == now) != stays {
			t.Errorf("%q becomes %q", now, got)
		}
	}
}
