//go:build e2e

package e2e

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/installer/flow/adopt"
	"airlift/scripts/lab"
	"airlift/scripts/lab/kubeadm"
)

// packageLayout moves the kubelet and kubectl of a host to where the packages of pkgs.k8s.io have them.
const packageLayout = `set -e
mv /usr/local/bin/kubelet /usr/local/bin/kubectl /usr/bin/
mkdir -p /usr/lib/systemd/system/kubelet.service.d
sed 's|/usr/local/bin/kubelet|/usr/bin/kubelet|' /etc/systemd/system/kubelet.service >/usr/lib/systemd/system/kubelet.service
sed 's|/usr/local/bin/kubelet|/usr/bin/kubelet|' /etc/systemd/system/kubelet.service.d/10-kubeadm.conf >/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf
systemctl disable kubelet
rm -r /etc/systemd/system/kubelet.service /etc/systemd/system/kubelet.service.d
systemctl daemon-reload
systemctl enable kubelet
systemctl restart kubelet`

// kubeKeyLayout lets the kubelet of a host get its extra flags from its drop-in, as KubeKey writes it, with KubeKey's marks.
const kubeKeyLayout = `set -e
rm /etc/default/kubelet
flags="--node-ip={address} --cgroup-driver=cgroupfs --hostname-override={name}"
sed -i "/EnvironmentFile=-\/etc\/default/d; s|^ExecStart=$|Environment=\"KUBELET_EXTRA_ARGS=$flags\"\nExecStart=|" /etc/systemd/system/kubelet.service.d/10-kubeadm.conf
printf '# kubekey hosts BEGIN\n{address} {name}\n# kubekey hosts END\n' >>/etc/hosts
mkdir -p /usr/local/bin/kube-scripts
systemctl daemon-reload
systemctl restart kubelet`

// kubesprayLayout lets the kubelet of a host read kubespray's files, with its marks, and with fields of its own.
const kubesprayLayout = `set -e
rm -r /etc/systemd/system/kubelet.service.d /etc/default/kubelet
mv /etc/kubernetes/pki /etc/kubernetes/ssl
ln -s /etc/kubernetes/ssl /etc/kubernetes/pki
sed 's/^maxPods:.*//' /var/lib/kubelet/config.yaml >/etc/kubernetes/kubelet-config.yaml
echo 'maxPods: 77' >>/etc/kubernetes/kubelet-config.yaml
cat >/etc/kubernetes/kubelet.env <<'END'
KUBELET_ARGS="--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --config=/etc/kubernetes/kubelet-config.yaml --kubeconfig=/etc/kubernetes/kubelet.conf --node-ip={address} --hostname-override={name} --v=2"
END
cat >/etc/systemd/system/kubelet.service <<'END'
[Unit]
Description=Kubernetes Kubelet Server
After=containerd.service
[Service]
EnvironmentFile=-/etc/kubernetes/kubelet.env
ExecStart=/usr/local/bin/kubelet $KUBELET_ARGS
Restart=always
RestartSec=10s
[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl restart kubelet`

// nodeListing lists the files of a node with their checksums, modes and owners, without what changes by itself: data, logs,
// pods, and the records of containerd.
func nodeListing(t *testing.T, h *lab.Host) string {
	t.Helper()
	return run(t, h, "sh", "-c", `
		find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log -o -path /root -o -path /var/lib/systemd \
			-o -path /var/lib/etcd -o -path /var/lib/containerd -o -path /var/lib/kubelet/pods -o -path '/var/lib/kubelet/*_state' -o -path /var/lib/kubelet/checkpoints \
			-o -path /var/lib/kubelet/device-plugins -o -path /var/lib/kubelet/plugins_registry -o -path /var/lib/cni -o -path /opt/containerd -o -path /var/lib/airlift-backups \) -prune -o \
			\( -type f -o -type l \) -printf '%p %y %m %U:%G %l ' \( -type f -exec sha256sum {} \; -o -printf '\n' \) | sort
		systemctl list-unit-files --no-legend --state enabled`)
}

