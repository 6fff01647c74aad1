//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/preflight"
	"airlift/scripts/lab"
)

// A preflightCase makes one check fail on a host, for one run.
type preflightCase struct {
	name    string // the check
	setup   string // shell; undo reverts it
	undo    string
	role    string // default: init
	args    string
	around  string // shell that precedes the command
	warning bool
}

// fake replaces a file of the kernel by one with other content.
func fake(path, content string) (setup, undo string) {
	return "printf '" + content + "' > /run/fake; mount --bind /run/fake " + path, "umount " + path
}

// without hides a command in PATH.
func without(name string) (setup, undo string) {
	move := func(from, to string) string {
		file := "$d/" + name + from
		return "for d in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin; do if test -e " + file + " || test -L " + file + "; then mv " + file + " $d/" + name + to + "; fi; done"
	}
	return move("", ".away"), move(".away", "")
}

const external = `printf 'apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\netcd: {external: {endpoints: ["https://10.77.0.11:2379"], caFile: %s, certFile: "", keyFile: ""}}\n' > /root/external.yaml`

const enabledPlugin = `printf 'apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer: {extraArgs: [{name: enable-admission-plugins, value: AlwaysPullImages}]}\n' > /root/plugin.yaml`

func preflightCases() []preflightCase {
	listen := func(port string) (string, string) {
		return "systemd-run -q --unit fake-listener systemd-socket-activate -l " + port + " true; sleep 0.2", "systemctl stop fake-listener"
	}
	var cases []preflightCase
	add := func(c preflightCase) { cases = append(cases, c) }
	for _, port := range []string{"6443", "10259", "10257", "10250", "2379", "2380", "7443"} {
		setup, undo := listen(port)
		add(preflightCase{name: "Port-" + port, setup: setup, undo: undo, args: "--control-plane-balancer"})
	}
	for _, pod := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"} {
		file := "/etc/kubernetes/manifests/" + pod + ".yaml"
		add(preflightCase{name: "FileAvailable-" + strings.ReplaceAll(file, "/", "-"), setup: "mkdir -p /etc/kubernetes/manifests; touch " + file, undo: "rm -r /etc/kubernetes"})
	}
	for _, file := range []string{"/etc/kubernetes/kubelet.conf", "/etc/kubernetes/bootstrap-kubelet.conf", "/etc/kubernetes/pki/ca.crt"} {
		add(preflightCase{name: "FileAvailable-" + strings.ReplaceAll(file, "/", "-"), role: "join", setup: "mkdir -p /etc/kubernetes/pki; touch " + file, undo: "rm -r /etc/kubernetes"})
	}
	for _, name := range []string{"mount", "umount", "losetup"} {
		setup, undo := without(name)
		add(preflightCase{name: "FileExisting-" + name, setup: setup, undo: undo})
	}
	for _, name := range []string{"iptables", "crictl", "conntrack", "ip", "nsenter", "ethtool", "tc", "touch", "cp"} {
		setup, undo := without(name)
		add(preflightCase{name: "FileExisting-" + name, setup: setup, undo: undo, warning: true})
	}
	fakes := func(name, path, content string) {
		setup, undo := fake(path, content)
		add(preflightCase{name: name, setup: setup, undo: undo})
	}
	fakes("Swap", "/proc/swaps", `Filename Type Size Used Priority\n/dev/sda2 partition 1000 0 -2\n`)
	fakes("Overlayfs", "/proc/filesystems", `nodev proc\n\text4\n`)
	for _, s := range []struct{ check, path, value string }{
		{"FileContent--proc-sys-net-ipv4-ip_forward", "/proc/sys/net/ipv4/ip_forward", "0"},
		{"FileContent--proc-sys-net-bridge-bridge-nf-call-iptables", "/proc/sys/net/bridge/bridge-nf-call-iptables", "0"},
		{"KernelTunables", "/proc/sys/kernel/panic", "0"},
	} {
		add(preflightCase{name: s.check, setup: "echo " + s.value + " > /run/fake; mount --bind /run/fake " + s.path + " && mount -o remount,bind,ro " + s.path, undo: "umount " + s.path})
	}
	for _, c := range []preflightCase{
		{name: "IsPrivilegedUser", setup: "ln /root/install /srv/install", undo: "rm /srv/install", around: "setpriv --reuid 65534 --clear-groups --regid 65534 /srv/install"},
		{name: "NumCPU", around: "taskset -c 0 /root/install"},
		{name: "Firewalld", warning: true, setup: "systemd-run -q --unit firewalld sleep infinity", undo: "systemctl stop firewalld"},
		{name: "Firewall", setup: "iptables -A INPUT -i lo -j ACCEPT; iptables -P INPUT DROP", undo: "iptables -P INPUT ACCEPT; iptables -F INPUT"},
		{name: "DirAvailable--var-lib-etcd", setup: "mkdir -p /var/lib/etcd/member", undo: "rm -r /var/lib/etcd"},
		{name: "DirAvailable--var-lib-kubelet", setup: "mkdir -p /var/lib/kubelet/pods", undo: "rm -r /var/lib/kubelet"},
		{name: "DirAvailable--var-lib-containerd", setup: "mkdir -p /var/lib/containerd/x", undo: "rm -r /var/lib/containerd"},
		{name: "DirAvailable--run-containerd", setup: "mkdir -p /run/containerd/x", undo: "rm -r /run/containerd"},
		{name: "DirAvailable--run-flannel", setup: "mkdir -p /run/flannel/x", undo: "rm -r /run/flannel"},
		{name: "PodNetwork", setup: "ip link add cni0 type bridge", undo: "ip link delete cni0"},
		{name: "HTTPProxy", warning: true, around: "env HTTPS_PROXY=http://192.0.2.1:3128 /root/install"},
		{name: "HTTPProxyCIDR", warning: true, around: "env HTTPS_PROXY=http://192.0.2.1:3128 /root/install"},
		{name: "ControlPlaneEndpoint", args: "--control-plane-endpoint no-such-name:6443"},
		{name: "ControlPlaneVIP", args: "--control-plane-vip 192.0.2.1"},
		{name: "CRI", args: "--cri-socket unix:///run/nothing.sock"},
		{name: "SystemVerification", setup: "mount -o remount,bind,ro /sys/fs/cgroup/memory", undo: "mount -o remount,bind,rw /sys/fs/cgroup/memory"},
		{name: "Hostname", warning: true, args: "--node-name no-such-name"},
		{name: "KubeletVersion", warning: true, setup: `printf '#!/bin/sh\necho Kubernetes v1.25.0\n' > /usr/bin/kubelet; chmod +x /usr/bin/kubelet`, undo: "rm /usr/bin/kubelet"},
		{name: "Service-Kubelet", setup: "systemctl -q mask kubelet.service", undo: "systemctl -q unmask kubelet.service"},
		{name: "Service-Containerd", setup: "systemctl -q mask containerd.service", undo: "systemctl -q unmask containerd.service"},
		{name: "ExternalEtcdVersion", setup: fmt.Sprintf(external, `""`), args: "--config /root/external.yaml"},
		{name: "ExternalEtcdClientCertificates", setup: fmt.Sprintf(external, "/etc/etcd/none.crt"), args: "--config /root/external.yaml"},
		{name: "EtcdUser", setup: `echo 'etcd:x:0:0::/:/bin/false' >>/etc/passwd`, undo: "sed -i /^etcd:/d /etc/passwd", args: "--profile hardened"},
		{name: "APIServerFlags", warning: true, setup: enabledPlugin, args: "--config /root/plugin.yaml", undo: "rm /root/plugin.yaml"},
		{name: "Nameservers", warning: true},
		{name: "Systemd", setup: "mv /run/systemd/system /run/systemd/away", undo: "mv /run/systemd/away /run/systemd/system"},
		{name: "KernelLog", setup: "mount --bind /run/systemd/notify /dev/kmsg", undo: "umount /dev/kmsg"}, // opening a socket fails
		{name: "DiskSpace", setup: "mount -t tmpfs -o size=10m tmpfs /usr/local", undo: "umount /usr/local"},
		{name: "DiskSpace", setup: "mkdir /var/lib/etcd; mount -t tmpfs -o size=100m tmpfs /var/lib/etcd", undo: "umount /var/lib/etcd; rmdir /var/lib/etcd"},
		{name: "DirOwner", setup: "install -d -o 1001 /opt/cni/bin", undo: "rm -r /opt/cni"},
		{name: "DirWritable", setup: "mount --bind /usr/local /usr/local; mount -o remount,bind,ro /usr/local", undo: "umount /usr/local"},
		{name: "PodNetwork", setup: "mkdir -p /etc/cni/net.d; echo {} > /etc/cni/net.d/10-calico.conflist", undo: "rm -r /etc/cni"},
		{name: "Overlayfs", setup: "mkdir -p /var/lib/containerd /run/o/l /run/o/u /run/o/w; mount -t overlay -o lowerdir=/run/o/l,upperdir=/run/o/u,workdir=/run/o/w overlay /var/lib/containerd", undo: "umount /var/lib/containerd; rmdir /var/lib/containerd"},
		{name: "GPU", warning: true, setup: "mount -t tmpfs tmpfs /sys/bus; d=/sys/bus/pci/devices/0000:3b:00.0; mkdir -p $d; echo 0x10de >$d/vendor; echo 0x030200 >$d/class", undo: "umount /sys/bus"},
		{name: "Binaries", setup: "echo other > /usr/local/bin/kubelet", undo: "rm /usr/local/bin/kubelet"},
	} {
		add(c)
	}
	return append(cases, kubeletCases()...)
}

