package reconfiguration

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"airlift/installer/config"
)

// A Use is a file of the host that a component of the control plane reads.
type Use struct {
	Component string // "kube-apiserver"
	Flag      string // that names it; "" for a volume
	Path      string // on the host
}

// Uses returns the files of the host that the configuration gives to the control plane's components: files that a flag names
// in a mounted volume, and each volume, which may be one file or a directory. It does not find files that are only named inside
// of such files.
func Uses(c *config.Cluster) (list []Use) {
	for _, one := range mounted(c) {
		for _, v := range one.volumes {
			list = append(list, Use{Component: one.name, Path: path.Clean(v.HostPath)})
			for _, arg := range one.component.ExtraArgs {
				inner, ok := below(path.Clean(arg.Value), path.Clean(v.MountPath))
				if ok && path.IsAbs(arg.Value) && arg.Name != "audit-log-path" {
					list = append(list, Use{one.name, arg.Name, path.Join(v.HostPath, inner)})
				}
			}
		}
	}
	return list
}

// below returns the rest of a path below a directory, "" for the directory itself.
func below(file, dir string) (rest string, ok bool) {
	if file == dir {
		return "", true
	}
	return strings.CutPrefix(file, dir+"/")
}

// ComponentFiles returns the paths of Uses, sorted.
func ComponentFiles(c *config.Cluster) (files []string) {
	for _, u := range Uses(c) {
		files = append(files, u.Path)
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// UsersOf returns the components that read a file of the host: components with a flag that names it, or else components that mount it.
func UsersOf(c *config.Cluster, file string) (components []string) {
	var mount []string
	add := func(list []string, name string) []string {
		if slices.Contains(list, name) {
			return list
		}
		return append(list, name)
	}
	for _, u := range Uses(c) {
		_, inside := below(file, u.Path)
		switch {
		case u.Flag != "" && u.Path == file:
			components = add(components, u.Component)
		case u.Flag == "" && inside:
			mount = add(mount, u.Component)
		}
	}
	if components == nil {
		return mount
	}
	return components
}

// FileOf returns the file of the host that a flag of a component names, "" if it names none.
func FileOf(c *config.Cluster, component, flag string) string {
	for _, one := range mounted(c) {
		if value, ok := config.LastArg(one.component.ExtraArgs, flag); one.name == component && ok {
			return one.fileOf(value)
		}
	}
	return ""
}

// fileOf returns the file of the host that the value of a flag names, "" if it is no absolute path.
func (m mountedComponent) fileOf(value string) string {
	if !path.IsAbs(value) {
		return ""
	}
	file, deepest := path.Clean(value), "" // below a directory of kubeadm's, which has the same path in the pod
	for _, v := range m.volumes {
		if inner, ok := below(path.Clean(value), path.Clean(v.MountPath)); ok && len(v.MountPath) > len(deepest) {
			file, deepest = path.Join(v.HostPath, inner), v.MountPath
		}
	}
	return file
}

// MustExist reports whether a flag of a control plane's component names a file that must exist when it starts (kube-apiserver,
// kube-controller-manager and kube-scheduler of v1.37).
func MustExist(flag string) bool { return slices.Contains(mustExist, flag) }

var mustExist = []string{
	"admission-control-config-file", "audit-policy-file", "audit-webhook-config-file", "authentication-config",
	"authentication-token-webhook-config-file", "authorization-config", "authorization-policy-file",
	"authorization-webhook-config-file", "egress-selector-config-file", "encryption-provider-config", "oidc-ca-file",
	"token-auth-file", "tracing-config-file", "config", "cloud-config",
}

// A mountedComponent is a component with the volumes in which its flags name files.
type mountedComponent struct {
	name      string
	component config.Component
	volumes   []config.HostPathMount
}

func mounted(c *config.Cluster) (list []mountedComponent) {
	certificates := cmp.Or(c.CertificatesDir, config.CertificatesDir)
	own := config.HostPathMount{HostPath: certificates, MountPath: certificates}
	of := func(name string, component config.Component, more ...config.HostPathMount) {
		list = append(list, mountedComponent{name, component, append(slices.Clone(component.ExtraVolumes), more...)})
	}
	of("kube-apiserver", c.APIServer.Component, own)
	of("kube-controller-manager", c.ControllerManager, own)
	of("kube-scheduler", c.Scheduler) // it does not mount the certificates
	return list
}
