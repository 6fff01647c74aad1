package render_test

import (
	"os"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/render"
	"airlift/scripts/oracle"
)

// A minor version that is newer than the known ones gets the files and objects of the newest
// known one. Only the version in them is another.
func TestNewerMinorVersions(t *testing.T) {
	ca := []byte("CA")
	all := func(cfg *config.Config) string {
		var b strings.Builder
		add := func(obj any) { b.Write(encode(t, obj)) }
		pods, err := render.ControlPlane(cfg, os.DirFS(t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
			add(pods[name])
		}
		etcd, err := render.Etcd(cfg)
		if err != nil {
			t.Fatal(err)
		}
		add(etcd)
		shared, err := render.KubeletConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		node, err := render.NodeKubeletConfig(cfg, shared)
		if err != nil {
			t.Fatal(err)
		}
		flags, err := render.KubeletFlags(cfg, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{shared, node, flags, render.KubeletInstanceConfig(cfg)} {
			b.Write(text)
		}
		for _, obj := range objects(t, cfg, ca) {
			add(obj)
		}
		return b.String()
	}
	known := oracle.Plain(oracle.Newest)
	known.Facts.CgroupVersion = 1
	newer := *known
	newer.KubernetesVersion = "v1.45.6"
	want, got := all(known), all(&newer)
	compare(t, "v1.45.6", strings.ReplaceAll(want, "kubernetesVersion: "+oracle.Newest, "kubernetesVersion: v1.45.6"), got)
	if !strings.Contains(got, "failCgroupV1: false") || !strings.Contains(got, "kubernetesVersion: v1.45.6") {
		t.Errorf("the rendered files have neither a rule of v1.35 nor the version:\n%s", got)
	}
}