// notOnALabHost are the checks that cannot fail on a lab host.
var notOnALabHost = map[string]string{
	"KubernetesVersion":       "the version is the bundle's own; TestEachCheck of package preflight shows it",
	"Mem":                     "hosts of one machine have its memory; TestEachCheck shows it",
	"UserNamespace":           "a lab host is in none, and could not do its work in one; TestEachCheck shows it",
	"Clock":                   "hosts of one machine have one clock; TestEachCheck shows it",
	"NodeAddress":             "it takes a cluster; TestAddressInRange shows it",
	"CRIPods":                 "it takes a container runtime of the host's own; TestOwnContainerd shows it",
	"ContainerRuntimeVersion": "it is asked from Kubernetes 1.37 on only; TestEachCheck shows it",
	"ImagePull":               "this bundle has every image; TestEachCheck shows it",
	"NetworkPolicy":           "this bundle has no add-on; TestAddOns shows it",
	"ContainerdFiles":         "TestContainerdFiles shows it",
	"SiteFiles":               "this bundle has no files; TestSiteContent shows it",
}

// TestPreflight makes each check fail on a host, and checks that the report is empty on the
// same host without the problem.
func TestPreflight(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-preflight", Hosts: 1})
	h := s.Hosts[0]
	bare := untouched(t, h)

	clean := map[string]preflightReport{}
	for _, role := range []string{"init", "join"} {
		clean[role] = preflightOf(t, h, preflightCase{role: role}, 0)
		if len(clean[role].Errors) > 0 {
			t.Errorf("errors on a fresh host: %+v", clean[role].Errors)
		}
	}
	for _, c := range preflightCases() {
		t.Run(c.name, func(t *testing.T) {
			code := 3
			if c.warning {
				code = 0
			}
			report := preflightOf(t, h, c, code)
			list, level := report.Errors, "ERROR"
			if c.warning {
				list, level = report.Warnings, "WARNING"
			}
			for _, p := range list {
				if p.Name == c.name {
					if p.Message == "" || p.Fix == "" {
						t.Errorf("without a message or a fix: %+v", p)
					}
					t.Logf("[%s %s]: %s; fix: %s", level, p.Name, p.Message, p.Fix)
					return
				}
			}
			t.Errorf("not reported as %s: %+v", level, report)
		})
	}
	shown := map[string]bool{}
	for _, c := range preflightCases() {
		shown[c.name] = true
	}
	for _, name := range everyCheck() {
		if !shown[name] && notOnALabHost[name] == "" {
			t.Errorf("the check %s has no case here", name)
		}
	}
	for name, why := range notOnALabHost {
		t.Logf("NOT SHOWN HERE: %s: %s", name, why)
	}

	t.Run("everything at once, and what is known to be harmless", func(t *testing.T) {
		run(t, h, "sh", "-c", "mkdir -p /etc/kubernetes/manifests /var/lib/etcd/member && echo {} >/etc/kubernetes/manifests/kube-apiserver.yaml")
		contains(t, install(t, h, 3, "init"), "FileAvailable--etc-kubernetes-manifests-kube-apiserver.yaml", "DirAvailable--var-lib-etcd", "fix: ")
		out := install(t, h, 0, "preflight", "init", "--ignore-preflight-errors", "FileAvailable--etc-kubernetes-manifests-kube-apiserver.yaml,DirAvailable--VAR-lib-etcd")
		contains(t, out, "[WARNING DirAvailable--var-lib-etcd]", "All preflight checks passed.")
		run(t, h, "rm", "-r", "/etc/kubernetes", "/var/lib/etcd")
	})
	same(t, bare, untouched(t, h))
}

