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

// podNetworks are the DaemonSets of pod networks, by the end of their names.
var podNetworks = []struct{ daemonSet, product string }{
	{"kube-flannel-ds", "flannel"}, {"canal", "Canal"}, {"calico-node", "Calico"}, {"cilium", "Cilium"}, {"kube-router", "kube-router"},
	{"weave-net", "Weave Net"}, {"antrea-agent", "Antrea"}, {"kube-ovn-cni", "Kube-OVN"},
}

// podNetwork reports the pod network, which is never Airlift's on an adopted node.
func podNetwork(v *view) {
	if v.Cluster == nil {
		return
	}
	found := false
	for _, name := range sorted(v.Cluster.DaemonSets) {
		_, base, _ := strings.Cut(name, "/")
		i := slices.IndexFunc(podNetworks, func(n struct{ daemonSet, product string }) bool { return base == n.daemonSet })
		if i < 0 {
			continue
		}
		found = true
		v.find("PodNetwork", "the pod network is "+podNetworks[i].product+", installed "+installedBy(v.Cluster.DaemonSets[name]), "DaemonSet "+name, "it stays: an upgrade changes only a flannel that Airlift installed", "upgrade it as it was installed")
	}
	if found {
		return
	}
	if files := v.host.list(config.CNIConfDir); len(files) > 0 {
		v.find("PodNetwork", "the pod network's configuration is "+files[0], path.Join(config.CNIConfDir, files[0]), "it stays", "")
	}
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

const kubeProxyName = "kube-system/kube-proxy"

// kubeProxy reports a kube-proxy that is absent, edited, or that uses a proxy on its node.
func kubeProxy(v *view) {
	if v.Cluster == nil || !v.plane {
		return
	}
	if v.Cluster.DaemonSets[kubeProxyName] == nil {
		what := "the cluster has no kube-proxy"
		if v.active("kube-proxy.service") {
			what = "kube-proxy runs as a unit"
		}
		effect := "an upgrade does not install it"
		if v.config != nil && !v.config.Proxy.Disabled {
			effect += ", and stores proxy.disabled: true from v1.31 on, so that kubeadm does not either"
		}
		v.find("KubeProxy", what, "DaemonSet "+kubeProxyName, effect, "")
		keep(v, "kube-proxy")
		return
	}
	m := v.Cluster.ConfigMaps[proxyConfig]
	if m == nil {
		v.refuse("KubeProxy", "the cluster has no ConfigMap "+proxyConfig, "ConfigMap "+proxyConfig, "an upgrade reads kube-proxy's configuration and its server there", "restore it; or delete the DaemonSet kube-proxy, if the pod network replaces it")
		return
	}
	for _, key := range []string{"config.conf", "kubeconfig.conf"} {
		if strings.TrimSpace(m.Data[key]) == "" {
			v.refuse("KubeProxy", "the ConfigMap "+proxyConfig+" has no "+key, "ConfigMap "+proxyConfig, "an upgrade reads kube-proxy's configuration and its server there", "restore it; or delete the DaemonSet kube-proxy, if the pod network replaces it")
			return
		}
	}
	if !cluster.UnchangedDefaults(m) {
		v.find("KubeProxyConfiguration", "kube-proxy's configuration was edited, or is not kubeadm's default", "ConfigMap "+proxyConfig, "an upgrade keeps it", "")
	}
	kubeconfig, err := clientcmd.Load([]byte(m.Data["kubeconfig.conf"]))
	if err != nil {
		v.host.cannotRead("ConfigMap "+proxyConfig, err)
		return
	}
	for _, name := range sorted(kubeconfig.Clusters) {
		to := kubeconfig.Clusters[name].Server
		if isLoopback(to) {
			v.find("KubeProxyServer", "kube-proxy uses "+to+": each node needs a proxy to the API servers there", "ConfigMap "+proxyConfig, "an upgrade keeps the address. A node that joins has no such proxy",
				"before you join a node, start the same proxy there; or write the address of the API servers to kubeconfig.conf")
		}
	}
}

// isLoopback reports whether a URL is one of the node itself.
func isLoopback(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// keep records an add-on that upgrades leave.
func keep(v *view, addOn string) {
	if !slices.Contains(v.report.Adoption.Keeps, addOn) {
		v.report.Adoption.Keeps = append(v.report.Adoption.Keeps, addOn)
		slices.Sort(v.report.Adoption.Keeps)
	}
}

// Names of the cluster's DNS.
const (
	dnsService    = "kube-system/kube-dns"
	dnsDeployment = "kube-system/coredns"
	dnsSelector   = "kube-dns" // the label k8s-app of its pods
)

// dns reports a DNS that differs from kubeadm's: an upgrade leaves it.
func dns(v *view) {
	if v.Cluster == nil || !v.plane || v.config == nil {
		return
	}
	editedCorefile(v)
	for _, name := range sorted(v.Cluster.DaemonSets) {
		if strings.HasSuffix(name, "/nodelocaldns") || strings.HasSuffix(name, "/node-local-dns") {
			v.find("NodeLocalDNS", "each node has a cache of DNS", "DaemonSet "+name, "it stays. It needs the address of the DNS Service, which an upgrade does not change", "")
		}
	}
	if v.config.DNS.Disabled {
		return
	}
	what, where := "", ""
	usual, err := v.config.Networking.ServiceIP(config.DNSServiceIndex)
	service := v.Cluster.Services[dnsService]
	var others []string
	for _, name := range sorted(v.Cluster.Deployments) {
		if d := v.Cluster.Deployments[name]; name != dnsDeployment && d.Spec.Template.Labels["k8s-app"] == dnsSelector {
			others = append(others, name)
		}
	}
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
		return
	}
	v.find("DNS", what, where, "an upgrade does not change CoreDNS and its Service, and stores dns.disabled: true from v1.31 on, so that kubeadm does not either", "upgrade CoreDNS as it was installed")
	keep(v, "coredns")
}

// editedCorefile reports a Corefile that was edited, and one that cannot be migrated.
func editedCorefile(v *view) {
	text := v.value(corednsConfig, "Corefile")
	if text == "" {
		return
	}
	const where = "ConfigMap " + corednsConfig
	if !render.IsDefaultCorefile(v.config, text, v.stored.KubernetesVersion, v.kubeletVersion(), v.Target) {
		v.find("Corefile", "the Corefile was edited, or is not kubeadm's", where, "an upgrade keeps it, and migrates it to the new CoreDNS", "")
	}
	d := v.Cluster.Deployments[dnsDeployment]
	if d == nil || len(d.Spec.Template.Spec.Containers) == 0 {
		return
	}
	is, next := upgradecheck.Tag(d.Spec.Template.Spec.Containers[0].Image), newTag(v, "coredns")
	if next == "" {
		return
	}
	m, err := corefile.Migrate(is, next, text)
	if err != nil {
		v.find("Corefile", err.Error(), where, "the upgrade keeps the Corefile and CoreDNS "+is, "give the image of CoreDNS upstream's tag before the upgrade")
	}
	for _, plugin := range m.Unknown {
		v.find("Corefile", "the migration does not know a part of the Corefile: "+plugin, where, "the upgrade keeps this part as it is", "compare it with the release notes of CoreDNS")
	}
}

// endpoint reports a name of the endpoint that only /etc/hosts resolves, and units that keep its address.
func endpoint(v *view) {
	for _, name := range []string{"keepalived.service", "haproxy.service"} {
		if v.active(name) {
			v.find("Endpoint", name+" runs on this host", name, "it stays", "if it leads to the API servers, change its configuration when you add or remove a control plane")
		}
	}
	if v.stored == nil || v.stored.ControlPlaneEndpoint == "" {
		return
	}
	name, _, _ := strings.Cut(v.stored.ControlPlaneEndpoint, ":")
	if v.host.inHosts(name) {
		v.find("Endpoint", "the endpoint "+name+" is in /etc/hosts", "/etc/hosts", "an upgrade does not change the file", "a node that joins needs the same line")
	}
}

// otherNodes reports that add-ons wait for all nodes.
func otherNodes(v *view) {
	if v.Cluster == nil || !v.plane || len(v.Cluster.Nodes) < 2 {
		return
	}
	name, others := v.name, []string{}
	for _, n := range v.Cluster.Nodes {
		if n != name {
			others = append(others, n)
		}
	}
	v.find("OtherNodes", fmt.Sprintf("the cluster has %d other nodes: %s", len(others), some(others)), "the cluster",
		"CoreDNS and kube-proxy keep their version until every node has the new images", "adopt each node, and run on each before the upgrade: ./install upgrade node phase unpack")
}

// shownNames is how many names a finding lists.
const shownNames = 5

func some(names []string) string {
	if len(names) > shownNames {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shownNames], ", "), len(names)-shownNames)
	}
	return strings.Join(names, ", ")
}