// withoutCredentials leaves out certificates and kubeconfigs, which stay renewed.
func withoutCredentials(listing string) string {
	var b strings.Builder
	for line := range strings.Lines(listing) {
		name, _, _ := strings.Cut(line, " ")
		if strings.HasPrefix(name, "/etc/kubernetes/") && (strings.HasSuffix(name, ".conf") || strings.Contains(name, "/pki/") || strings.Contains(name, "/tmp/")) || strings.HasPrefix(name, "/var/lib/kubelet/pki/") {
			continue
		}
		b.WriteString(line)
	}
	return b.String()
}

// newLines are the lines of a listing that another one does not have.
func newLines(before, after string) (lines []string) {
	had := strings.Split(before, "\n")
	for _, line := range strings.Split(after, "\n") {
		if !slices.Contains(had, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestAdopt adopts a cluster that real kubeadm made, upgrades it, goes back, and gives its nodes back as they were. The control
// plane has the layout of the packages, one worker KubeKey's, one kubespray's.
func TestAdopt(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-adopt", Hosts: 3})
	control := s.Hosts[0]
	kit, err := kubeadm.Gather(t.Context(), version, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	u := &upgraded{Site: s, control: control, worker: s.Hosts[1], hosts: s.Hosts, planes: 1, to: carryNewer(t, s.Hosts...)}
	i := &interop{kit: kit, site: s, hand: control}
	layouts := map[*lab.Host]string{control: packageLayout, s.Hosts[1]: kubeKeyLayout, s.Hosts[2]: kubesprayLayout}
	makers := map[*lab.Host]string{control: "kubeadm", s.Hosts[1]: "KubeKey", s.Hosts[2]: "kubespray"}
	bare, adopted := map[*lab.Host]string{}, map[*lab.Host]string{}
	var answers map[string]string
	ready := func(t *testing.T, versions ...string) {
		t.Helper()
		systemIsUp(t, s, len(s.Hosts))
		u.have(t, versions...)
	}
	inOrder(t, s, []stage{
		{"kubeadm makes a cluster", func(t *testing.T) {
			done := make(chan error)
			for _, h := range s.Hosts {
				go func() { done <- prepareByHand(t.Context(), kit, h, t.Logf) }()
			}
			for range s.Hosts {
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			i.kubeadmInit(t)
			for _, h := range s.Hosts[1:] {
				i.hand = h
				i.kubeadmJoin(t)
				nodeIsReady(t, control, h)
			}
			i.hand = control
			for _, h := range s.Hosts {
				run(t, h, "bash", "-c", strings.NewReplacer("{address}", h.Addr.String(), "{name}", h.Name).Replace(layouts[h]))
			}
			time.Sleep(15 * time.Second) // the nodes report themselves again
			ready(t, version, version, version)
			answers = i.ask(t, control)
		}},
		{"no command changes a node that is not adopted", func(t *testing.T) {
			for _, command := range [][]string{{"upgrade", "apply", "--yes"}, {"certs", "auto"}} {
				contains(t, newer(t, control, 3, command...), "Airlift did not install this node", "adopt")
			}
		}},
		{"a dry run changes nothing", func(t *testing.T) {
			for _, h := range s.Hosts {
				bare[h] = nodeListing(t, h)
				var r adopt.Result
				if err := json.Unmarshal([]byte(newer(t, h, 0, "adopt", "--dry-run", "-o", "json")), &r); err != nil || r.Maker != makers[h] || r.Adopted || r.Kubernetes != version {
					t.Errorf("%s: %+v, %v", h.Name, r, err)
				}
				same(t, bare[h], nodeListing(t, h))
			}
		}},
		{"adopt writes the ledger, and nothing else", func(t *testing.T) {
			for _, h := range s.Hosts {
				transcribe(t, h, "./install adopt", newer(t, h, 0, "adopt"))
				adopted[h] = nodeListing(t, h)
				if lines := newLines(bare[h], adopted[h]); len(lines) != 1 || !strings.HasPrefix(lines[0], "/var/lib/airlift/ledger.json f 600 0:0 ") {
					t.Errorf("%s: new: %q", h.Name, lines)
				}
				if gone := newLines(adopted[h], bare[h]); len(gone) > 0 {
					t.Errorf("%s: gone: %q", h.Name, gone)
				}
				contains(t, newer(t, h, 0, "adopt"), "There is nothing to do")
				same(t, adopted[h], nodeListing(t, h))
				contains(t, newer(t, h, 0, "status"), "made by "+makers[h]+", "+version)
			}
			contains(t, newer(t, control, 3, "init", "--skip-phases", "preflight"), "was adopted")
		}},
		{"upgrade to the next minor version", func(t *testing.T) {
			u.ask(t)
			transcribe(t, control, "./install upgrade plan", newer(t, control, 0, "upgrade", "plan", "--etcd-upgrade=false"))
			for _, h := range s.Hosts[1:] {
				newer(t, h, 0, "upgrade", "node", "phase", "unpack")
			}
			newer(t, control, 0, "upgrade", "apply", "--yes", "--etcd-upgrade=false")
			for _, h := range s.Hosts[1:] {
				newer(t, h, 0, "upgrade", "node")
			}
			ready(t, u.to, u.to, u.to)
			u.answered(t)
			for _, h := range s.Hosts[1:] { // what only their own files had
				contains(t, run(t, h, "sh", "-c", "tr '\\0' ' ' </proc/$(pgrep -x kubelet)/cmdline"), "--node-ip="+h.Addr.String(), "--hostname-override="+h.Name)
			}
			contains(t, kubectl(t, s, "get", "--raw", "/api/v1/nodes/"+s.Hosts[2].Name+"/proxy/configz"), `"maxPods":77`)
			contains(t, newer(t, control, 3, "reset", "--force"), "was upgraded from "+version, "upgrade undo")
		}},
		{"timers and a backup", func(t *testing.T) {
			newer(t, control, 0, "certs", "auto")
			newer(t, control, 0, "etcd", "snapshot", "/root/backup.tar")
			newer(t, control, 0, "doctor", "/root/doctor.tar.gz")
		}},
		{"undo", func(t *testing.T) {
			for _, h := range slices.Backward(s.Hosts) {
				newer(t, h, 0, "upgrade", "undo", "--yes")
			}
			eventually(t, time.Minute, func() string {
				if got := kubectl(t, s, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"); got != strings.Join([]string{version, version, version}, " ") {
					return got
				}
				return ""
			})
			ready(t, version, version, version)
		}},
		{"real kubeadm reports the same as before", func(t *testing.T) {
			now := i.ask(t, control)
			for line, before := range answers {
				same(t, answer(before, control), answer(now[line], control))
			}
		}},
		{"reset gives the nodes back as they were adopted", func(t *testing.T) {
			pods := kubectl(t, s, "get", "pods", "-A", "-o", "jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}")
			for _, h := range s.Hosts {
				transcribe(t, h, "./install reset", newer(t, h, 0, "reset", "--force"))
				same(t, withoutCredentials(adopted[h]), withoutCredentials(nodeListing(t, h)))
			}
			ready(t, version, version, version)
			// A pod that undo has replaced may still end.
			if lines := newLines(pods, kubectl(t, s, "get", "pods", "-A", "-o", "jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}")); len(lines) > 0 {
				t.Errorf("new or restarted pods: %q", lines)
			}
		}},
		{"disown", func(t *testing.T) {
			for _, h := range s.Hosts {
				contains(t, newer(t, h, 2, "disown"), "Removed:", "/var/lib/airlift", "This ends the adoption of this node.") // no answer on standard input
				newer(t, h, 0, "disown", "--yes")
				same(t, withoutCredentials(bare[h]), withoutCredentials(nodeListing(t, h)))
				contains(t, newer(t, h, 0, "disown"), "nothing to do")
			}
		}},
		{"reset removes an adopted node", func(t *testing.T) {
			h := s.Hosts[2]
			newer(t, h, 0, "adopt")
			contains(t, newer(t, h, 2, "reset", "--remove-node"), "This removes the Kubernetes node")
			newer(t, h, 0, "reset", "--remove-node", "--force")
			if left := run(t, h, "sh", "-c", "find /var/lib/kubelet /etc/kubernetes -name '*.conf' -o -name config.yaml; ls -d /var/lib/airlift; systemctl is-active kubelet; true"); strings.TrimSpace(left) != "inactive" {
				t.Errorf("left: %s", left)
			}
			forget(t, control, h)
		}},
		{"no packet tried to leave", func(t *testing.T) {
			counts, err := s.Escapes(t.Context())
			if err != nil || counts.Escaped != 0 {
				t.Errorf("%d packets tried to leave: %v, %v", counts.Escaped, counts.Offenders, err)
			}
		}},
	})
}
