package adoption

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/images/release"
	"airlift/installer/config"
	"airlift/installer/host/ledger"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/render"
	"airlift/installer/upgradecheck"
	"airlift/internal/documents"
)

// oldAPIs are versions of kubeadm's API that no kubeadm of a supported Kubernetes reads.
var oldAPIs = []string{"v1alpha1", "v1alpha2", "v1alpha3", "v1beta1", "v1beta2"}

// oldestMinor is the oldest minor version that a file can upgrade: the one before the oldest that there are files of.
const oldestMinor = release.OldestMinor - 1

const storedIn = "ConfigMap " + kubeadmConfig

var storedChecks = []func(*view){
	versions,
	refuse("KubeadmAPI", answered, func(v *view) [][]string { return given(slices.Contains(oldAPIs, v.api), v.api) }, "the stored configuration is kubeadm.k8s.io/$1", storedIn, "no kubeadm of a supported Kubernetes reads it",
		"convert its ClusterConfiguration with kubeadm config migrate of v1.22 to v1.26, and store the result: "+editStored),
	refuse("KubeadmAPI", answered, when(func(v *view) bool { return v.value(kubeadmConfig, "ClusterConfiguration") == "" }), "the cluster has no "+storedIn, storedIn,
		"an upgrade writes the control plane from it", "on a control plane, store the configuration again: kubeadm init phase upload-config kubeadm --config FILE"),
	find("KubeadmAPI", hasStored, word(func(v *view) string {
		switch to := minor(v.Target); {
		case v.api != "v1beta3":
			return ""
		case to < 31:
			return "an upgrade stores v1beta3 again"
		case to < 37:
			return "the upgrade stores it as v1beta4"
		}
		return "the upgrade stores it as v1beta4. Real kubeadm of v1.37 and newer does not read v1beta3"
	}), "the stored configuration is kubeadm.k8s.io/v1beta3", storedIn, "$1", ""),
	find("KubeadmAPI", hasStored, each(func(v *view) []string { return v.warnings }), "the stored configuration: $1", storedIn, "an upgrade ignores it, and does not store it again", "remove it"),
	upgradeChecks,

	refuse("RenewTimer", everywhere, func(v *view) [][]string {
		u := v.Units[renewTimerUnit]
		return given(u.Enabled || u.Running(), cmp.Or(u.File, renewTimerUnit))
	}, renewTimerUnit+" renews certificates, and restarts the control plane", "$1", "two control planes could restart at once, and a rotation of the CAs could be undone",
		"systemctl disable --now "+renewTimerUnit+"; after adopt: ./install certs auto"),
	refuse("Owner", answered, when(func(v *view) bool {
		d := v.Cluster.Deployments[ekco]
		return d != nil && (d.Spec.Replicas == nil || *d.Spec.Replicas > 0)
	}), "EKCO runs", "Deployment "+ekco, "it rewrites certificates, kubeconfigs and haproxy's manifest", "kubectl -n kurl scale deployment ekc-operator --replicas=0"),
	refuse("Owner", hasNode, each(func(v *view) []string {
		return slices.DeleteFunc([]string{"machine-controller/owned-by", "v1.machine-controller.kubermatic.io/operating-system"}, func(label string) bool { return !has(v.Cluster.Node.Labels, label) })
	}), "machine-controller made this node: label $1", "Node $node", "it replaces machines instead of upgrading them", "change the MachineDeployment; or delete the Machine, and join a host with ./install join"),
	find("Kubean", answered, when(func(v *view) bool { return slices.Contains(v.Cluster.APIGroups, "kubean.io") }), "kubean manages clusters from this one", "CustomResourceDefinition clusters.kubean.io",
		"none", "delete the ClusterOperations of each cluster that you adopt: kubean would run kubespray again"),
	find("NotReadable", answered, word(func(v *view) string { return strings.Join(v.Cluster.Forbidden, ", ") }), "the kubelet of this worker may not read $1", "the cluster",
		"none: adopt reads them on a control plane", "adopt the control planes first"),
}

// versions refuses versions of Kubernetes that this file cannot work with.
func versions(v *view) {
	stored := ""
	if v.stored != nil {
		stored = v.stored.KubernetesVersion
	}
	for _, one := range []struct{ what, is, where string }{{"this node's kubelet", v.kubeletVersion(), "kubelet"}, {"the cluster", stored, "kubernetesVersion in " + storedIn}} {
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

// upgradeChecks runs the checks of an upgrade that need only what is known here.
func upgradeChecks(v *view) {
	if v.stored == nil {
		return
	}
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
		certs, authorities := v.expirations()
		t.Certificates = slices.DeleteFunc(append(certs, authorities...), func(e pki.Expiration) bool { return e.Missing || e.External && !e.NotAfter.Before(v.Now) })
	}
	report := upgradecheck.Configuration(t)
	for effect, problems := range map[string][]preflight.Problem{"the upgrade refuses it": report.Errors, "the upgrade warns of it": report.Warnings} {
		for _, p := range problems {
			where := storedIn
			if p.Name == "Certificates" {
				where = v.config.CertificatesDir
			}
			v.find(p.Name, p.Message, where, effect, p.Fix)
		}
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
	for _, f := range v.report.Findings { // add-ons that upgrades leave
		if addOn := map[string]string{"DNS": "coredns", "KubeProxy": "kube-proxy"}[f.Name]; addOn != "" {
			a.Keeps = append(a.Keeps, addOn)
		}
	}
	slices.Sort(a.Keeps)
	a.Files = map[string]string{}
	for _, pattern := range kept {
		for _, file := range v.host.glob(pattern) {
			sum, err := v.host.checksum(file)
			if err != nil {
				v.host.cannotRead(file, err)
			} else if sum != "" {
				a.Files[file] = sum
			}
		}
	}
}
