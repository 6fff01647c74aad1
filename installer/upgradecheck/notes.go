package upgradecheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"airlift/installer/cluster/inventory"
	"airlift/installer/preflight"
)

// A note is what the release notes of Kubernetes ask the administrator to do, if the cluster uses
// what has changed. docs/upgrade-notes.md lists all notes, including notes that no check can find.
type note struct {
	since int // the first minor version with the change; 0 if uses knows it
	// lasts is set if later upgrades report it too: the cluster still works, but the administrator
	// must change it.
	lasts bool
	// refuses is set if a component of the new version would not start.
	refuses bool
	// uses returns what the change concerns, none if nothing.
	uses func(*Target) []string
	// message has one %s, for the result of uses.
	message, fix string
}

// notes are sorted by version.
var notes = []note{
	{lasts: true, refuses: true, uses: func(t *Target) []string { return t.Config.RemovedPlugins() },
		message: "kube-apiserver of the new version has no admission plugin %s, and does not start with it",
		fix:     "remove it from enable-admission-plugins and disable-admission-plugins in apiServer.extraArgs" + editConfig},
	{lasts: true, refuses: true, uses: func(t *Target) []string { return inventory.UnknownAPIs(&t.Config.Cluster) },
		message: "kube-apiserver of the new version does not know the API %s in runtime-config, and does not start with it",
		fix:     "remove it from runtime-config in apiServer.extraArgs" + editConfig},
	{lasts: true, uses: (*Target).alwaysPulls,
		message: "the admission plugin %s makes each pod pull its images, also imported ones: without a registry no pod starts",
		fix:     "remove it from enable-admission-plugins in apiServer.extraArgs" + editConfig + ", unless every node can pull its images from a registry"},
	{since: 31, uses: objects(inventory.VolumeType("cephfs"), inventory.VolumeType("rbd")),
		message: "%s: volumes of the types cephfs and rbd cannot be mounted since v1.31",
		fix:     "move the data to a CSI driver, such as ceph-csi, before the upgrade"},
	{since: 31, uses: objects(inventory.VolumeType("portworxVolume")),
		message: "%s: since v1.31 volumes of the type portworxVolume need Portworx' CSI driver",
		fix:     "install the CSI driver pxd.portworx.com before the upgrade; see: kubectl get csidrivers"},
	{since: 31, uses: gate("RecoverVolumeExpansionFailure"),
		message: "%s enables RecoverVolumeExpansionFailure: since v1.31 the states ControllerResizeFailed and NodeResizeFailed of a PersistentVolumeClaim have other names",
		fix:     "after the upgrade, remove such states from status.allocatedResourceStatuses: kubectl edit pvc NAME --subresource=status"},
	{since: 32, refuses: true, uses: (*Target).schedulerPlugins,
		message: "the configuration of kube-scheduler enables %s, which v1.32 does not have: it does not start with them",
		fix:     "enable NodeVolumeLimits instead, in the file of config in scheduler.extraArgs"},
	{since: 34, uses: (*Target).staticPodsWithObjects,
		message: "%s: since v1.34 the kubelet refuses static pods that refer to objects of the API",
		fix:     "replace Secrets and ConfigMaps with hostPath volumes, and remove serviceAccountName, or run it as a DaemonSet"},
	{since: 35, uses: gate("DRAPartitionableDevices"),
		message: "%s enables DRAPartitionableDevices: v1.35 cannot use ResourceSlices with shared counters that a driver wrote for v1.34",
		fix:     "delete them before the upgrade, and update the driver: kubectl delete resourceslices --all"},
	{since: 35, uses: objects(inventory.ConnectByGet),
		message: "%s: since v1.35 exec, attach and port-forward need the verb create, and get is not enough",
		fix:     "add the verb create to the rule, if its users should connect to pods: kubectl edit"},
	{since: 35, lasts: true, uses: (*Target).ipvs,
		message: "%s: kube-proxy's mode ipvs is deprecated since v1.35, and a later version removes it",
		fix:     "set mode: nftables (Linux 5.13 or newer) or mode: iptables: kubectl -n kube-system edit configmap kube-proxy; then: kubectl -n kube-system rollout restart daemonset kube-proxy"},
	{since: 36, lasts: true, uses: objects(inventory.ExternalIPs),
		message: "%s: externalIPs of Services are deprecated since v1.36, and a later version ignores them",
		fix:     "use a Service of type LoadBalancer or NodePort, or a Gateway, and remove spec.externalIPs"},
	{since: 36, uses: objects(inventory.VolumeType("gitRepo")),
		message: "%s: volumes of the type gitRepo cannot be used since v1.36",
		fix:     "clone the repository in an init container into an emptyDir volume"},
	{since: 36, uses: (*Target).flexVolumes,
		message: "%s: since v1.36 the controller manager has no directory of flexVolume plugins",
		fix:     "use a CSI driver; or set flex-volume-plugin-dir in controllerManager.extraArgs, and mount that directory with controllerManager.extraVolumes" + editConfig},
	{since: 37, uses: (*Target).seLinuxMounts,
		message: "%s: since v1.37 volumes are mounted with the SELinux label of their pod (SELinuxMount). On a node with SELinux, pods with different labels cannot share such a volume, and one of them does not start",
		fix:     "set securityContext.seLinuxChangePolicy: Recursive in pods that share a volume, or seLinuxMount: false in the CSIDriver: kubectl patch csidriver NAME --type merge -p '{\"spec\":{\"seLinuxMount\":false}}'"},
	{since: 37, uses: objects(inventory.NodeLogs),
		message: "%s: the kubelet of v1.37 writes its configuration to its log, and this role may read the logs of nodes",
		fix:     "remove nodes/log from roles of users who should not see it: kubectl edit"},
}

// upgradeNotes reports what the release notes ask for, from the version of the cluster or of this
// node to the new one.
func (t *Target) upgradeNotes() (found []preflight.Problem) {
	from, to, ok := t.minors()
	if !ok || t.Unsuitable() {
		return nil
	}
	if kubelet, err := version.ParseSemantic(t.Kubelet); err == nil {
		from = min(from, int(kubelet.Minor()))
	}
	for _, n := range notes {
		if to < n.since || from >= n.since && !n.lasts {
			continue
		}
		if uses := n.uses(t); len(uses) > 0 {
			found = append(found, preflight.Problem{Message: fmt.Sprintf(n.message, Some(uses)), Fix: n.fix, Warning: !n.refuses})
		}
	}
	return found
}

// shown is how many names a message lists.
const shown = 5

// Some lists the first names, and how many more there are.
func Some(names []string) string {
	if len(names) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return strings.Join(names, ", ")
}

// objects returns the objects of the cluster that use one of some features.
func objects(features ...inventory.Feature) func(*Target) []string {
	return func(t *Target) (names []string) {
		if t.Cluster == nil {
			return nil
		}
		for _, f := range features {
			names = append(names, t.Cluster.Features[f]...)
		}
		return slices.Compact(slices.Sorted(slices.Values(names)))
	}
}

// gate returns the components that enable a feature gate.
func gate(name string) func(*Target) []string {
	return func(t *Target) (names []string) {
		all := components(t.Config)
		for _, component := range slices.Sorted(maps.Keys(all)) {
			if gates(all[component])[name] {
				names = append(names, component)
			}
		}
		return names
	}
}
