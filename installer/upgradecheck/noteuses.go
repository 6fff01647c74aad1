package upgradecheck

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"airlift/installer/cluster/inventory"
	"airlift/installer/config"
	"airlift/internal/documents"
)

func (t *Target) alwaysPulls() []string {
	if t.Config.EnablesPlugin(config.AlwaysPullImages) {
		return []string{config.AlwaysPullImages}
	}
	return nil
}

func (t *Target) ipvs() []string {
	if t.Config.KubeProxy != nil && t.Config.KubeProxy.Mode == "ipvs" {
		return []string{"ConfigMap kube-system/kube-proxy"}
	}
	return nil
}

// flexVolumes returns the users of flexVolume plugins, unless the controller manager mounts their directory
// with extraVolumes.
func (t *Target) flexVolumes() []string {
	c := t.Config.ControllerManager
	for _, a := range c.ExtraArgs {
		if a.Name == "flex-volume-plugin-dir" && slices.ContainsFunc(c.ExtraVolumes, func(v config.HostPathMount) bool { return path.Clean(v.MountPath) == path.Clean(a.Value) }) {
			return nil
		}
	}
	return objects(inventory.VolumeType("flexVolume"))(t)
}

// seLinuxMounts returns whose volumes can be mounted with a label, and this host if it uses SELinux.
func (t *Target) seLinuxMounts() []string {
	names := objects(inventory.SELinuxMount, inventory.VolumeType("iscsi"), inventory.VolumeType("fc"))(t)
	if _, err := fs.Stat(t.Files, "sys/fs/selinux/enforce"); err == nil {
		names = append(names, "this host uses SELinux")
	}
	return names
}

// volumeLimits are plugins of the scheduler for volumes of some clouds. The names may be disabled.
var volumeLimits = []string{"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"}

// schedulerPlugins returns the removed plugins that the scheduler's configuration file on this host enables.
func (t *Target) schedulerPlugins() (names []string) {
	for _, a := range t.Config.Scheduler.ExtraArgs {
		if a.Name != "config" {
			continue
		}
		file := map[string]any{}
		data, err := fs.ReadFile(t.Files, strings.TrimPrefix(onHost(t.Config.Scheduler.ExtraVolumes, a.Value), "/"))
		if err == nil && documents.Unmarshal(data, &file) == nil {
			names = append(names, enabled(file, volumeLimits)...)
		}
	}
	return names
}

// onHost returns the path on the host of a file of a static pod.
func onHost(volumes []config.HostPathMount, file string) string {
	for _, v := range volumes {
		if rest, ok := strings.CutPrefix(path.Clean(file), path.Clean(v.MountPath)); ok && (rest == "" || rest[0] == '/') {
			return path.Join(v.HostPath, rest)
		}
	}
	return path.Clean(file)
}

// enabled returns the names that lists of enabled plugins have, at any depth.
func enabled(node any, names []string) (found []string) {
	switch node := node.(type) {
	case map[string]any:
		for _, field := range slices.Sorted(maps.Keys(node)) {
			plugins, _ := node[field].([]any)
			for _, plugin := range plugins {
				p, _ := plugin.(map[string]any)
				if name, _ := p["name"].(string); field == "enabled" && slices.Contains(names, name) && !slices.Contains(found, name) {
					found = append(found, name)
				}
			}
			found = append(found, enabled(node[field], names)...)
		}
	case []any:
		for _, element := range node {
			found = append(found, enabled(element, names)...)
		}
	}
	return found
}

// staticPodsWithObjects returns the static pods of this host that refer to objects of the API.
func (t *Target) staticPodsWithObjects() (names []string) {
	files, _ := fs.Glob(t.Files, strings.TrimPrefix(config.ManifestsDir, "/")+"/*") // the pattern is correct
	for _, file := range files {
		data, err := fs.ReadFile(t.Files, file)
		pod := map[string]any{}
		if err == nil && documents.Unmarshal(data, &pod) == nil && refersToObjects(pod["spec"]) {
			names = append(names, "/"+path.Clean(file))
		}
	}
	return names
}

// references are the fields of a pod that name objects: HasAPIObjectReference of Kubernetes'
// package pkg/api/pod.
var references = []string{
	"serviceAccountName", "serviceAccount", "imagePullSecrets", "secretRef", "secretKeyRef", "configMapRef", "configMapKeyRef", "nodePublishSecretRef",
	"configMap", "secret", "csi", "glusterfs", "persistentVolumeClaim", "ephemeral", "azureFile", "serviceAccountToken", "clusterTrustBundle", "podCertificate",
	"resourceClaims",
}

func refersToObjects(node any) bool {
	switch node := node.(type) {
	case map[string]any:
		for field, value := range node {
			if slices.Contains(references, field) || refersToObjects(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(node, refersToObjects)
	}
	return false
}
