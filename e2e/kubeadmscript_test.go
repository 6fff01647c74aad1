//go:build e2e

package e2e

import (
	"testing"

	"airlift/scripts/lab"
)

// kubeadmScript is a script that was written for kubeadm.
const kubeadmScript = `set -ex
kubeadm version -o json | grep '"gitVersion": "v1'
kubeadm config images pull --cri-socket unix:///run/containerd/containerd.sock
kubeadm config print init-defaults --component-configs KubeletConfiguration >/dev/null
# The root file system of the host, as in a container that administers it.
mkdir /mnt/host
mount --rbind / /mnt/host
kubeadm --rootfs /mnt/host init --token abcdef.0123456789abcdef --token-ttl 0
export KUBECONFIG=/etc/kubernetes/admin.conf
kubeadm init phase uploadconfig all
kubeadm init phase bootstraptoken --token abcdef.0123456789abcdef --token-ttl 0
kubeadm init phase control-plane apiserver --apiserver-extra-args v=3 --dry-run
grep -r -e --v=3 /tmp/airlift-*/etc/kubernetes/manifests/kube-apiserver.yaml
test "$(kubeadm token list -o jsonpath='{.token}')" = abcdef.0123456789abcdef
test "$(kubeadm token create --dry-run 123456.0123456789abcdef)" = 123456.0123456789abcdef
kubeadm token delete --dry-run abcdef
test "$(kubeadm token list -o json | grep -c '"token"')" = 1
unset KUBECONFIG
mkdir -p /root/.kube
echo '{"apiVersion": "v1", "kind": "Config"}' >/root/.kube/config
if kubeadm token list; then exit 1; fi
rm -r /root/.kube
kubeadm token list
kubeadm reset phase pre-flight
kubeadm --rootfs /mnt/host reset --force
mount --make-rprivate /mnt/host # or the host loses its own mounts too
umount --recursive --lazy /mnt/host
rmdir /mnt/host
rm -r /tmp/airlift-*
`

// TestKubeadmScript runs a script for kubeadm with install in its place.
func TestKubeadmScript(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-script", Hosts: 1})
	h := s.Hosts[0]
	bare := untouched(t, h)
	contains(t, run(t, h, "bash", "-c", "kubeadm() { /root/install \"$@\"; }\n"+kubeadmScript), "Nothing to pull", "is running on this host")
	same(t, bare, untouched(t, h))
}
