package upgradecheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/installer/kubelet"
)

// A removedFlag is a flag that a component does not have from a minor version on: it does not
// start with it.
type removedFlag struct {
	component, name string
	since           int
}

// removedIn were found with the components of v1.29.15 and v1.37.1: each flag of the older
// one, hidden ones included, was given to the newer one.
var removedIn = []removedFlag{
	{"kube-apiserver", "cloud-config", 33},
	{"kube-apiserver", "cloud-provider", 33}, // kubernetes pull request 130162
	{"kube-apiserver", "cloud-provider-gce-l7lb-src-cidrs", 31},
	{"kube-apiserver", "cloud-provider-gce-lb-src-cidrs", 31},
	{"kube-controller-manager", "cloud-provider-gce-lb-src-cidrs", 31},
	{"kube-controller-manager", "concurrent-service-syncs", 37},                  // 138002
	{"kube-controller-manager", "horizontal-pod-autoscaler-downscale-delay", 31}, // 124948
	{"kube-controller-manager", "horizontal-pod-autoscaler-upscale-delay", 31},
	{"kube-controller-manager", "volume-host-allow-local-loopback", 31}, // 124017
	{"kube-controller-manager", "volume-host-cidr-denylist", 31},
}

// components are the components of a configuration that take flags, by name.
func components(c *config.Config) map[string][]config.Arg {
	return map[string][]config.Arg{
		"kube-apiserver":          c.APIServer.ExtraArgs,
		"kube-controller-manager": c.ControllerManager.ExtraArgs,
		"kube-scheduler":          c.Scheduler.ExtraArgs,
	}
}

// fields are the fields of ClusterConfiguration of the components.
var fields = map[string]string{
	"kube-apiserver": "apiServer.extraArgs", "kube-controller-manager": "controllerManager.extraArgs", "kube-scheduler": "scheduler.extraArgs",
}

const editConfig = " in ClusterConfiguration: kubectl -n kube-system edit configmap kubeadm-config"

// removedFlags finds flags with which a component of the new version would not start.
func (t *Target) removedFlags() (found []finding) {
	_, to, ok := t.minors()
	if !ok {
		return nil
	}
	all := components(t.Config)
	for _, f := range removedIn {
		if to >= f.since && slices.ContainsFunc(all[f.component], func(a config.Arg) bool { return a.Name == f.name }) {
			found = append(found, problem("remove "+f.name+" from "+fields[f.component]+editConfig,
				"%s has no flag --%s since v1.%d, and the cluster's configuration sets it", f.component, f.name, f.since))
		}
	}
	return found
}

// featureGates finds feature gates that a component of the new version does not have, or that
// cannot have their value any more: then it would not start.
func (t *Target) featureGates() (found []finding) {
	if err := t.Config.CheckFeatureGates(); err != nil {
		found = append(found, problem("remove it from featureGates"+editConfig, "%v", err))
	}
	all := components(t.Config)
	for _, component := range slices.Sorted(maps.Keys(all)) {
		gates := map[string]bool{}
		for _, a := range all[component] {
			if a.Name != "feature-gates" {
				continue
			}
			for gate := range strings.SplitSeq(a.Value, ",") {
				if name, value, ok := strings.Cut(gate, "="); ok {
					gates[strings.TrimSpace(name)] = strings.EqualFold(strings.TrimSpace(value), "true")
				}
			}
		}
		for _, p := range kubelet.GateProblems(t.To, gates) {
			found = append(found, finding{
				message: fmt.Sprintf("%s: %s", component, p.Message), fix: "change feature-gates of " + fields[component] + editConfig, warning: p.Warning,
			})
		}
	}
	return found
}

// kubelet returns the findings of one of the kubelet's checks.
func (t *Target) kubelet(name string) (found []finding) {
	for _, p := range t.KubeletProblems {
		if p.Name == name {
			found = append(found, finding{message: p.Message, fix: p.Fix, warning: p.Warning})
		}
	}
	return found
}

// removedAPIs warns of objects and clients that use an API which the new version does not
// serve. The objects stay; the clients and manifests that use the API fail.
func (t *Target) removedAPIs() (found []finding) {
	for _, u := range t.Uses {
		fix := "use another API"
		if u.Replacement != "" {
			fix = "use " + u.Replacement
		}
		if u.Object == "" {
			found = append(found, warning(fix+"; the API server's audit log has the clients", "a client requests %s of %s, which v%s no longer serves", u.Kind, u.API, strings.TrimPrefix(u.Removed, "v")))
			continue
		}
		found = append(found, warning(fix+" in its manifest and apply it again", "%s %s was written by %q with %s, which %s no longer serves", u.Kind, u.Object, u.By, u.API, u.Removed))
	}
	return found
}
