package adoption_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"airlift/installer/adoption"
	"airlift/installer/config"
	"airlift/scripts/fixtures/layouts"
	"airlift/scripts/oracle"
)

// notOdd are findings that a node must not have whose files and objects real kubeadm has just written.
var notOdd = []string{"EditedManifests", "KubeletConfig", "KubeletConfigFile", "KubeletFlags", "KubeletFlagsUnused", "KubeletFlagsGone", "Corefile", "DNS", "KubeProxy", "CertificateNames", "NodeName"}

// oddCases are the configurations that are odd themselves, with the names of their findings.
var oddCases = map[string][]string{
	"other registry and tags": {"Corefile", "ImageNames"}, // tags that were never published
	"feature gates":           {"FeatureGates"},           // EtcdLearnerMode: false
	"add-ons disabled":        {"KubeProxy"},
}

// withTimeouts are the configurations whose timeouts kubeadm writes into startup probes, and stores nowhere.
var withTimeouts = []string{"extra args and volumes", "timeouts"}

// TestRealKubeadm recognises what real kubeadm writes, in the oldest and the newest version, for every configuration.
func TestRealKubeadm(t *testing.T) {
	for version, target := range map[string]string{"v1.29.15": "v1.30.4", "v1.37.1": "v1.37.2"} {
		for _, c := range oracle.Cases(version) {
			if len(c.Patches) > 0 { // they are edits
				continue
			}
			t.Run(version+" "+c.Name, func(t *testing.T) {
				out := oracle.Run(t, c)
				l := layouts.Kubeadm(layouts.Options{Version: version, Target: target, Change: func(l *config.Config) {
					images, algorithm, facts := l.Images, l.EncryptionAlgorithm, c.Config.Facts
					*l = *c.Config
					l.Images, l.EncryptionAlgorithm, l.Facts = images, algorithm, facts
					l.Networking.PodSubnet = c.Config.Networking.PodSubnet
				}})
				for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"} {
					data, err := os.ReadFile(filepath.Join(out.Dir, name+".yaml"))
					if err == nil {
						l.Files[config.ManifestsDir+"/"+name+".yaml"] = string(data)
					} else if !errors.Is(err, fs.ErrNotExist) {
						t.Fatal(err)
					}
				}
				for _, name := range []string{"config.yaml", "kubeadm-flags.env", "instance-config.yaml"} {
					delete(l.Files, "/var/lib/kubelet/"+name)
					if data, err := os.ReadFile(filepath.Join(out.Dir, name)); err == nil {
						l.Files["/var/lib/kubelet/"+name] = string(data)
					}
				}
				l.Cluster.Deployments, l.Cluster.DaemonSets, l.Cluster.Services = map[string]*appsv1.Deployment{}, map[string]*appsv1.DaemonSet{}, map[string]*corev1.Service{}
				for _, data := range out.Objects {
					switch o := oracle.Object(t, data).(type) {
					case *corev1.ConfigMap:
						l.Cluster.ConfigMaps[o.Namespace+"/"+o.Name] = o
					case *corev1.Service:
						l.Cluster.Services[o.Namespace+"/"+o.Name] = o
					case *appsv1.Deployment:
						l.Cluster.Deployments[o.Namespace+"/"+o.Name] = o
					case *appsv1.DaemonSet:
						l.Cluster.DaemonSets[o.Namespace+"/"+o.Name] = o
					}
				}
				if e := c.Config.Etcd.External; e != nil {
					for _, file := range []string{e.CAFile, e.CertFile, e.KeyFile} {
						if file != "" {
							l.Files[file] = l.Files[l.Config.CertificatesDir+"/apiserver.crt"]
						}
					}
				}
				l.Restart()
				r := adoption.Recognise(l.Input())
				if r.Maker != adoption.Kubeadm || !r.Adoptable() {
					t.Errorf("kubeadm's own node is refused: %s", show(r))
				}
				for _, f := range r.Findings {
					unknown := f.Name == "KubeadmAPI" && strings.HasPrefix(f.What, "the stored configuration: ")
					if slices.Contains(oddCases[c.Name], f.Name) || slices.Contains(withTimeouts, c.Name) && strings.Contains(f.What, ".startupProbe.") {
						continue
					}
					if slices.Contains(notOdd, f.Name) || unknown || strings.Contains(f.Effect, "refuses") {
						t.Errorf("%s: %s (%s): %s", f.Name, f.What, f.Where, f.Effect)
					}
				}
			})
		}
	}
}
