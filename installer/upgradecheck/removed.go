package upgradecheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"airlift/installer/cluster/inventory"
	"airlift/installer/config"
	"airlift/installer/kubeletcheck"
	"airlift/installer/preflight"
)

// A removedFlag is a flag that a component does not have from a minor version on: it does not
// start with it.
type removedFlag struct {
	component, name string
	since           int
}

// The entries of removedIn were found by test: each flag of a v1.29.15 component, including hidden
// flags, was given to the v1.37.1 component.
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

// The entries of removedFromEtcd were found in the same way with etcd 3.5.16, 3.6.8 and 3.7.0: v1.34 is the first
// version with etcd 3.6, and v1.37 with 3.7.
var removedFromEtcd = slices.Concat(
	etcdFlags(34, "enable-v2", "experimental-enable-v2v3", "proxy", "proxy-dial-timeout", "proxy-failure-wait", "proxy-read-timeout", "proxy-refresh-interval", "proxy-write-timeout"),
	etcdFlags(37, "discovery", "discovery-proxy",
		"experimental-bootstrap-defrag-threshold-megabytes", "experimental-compact-hash-check-enabled", "experimental-compact-hash-check-time",
		"experimental-compaction-batch-limit", "experimental-compaction-sleep-interval", "experimental-corrupt-check-time",
		"experimental-distributed-tracing-address", "experimental-distributed-tracing-instance-id", "experimental-distributed-tracing-sampling-rate",
		"experimental-distributed-tracing-service-name", "experimental-downgrade-check-time", "experimental-enable-distributed-tracing",
		"experimental-enable-lease-checkpoint", "experimental-enable-lease-checkpoint-persist", "experimental-initial-corrupt-check",
		"experimental-memory-mlock", "experimental-peer-skip-client-san-verification", "experimental-snapshot-catchup-entries",
		"experimental-stop-grpc-service-on-defrag", "experimental-txn-mode-write-with-shared-buffer", "experimental-warning-apply-duration",
		"experimental-watch-progress-notify-interval"),
)

func etcdFlags(since int, names ...string) (list []removedFlag) {
	for _, name := range names {
		list = append(list, removedFlag{"etcd", name, since})
	}
	return list
}

// A refusedItem is a part of a flag's value with which a component does not start from a minor version on.
type refusedItem struct {
	removedFlag
	refuses func(item string) bool
	fix     string // for the item
}

// refusedIn were found with the same components: the newer one does not start with these parts of values.
var refusedIn = []refusedItem{
	{removedFlag{"kube-controller-manager", "cidr-allocator-type", 31}, isNot("RangeAllocator"), "remove cidr-allocator-type=%s from "},
	{removedFlag{"kube-controller-manager", "cloud-provider", 31}, isNot("external"),
		"install the cloud controller manager of %s, and set cloud-provider: external in "}, // KEP 2395
	{removedFlag{"kube-controller-manager", "controllers", 37}, removedController, "remove %s from controllers in "}, // 138002
}

func isNot(value string) func(string) bool {
	return func(item string) bool { return item != "" && item != value }
}

// removedController reports whether an item of --controllers enables or disables a controller of built-in
// cloud providers, by its name or its former one.
func removedController(item string) bool {
	return slices.Contains([]string{
		"cloud-node-lifecycle-controller", "cloud-node-lifecycle", "node-route-controller", "route", "service-lb-controller", "service",
	}, strings.TrimPrefix(item, "-"))
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
	"etcd": "etcd.local.extraArgs", "kube-apiserver": "apiServer.extraArgs", "kube-controller-manager": "controllerManager.extraArgs", "kube-scheduler": "scheduler.extraArgs",
}

const editConfig = " in ClusterConfiguration: kubectl -n kube-system edit configmap kubeadm-config"

// removedFlags finds flags with which a component of the new version would not start.
func (t *Target) removedFlags() (found []preflight.Problem) {
	_, to, ok := t.minors()
	if !ok {
		return nil
	}
	all := components(t.Config)
	if t.Config.Etcd.External == nil {
		all["etcd"] = t.Config.Etcd.Local.ExtraArgs
	}
	for _, f := range slices.Concat(removedIn, removedFromEtcd) {
		if to >= f.since && slices.ContainsFunc(all[f.component], func(a config.Arg) bool { return a.Name == f.name }) {
			found = append(found, preflight.Fail("remove "+f.name+" from "+fields[f.component]+editConfig,
				"%s has no flag --%s since v1.%d, and the cluster's configuration sets it", f.component, f.name, f.since)...)
		}
	}
	return append(found, refusedItems(all, to)...)
}

