package adoption

import (
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/clientcmd"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/corefile"
	"airlift/installer/render"
	"airlift/installer/upgradecheck"
)

const (
	kubeProxyName = "kube-system/kube-proxy"
	// Names of the cluster's DNS.
	dnsService    = "kube-system/kube-dns"
	dnsDeployment = "kube-system/coredns"
	dnsSelector   = "kube-dns" // the label k8s-app of its pods

	readsProxy   = "an upgrade reads kube-proxy's configuration and its server there"
	restoreProxy = "restore it; or delete the DaemonSet kube-proxy, if the pod network replaces it"
)

// podNetworks are pod networks, by the names of their DaemonSets.
var podNetworks = map[string]string{
	"kube-flannel-ds": "flannel", "canal": "Canal", "calico-node": "Calico", "cilium": "Cilium", "kube-router": "kube-router",
	"weave-net": "Weave Net", "antrea-agent": "Antrea", "kube-ovn-cni": "Kube-OVN",
}

var clusterChecks = []func(*view){
	// It is never Airlift's on an adopted node.
	find("PodNetwork", answered, networksOf, "the pod network is $1, installed $2", "DaemonSet $3", "it stays: an upgrade changes only a flannel that Airlift installed", "upgrade it as it was installed"),
	find("PodNetwork", answered, word(func(v *view) string {
		if files := v.host.list(config.CNIConfDir); len(files) > 0 && len(networksOf(v)) == 0 {
			return files[0]
		}
		return ""
	}), "the pod network's configuration is $1", config.CNIConfDir+"/$1", "it stays", ""),

	find("KubeProxy", withCluster, func(v *view) [][]string {
		what, effect := "the cluster has no kube-proxy", "an upgrade does not install it"
		if v.active("kube-proxy.service") {
			what = "kube-proxy runs as a unit"
		}
		if v.config != nil && !v.config.Proxy.Disabled {
			effect += ", and stores proxy.disabled: true from v1.31 on, so that kubeadm does not either"
		}
		return given(v.Cluster.DaemonSets[kubeProxyName] == nil, what, effect)
	}, "$1", "DaemonSet "+kubeProxyName, "$2", ""),
	refuse("KubeProxy", withProxy, when(func(v *view) bool { return v.Cluster.ConfigMaps[proxyConfig] == nil }), "the cluster has no ConfigMap "+proxyConfig, "ConfigMap "+proxyConfig, readsProxy, restoreProxy),
	refuse("KubeProxy", withProxy, word(func(v *view) string {
		for _, key := range []string{"config.conf", "kubeconfig.conf"} {
			if v.Cluster.ConfigMaps[proxyConfig] != nil && strings.TrimSpace(v.value(proxyConfig, key)) == "" {
				return key
			}
		}
		return ""
	}), "the ConfigMap "+proxyConfig+" has no $1", "ConfigMap "+proxyConfig, readsProxy, restoreProxy),
	find("KubeProxyConfiguration", withProxyConfig, when(func(v *view) bool { return !cluster.UnchangedDefaults(v.Cluster.ConfigMaps[proxyConfig]) }),
		"kube-proxy's configuration was edited, or is not kubeadm's default", "ConfigMap "+proxyConfig, "an upgrade keeps it", ""),
	find("KubeProxyServer", withProxyConfig, each(func(v *view) (list []string) {
		kubeconfig, err := clientcmd.Load([]byte(v.value(proxyConfig, "kubeconfig.conf")))
		if err != nil {
			v.host.cannotRead("ConfigMap "+proxyConfig, err)
			return nil
		}
		for _, c := range kubeconfig.Clusters {
			if isLoopback(c.Server) {
				list = append(list, c.Server)
			}
		}
		return list
	}), "kube-proxy uses $1: each node needs a proxy to the API servers there", "ConfigMap "+proxyConfig, "an upgrade keeps the address. A node that joins has no such proxy",
		"before you join a node, start the same proxy there; or write the address of the API servers to kubeconfig.conf"),

	find("Corefile", withCorefile, when(func(v *view) bool {
		return !render.IsDefaultCorefile(v.config, v.value(corednsConfig, "Corefile"), v.stored.KubernetesVersion, v.kubeletVersion(), v.Target)
	}), "the Corefile was edited, or is not kubeadm's", "ConfigMap "+corednsConfig, "an upgrade keeps it, and migrates it to the new CoreDNS", ""),
	migratedCorefile,
	find("NodeLocalDNS", withDNS, each(func(v *view) []string {
		return slices.DeleteFunc(sorted(v.Cluster.DaemonSets), func(name string) bool {
			return !strings.HasSuffix(name, "/nodelocaldns") && !strings.HasSuffix(name, "/node-local-dns")
		})
	}), "each node has a cache of DNS", "DaemonSet $1", "it stays. It needs the address of the DNS Service, which an upgrade does not change", ""),
	find("DNS", withDNS, otherDNS, "$1", "$2", "an upgrade does not change CoreDNS and its Service, and stores dns.disabled: true from v1.31 on, so that kubeadm does not either", "upgrade CoreDNS as it was installed"),

	find("Endpoint", everywhere, each(func(v *view) []string {
		return slices.DeleteFunc([]string{"keepalived.service", "haproxy.service"}, func(unit string) bool { return !v.active(unit) })
	}), "$1 runs on this host", "$1", "it stays", "if it leads to the API servers, change its configuration when you add or remove a control plane"),
	find("Endpoint", hasStored, func(v *view) [][]string {
		name, _, _ := strings.Cut(v.stored.ControlPlaneEndpoint, ":")
		return given(v.host.inHosts(name), name)
	}, "the endpoint $1 is in /etc/hosts", "/etc/hosts", "an upgrade does not change the file", "a node that joins needs the same line"),

	find("OtherNodes", withCluster, func(v *view) [][]string {
		others := slices.DeleteFunc(slices.Clone(v.Cluster.Nodes), func(name string) bool { return name == v.name })
		return given(len(v.Cluster.Nodes) > 1, fmt.Sprint(len(others)), upgradecheck.Some(others))
	}, "the cluster has $1 other nodes: $2", "the cluster",
		"CoreDNS and kube-proxy keep their version until every node has the new images", "adopt each node, and run on each before the upgrade: ./install upgrade node phase unpack"),
}

