package adoption

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/documents"
	"airlift/images/release"
	"airlift/installer/config"
	"airlift/installer/host/ledger"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/render"
	"airlift/installer/upgradecheck"
)

// oldAPIs are versions of kubeadm's API that no kubeadm of a supported Kubernetes reads.
var oldAPIs = []string{"v1alpha1", "v1alpha2", "v1alpha3", "v1beta1", "v1beta2"}

// oldestMinor is the oldest minor version that a file can upgrade: the one before the oldest that there are files of.
const oldestMinor = release.OldestMinor - 1

// versions refuses versions of Kubernetes that this file cannot work with.
func versions(v *view) {
	for _, one := range []struct{ what, is, where string }{
		{"this node's kubelet", v.kubeletVersion(), "kubelet"}, {"the cluster", storedVersion(v), "kubernetesVersion in ConfigMap " + kubeadmConfig},
	} {
		if one.is == "" {
			continue
		}
		switch _, err := version.ParseSemantic(one.is); {
		case err != nil || minor(one.is) == 0:
			v.refuse("KubernetesVersion", fmt.Sprintf("the version %q of %s is not a Kubernetes version", one.is, one.what), one.where, "what an upgrade changes depends on it", "write a version like v1.29.15 there")
		case minor(one.is) < oldestMinor:
			v.refuse("KubernetesVersion", fmt.Sprintf("%s has %s", one.what, one.is), one.where, fmt.Sprintf("there are files from v1.%d on, and none can upgrade a version before v1.%d", release.OldestMinor, oldestMinor),
				fmt.Sprintf("upgrade it to v1.%d with the tool that made it, one minor version at a time", oldestMinor))
		case minor(v.Target) > 0 && minor(one.is) > minor(v.Target):
			v.refuse("KubernetesVersion", fmt.Sprintf("%s has %s, and this file has %s", one.what, one.is, v.Target), one.where, "an older file does not know the newer version", "use a file of "+one.is+" or newer")
		}
	}
}

// storedVersion is the cluster's version.
func storedVersion(v *view) string {
	if v.stored == nil {
		return ""
	}
	return v.stored.KubernetesVersion
}

// storedConfiguration reports what an upgrade makes of the stored configuration.
func storedConfiguration(v *view) {
	const where = "ConfigMap " + kubeadmConfig
	if v.Cluster == nil {
		return
	}
	for _, old := range oldAPIs {
		if v.api == old {
			v.refuse("KubeadmAPI", "the stored configuration is kubeadm.k8s.io/"+v.api, where, "no kubeadm of a supported Kubernetes reads it",
				"convert its ClusterConfiguration with kubeadm config migrate of v1.22 to v1.26, and store the result: kubectl -n kube-system edit configmap kubeadm-config")
			return
		}
	}
	if v.stored == nil {
		if v.value(kubeadmConfig, "ClusterConfiguration") == "" {
			v.refuse("KubeadmAPI", "the cluster has no "+where, where, "an upgrade writes the control plane from it", "on a control plane, store the configuration again: kubeadm init phase upload-config kubeadm --config FILE")
		}
		return
	}
	if v.api == "v1beta3" {
		effect := "an upgrade stores v1beta3 again"
		if minor(v.Target) >= 31 {
			effect = "the upgrade stores it as v1beta4"
		}
		if minor(v.Target) >= 37 {
			effect += ". Real kubeadm of v1.37 and newer does not read v1beta3"
		}
		v.find("KubeadmAPI", "the stored configuration is kubeadm.k8s.io/v1beta3", where, effect, "")
	}
	for _, w := range v.warnings {
		v.find("KubeadmAPI", "the stored configuration: "+w, where, "an upgrade ignores it, and does not store it again", "remove it")
	}
	upgradeChecks(v)
}

// upgradeChecks runs the checks of an upgrade that need only what is known here.
func upgradeChecks(v *view) {
	c := *v.config
	c.KubernetesVersion = v.Target
	if text := v.value(proxyConfig, "config.conf"); text != "" {
		c.KubeProxy = &kubeproxyv1.KubeProxyConfiguration{}
		if err := documents.Unmarshal([]byte(text), c.KubeProxy); err != nil {
			v.host.cannotRead("ConfigMap "+proxyConfig, err)
			return
		}
	}
	t := &upgradecheck.Target{
		Command: upgradecheck.Apply, From: v.stored.KubernetesVersion, To: v.Target, AllowExperimental: true,
		Files: v.host.files, Kubelet: v.kubeletVersion(), NodeName: v.name, ControlPlane: v.plane, Config: &c, Now: v.Now,
	}
	if v.plane {
		certs, authorities, err := pki.Expirations(v.config, v.host.files)
		if err == nil { // certificateFiles reports it
			for _, e := range append(certs, authorities...) {
				if e.Missing || e.External && !e.NotAfter.Before(v.Now) {
					continue
				}
				t.Certificates = append(t.Certificates, e)
			}
		}
	}
	report := upgradecheck.Configuration(t)
	for _, p := range report.Errors {
		v.find(p.Name, p.Message, whereOf(v, p), "the upgrade refuses it", p.Fix)
	}
	for _, p := range report.Warnings {
		v.find(p.Name, p.Message, whereOf(v, p), "the upgrade warns of it", p.Fix)
	}
}

