//go:build e2e

package e2e

import (
	"testing"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

const gib = 1 << 30

// systemRows are hosts that differ in their release, disks, mounts and other software, and in the
// way in which the installer is started.
var systemRows = []hostRow{
	{name: "debian-11", about: "Debian 11: systemd 247, iptables 1.8.7", options: lab.Options{Suite: "bullseye"}},
	{name: "debian-13", about: "Debian 13: systemd 257, /tmp in memory", options: lab.Options{Suite: "trixie"}},

	{name: "docker", about: "Docker 20.10 with Debian's containerd 1.6 and a running container with a published port; its configuration must first allow Kubernetes: no OOM scores, CNI plugins in /opt/cni/bin",
		// On a disk of its own, untouched does not list containerd's database, which grows.
		options: lab.Options{ExtraPackages: []string{"busybox-static", "docker.io"}, Disks: disk("ext4").Disks},
		prepare: tinyImage + `
			docker import /srv/tiny.tar tiny
			docker run -d --name web -p 8088:80 tiny /bin/busybox httpd -f -p 80 -h /www` + editContainerd(`s|^  \[plugins."io.containerd.grpc.v1.cri"\]$|&\n    restrict_oom_score_adj = true|`),
		refused: []string{"CRI", "it starts CNI plugins from /usr/lib/cni", "bin_dir"},
		fix:     editContainerd(`s|bin_dir = .*|bin_dir = "/opt/cni/bin"|`),
		state:   dockerState,
		check:   still(dockerState),
	},
	{name: "podman", about: "podman 4.3 with netavark and a running container with a published port",
		options: lab.Options{ExtraPackages: []string{"aardvark-dns", "busybox-static", "netavark", "podman"}},
		prepare: tinyImage + `
			systemctl stop podman.socket podman.service # it ends by itself some seconds after the boot
			podman import /srv/tiny.tar localhost/tiny
			podman run -d --name web -p 8088:80 localhost/tiny /bin/busybox httpd -f -p 80 -h /www`,
		state: podmanState,
		check: still(podmanState),
	},

	{name: "own-disks", about: "/var, /var/lib/containerd and /var/lib/etcd on disks of their own, each newly formatted, with nosuid, nodev and, for containerd, noexec",
		options: lab.Options{Disks: []lab.Disk{
			{Path: "/var", Type: "ext4", Size: 8 * gib, Options: "nosuid,nodev"},
			{Path: "/var/lib/containerd", Type: "ext4", Size: 8 * gib, Options: "nosuid,nodev,noexec"},
			{Path: "/var/lib/etcd", Type: "ext4", Size: 4 * gib, Options: "nosuid,nodev,noexec"},
		}},
		state: varState,
	},
	{name: "xfs", about: "/var/lib/containerd on xfs", options: disk("xfs"), state: varState},
	{name: "btrfs", about: "/var/lib/containerd on btrfs, with overlayfs", options: disk("btrfs"), state: varState},
	{name: "no-file-types", about: "/var/lib/containerd on ext4 without file types in its directories, as xfs with ftype=0, which this kernel cannot mount: refused, because overlayfs needs them",
		options: disk("ext4", "-O", "^filetype"),
		refused: []string{"Overlayfs", "the file system at /var/lib/containerd does not store the types of files"},
	},
	{name: "no-overlayfs", about: "a kernel without overlayfs, according to its list of file systems: refused",
		prepare: hideOverlayfs, refused: []string{"Overlayfs", "the kernel has no overlayfs"},
	},
	{name: "native-snapshotter", about: "the same, with containerd's snapshotter `native` in /etc/containerd/conf.d and the check ignored",
		prepare: hideOverlayfs + `
			mkdir -p /etc/containerd/conf.d
			printf "version = 3\n[plugins.'io.containerd.cri.v1.images']\nsnapshotter = 'native'\n" >/etc/containerd/conf.d/snapshotter.toml`,
		init: []string{"--ignore-preflight-errors", "Overlayfs"},
		join: []string{"--ignore-preflight-errors", "Overlayfs"},
		check: func(t *testing.T, s *site.Site) {
			if out := run(t, s.Hosts[1], "sh", "-c", "awk '$3 == \"overlay\"' /proc/mounts"); out != "" {
				t.Errorf("overlayfs is used:\n%s", out)
			}
		},
	},

	{name: "noexec", about: "/tmp, /var/tmp and /root mounted noexec; the file is in /srv",
		prepare: `
			mkdir /srv/airlift; mv /root/install /srv/airlift/; ln -s /srv/airlift/install /root/install
			for dir in /tmp /var/tmp /root; do
				mount --bind $dir $dir; mount -o remount,bind,nosuid,nodev,noexec $dir
			done`,
	},
	{name: "tiny-tmp", about: "/tmp and /var/tmp of 64 kB (in a full one, runc cannot start the commands of probes and hooks)",
		prepare: `for dir in /tmp /var/tmp; do mount -t tmpfs -o size=64k,mode=1777 tmpfs $dir; done`,
	},
	{name: "read-only-usr", about: "/usr/local mounted read-only: refused until it is mounted read-write",
		prepare: "mount --bind /usr/local /usr/local; mount -o remount,bind,ro /usr/local",
		refused: []string{"DirWritable", "the file system at /usr/local is mounted read-only"},
		fix:     "mount -o remount,rw /usr/local",
	},

	{name: "immutable-usr", about: "/usr mounted read-only and /usr/local writable, as on image-based distributions; up to v1.35, flex volume plugins are in /srv",
		prepare: `
			mkdir -p /lib/modules /srv/local
			cp -a /usr/local/. /srv/local/
			mount --bind /usr /usr; mount -o remount,bind,ro /usr; mount --bind /srv/local /usr/local
			mkdir /srv/flex
			printf '%s\n' 'apiVersion: kubeadm.k8s.io/v1beta3' 'kind: ClusterConfiguration' 'controllerManager: {extraArgs: {flex-volume-plugin-dir: /srv/flex}}' \
				--- 'apiVersion: kubelet.config.k8s.io/v1beta1' 'kind: KubeletConfiguration' 'volumePluginDir: /srv/flex' >/root/flex.yaml`,
		init: []string{"--config", "/root/flex.yaml"},
	},

	{name: "oneshot-unit", about: "started by a oneshot unit of systemd, as by cloud-init: umask 077, without HOME, LANG, TERM and a terminal", ci: true,
		prepare: startedBy("exec systemd-run --quiet --wait --pipe --collect --service-type=oneshot -p UMask=0077 -p 'UnsetEnvironment=HOME LANG TERM' /srv/airlift/install \"$@\" </dev/null"),
		check:   openDirs,
	},
	{name: "ssh", about: "started by ssh without a terminal, with umask 077",
		options: lab.Options{ExtraPackages: []string{"openssh-client", "openssh-server"}},
		prepare: startedBy("exec ssh -T -q -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i /srv/airlift/key root@localhost \"umask 077; exec /srv/airlift/install $*\" </dev/null") + `
			ssh-keygen -q -t ed25519 -N '' -f /srv/airlift/key
			install -D -m 600 /srv/airlift/key.pub /root/.ssh/authorized_keys`,
		check: openDirs,
	},
	{name: "one-cpu", about: "one CPU (of the installer's process), with the check `NumCPU` ignored; TestPreflight shows the refusal",
		prepare: startedBy("exec taskset -c 0 /srv/airlift/install \"$@\""),
		init:    []string{"--ignore-preflight-errors", "NumCPU"},
	},

	{name: "kubeadm-left", about: "what kubeadm and Calico leave without a reset: manifests, certificates, data of etcd and the kubelet, a CNI configuration: refused until it is removed",
		prepare: `
			mkdir -p /etc/kubernetes/manifests /etc/kubernetes/pki /var/lib/etcd/member /var/lib/kubelet/pki /etc/cni/net.d
			touch /etc/kubernetes/manifests/etcd.yaml /etc/kubernetes/pki/ca.crt /etc/kubernetes/kubelet.conf /var/lib/kubelet/config.yaml
			echo {} >/etc/cni/net.d/10-calico.conflist`,
		refused: []string{"DirAvailable--var-lib-kubelet", "PodNetwork", "/etc/cni/net.d/10-calico.conflist configures another pod network"},
		fix: `
			rm -r /etc/kubernetes /var/lib/etcd /var/lib/kubelet
			mv /etc/cni/net.d/10-calico.conflist /etc/cni/net.d/10-calico.conflist.before`,
	},
	{name: "k3s-left", about: "what k3s leaves if its uninstall script was not run: binaries, a disabled unit, data, interfaces, addresses: refused until what collides is removed",
		prepare: `
			mkdir -p /etc/rancher/k3s /var/lib/rancher/k3s/agent/etc/cni/net.d /run/flannel /run/k3s /var/lib/cni/networks/cbr0
			printf '#!/bin/sh\n' >/usr/local/bin/k3s; chmod 755 /usr/local/bin/k3s
			for link in kubectl crictl ctr; do ln -s k3s /usr/local/bin/$link; done
			printf '[Service]\nExecStart=/usr/local/bin/k3s server\n' >/etc/systemd/system/k3s.service; systemctl daemon-reload
			echo FLANNEL_NETWORK=10.42.0.0/16 >/run/flannel/subnet.env
			echo x >/var/lib/cni/networks/cbr0/10.42.0.2
			ip link add cni0 type bridge; ip link add flannel.1 type vxlan id 1 dev eth0 dstport 8472`,
		refused: []string{"PodNetwork", "interface cni0 exists", "interface flannel.1 exists", "/var/lib/cni/networks/cbr0 contains addresses", "DirAvailable--run-flannel", "Binaries", "/usr/local/bin/ctr"},
		fix: `
			ip link delete cni0; ip link delete flannel.1
			rm -r /run/flannel /var/lib/cni/networks/cbr0
			rm /usr/local/bin/kubectl /usr/local/bin/crictl /usr/local/bin/ctr`,
	},

	{name: "broken-run", about: "what a broken run of Airlift leaves", notHere: "TestInterrupted and TestKilled show it: kills at any time, a lost session, a power cut"},
	{name: "no-sys-resource", about: "no CAP_SYS_RESOURCE", notHere: "as a row of its own: no host of the lab has it, so every row shows it"},
	{name: "swap", about: "swap or zram on", notHere: "hosts of the lab share the swap of the machine; TestPreflight shows the refusal with a list of the kernel that has swap. TestKinds on emulated machines with swap and with zram passed on 2026-11-23: refused; with failSwapOn: false init, a workload, reset"},
	{name: "selinux", about: "SELinux enforcing, with Debian's policy packages", notHere: "hosts of the lab share the kernel of the machine, which has no SELinux. TestKinds on an emulated machine passed on 2026-11-23: init, a workload, reset"},
	{name: "clock", about: "a clock two hours off", notHere: "a container has no wall clock of its own: time namespaces have only the monotonic ones, and libfaketime has no effect on static binaries; TestDiscoveryRefusesWrongServers shows how join names the difference. TestClocks on emulated machines passed on 2026-11-23"},
	{name: "1-gb", about: "1 GB of memory", notHere: "hosts of the lab have the memory of the machine; TestEachCheck shows the refusal. TestKinds on an emulated machine with 1 GB passed on 2026-11-23: init, a workload, reset"},
	{name: "zfs", about: "/var/lib/containerd on zfs", notHere: "neither the kernel nor Debian's main archive has it"},
	{name: "nerdctl", about: "nerdctl with running containers", notHere: "Debian 12 has no package; its containers belong to containerd, as in the row docker"},
}

// startedBy moves the bundle away, and puts a script in its place that starts it.
func startedBy(line string) string {
	return `
			mkdir /srv/airlift; mv /root/install /srv/airlift/
			cat >/root/install <<'END'
#!/bin/sh
` + line + `
END
			chmod 755 /root/install`
}

// tinyImage is the file system of an image with a web server, as a tar file.
const tinyImage = `
			mkdir -p /srv/tiny/bin /srv/tiny/www /srv/tiny/tmp; cp /bin/busybox /srv/tiny/bin/; hostname >/srv/tiny/www/index.html
			tar -C /srv/tiny -cf /srv/tiny.tar .`

// editContainerd edits the configuration of Debian's containerd with sed.
func editContainerd(edit string) string {
	return `
			sed -i '` + edit + `' /etc/containerd/config.toml
			systemctl restart containerd; sleep 2`
}

// The running container: since when, and its answers inside and outside of the host.
const (
	answers     = `; for at in 127.0.0.1 $(hostname -I | awk '{print $1}'); do curl --silent --show-error --max-time 5 http://$at:8088/; done`
	dockerState = `docker inspect -f '{{.State.Running}} {{.State.StartedAt}} {{.State.Pid}} {{.RestartCount}}' web` + answers
	podmanState = `podman inspect -f '{{.State.Running}} {{.State.StartedAt}} {{.State.Pid}} {{.RestartCount}}' web` + answers
)

// still checks on the running cluster that the container of a host runs and answers.
func still(state string) func(*testing.T, *site.Site) {
	return func(t *testing.T, s *site.Site) {
		for _, h := range s.Hosts {
			out := run(t, h, "sh", "-ec", state)
			contains(t, out, "true ", h.Name+"\n"+h.Name)
		}
	}
}

// varState lists /var, of which untouched lists only what is on the root file system.
const varState = `find /var -path /var/log -prune -o -path /var/tmp -prune -o -path /var/lib/systemd -prune -o -printf '%p %y %m\n' | sort`

func disk(fileSystem string, mkfs ...string) lab.Options {
	return lab.Options{Disks: []lab.Disk{{Path: "/var/lib/containerd", Type: fileSystem, Size: 8 * gib, Mkfs: mkfs}}}
}

const hideOverlayfs = `
			printf 'nodev\tproc\n\text4\n' >/run/filesystems; mount --bind /run/filesystems /proc/filesystems`

// openDirs checks that a umask of the installer has not closed directories.
func openDirs(t *testing.T, s *site.Site) {
	for _, h := range s.Hosts {
		if out := run(t, h, "sh", "-c", "stat -c '%a %n' /opt/cni /opt/cni/bin /etc/cni/net.d /etc/kubernetes | grep -v '^755 ' || true"); out != "" {
			t.Errorf("%s: %s", h.Name, out)
		}
	}
}
