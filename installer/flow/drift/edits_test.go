package drift

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/installer/flow/upgrade"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
	_ "airlift/scripts/fixtures/seed"
)

// nodeOf returns the configuration of a control plane of a version.
func nodeOf(version string) *config.Config {
	cfg := &config.Config{LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: "10.1.2.3", BindPort: 6443}}
	cfg.KubernetesVersion, cfg.NodeRegistration.Name, cfg.Facts.NodeIP = version, "one", "10.1.2.3"
	cfg.Images = map[string]string{}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "pause"} {
		cfg.Images[name] = "registry.k8s.io/" + name + ":" + version
	}
	return cfg
}

func manifests(t interface{ Fatal(...any) }, cfg *config.Config) map[string][]byte {
	pods, err := render.ControlPlane(cfg, os.DirFS("/nonexistent"))
	if err == nil {
		pods["etcd"], err = render.Etcd(cfg)
	}
	list := map[string][]byte{}
	for name, pod := range pods {
		if err == nil {
			list[name], err = render.YAML(pod)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestAdoptedEdits: after any edit, the configuration that keeps it gives the edited pod, or the edit is refused. In between, the
// configuration is stored and read as kubeadm's document.
func TestAdoptedEdits(t *testing.T) {
	kept, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		version := rapid.SampledFrom([]string{"v1.29.15", "v1.31.0", "v1.37.1"}).Draw(rt, "version")
		component := rapid.SampledFrom([]string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"}).Draw(rt, "component")
		name := rapid.SampledFrom([]string{"v", "profiling", "authorization-mode", "bind-address", "leader-elect", "feature-gates", "audit-policy-file"})
		value := rapid.SampledFrom([]string{"2", "false", "0.0.0.0", "", "a=b,c=d", "'x: y'"})
		cfg := nodeOf(version)
		for range rapid.IntRange(0, 2).Draw(rt, "stored") {
			arg := config.Arg{Name: name.Draw(rt, "name"), Value: value.Draw(rt, "value")}
			cfg.Scheduler.ExtraArgs = append(cfg.Scheduler.ExtraArgs, arg)
			cfg.APIServer.ExtraArgs = append(cfg.APIServer.ExtraArgs, arg)
		}
		cfg.CompleteInit()
		was := manifests(rt, cfg)[component]
		var pod corev1.Pod
		if err := yaml.Unmarshal(was, &pod); err != nil {
			rt.Fatal(err)
		}
		c := &pod.Spec.Containers[0]
		for range rapid.IntRange(1, 4).Draw(rt, "edits") {
			flag := "--" + name.Draw(rt, "flag") + "=" + value.Draw(rt, "flag's value")
			at := rapid.IntRange(1, max(1, len(c.Command)-1)).Draw(rt, "at")
			switch kind := rapid.IntRange(0, 6).Draw(rt, "kind"); {
			case kind < 2:
				c.Command = slices.Insert(c.Command, at, flag)
			case kind == 2 && len(c.Command) > 1:
				c.Command = slices.Delete(c.Command, at, at+1)
			case kind == 3 && len(c.Command) > 1:
				c.Command[at] = flag
			case kind == 4:
				c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("E%d", len(c.Env)), Value: value.Draw(rt, "variable")})
			case kind == 5:
				volume := rapid.SampledFrom([]string{"site", "kubeconfig", "ca-certs"}).Draw(rt, "volume")
				has := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume })
				if has < 0 {
					pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}}})
					c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: "/site"})
				} else if rapid.Bool().Draw(rt, "remove") {
					pod.Spec.Volumes = slices.Delete(pod.Spec.Volumes, has, has+1)
					c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
				} else {
					c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: "/again"})
				}
			case kind == 6:
				c.TTY = true
			}
		}
		is, err := render.YAML(&pod)
		if err != nil {
			rt.Fatal(err)
		}
		after := *cfg
		list, err := reconfiguration.AdoptPod(&after.Cluster, nil, component, "/m.yaml", was, is)
		if err != nil {
			rt.Fatal(err)
		}
		if len(list) > 0 {
			refused++
			return
		}
		text, err := render.ClusterConfiguration(&after)
		if err != nil {
			rt.Fatal(err)
		}
		given, _, err := config.ParseReconfigure("edits", text)
		if err != nil {
			if !strings.Contains(err.Error(), "ClusterConfiguration") {
				rt.Fatal(err)
			}
			refused++
			return
		}
		own := nodeOf(version)
		own.Cluster = given.Config.Cluster
		own.CompleteInit()
		gives := manifests(rt, own)[component]
		if reconfiguration.SamePod(gives, is) {
			kept++
			return
		}
		if refused++; len(reconfiguration.Unadopted("/m.yaml", gives, is)) == 0 {
			rt.Fatalf("the edit is neither kept nor refused:\n%s\ninstead of:\n%s", gives, is)
		}
	})
	if kept == 0 || refused == 0 {
		t.Errorf("%d edits were kept, %d refused", kept, refused)
	}
	t.Logf("%d edits were kept, %d refused", kept, refused)
}

// TestEditedKeys: an encryption configuration that was edited by hand is not kept, because the API server reads it only when it starts.
// An audit policy is.
func TestEditedKeys(t *testing.T) {
	cfg := nodeOf("v1.37.1")
	cfg.APIServer.ExtraArgs = []config.Arg{{Name: "encryption-provider-config", Value: "/site/keys.yaml"}, {Name: "audit-policy-file", Value: "/site/policy.yaml"}}
	cfg.APIServer.ExtraVolumes = []config.HostPathMount{{Name: "site", HostPath: "/etc/site", MountPath: "/site", ReadOnly: true}}
	for file, kept := range map[string]bool{"/etc/site/keys.yaml": false, "/etc/site/policy.yaml": true} {
		f := &finder{Comparison: &upgrade.Comparison{Config: cfg}, options: &upgrade.ReconfigureOptions{}, edits: &upgrade.Edits{}, command: "./install reconfigure"}
		if err := f.adopt(upgrade.ComparedFile{Path: file, Carried: true, Now: []byte("edited")}); err != nil {
			t.Fatal(err)
		}
		if len(f.options.Files) > 0 != kept || len(f.refused) > 0 == kept {
			t.Errorf("%s: kept %d, refused %v", file, len(f.options.Files), f.refused)
		}
	}
}

// TestKubeletOfOneNode: an edited field with an address of this node, also the second one, stays on this node.
func TestKubeletOfOneNode(t *testing.T) {
	cfg := nodeOf("v1.37.1")
	cfg.Facts.OtherIP = "fd00::1"
	for address, own := range map[string]bool{"10.1.2.3": true, "fd00::1": true, "FD00:0::1": true, "0.0.0.0": false, "10.1.2.30": false} {
		f := &finder{Comparison: &upgrade.Comparison{Config: cfg, Kubelet: []byte("maxPods: 100\n")}, options: &upgrade.ReconfigureOptions{}, edits: &upgrade.Edits{}, command: "./install reconfigure"}
		if err := f.adoptKubelet([]byte("maxPods: 100\n"), []byte("maxPods: 100\naddress: \""+address+"\"\n")); err != nil {
			t.Fatal(err)
		}
		if (f.edits.Instance != nil) != own || (f.kubelet == nil) != own || len(f.refused) > 0 {
			t.Errorf("%s: for this node %q, for all nodes %q, refused %v", address, f.edits.Instance, f.kubelet, f.refused)
		}
	}
}
