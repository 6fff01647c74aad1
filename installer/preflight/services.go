package preflight

import (
	"context"
	"os/exec"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// Where the installer puts the kubelet, and how long a program may take to
// say its version.
const (
	ownKubelet     = "/usr/local/bin/kubelet"
	versionTimeout = 5 * time.Second
)

// kubeletVersion looks at a kubelet that is there already, from a package or a
// person. Ours is started by its full path, so that it is a warning only; it
// would take part where somebody's unit starts it.
func (s *subject) kubeletVersion(ctx context.Context) []finding {
	var found []finding
	for _, dir := range []string{"/usr/sbin", "/usr/bin"} { // /bin is a link to /usr/bin, or has none
		path := dir + "/kubelet"
		if _, err := exec.LookPath(s.host.Path(path)); err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, versionTimeout)
		out, err := exec.CommandContext(ctx, s.host.Path(path), "--version").Output()
		cancel()
		_, name, _ := strings.Cut(strings.TrimSpace(string(out)), " ") // "Kubernetes v1.29.15"
		is, perr := version.ParseSemantic(name)
		want, werr := version.ParseSemantic(s.Config.KubernetesVersion)
		switch {
		case err != nil || perr != nil || werr != nil:
			found = append(found, warning("remove it", "%s is a kubelet that does not say its version; %s will be used", path, ownKubelet)...)
		case is.Major() != want.Major() || is.Minor() != want.Minor():
			found = append(found, warning("remove it (Debian: apt-get purge kubelet), so that nobody starts it by mistake",
				"%s is %s, Kubernetes here is %s; %s will be used", path, name, s.Config.KubernetesVersion, ownKubelet)...)
		}
	}
	return found
}

// serviceKubelet wants no kubelet of somebody else's to run or to stand in the
// way of ours.
func (s *subject) serviceKubelet(ctx context.Context) []finding {
	return s.service(ctx, "kubelet", "/etc/systemd/system/kubelet.service")
}

// serviceContainerd does the same for containerd, where the host's own is not
// the one that will be used.
func (s *subject) serviceContainerd(ctx context.Context) []finding {
	if s.RuntimeInUse {
		return nil
	}
	return s.service(ctx, "containerd", "/etc/systemd/system/containerd.service")
}

func (s *subject) service(ctx context.Context, name, ours string) []finding {
	unit := name + ".service"
	state, err := s.host.Unit(ctx, unit)
	if err != nil || s.Rerun || state.File == ours && s.host.Wrote(ours) {
		return nil // without systemd, Systemd says so
	}
	switch {
	case state.Load == "masked":
		return problem("systemctl unmask "+unit, "%s is masked: it could not be started", unit)
	case state.Load == "not-found" || state.Load == "":
		return nil
	case state.Running():
		return problem("systemctl disable --now "+unit+", or remove what brought it", "%s runs already, from %s", unit, state.File)
	}
	return warning("remove what brought it, or, to have a containerd of the host's own used, start it first",
		"%s is there already, in %s: the bundle's takes its place until reset", unit, state.File)
}

// extraPrograms are those that kubeadm of 1.29 or 1.37 wants in the path besides
// (cp is new in the latter). Nothing that
// the bundle brings runs them on the host, kube-proxy and the pod network have
// what they need in their images; they help a person who looks for a fault.
var extraPrograms = []string{"crictl", "conntrack", "ip", "nsenter", "ethtool", "tc", "touch", "cp"}

func (s *subject) extraProgram(name string) check {
	return check{"FileExisting-" + name, func(context.Context) []finding {
		if s.hasProgram(name) {
			return nil
		}
		return []finding{{warning: true, minor: true, message: name + " is not in the path: kubeadm asks for it, Kubernetes works here without", fix: "nothing to do, unless you want it for looking for faults"}}
	}}
}