// refusedItems finds parts of the flags' values with which a component of the new version would not start.
func refusedItems(all map[string][]config.Arg, to int) (found []preflight.Problem) {
	for _, f := range refusedIn {
		for _, a := range all[f.component] {
			if to < f.since || a.Name != f.name {
				continue
			}
			for item := range strings.SplitSeq(a.Value, ",") {
				if f.refuses(item) {
					found = append(found, preflight.Fail(fmt.Sprintf(f.fix, item)+fields[f.component]+editConfig,
						"%s does not start with %s in --%s since v1.%d, and the cluster's configuration sets it", f.component, item, f.name, f.since)...)
				}
			}
		}
	}
	return found
}

// featureGates finds feature gates that a component of the new version does not have, or that
// cannot have their value any more: then it would not start.
func (t *Target) featureGates() (found []preflight.Problem) {
	if err := t.Config.CheckFeatureGates(); err != nil {
		found = append(found, preflight.Fail("remove it from featureGates"+editConfig, "%v", err)...)
	}
	all := components(t.Config)
	for _, component := range slices.Sorted(maps.Keys(all)) {
		for _, p := range kubeletcheck.GateProblems(t.To, gates(all[component])) {
			found = append(found, preflight.Problem{
				Message: component + ": " + p.Message, Fix: "change feature-gates of " + fields[component] + editConfig, Warning: p.Warning,
			})
		}
	}
	return found
}

// gates returns the feature gates in the flags of a component.
func gates(args []config.Arg) map[string]bool {
	gates := map[string]bool{}
	for _, a := range args {
		if a.Name != "feature-gates" {
			continue
		}
		for gate := range strings.SplitSeq(a.Value, ",") {
			if name, value, ok := strings.Cut(gate, "="); ok {
				gates[strings.TrimSpace(name)] = strings.EqualFold(strings.TrimSpace(value), "true")
			}
		}
	}
	return gates
}

// removedAPIs warns of objects and clients that use an API which the new version does not
// serve. The objects stay; the clients and manifests that use the API fail. Objects that the new
// version cannot read are an error.
func (t *Target) removedAPIs() (found []preflight.Problem) {
	found = t.lostObjects()
	for _, u := range t.Uses {
		if u.Lost != "" {
			continue
		}
		fix := "use another API"
		if u.Replacement != "" {
			fix = "use " + u.Replacement
		}
		if u.Object == "" {
			found = append(found, preflight.Warn(fix+"; the API server's audit log has the clients", "a client requests %s of %s, which v%s no longer serves", u.Kind, u.API, strings.TrimPrefix(u.Removed, "v"))...)
			continue
		}
		found = append(found, preflight.Warn(fix+" in its manifest and apply it again", "%s %s was written by %q with %s, which %s no longer serves", u.Kind, u.Object, u.By, u.API, u.Removed)...)
	}
	return found
}

// lostObjects reports the objects that the new version cannot read, one finding for each resource.
func (t *Target) lostObjects() (found []preflight.Problem) {
	lost := slices.DeleteFunc(slices.Clone(t.Uses), func(u inventory.APIUse) bool { return u.Lost == "" })
	for len(lost) > 0 {
		first, names := lost[0], []string{}
		lost = slices.DeleteFunc(lost, func(u inventory.APIUse) bool {
			same := u.API == first.API && u.Lost == first.Lost
			if same {
				names = append(names, u.Object)
			}
			return same
		})
		group, version, _ := strings.Cut(first.API, "/")
		resource := first.Lost + "." + version + "." + group
		fix := fmt.Sprintf("save and delete them before the upgrade: kubectl get %s -A -o yaml > %s.yaml && kubectl delete %s -A --all", resource, first.Lost, resource)
		if first.Replacement != "" {
			fix += "; afterwards, create them with " + first.Replacement
		}
		found = append(found, preflight.Fail(fix, "%s %s: %s can neither read nor delete objects of %s, which it does not have", first.Kind, Some(names), first.Removed, first.API)...)
	}
	return found
}
