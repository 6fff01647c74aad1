package adoption

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"airlift/installer/etcd"
	"airlift/installer/node"
	"airlift/installer/upgradecheck"
)

// Versions of etcd with limits. Both limits come from kubeadm and from etcd's project.
const (
	// safeFor36 is the first version whose data etcd 3.6 always reads (etcd issue 20809).
	safeFor36 = "3.5.26"
	// lowestExternal is the lowest version of an external etcd (MinExternalEtcdVersion in the kubeadm of v1.36.3 and v1.37.1;
	// kubeadm v1.29.15 accepts 3.4.13).
	lowestExternal = "3.5.24"
)

const (
	editStored = "kubectl -n kube-system edit configmap kubeadm-config"
	// etcdEnvironment is the file with the configuration of etcd as a unit.
	etcdEnvironment = "/etc/etcd.env"
	etcdKeys        = "/etc/ssl/etcd/ssl"
)

// oldEtcdVariables are variables of etcd that a newer one refuses, by the version that does.
var oldEtcdVariables = map[string]*regexp.Regexp{
	"3.6": regexp.MustCompile(`(?m)^[ \t]*(?:export[ \t]+)?(ETCD_ENABLE_V2|ETCD_PROXY(?:_[A-Z_]+)?)=`),
	"3.7": regexp.MustCompile(`(?m)^[ \t]*(?:export[ \t]+)?(ETCD_EXPERIMENTAL_[A-Z0-9_]+|ETCD_DISCOVERY|ETCD_DISCOVERY_PROXY)=`),
}

