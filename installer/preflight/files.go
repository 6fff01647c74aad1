package preflight

import (
	"context"
	"os"
	"os/exec"

	"airlift/installer/host/ledger"
	"airlift/installer/host/podnetwork"
	"airlift/internal/fault"
)

const resetFix = "if this host was a node before, run `./install reset` (or `kubeadm reset`)"

// fileAvailable requires that a file does not exist, or that Airlift wrote it.
func (s fileChecks) fileAvailable(path string) check {
	return check{"FileAvailable-" + dashed(path), func(context.Context) []finding {
		if _, err := os.Lstat(s.subject.host.Path(path)); err != nil || s.subject.Rerun || s.subject.host.Records().Wrote(path) {
			return nil
		}
		return problem(resetFix, "%s already exists", path)
	}}
}

// dirAvailable requires a directory that a node's components fill to be missing,
// empty, or Airlift's.
func (s fileChecks) dirAvailable(c ledger.Claim) check {
	return check{c.Check(), func(context.Context) []finding {
		if _, err := s.subject.host.Records().Claimable(c); err != nil {
			return problem(fault.Hint(err)+"; with --ignore-preflight-errors="+c.Check()+" init and join use it as it is, and reset keeps it", "%v", err)
		}
		return nil
	}}
}

// podNetwork requires that no other pod network uses the names of Airlift's pod network.
func (s fileChecks) podNetwork(context.Context) []finding {
	var found []finding
	for _, err := range podnetwork.Claimable(s.subject.host, s.subject.Config) {
		found = append(found, problem(fault.Hint(err), "%v", err)...)
	}
	return found
}

// needs requires a binary that the kubelet runs to be in PATH: mount and umount
// for every volume (k8s.io/mount-utils), so that no pod starts without them, and
// losetup for block volumes (pkg/volume/util/volumepathhandler). kubeadm checks
// for losetup since 1.37; the kubelet has run it since 1.9.
func (s fileChecks) needs(name, what string) check {
	return check{"FileExisting-" + name, func(context.Context) []finding {
		if s.inPath(name) {
			return nil
		}
		return problem("install it (Debian: packages mount and util-linux)", "%s is not in PATH: the kubelet %s with it", name, what)
	}}
}

// iptables on the host is needed only for one rule of the kubelet (pkg/kubelet,
// KUBE-FIREWALL); kube-proxy and flannel have iptables in their images.
func (s fileChecks) iptables(context.Context) []finding {
	if s.inPath("iptables") {
		return nil
	}
	return warning("install iptables if other machines in this network are not trusted",
		"iptables is not in PATH: the kubelet cannot set its rule against forged packets to 127.0.0.1")
}

// inPath reports whether a binary is in the PATH that systemd sets for services.
func (s fileChecks) inPath(name string) bool { return s.commandPath(name) != "" }

// commandPath returns the path of a binary in the PATH that systemd sets for services, or "".
func (s fileChecks) commandPath(name string) string {
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if path, err := exec.LookPath(s.subject.host.Path(dir + "/" + name)); err == nil {
			return path
		}
	}
	return ""
}

// images checks that the bundle has every image. kubeadm's check of this name
// pulls missing images, which an isolated host cannot do.
func (s fileChecks) images(context.Context) []finding {
	var found []finding
	for _, component := range s.subject.MissingImages {
		found = append(found, problem("build the bundle again with this image", "the bundle has no image for %s", component)...)
	}
	return found
}

// binaries finds other versions of the binaries to install.
func (s fileChecks) binaries(context.Context) []finding {
	var found []finding
	for _, b := range s.subject.Binaries {
		if _, err := s.subject.host.HasBinary(b); err != nil {
			found = append(found, problem(fault.Hint(err), "%v", err)...)
		}
	}
	return found
}
