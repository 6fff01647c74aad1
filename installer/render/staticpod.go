package render

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"airlift/installer/config"
)

// staticPod returns a static pod with what all four have in common
// (cmd/kubeadm/app/util/staticpod/utils.go).
func staticPod(c corev1.Container, volumes []corev1.Volume, annotations map[string]string) *corev1.Pod {
	// The priority of system-node-critical, which the kubelet needs before
	// there is an API server to look it up.
	priority := int32(2000001000)
	c.ImagePullPolicy = corev1.PullIfNotPresent
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        c.Name,
			Namespace:   metav1.NamespaceSystem,
			Labels:      map[string]string{"component": c.Name, "tier": "control-plane"},
			Annotations: annotations,
		},
		Spec: corev1.PodSpec{
			Containers:        []corev1.Container{c},
			Volumes:           volumes,
			HostNetwork:       true,
			Priority:          &priority,
			PriorityClassName: "system-node-critical",
			SecurityContext: &corev1.PodSecurityContext{
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		},
	}
}

func requests(cpu, memory string) corev1.ResourceRequirements {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	if memory != "" {
		list[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return corev1.ResourceRequirements{Requests: list}
}

// An endpoint is where a component serves its probes.
type endpoint struct {
	host   string
	port   int32
	scheme corev1.URIScheme
	named  bool // probes use the port's name, not its number
}

func endpointAt(cfg *config.Config, host string, port int32, scheme corev1.URIScheme) endpoint {
	return endpoint{host, port, scheme, minor(cfg) >= probePortFrom}
}

const probePort = "probe-port"

// ports declares the port that the probes name, if they do.
func (e endpoint) ports() []corev1.ContainerPort {
	if !e.named {
		return nil
	}
	return []corev1.ContainerPort{{Name: probePort, ContainerPort: e.port, Protocol: corev1.ProtocolTCP}}
}

func (e endpoint) probe(path string, delay, failures, period int32) *corev1.Probe {
	host := e.host
	if host == "0.0.0.0" || host == "::" {
		host = "" // an unspecified address cannot be probed; the kubelet then uses the pod's
	}
	port := intstr.FromInt32(e.port)
	if e.named {
		port = intstr.FromString(probePort)
	}
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Host: host, Path: path, Port: port, Scheme: e.scheme,
		}},
		InitialDelaySeconds: delay,
		TimeoutSeconds:      15,
		FailureThreshold:    failures,
		PeriodSeconds:       period,
	}
}

func (e endpoint) liveness(path string) *corev1.Probe  { return e.probe(path, 10, 8, 10) }
func (e endpoint) readiness(path string) *corev1.Probe { return e.probe(path, 0, 3, 1) }

// startup is a startup probe that probes every second until timeout. kubeadm's
// probes every ten seconds, first after ten, and the kubelet adds a random part of
// the period: a pod that runs after one second becomes Ready ten to twenty seconds
// later. The timeout is rounded up to ten seconds, as in kubeadm.
func (e endpoint) startup(path string, timeout time.Duration) *corev1.Probe {
	return e.probe(path, 0, 10*int32(math.Ceil(timeout.Seconds()/10)), 1)
}

// command is a component's command line. The user's value for a flag replaces Airlift's, or is
// merged with it according to the merge method of the last occurrence. A repeated flag keeps its
// order, which may matter: the first service-account-issuer signs. Only kubeadm v1.31 sorts the
// values of a repeated flag; for v1.31 Airlift does too.
func command(cfg *config.Config, name string, base []config.Arg, extra []config.Arg) []string {
	byName := func(a, b config.Arg) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(base, byName)
	var args, own []config.Arg
	for _, arg := range extra {
		_, ours := last(base, arg.Name)
		if arg.MergeMethod == "" || !ours {
			own = append(own, arg)
		}
	}
	for _, arg := range base {
		override, ok := last(extra, arg.Name)
		if ok && override.MergeMethod == "" {
			continue
		}
		if ok {
			arg.Value = merge(arg.Value, override)
		}
		args = append(args, arg)
	}
	args = append(args, own...)
	switch {
	case minor(cfg) < repeatedArgsFrom:
		slices.SortStableFunc(args, byName)
	case minor(cfg) < argsInOrderFrom:
		slices.SortFunc(args, func(a, b config.Arg) int { return cmp.Or(byName(a, b), strings.Compare(a.Value, b.Value)) })
	}
	var out []string
	if name != "" {
		out = append(out, name)
	}
	for _, arg := range args {
		out = append(out, "--"+arg.Name+"="+arg.Value)
	}
	return out
}

// merge combines Airlift's value for a flag with the user's.
func merge(base string, arg config.Arg) string {
	switch arg.MergeMethod {
	case "append":
		return base + arg.Value
	case "prepend":
		return arg.Value + base
	}
	return arg.Value
}

// last returns the flag that wins among several of the same name.
func last(args []config.Arg, name string) (config.Arg, bool) {
	for _, arg := range slices.Backward(args) {
		if arg.Name == name {
			return arg, true
		}
	}
	return config.Arg{}, false
}

// mounts are a pod's host paths by volume name; a later one with the same
// name replaces an earlier one.
type mounts map[string]config.HostPathMount

func (m mounts) add(name, path string, readOnly bool, kind corev1.HostPathType) {
	m[name] = config.HostPathMount{Name: name, HostPath: path, MountPath: path, ReadOnly: readOnly, PathType: kind}
}

func (m mounts) extra(list []config.HostPathMount) {
	for _, mount := range list {
		m[mount.Name] = mount
	}
}

// volumes returns the volumes and volume mounts, sorted by name.
func (m mounts) volumes() (volumes []corev1.Volume, inside []corev1.VolumeMount) {
	for _, name := range sortedKeys(m) {
		mount := m[name]
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: mount.HostPath, Type: &mount.PathType},
		}})
		inside = append(inside, corev1.VolumeMount{Name: name, MountPath: mount.MountPath, ReadOnly: mount.ReadOnly})
	}
	return volumes, inside
}
