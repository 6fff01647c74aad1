package preflight

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"airlift/internal/childprocess"
)

// Where the installer puts the kubelet, and how long a kubelet may take to print
// its version.
const (
	ownKubelet     = "/usr/local/bin/kubelet"
	versionTimeout = 5 * time.Second
)

// kubeletVersion warns of an existing kubelet of another version. It is only a
// warning, because Airlift's unit starts its own kubelet by its full path.
func (s *subject) kubeletVersion(ctx context.Context) (found []Problem) {
	for _, dir := range []string{"/usr/sbin", "/usr/bin"} { // /bin is a link to /usr/bin, or has none
		path := dir + "/kubelet"
		if _, err := exec.LookPath(s.host.Path(path)); err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, versionTimeout)
		out, err := childprocess.Command(ctx, s.host.Path(path), "--version").Output()
		cancel()
		_, name, _ := strings.Cut(strings.TrimSpace(string(out)), " ") // "Kubernetes v1.29.15"
		is, perr := version.ParseSemantic(name)
		want, werr := version.ParseSemantic(s.Config.KubernetesVersion)
		switch {
		case err != nil || perr != nil || werr != nil:
			found = append(found, Warn("remove it", "%s does not print its version; %s will be used", path, ownKubelet)...)
		case is.Major() != want.Major() || is.Minor() != want.Minor():
			found = append(found, Warn("remove it (Debian: apt-get purge kubelet), so that it is not started by mistake",
				"%s is %s and the bundle's Kubernetes is %s; %s will be used", path, name, s.Config.KubernetesVersion, ownKubelet)...)
		}
	}
	return found
}

// service requires that no other service of a name runs, and that its unit is not masked. It does not check a containerd
// that the node will use, or cannot use: then CRI reports why. To stop it could end the containers of Docker.
func (s *subject) service(ctx context.Context, name string) []Problem {
	if name == "containerd" && (s.RuntimeInUse || s.Runtime != nil) {
		return nil
	}
	unit, ours := name+".service", "/etc/systemd/system/"+name+".service"
	state, err := s.host.Systemd().Unit(ctx, unit)
	if err != nil || s.Rerun || state.File == ours && s.host.Records().Wrote(ours) {
		return nil // without systemd, the check Systemd fails
	}
	switch {
	case state.Load == "masked":
		return Fail("systemctl unmask "+unit, "%s is masked and cannot be started", unit)
	case state.Load == "not-found" || state.Load == "":
		return nil
	case state.Running():
		return Fail("systemctl disable --now "+unit+", or remove the package that installed it", "%s is already running, from %s", unit, state.File)
	}
	return Warn("remove the package that installed it; or, to use this host's existing containerd, start it first",
		"%s already exists, in %s: the bundle's unit replaces it until reset", unit, state.File)
}

// podsNamed is the maximum number of pods in a message.
const podsNamed = 5

// criPods refuses a container runtime with pods that do not belong to this node:
// the kubelet and reset remove all pods that the cluster does not know.
func (s *subject) criPods(context.Context) []Problem {
	if s.Rerun || len(s.Pods) == 0 {
		return nil
	}
	names := strings.Join(s.Pods[:min(podsNamed, len(s.Pods))], ", ")
	if more := len(s.Pods) - podsNamed; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	remove := "with the software that created them"
	if s.inPath("crictl") {
		remove = "with: crictl rmp --all --force"
	}
	return Fail("if these pods are needed, use another host; otherwise remove them "+remove,
		"the existing container runtime has %d pod(s): %s; the kubelet would remove them", len(s.Pods), names)
}

// extraBinaries are the other binaries that kubeadm 1.29 or 1.37 requires in PATH
// (cp is new in 1.37). Nothing in the bundle runs them on the host: kube-proxy
// and the pod network have what they need in their images. They are useful for
// troubleshooting.
var extraBinaries = []string{"crictl", "conntrack", "ip", "nsenter", "ethtool", "tc", "touch", "cp"}

func (s *subject) extraBinary(name string) check {
	return check{"FileExisting-" + name, func(context.Context) []Problem {
		if s.inPath(name) {
			return nil
		}
		return []Problem{{Warning: true, Minor: true, Message: name + " is not in PATH: kubeadm requires it, Airlift does not", Fix: "no action needed; install it if you want it for troubleshooting"}}
	}}
}
