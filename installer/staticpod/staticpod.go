// Package staticpod reads the static pods of this host: the components of a control plane.
package staticpod

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// A Pod is a static pod's manifest.
type Pod struct {
	Name string // of the file, without .yaml
	// Namespace, Pod and Container are the names of the pod and of its first container. The kubelet adds
	// the node's name to the pod's.
	Namespace, Pod, Container string
	Image                     string // of its first container
	// Flags are the flags of the pod's containers, without the dashes.
	Flags map[string]string
	// Volumes are the host's paths by the names of the volumes.
	Volumes map[string]string
	// mounts are the host's paths by the paths in the first container.
	mounts map[string]string
	// Health is the URL of its readiness, startup or liveness probe; "" if none is over HTTP.
	Health string
	// Startup is how long its first container may take to start, 0 if that is not limited.
	Startup time.Duration
	// Err is why the manifest cannot be read.
	Err error
}

// Read reads a static pod's manifest.
func Read(file string) (*Pod, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return Parse(strings.TrimSuffix(filepath.Base(file), ".yaml"), data)
}

// Parse reads the text of a static pod's manifest. name is the name of its file, without .yaml.
func Parse(name string, manifest []byte) (*Pod, error) {
	var pod corev1.Pod
	if err := yaml.Unmarshal(manifest, &pod); err != nil {
		return nil, err
	}
	p := &Pod{Name: name, Namespace: cmp.Or(pod.Namespace, corev1.NamespaceDefault), Pod: pod.Name, Flags: map[string]string{}, Volumes: map[string]string{}}
	for i, c := range pod.Spec.Containers {
		for _, arg := range slices.Concat(c.Command, c.Args) {
			if key, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "="); ok && strings.HasPrefix(arg, "-") {
				p.Flags[key] = value
			}
		}
		if i == 0 {
			p.Container, p.Image, p.Health = c.Name, c.Image, health(&c)
			if probe := c.StartupProbe; probe != nil {
				p.Startup = time.Duration(probe.FailureThreshold) * time.Duration(probe.PeriodSeconds) * time.Second
			}
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			p.Volumes[v.Name] = v.HostPath.Path
		}
	}
	p.mounts = map[string]string{}
	for _, c := range pod.Spec.Containers[:min(1, len(pod.Spec.Containers))] {
		for _, m := range c.VolumeMounts {
			if host, ok := p.Volumes[m.Name]; ok {
				p.mounts[path.Clean(m.MountPath)] = host
			}
		}
	}
	return p, nil
}

// HostPath returns the path on the host of a path in the first container, "" if it is in no volume of the host.
func (p *Pod) HostPath(inside string) string {
	best, inside := "", path.Clean(inside)
	for mount := range p.mounts {
		if (inside == mount || strings.HasPrefix(inside, mount+"/")) && len(mount) > len(best) {
			best = mount
		}
	}
	if best == "" || !path.IsAbs(inside) {
		return ""
	}
	return path.Join(p.mounts[best], strings.TrimPrefix(inside, best))
}

// All reads the manifests in a directory, in order of their names. One that cannot be read
// has an Err.
func All(dir string) ([]*Pod, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var list []*Pod
	for _, file := range files {
		p, err := Read(file)
		if err != nil {
			p = &Pod{Name: strings.TrimSuffix(filepath.Base(file), ".yaml"), Err: fmt.Errorf("reading %s: %w", file, err)}
		}
		list = append(list, p)
	}
	return list, nil
}

// health returns the URL of the probe that reports whether a container works.
func health(c *corev1.Container) string {
	for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.StartupProbe, c.LivenessProbe} {
		if probe == nil || probe.HTTPGet == nil {
			continue
		}
		get := probe.HTTPGet
		port := get.Port.IntVal
		if get.Port.Type == intstr.String {
			i := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == get.Port.StrVal })
			if i < 0 {
				continue // the API refuses such a pod
			}
			port = c.Ports[i].ContainerPort
		}
		u, err := url.Parse(get.Path)
		if err != nil {
			continue
		}
		u.Scheme = strings.ToLower(cmp.Or(string(get.Scheme), "http"))
		u.Host = net.JoinHostPort(cmp.Or(get.Host, "127.0.0.1"), strconv.Itoa(int(port)))
		return u.String()
	}
	return ""
}