var etcdChecks = []func(*view){
	find("ExternalEtcd", external, func(v *view) [][]string { return [][]string{{strings.Join(v.config.Etcd.External.Endpoints, ", ")}} }, "etcd is external: $1", "ConfigMap "+kubeadmConfig,
		"an upgrade does not change it, and saves no backup of it; the commands of etcd need an etcd of this host", "save it before each upgrade: etcdctl snapshot save FILE; keep its own backups"),
	refuse("EtcdClient", external, each(func(v *view) []string {
		e := v.config.Etcd.External
		return slices.DeleteFunc([]string{e.CAFile, e.CertFile, e.KeyFile}, func(file string) bool { return file == "" || v.host.exists(file) })
	}), "the stored configuration names $1, which this host does not have", "$1",
		"an upgrade writes the path to the manifest of kube-apiserver, which would not start", "copy the file that kube-apiserver uses here to this path"),
	find("EtcdClient", external, func(v *view) [][]string {
		file := v.config.Etcd.External.CertFile
		if c := v.host.certificate(file); c != nil && c.NotAfter.Sub(v.Now) < soon {
			return [][]string{{c.NotAfter.Format(time.DateOnly), file}}
		}
		return nil
	}, "the client certificate for etcd ends on $1", "$2", "no command of Airlift renews it", "renew it where etcd's certificates are managed"),
	find("EtcdVersion", func(v *view) bool { return external(v) && minor(v.Target) >= 36 }, func(v *view) [][]string {
		return per(v.Etcd, func(m etcd.Status) [][]string {
			is, err := version.ParseGeneric(m.Version)
			return given(err == nil && is.LessThan(version.MustParseGeneric(lowestExternal)), m.Name, m.Version)
		})
	}, "etcd's member $1 has version $2", "etcd", "kubeadm of $target supports "+lowestExternal+" and newer; Airlift does not change it",
		"upgrade etcd first, one member at a time, to "+safeFor36+" or newer"),

	refuse("StackedEtcd", noStacked, when(func(v *view) bool { return v.active("etcd.service") }), "etcd runs as etcd.service, and by the stored configuration, kubeadm manages it", "ConfigMap "+kubeadmConfig,
		"an upgrade would start a second etcd", "set etcd.external in ClusterConfiguration: "+editStored),
	refuse("StackedEtcd", noStacked, when(func(v *view) bool { return !v.active("etcd.service") }), "this control plane has no "+node.EtcdManifest, node.EtcdManifest,
		"the stored configuration has no external etcd", "restore the file, or set etcd.external in ClusterConfiguration"),
	refuse("StackedEtcd", stacked, when(func(v *view) bool {
		pod := v.component(node.EtcdPod)
		return pod.Flags["initial-advertise-peer-urls"] == "" || pod.Flags["advertise-client-urls"] == "" || pod.Volumes["etcd-data"] == ""
	}), "etcd's manifest has no --initial-advertise-peer-urls, --advertise-client-urls or volume etcd-data", node.EtcdManifest, "its member and its data are not known", "restore the file of kubeadm"),
	refuse("StackedEtcd", stacked, func(v *view) [][]string {
		is, stored := upgradecheck.MovedEtcd(v.component(node.EtcdPod), &v.config.Etcd.Local, v.host.files.place)
		return single(is, stored)
	}, "etcd's data is in $1, and in $2 by the stored configuration", node.EtcdManifest,
		"an upgrade would start an empty etcd in $2", "set etcd.local.dataDir to $1 in ClusterConfiguration: "+editStored),
	find("EtcdVersion", stacked, func(v *view) [][]string {
		is, next := tagVersion(upgradecheck.Tag(v.component(node.EtcdPod).Image)), tagVersion(newTag(v, node.EtcdPod))
		if is == nil || next == nil || is.Major() != 3 || is.Minor() != 5 || !is.LessThan(version.MustParseGeneric(safeFor36)) || next.Minor() <= 5 {
			return nil
		}
		return [][]string{{is.String(), next.String(), strings.TrimPrefix(v.stored.KubernetesVersion, "v")}}
	}, "etcd is $1, and the new version has $2", node.EtcdManifest, "the upgrade replaces it. etcd 3.6 may not start with data that an etcd older than "+safeFor36+" wrote",
		"first upgrade to a file of this minor version with a newer etcd: bundle build --version $3 --etcd-version "+safeFor36+"-0; and save a backup: ./install etcd snapshot FILE"),

	find("EtcdUnit", everywhere, func(v *view) [][]string { return given(has(v.Units, "etcd.service"), v.Units["etcd.service"].File) }, "etcd runs as etcd.service", "$1", "no command of Airlift changes it", "upgrade it as it was installed, one member at a time"),
	find("EtcdUnit", everywhere, func(v *view) (list [][]string) {
		text := string(v.host.read(etcdEnvironment))
		for _, newer := range sorted(oldEtcdVariables) {
			names := map[string]bool{}
			for _, m := range oldEtcdVariables[newer].FindAllStringSubmatch(text, -1) {
				names[m[1]] = true
			}
			list = append(list, single(strings.Join(sorted(names), ", "), newer)...)
		}
		return list
	}, "etcd's configuration sets $1", etcdEnvironment, "no command of Airlift changes it. etcd $2 does not start with it", "remove it before you upgrade etcd to $2"),
	find("EtcdUnit", everywhere, when(func(v *view) bool { return v.active("backup-etcd.timer") }), "backup-etcd.timer saves etcd", "backup-etcd.timer",
		"it stays", "keep it while etcd is external: Airlift saves only an etcd that it manages"),
	find("EtcdUnit", everywhere, word(func(v *view) string {
		for _, name := range v.host.list(etcdKeys) {
			if name == "ca-key.pem" || name == "ca.key" {
				return path.Join(etcdKeys, name)
			}
		}
		return ""
	}), "the key of etcd's CA is on this host", "$1", "it stays", "keep a copy: new members need it"),
}

// Scopes of etcd: external, or kubeadm's with and without its static pod.
func external(v *view) bool { return onPlane(v) && v.config.Etcd.External != nil }
func stacked(v *view) bool  { return onPlane(v) && !external(v) && v.component(node.EtcdPod) != nil }
func noStacked(v *view) bool {
	return onPlane(v) && !external(v) && v.component(node.EtcdPod) == nil
}

// tagVersion returns the version in an image's tag, without the number of its build; nil without one.
func tagVersion(tag string) *version.Version {
	tag, _, _ = strings.Cut(tag, "-")
	is, err := version.ParseGeneric(tag)
	if err != nil {
		return nil
	}
	return is
}
