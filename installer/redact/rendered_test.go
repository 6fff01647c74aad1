package redact_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"airlift/installer/redact"
	"airlift/installer/render"
	"airlift/scripts/oracle"
)

// TestNothingOfACleanNodeIsRedacted: of what Airlift and kubeadm write, nothing is missing.
func TestNothingOfACleanNodeIsRedacted(t *testing.T) {
	for _, version := range []string{"v1.29.15", oracle.Newest} {
		cfg := oracle.Plain(version)
		cfg.CNI = "flannel"
		texts := map[string][]byte{}
		keep := func(name string, text []byte, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			texts[name] = text
		}
		var objects []runtime.Object
		add := func(list []runtime.Object, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			objects = append(objects, list...)
		}
		pods, err := render.ControlPlane(cfg, os.DirFS(t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods {
			objects = append(objects, pod)
		}
		etcd, err := render.Etcd(cfg)
		add([]runtime.Object{etcd}, err)
		add(render.CoreDNS(cfg))
		add(render.Flannel(cfg))
		add(render.KubeProxy(cfg))
		add(render.UploadClusterConfig(cfg))
		add(render.UploadKubeletConfig(cfg))
		for i, o := range objects {
			if flannel, ok := o.(*appsv1.DaemonSet); ok {
				flannel.Spec.Template.Spec.Containers[0].Lifecycle = nil // a shell script, which is redacted
			}
			text, err := yaml.Marshal(o)
			keep(strings.Repeat("i", i)+"/etc/kubernetes/manifests/x.yaml", text, err)
		}
		text, err := render.KubeletConfig(cfg)
		keep("/var/lib/kubelet/config.yaml", text, err)
		text, err = render.KubeletFlags(cfg, false)
		keep("/var/lib/kubelet/kubeadm-flags.env", text, err)
		text, err = render.ContainerdConfig(cfg)
		keep("/etc/containerd/config.toml", text, err)
		text, err = render.CNIConflist(cfg, []string{"10.244.0.0/24"})
		keep("/etc/cni/net.d/10-flannel.conflist", text, err)
		for name, text := range texts {
			got := redact.File(strings.TrimLeft(name, "i"))(text)
			if bytes.Contains(got, []byte(redact.Marker)) {
				t.Errorf("%s of %s:\n%s\nis from\n%s", name, version, got, text)
			}
			if strings.HasSuffix(name, ".yaml") && !slices.Equal(words(got), words(text)) {
				t.Errorf("%s of %s:\n%s\nis not\n%s", name, version, got, text)
			}
		}
	}
}

// words are the sorted words of a text, without the punctuation that an encoder may change.
func words(text []byte) []string {
	list := strings.Fields(strings.NewReplacer(",", " ", "|-", "|").Replace(string(text)))
	slices.Sort(list)
	return list
}
