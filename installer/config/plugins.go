package config

import (
	"slices"
	"strings"
)

// AlwaysPullImages is the admission plugin that sets imagePullPolicy: Always in every pod.
const AlwaysPullImages = "AlwaysPullImages"

// removedPlugins are the admission plugins that kube-apiserver no longer has, with the first minor
// version without them (pkg/kubeapiserver/options/plugins.go of v1.29 to v1.37).
var removedPlugins = map[string]int{
	"SecurityContextDeny":    30,
	"PersistentVolumeLabel":  31,
	"JobValidation":          37,
	"PodGroupWorkloadExists": 37,
}

// EnablesPlugin reports whether the configuration enables an admission plugin.
func (c *Cluster) EnablesPlugin(name string) bool {
	return slices.Contains(c.apiServerList("enable-admission-plugins"), name)
}

// RemovedPlugins returns the admission plugins in the configuration that kube-apiserver of this
// version does not have. kube-apiserver does not start with such plugins.
func (c *Cluster) RemovedPlugins() (names []string) {
	for _, name := range slices.Concat(c.apiServerList("enable-admission-plugins"), c.apiServerList("disable-admission-plugins")) {
		if since := removedPlugins[name]; since > 0 && c.Minor() >= since && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// ServedAPIs returns the items of kube-apiserver's flag runtime-config without their values:
// "api/alpha", "scheduling.k8s.io/v1alpha2".
func (c *Cluster) ServedAPIs() (names []string) {
	for _, item := range c.apiServerList("runtime-config") {
		name, _, _ := strings.Cut(item, "=")
		names = append(names, name)
	}
	return names
}

// apiServerList returns the items of a list in kube-apiserver's extraArgs.
func (c *Cluster) apiServerList(flag string) (items []string) {
	for _, a := range c.APIServer.ExtraArgs {
		if a.Name != flag {
			continue
		}
		for item := range strings.SplitSeq(a.Value, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
	}
	return items
}
