package config_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"airlift/installer/config"
	"airlift/installer/render"
	"airlift/scripts/fixtures/rig"
)

func TestClusterConfigurationIsReadInEveryVersion(t *testing.T) {
	want := config.Cluster{
		KubernetesVersion: "v1.29.15", ClusterName: "c", ControlPlaneEndpoint: "cp.example:6443",
		CertificatesDir: "/pki", ImageRepository: "r",
		Networking: config.Networking{ServiceSubnet: config.ParseCIDRs("10.1.0.0/16"), PodSubnet: config.ParseCIDRs("10.2.0.0/16"), DNSDomain: "d"},
		APIServer: config.APIServer{
			CertSANs: []string{"a", "b"},
			Component: config.Component{
				ExtraArgs:    []config.Arg{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}},
				ExtraVolumes: []config.HostPathMount{{Name: "v", HostPath: "/h", MountPath: "/m", ReadOnly: true, PathType: corev1.HostPathFile}},
			},
		},
		Scheduler:    config.Component{ExtraArgs: []config.Arg{{Name: "s", Value: "3"}}},
		Etcd:         config.Etcd{Local: config.LocalEtcd{DataDir: "/e", ImageMeta: config.ImageMeta{ImageTag: "t"}, ServerCertSANs: []string{"x"}, ExtraArgs: []config.Arg{{Name: "e", Value: "4"}}}},
		DNS:          config.DNS{ImageMeta: config.ImageMeta{ImageRepository: "dr"}},
		FeatureGates: map[string]bool{"F": true},
	}
	const common = `kind: ClusterConfiguration
kubernetesVersion: v1.29.15
clusterName: c
controlPlaneEndpoint: cp.example:6443
certificatesDir: /pki
imageRepository: r
networking: {serviceSubnet: 10.1.0.0/16, podSubnet: 10.2.0.0/16, dnsDomain: d}
featureGates: {F: true}
dns: {imageRepository: dr}
`
	const volumes = `extraVolumes: [{name: v, hostPath: /h, mountPath: /m, readOnly: true, pathType: File}]`
	beta3 := "apiVersion: kubeadm.k8s.io/v1beta3\n" + common + `
apiServer: {certSANs: [a, b], timeoutForControlPlane: 90s, extraArgs: {b: "2", a: "1"}, ` + volumes + `}
scheduler: {extraArgs: {s: "3"}}
etcd: {local: {dataDir: /e, imageTag: t, serverCertSANs: [x], extraArgs: {e: "4"}}}
`
	lists := common + `
apiServer: {certSANs: [a, b], extraArgs: [{name: a, value: "1"}, {name: b, value: "2"}], ` + volumes + `}
scheduler: {extraArgs: [{name: s, value: "3"}], extraEnvs: [{name: E, value: e}]}
etcd: {local: {dataDir: /e, imageTag: t, serverCertSANs: [x], extraArgs: [{name: e, value: "4"}]}}
encryptionAlgorithm: ECDSA-P256
certificateValidityPeriod: 48h
caCertificateValidityPeriod: 96h
`
	wantBeta3, wantLists := want, want
	wantBeta3.APIServer.TimeoutForControlPlane = 90 * time.Second
	wantLists.Scheduler.ExtraEnvs = []corev1.EnvVar{{Name: "E", Value: "e"}}
	wantLists.EncryptionAlgorithm = "ECDSA-P256"
	wantLists.CertificateValidityPeriod, wantLists.CACertificateValidityPeriod = 48*time.Hour, 96*time.Hour
	for _, c := range []struct {
		version, text string
		want          config.Cluster
	}{
		{"v1beta3", beta3, wantBeta3},
		{"v1beta4", "apiVersion: kubeadm.k8s.io/v1beta4\n" + lists, wantLists},
		{"v1", "apiVersion: kubeadm.k8s.io/v1\n" + lists, wantLists},
	} {
		t.Run(c.version, func(t *testing.T) {
			got, warnings, err := config.DecodeClusterConfiguration([]byte(c.text))
			if err != nil || len(warnings) > 0 {
				t.Fatal(err, warnings)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatAVersionDoesNotHaveIsNamed(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"apiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\nclusterNam: x\n", "clusterNam"},
		{"apiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\nscheduler: {extraArgs: [{name: a, value: b}]}\n", "scheduler.extraArgs"},
		{"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nscheduler: {extraArgs: {a: b}}\n", "scheduler.extraArgs"},
		{"apiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\nencryptionAlgorithm: RSA-2048\n", "encryptionAlgorithm"},
		{"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer: {timeoutForControlPlane: 1m}\n", "timeoutForControlPlane"},
		{"apiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\nproxy: {disabled: true}\n", "proxy"},
	} {
		_, warnings, err := config.DecodeClusterConfiguration([]byte(c.text))
		if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], c.want) {
			t.Errorf("%s: %v %q", c.text, err, warnings)
		}
	}
	for _, text := range []string{
		"", "[", "apiVersion: kubeadm.k8s.io/v1beta2\nkind: ClusterConfiguration\n",
		"apiVersion: kubeadm.k8s.io/v1beta3\nkind: InitConfiguration\n", "apiVersion: v1\nkind: ClusterConfiguration\n",
		"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nscheduler: {extraArgs: [{nam: a}]}\n",
	} {
		if _, _, err := config.DecodeClusterConfiguration([]byte(text)); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestWhatWeUploadIsReadBack(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.36.3"} {
		c := initConfig(func(c *config.Config) {
			c.KubernetesVersion = version
			c.APIServer.ExtraArgs = []config.Arg{{Name: "authorization-mode", Value: "Node,RBAC"}, {Name: "v", Value: "2"}}
			c.Etcd.Local.PeerCertSANs = []string{"peer"}
			if version != "v1.29.15" {
				c.EncryptionAlgorithm = "RSA-3072"
			}
		})
		data, err := render.ClusterConfiguration(c)
		if err != nil {
			t.Fatal(err)
		}
		got, warnings, err := config.DecodeClusterConfiguration(data)
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		want := c.Cluster
		if version != "v1.29.15" {
			// In v1beta4 this field is not part of the cluster's configuration.
			want.APIServer.TimeoutForControlPlane = 0
		} else {
			// These fields do not exist in v1beta3.
			want.CertificateValidityPeriod, want.CACertificateValidityPeriod = 0, 0
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", version, diff)
		}
	}
}

func TestKubeadmsDefaultsAreReadWithoutAWarning(t *testing.T) {
	kubeadm := rig.Component(t, "v1.29.15", "kubeadm")
	out, err := exec.Command(kubeadm, "config", "print", "init-defaults").Output()
	if err != nil {
		t.Fatal(err)
	}
	docs := strings.Split(string(out), "\n---\n")
	i := slices.IndexFunc(docs, func(s string) bool { return strings.Contains(s, "kind: ClusterConfiguration") })
	if i < 0 {
		t.Fatalf("no ClusterConfiguration in %s", out)
	}
	got, warnings, err := config.DecodeClusterConfiguration([]byte(docs[i]))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if got.ClusterName != config.DefaultClusterName || got.Networking.ServiceSubnet.String() != config.DefaultServiceSubnet ||
		got.APIServer.TimeoutForControlPlane != config.DefaultControlPlaneTimeout || got.Etcd.Local.DataDir != config.EtcdDataDir {
		t.Errorf("%+v", got)
	}
}
