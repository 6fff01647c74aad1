package adoption

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"airlift/installer/node"
	"airlift/installer/upgradecheck"
)

// Versions of etcd with limits. Both limits come from kubeadm and from etcd's project.
var (
	// safeFor36 is the first version whose data etcd 3.6 always reads (etcd issue 20809).
	safeFor36 = version.MustParseGeneric("3.5.26")
	// lowestExternal is the lowest version of an external etcd (MinExternalEtcdVersion in the kubeadm of v1.36.3 and v1.37.1;
	// kubeadm v1.29.15 accepts 3.4.13).
	lowestExternal = version.MustParseGeneric("3.5.24")
)

// externalEtcd reports an etcd that kubeadm does not manage.
func externalEtcd(v *view) {
	if !v.plane || v.config == nil || v.config.Etcd.External == nil {
		return
	}
	e := v.config.Etcd.External
	v.find("ExternalEtcd", "etcd is external: "+strings.Join(e.Endpoints, ", "), "ConfigMap "+kubeadmConfig, "an upgrade does not change it, and saves no backup of it; the commands of etcd need an etcd of this host",
		"save it before each upgrade: etcdctl snapshot save FILE; keep its own backups")
	for _, file := range []string{e.CAFile, e.CertFile, e.KeyFile} {
		if file != "" && !v.host.exists(file) {
			v.refuse("EtcdClient", "the stored configuration names "+file+", which this host does not have", file, "an upgrade writes the path to the manifest of kube-apiserver, which would not start",
				"copy the file that kube-apiserver uses here to this path")
		}
	}
	if c := v.host.optionalCertificate(e.CertFile); c != nil && c.NotAfter.Sub(v.Now) < soon {
		v.find("EtcdClient", fmt.Sprintf("the client certificate for etcd ends on %s", c.NotAfter.Format("2006-01-02")), e.CertFile, "no command of Airlift renews it", "renew it where etcd's certificates are managed")
	}
	if v.Etcd == nil {
		return
	}
	for _, m := range v.Etcd.Members {
		is, err := version.ParseGeneric(m.Version)
		if err == nil && is.LessThan(lowestExternal) && minor(v.Target) >= 36 {
			v.find("EtcdVersion", fmt.Sprintf("etcd's member %s has version %s", m.Name, m.Version), "etcd", fmt.Sprintf("kubeadm of %s supports %s and newer; Airlift does not change it", v.Target, lowestExternal),
				"upgrade etcd first, one member at a time, to "+safeFor36.String()+" or newer")
		}
	}
}

// stackedEtcd reports versions of the control plane's own etcd, and refuses one whose data is not known.
func stackedEtcd(v *view) {
	if !v.plane || v.config == nil || v.config.Etcd.External != nil {
		return
	}
	pod := v.component(node.EtcdPod)
	switch {
	case pod == nil && v.active("etcd.service"):
		v.refuse("StackedEtcd", "etcd runs as etcd.service, and by the stored configuration, kubeadm manages it", "ConfigMap "+kubeadmConfig,
			"an upgrade would start a second etcd", "set etcd.external in ClusterConfiguration: kubectl -n kube-system edit configmap kubeadm-config")
		return
	case pod == nil:
		v.refuse("StackedEtcd", "this control plane has no "+node.EtcdManifest, node.EtcdManifest, "the stored configuration has no external etcd", "restore the file, or set etcd.external in ClusterConfiguration")
		return
	case pod.Flags["initial-advertise-peer-urls"] == "" || pod.Flags["advertise-client-urls"] == "" || pod.Volumes["etcd-data"] == "":
		v.refuse("StackedEtcd", "etcd's manifest has no --initial-advertise-peer-urls, --advertise-client-urls or volume etcd-data", node.EtcdManifest, "its member and its data are not known", "restore the file of kubeadm")
	}
	if dir, stored := upgradecheck.MovedEtcd(pod, &v.config.Etcd.Local, v.host.files.place); dir != "" {
		v.refuse("StackedEtcd", fmt.Sprintf("etcd's data is in %s, and in %s by the stored configuration", dir, stored), node.EtcdManifest,
			"an upgrade would start an empty etcd in "+stored, "set etcd.local.dataDir to "+dir+" in ClusterConfiguration: kubectl -n kube-system edit configmap kubeadm-config")
	}
	is, next := imageVersion(pod.Image), tagVersion(newTag(v, node.EtcdPod))
	if is != nil && next != nil && is.Major() == 3 && is.Minor() == 5 && is.LessThan(safeFor36) && next.Minor() > 5 {
		v.find("EtcdVersion", "etcd is "+is.String()+", and the new version has "+next.String(), node.EtcdManifest, "the upgrade replaces it. etcd 3.6 may not start with data that an etcd older than "+safeFor36.String()+" wrote",
			fmt.Sprintf("first upgrade to a file of this minor version with a newer etcd: bundle build --version %s --etcd-version %s-0; and save a backup: ./install etcd snapshot FILE", strings.TrimPrefix(v.stored.KubernetesVersion, "v"), safeFor36))
	}
}

