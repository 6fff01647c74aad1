package preflight

import (
	"context"
	"os"
	"os/exec"

	"airlift/fault"
	"airlift/installer/host"
)

const resetFix = "if this host was a node before, clean it with `install reset` (or `kubeadm reset`)"

// fileAvailable wants a file not to be there, unless it is ours.
func (s *subject) fileAvailable(path string) check {
	return check{"FileAvailable-" + dashed(path), func(context.Context) []finding {
		if _, err := os.Lstat(s.host.Path(path)); err != nil || s.Rerun || s.host.Wrote(path) {
			return nil
		}
		return problem(resetFix, "%s already exists", path)
	}}
}

// dirAvailable wants a directory that a node's programs fill to be missing,
// empty, or Airlift's.
func (s *subject) dirAvailable(c host.Claim) check {
	return check{c.Check(), func(context.Context) []finding {
		if err := s.host.Claimable(c); err != nil {
			return problem(fault.Hint(err)+"; with --ignore-preflight-errors="+c.Check()+" it is used as it is, and reset leaves it", "%v", err)
		}
		return nil
	}}
}

// podNetwork wants nothing of another pod network where ours will be.
func (s *subject) podNetwork(context.Context) []finding {
	var found []finding
	for _, err := range s.host.NetworkClaimable(s.Config) {
		found = append(found, problem(fault.Hint(err), "%v", err)...)
	}
	return found
}

// needs wants a binary in the path that the kubelet runs: mount and umount for
// every volume (k8s.io/mount-utils), so that no pod starts without them, and
// losetup for block volumes (pkg/volume/util/volumepathhandler). kubeadm checks
// for losetup since 1.37; the kubelet has run it since 1.9.
func (s *subject) needs(name, what string) check {
	return check{"FileExisting-" + name, func(context.Context) []finding {
		if s.hasProgram(name) {
			return nil
		}
		return problem("install it (Debian: packages mount and util-linux)", "%s is not in the path: the kubelet %s with it", name, what)
	}}
}

// iptables on the host is only for the kubelet's one rule of its own
// (pkg/kubelet, KUBE-FIREWALL); kube-proxy's and flannel's are in their images.
func (s *subject) iptables(context.Context) []finding {
	if s.hasProgram("iptables") {
		return nil
	}
	return warning("install it if other machines in this network are not trusted",
		"iptables is not in the path: the kubelet goes without its rule against forged packets to 127.0.0.1")
}

// hasProgram looks in the path that systemd gives to services.
func (s *subject) hasProgram(name string) bool {
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if _, err := exec.LookPath(s.host.Path(dir + "/" + name)); err == nil {
			return true
		}
	}
	return false
}

// images asks whether everything is in the bundle. kubeadm's check of this
// name pulls what is missing; here nothing could be pulled.
func (s *subject) images(context.Context) []finding {
	var found []finding
	for _, component := range s.MissingImages {
		found = append(found, problem("make the bundle again with it", "the bundle has no image for %s", component)...)
	}
	return found
}

// binaries looks for other versions of what will be installed.
func (s *subject) binaries(context.Context) []finding {
	var found []finding
	for _, b := range s.Binaries {
		if _, err := s.host.HasBinary(b); err != nil {
			found = append(found, problem(fault.Hint(err), "%v", err)...)
		}
	}
	return found
}