// everyCheck names all checks for IPv4.
func everyCheck() []string {
	local := &config.Config{Facts: config.Facts{NodeIP: "10.77.0.11"}}
	local.LocalAPIEndpoint.BindPort = config.DefaultBindPort
	external := &config.Config{}
	external.LocalAPIEndpoint.BindPort = config.DefaultBindPort
	external.Etcd.External = &config.ExternalEtcd{}
	var names []string
	for _, c := range []*config.Config{local, external} {
		for _, role := range []preflight.Role{preflight.Init, preflight.Join} {
			names = append(names, preflight.Names(preflight.Target{Config: c, Role: role})...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

type preflightReport struct {
	Warnings, Errors []struct{ Name, Message, Fix string }
}

// preflightOf runs the checks with a case's setup and returns the report.
func preflightOf(t *testing.T, h *lab.Host, c preflightCase, wantCode int) (report preflightReport) {
	t.Helper()
	role, program := c.role, c.around
	if role == "" {
		role = "init"
	}
	if program == "" {
		program = "/root/install"
	}
	script := fmt.Sprintf("%s\n%s preflight %s -o json %s; code=$?\n%s\nexit $code", c.setup, program, role, c.args, c.undo)
	var out, errs bytes.Buffer
	err := h.Exec(t.Context(), nil, &out, &errs, "sh", "-c", script)
	if code := exitCode(err); code != wantCode {
		t.Errorf("exit code %d, want %d\n%s%s", code, wantCode, out.String(), errs.String())
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Errorf("reading the report: %v\n%s%s", err, out.String(), errs.String())
	}
	return report
}