// networksOf are the pod networks, who installed each, and their DaemonSets.
func networksOf(v *view) (list [][]string) {
	for name, d := range v.Cluster.DaemonSets {
		if product, known := podNetworks[path.Base(name)]; known {
			list = append(list, []string{product, installedBy(d), name})
		}
	}
	return list
}

func installedBy(d *appsv1.DaemonSet) string {
	switch {
	case d.Labels["app.kubernetes.io/managed-by"] == "Helm" || d.Annotations["meta.helm.sh/release-name"] != "":
		return "by Helm"
	case len(d.OwnerReferences) > 0:
		return "by an operator"
	}
	return "by a manifest"
}

// Scopes of add-ons on control planes: kube-proxy, its complete configuration, DNS, and a Corefile.
func withProxy(v *view) bool { return withCluster(v) && v.Cluster.DaemonSets[kubeProxyName] != nil }
func withProxyConfig(v *view) bool {
	return withProxy(v) && strings.TrimSpace(v.value(proxyConfig, "config.conf")) != "" && strings.TrimSpace(v.value(proxyConfig, "kubeconfig.conf")) != ""
}
func withDNS(v *view) bool      { return v.Cluster != nil && onPlane(v) }
func withCorefile(v *view) bool { return withDNS(v) && v.value(corednsConfig, "Corefile") != "" }

// isLoopback reports whether a URL is one of the node itself.
func isLoopback(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// otherDNS is what makes the DNS another one than kubeadm's, and where: an upgrade leaves it.
func otherDNS(v *view) [][]string {
	if v.config.DNS.Disabled {
		return nil
	}
	what, where := "", ""
	usual, err := v.config.Networking.ServiceIP(config.DNSServiceIndex)
	service := v.Cluster.Services[dnsService]
	others := slices.DeleteFunc(sorted(v.Cluster.Deployments), func(name string) bool {
		return name == dnsDeployment || v.Cluster.Deployments[name].Spec.Template.Labels["k8s-app"] != dnsSelector
	})
	switch {
	case v.Cluster.Deployments[dnsDeployment] == nil:
		what, where = "the cluster has no Deployment coredns", "Deployment "+dnsDeployment
	case service == nil:
		what, where = "the cluster has no Service kube-dns", "Service "+dnsService
		for _, name := range sorted(v.Cluster.Services) {
			if s := v.Cluster.Services[name]; s.Spec.Selector["k8s-app"] == dnsSelector {
				what, where = fmt.Sprintf("the Service of CoreDNS is %s, at %s", name, s.Spec.ClusterIP), "Service "+name
			}
		}
	case err == nil && service.Spec.ClusterIP != usual.String():
		what, where = fmt.Sprintf("the Service kube-dns has the address %s, and kubeadm gives it %s", service.Spec.ClusterIP, usual), "Service "+dnsService
	case len(others) > 0:
		what, where = "the pods of "+strings.Join(others, ", ")+" have CoreDNS's label k8s-app: kube-dns too", "Deployment "+others[0]
	default:
		return nil
	}
	return [][]string{{what, where}}
}

// migratedCorefile reports what the migration to the new CoreDNS does not know.
func migratedCorefile(v *view) {
	if !withCorefile(v) {
		return
	}
	d, next := v.Cluster.Deployments[dnsDeployment], newTag(v, "coredns")
	if d == nil || len(d.Spec.Template.Spec.Containers) == 0 || next == "" {
		return
	}
	const where = "ConfigMap " + corednsConfig
	is := upgradecheck.Tag(d.Spec.Template.Spec.Containers[0].Image)
	m, err := corefile.Migrate(is, next, v.value(corednsConfig, "Corefile"))
	if err != nil {
		v.find("Corefile", err.Error(), where, "the upgrade keeps the Corefile and CoreDNS "+is, "give the image of CoreDNS upstream's tag before the upgrade")
	}
	for _, plugin := range m.Unknown {
		v.find("Corefile", "the migration does not know a part of the Corefile: "+plugin, where, "the upgrade keeps this part as it is", "compare it with the release notes of CoreDNS")
	}
}