// imageVersion returns the version in an image's tag, without the number of its build; nil without one.
func imageVersion(image string) *version.Version {
	image, _, _ = strings.Cut(image, "@")
	_, tag, ok := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if !ok {
		return nil
	}
	return tagVersion(tag)
}

func tagVersion(tag string) *version.Version {
	tag, _, _ = strings.Cut(tag, "-")
	is, err := version.ParseGeneric(tag)
	if err != nil {
		return nil
	}
	return is
}

// etcdEnvironment is the file with the configuration of etcd as a unit.
const etcdEnvironment = "/etc/etcd.env"

// oldEtcdVariables are variables of etcd that a newer one refuses, by the version that does.
var oldEtcdVariables = map[string]*regexp.Regexp{
	"3.6": regexp.MustCompile(`(?m)^[ \t]*(?:export[ \t]+)?(ETCD_ENABLE_V2|ETCD_PROXY(?:_[A-Z_]+)?)=`),
	"3.7": regexp.MustCompile(`(?m)^[ \t]*(?:export[ \t]+)?(ETCD_EXPERIMENTAL_[A-Z0-9_]+|ETCD_DISCOVERY|ETCD_DISCOVERY_PROXY)=`),
}

// etcdUnit reports etcd as a unit of this host.
func etcdUnit(v *view) {
	unit, known := v.Units["etcd.service"]
	if known {
		v.find("EtcdUnit", "etcd runs as etcd.service", unit.File, "no command of Airlift changes it", "upgrade it as it was installed, one member at a time")
	}
	text := string(v.host.read(etcdEnvironment))
	for _, newer := range sorted(oldEtcdVariables) {
		var names []string
		for _, m := range oldEtcdVariables[newer].FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		if len(names) > 0 {
			slices.Sort(names)
			v.find("EtcdUnit", "etcd's configuration sets "+strings.Join(slices.Compact(names), ", "), etcdEnvironment, "no command of Airlift changes it. etcd "+newer+" does not start with it", "remove it before you upgrade etcd to "+newer)
		}
	}
	if u, ok := v.Units["backup-etcd.timer"]; ok && u.Running() {
		v.find("EtcdUnit", "backup-etcd.timer saves etcd", "backup-etcd.timer", "it stays", "keep it while etcd is external: Airlift saves only an etcd that it manages")
	}
	if names := memberKeys(v); len(names) > 0 {
		v.find("EtcdUnit", "the key of etcd's CA is on this host", path.Join("/etc/ssl/etcd/ssl", names[0]), "it stays", "keep a copy: new members need it")
	}
}

func memberKeys(v *view) (names []string) {
	for _, name := range v.host.list("/etc/ssl/etcd/ssl") {
		if name == "ca-key.pem" || name == "ca.key" {
			names = append(names, name)
		}
	}
	return names
}
