package upgradecheck

import (
	"io/fs"
	"slices"
	"strings"
)

// A note is something that the release notes of a minor version ask the administrator to do.
// docs/upgrade-plan.md lists them, also those that no check can find.
type note struct {
	since        int // it concerns an upgrade to this minor version; 0 for every upgrade
	concerns     func(*Target) bool
	message, fix string
	blocks       bool // a component would not start: an error
}

var notes = []note{
	{30, func(t *Target) bool {
		return t.apiServerHas("enable-admission-plugins", func(item string) bool { return item == "SecurityContextDeny" })
	}, "kube-apiserver has no admission plugin SecurityContextDeny since v1.30, and does not start with it",
		"remove it from enable-admission-plugins in apiServer.extraArgs" + editConfig + "; pod security admission replaces it", true},
	{35, func(t *Target) bool { return t.servesAlpha("storagemigration.k8s.io/v1alpha1") }, "v1.35 does not serve storagemigration.k8s.io/v1alpha1, which the API server is configured to serve",
		"delete the objects of this version before the upgrade: kubectl delete storageversionmigrations.v1alpha1.storagemigration.k8s.io --all; and remove it from runtime-config", false},
	{37, (*Target).usesSELinux, "since v1.37 volumes are mounted with the SELinux label of a pod (SELinuxMount), and this host uses SELinux: pods with different labels cannot share a volume on one node",
		"find pods that share a volume, and set seLinuxChangePolicy: Recursive in the securityContext of those that must", false},
	{37, func(t *Target) bool { return t.servesAlpha("scheduling.k8s.io/v1alpha2") }, "v1.37 does not serve scheduling.k8s.io/v1alpha2, which the API server is configured to serve",
		"delete the objects of this version before the upgrade: kubectl get --all-namespaces workloads.v1alpha2.scheduling.k8s.io,podgroups.v1alpha2.scheduling.k8s.io; and remove it from runtime-config", false},
	{0, (*Target).usesIPVS, "kube-proxy's mode ipvs is deprecated since v1.35; v1.40 disables it by default, and v1.43 removes it", "set mode: nftables (kernel 5.13 or later) or iptables in the ConfigMap kube-proxy of kube-system", false},
	{0, (*Target).alwaysPulls, "the admission plugin AlwaysPullImages makes every pod pull its images, also those that were imported: without a registry no pod starts", "remove AlwaysPullImages from enable-admission-plugins in apiServer.extraArgs" + editConfig, false},
}

// upgradeNotes warns of what the release notes of the new version ask for.
func (t *Target) upgradeNotes() (found []finding) {
	from, to, ok := t.minors()
	if !ok {
		return nil
	}
	for _, n := range notes {
		if (n.since == 0 || from < n.since && n.since <= to) && n.concerns(t) {
			found = append(found, finding{message: n.message, fix: n.fix, warning: !n.blocks})
		}
	}
	return found
}

func (t *Target) usesSELinux() bool {
	_, err := fs.Stat(t.Files, "sys/fs/selinux/enforce")
	return err == nil
}

// servesAlpha reports whether the API server is configured to serve an API version that it does
// not serve by default.
func (t *Target) servesAlpha(version string) bool {
	return t.apiServerHas("runtime-config", func(item string) bool {
		return slices.Contains([]string{version, version + "=true", "api/alpha=true", "api/all=true"}, item)
	})
}

func (t *Target) usesIPVS() bool {
	_, to, _ := t.minors()
	return to >= 35 && t.Config.KubeProxy != nil && t.Config.KubeProxy.Mode == "ipvs"
}

func (t *Target) alwaysPulls() bool {
	return t.apiServerHas("enable-admission-plugins", func(item string) bool { return item == "AlwaysPullImages" })
}

// apiServerHas reports whether a list in a flag of the API server has an item.
func (t *Target) apiServerHas(flag string, is func(item string) bool) bool {
	for _, a := range t.Config.APIServer.ExtraArgs {
		if a.Name == flag && slices.ContainsFunc(strings.Split(a.Value, ","), func(item string) bool { return is(strings.TrimSpace(item)) }) {
			return true
		}
	}
	return false
}