// whereOf is the object or the directory that a check of an upgrade looks at.
func whereOf(v *view, p preflight.Problem) string {
	if p.Name == "Certificates" {
		return v.config.CertificatesDir
	}
	return "ConfigMap " + kubeadmConfig
}

// renewTimer refuses a timer that restarts the control plane.
func renewTimer(v *view) {
	if u, known := v.Units[renewTimerUnit]; known && (u.Enabled || u.Running()) {
		v.refuse("RenewTimer", renewTimerUnit+" renews certificates, and restarts the control plane", cmpFile(u.File, renewTimerUnit), "two control planes could restart at once, and a rotation of the CAs could be undone",
			"systemctl disable --now "+renewTimerUnit+"; after adopt: ./install certs auto")
	}
}

func cmpFile(file, otherwise string) string {
	if file == "" {
		return otherwise
	}
	return file
}

// owners refuses controllers that change nodes, and reports what cannot be seen.
func owners(v *view) {
	if v.Cluster == nil {
		return
	}
	if d := v.Cluster.Deployments[ekco]; d != nil && (d.Spec.Replicas == nil || *d.Spec.Replicas > 0) {
		v.refuse("Owner", "EKCO runs", "Deployment "+ekco, "it rewrites certificates, kubeconfigs and haproxy's manifest", "kubectl -n kurl scale deployment ekc-operator --replicas=0")
	}
	if n := v.Cluster.Node; n != nil {
		for _, name := range []string{"machine-controller/owned-by", "v1.machine-controller.kubermatic.io/operating-system"} {
			if has(n.Labels, name) {
				v.refuse("Owner", "machine-controller made this node: label "+name, "Node "+n.Name, "it replaces machines instead of upgrading them", "change the MachineDeployment; or delete the Machine, and join a host with ./install join")
			}
		}
	}
	for _, group := range v.Cluster.APIGroups {
		if group == "kubean.io" {
			v.find("Kubean", "kubean manages clusters from this one", "CustomResourceDefinition clusters.kubean.io", "none", "delete the ClusterOperations of each cluster that you adopt: kubean would run kubespray again")
		}
	}
	if len(v.Cluster.Forbidden) > 0 {
		v.find("NotReadable", "the kubelet of this worker may not read "+strings.Join(v.Cluster.Forbidden, ", "), "the cluster", "none: adopt reads them on a control plane", "adopt the control planes first")
	}
}

// kept are the files that commands may replace, as patterns. Their checksums distinguish them from files that changed later.
var kept = []string{
	"/usr/local/bin/kubelet", "/usr/local/bin/kubectl", "/usr/local/bin/crictl", "/usr/local/bin/etcdctl", "/usr/local/bin/etcdutl", config.CNIBinDir + "/*",
	render.KubeletUnitPath, path.Dir(render.KubeletDropInPath) + "/*.conf",
	config.KubeletConfigFile, config.KubeletFlagsFile, render.KubeletInstanceConfigPath,
	config.KubernetesDir + "/kubelet.conf", config.ManifestsDir + "/*",
}

// fillAdoption fills the ledger's entry.
func fillAdoption(v *view) {
	a := &v.report.Adoption
	a.Maker, a.Kubernetes = v.report.Maker, v.kubeletVersion()
	a.Kubelet = ledger.AdoptedKubelet{Binary: v.kubelet.binary(), Args: v.Kubelet.Args, Config: v.configFile}
	a.Files = map[string]string{}
	for _, pattern := range kept {
		names, err := fs.Glob(v.host.files, inRoot(pattern))
		if err != nil {
			v.host.cannotRead(pattern, err)
		}
		for _, name := range names {
			sum, err := v.host.checksum(name)
			if err != nil {
				v.host.cannotRead("/"+name, err)
			} else if sum != "" {
				a.Files["/"+name] = sum
			}
		}
	}
}
