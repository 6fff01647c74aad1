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
func (s *subject) fileAvailable(path string) check {
	return check{"FileAvailable-" + dashed(path), func(context.Context) []Problem {
		if _, err := os.Lstat(s.host.Path(path)); err != nil || s.Rerun || s.host.Records().Wrote(path) {
			return nil
		}
		return Fail(resetFix, "%s already exists", path)
	}}
}

// dirAvailable requires a directory that a node's components fill to be missing,
// empty, or Airlift's.
func (s *subject) dirAvailable(c ledger.Claim) check {
	return check{c.Check(), func(context.Context) []Problem {
		if _, err := s.host.Records().Claimable(c); err != nil {
			return Fail(fault.Hint(err)+"; with --ignore-preflight-errors="+c.Check()+" init and join use it as it is, and reset keeps it", "%v", err)
		}
		return nil
	}}
}

// podNetwork requires that no other pod network uses the names of Airlift's pod network.
func (s *subject) podNetwork(context.Context) (found []Problem) {
	for _, err := range podnetwork.Claimable(s.host, s.Config) {
		found = append(found, Fail(fault.Hint(err), "%v", err)...)
	}
	return found
}

// needs requires a binary that the kubelet runs to be in PATH: mount and umount
// for every volume (k8s.io/mount-utils), so that no pod starts without them, and
// losetup for block volumes (pkg/volume/util/volumepathhandler). kubeadm checks
// for losetup since 1.37; the kubelet has run it since 1.9. A package of the bundle
// may bring it: init and join install the packages first, and check the host again.
func (s *subject) needs(name, what string) check {
	return check{"FileExisting-" + name, func(context.Context) []Problem {
		if s.inPath(name) {
			return nil
		}
		problem := Fail
		if s.PendingPackages > 0 {
			problem = Warn
		}
		return problem("install it (Debian: packages mount and util-linux)", "%s is not in PATH: the kubelet %s with it", name, what)
	}}
}

// iptables on the host is needed only for one rule of the kubelet (pkg/kubelet,
// KUBE-FIREWALL); kube-proxy and flannel have iptables in their images.
func (s *subject) iptables(context.Context) []Problem {
	if s.inPath("iptables") {
		return nil
	}
	return Warn("install iptables if other machines in this network are not trusted",
		"iptables is not in PATH: the kubelet cannot set its rule against forged packets to 127.0.0.1")
}

// inPath reports whether a binary is in the PATH that systemd sets for services.
func (s *subject) inPath(name string) bool { return s.commandPath(name) != "" }

// commandPath returns the path of a binary in the PATH that systemd sets for services, or "".
func (s *subject) commandPath(name string) string {
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if path, err := exec.LookPath(s.host.Path(dir + "/" + name)); err == nil {
			return path
		}
	}
	return ""
}

// images checks that the bundle has every image. kubeadm's check of this name
// pulls missing images, which an isolated host cannot do.
func (s *subject) images(context.Context) (found []Problem) {
	for _, component := range s.MissingImages {
		found = append(found, Fail("build the bundle again with this image", "the bundle has no image for %s", component)...)
	}
	return found
}

// binaries finds other versions of the binaries to install.
func (s *subject) binaries(context.Context) (found []Problem) {
	for _, b := range s.Binaries {
		if _, err := s.host.HasBinary(b); err != nil {
			found = append(found, Fail(fault.Hint(err), "%v", err)...)
		}
	}
	return found
}
