//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/installer/config"
	"airlift/installer/flow/adopt"
	"airlift/scripts/fixtures/siteregistry"
	"airlift/scripts/lab"
	"airlift/scripts/lab/kubeadm"
	"airlift/scripts/lab/site"
)

// packageLayout installs the kubelet and kubectl of a host as two packages that are on hold, with the files of the packages
// of pkgs.k8s.io. The kubelet also reads a directory of the site.
const packageLayout = `set -e
for name in kubelet kubectl; do
	mkdir -p /tmp/$name/DEBIAN /tmp/$name/usr/bin
	mv /usr/local/bin/$name /tmp/$name/usr/bin/
	printf 'Package: %s\nVersion: {version}-1.1\nArchitecture: amd64\nMaintainer: site <site@site.example>\nDescription: %s\n' $name $name >/tmp/$name/DEBIAN/control
done
units=/tmp/kubelet/usr/lib/systemd/system
mkdir -p $units/kubelet.service.d
sed 's|/usr/local/bin/kubelet|/usr/bin/kubelet|' /etc/systemd/system/kubelet.service >$units/kubelet.service
sed 's|/usr/local/bin/kubelet|/usr/bin/kubelet|' /etc/systemd/system/kubelet.service.d/10-kubeadm.conf >$units/kubelet.service.d/10-kubeadm.conf
systemctl disable kubelet
rm -r /etc/systemd/system/kubelet.service /etc/systemd/system/kubelet.service.d
for name in kubelet kubectl; do
	dpkg-deb -Znone --build /tmp/$name /tmp/$name.deb
	dpkg -i /tmp/$name.deb
	echo $name hold | dpkg --set-selections
	rm -r /tmp/$name /tmp/$name.deb
done
mkdir /etc/kubernetes/kubelet.d
printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\npodPidsLimit: 4321\n' >/etc/kubernetes/kubelet.d/10-site.conf
sed -i 's|^KUBELET_EXTRA_ARGS=.*|& --config-dir=/etc/kubernetes/kubelet.d|' /etc/default/kubelet
echo KUBELET_CONFIG_DROPIN_DIR_ALPHA=1 >>/etc/default/kubelet
systemctl daemon-reload
systemctl enable kubelet
systemctl restart kubelet`

// kubeKeyLayout lets the kubelet of a host get its extra flags from its drop-in, as KubeKey writes it, with KubeKey's marks. A
// drop-in of the site, which stays, has one flag more, in a line with two variables.
const kubeKeyLayout = `set -e
rm /etc/default/kubelet
flags="--node-ip={address} --cgroup-driver=cgroupfs --hostname-override={name}"
sed -i "/EnvironmentFile=-\/etc\/default/d; s|^ExecStart=$|Environment=\"KUBELET_EXTRA_ARGS=$flags\"\nExecStart=|" /etc/systemd/system/kubelet.service.d/10-kubeadm.conf
printf '# kubekey hosts BEGIN\n{address} {name}\n# kubekey hosts END\n' >>/etc/hosts
mkdir -p /usr/local/bin/kube-scripts
printf '[Service]\nEnvironment="SITE_NOTE=two words" "KUBELET_EXTRA_ARGS=%s --v=3"\n' "$flags" >/etc/systemd/system/kubelet.service.d/20-site.conf
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
		list() {
			find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log -o -path /root -o -path /var/lib/systemd \
			-o -path /var/lib/etcd -o -path /var/lib/containerd -o -path /var/lib/kubelet/pods -o -path '/var/lib/kubelet/*_state' -o -path /var/lib/kubelet/checkpoints \
			-o -path /var/lib/kubelet/device-plugins -o -path /var/lib/kubelet/plugins_registry -o -path /var/lib/cni -o -path /opt/containerd -o -path /var/lib/airlift-backups \) -prune -o "$@"
		}
		list \( -type f -o -type l \) -printf '%p %y %m %U:%G %l\n' | sort >/tmp/names
		list -type f -exec sha256sum {} + | sed 's/^\([0-9a-f]*\)  \(.*\)$/\2 \1/' | sort >/tmp/sums
		join -a 1 /tmp/names /tmp/sums
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

// An adopting is a cluster that real kubeadm makes and Airlift adopts. Each of its nodes has the layout of a tool.
type adopting struct {
	*upgraded
	interop       *interop
	layouts       map[*lab.Host]string
	makers        map[*lab.Host]string
	bare, adopted map[*lab.Host]string // listings of the nodes before and after adopt
	answers       map[string]string    // of kubeadm, before
	apply         []string             // flags of upgrade apply and plan
	externalEtcd  bool                 // etcd is a unit on the first control plane, as KubeKey and kubespray install it
}

// newAdopting has hosts with these layouts, the control planes first. The rest of the hosts of the lab are not nodes.
func newAdopting(t *testing.T, o lab.Options, planes int, layouts ...string) *adopting {
	s := up(t, o)
	kit, err := kubeadm.Gather(t.Context(), version, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	nodes := s.Hosts[:len(layouts)]
	s.Nodes = len(nodes)
	a := &adopting{
		upgraded: &upgraded{Site: s, control: nodes[0], worker: nodes[planes], hosts: nodes, planes: planes, to: carryNewer(t, s.Hosts...)},
		interop:  &interop{kit: kit, site: s, hand: nodes[0]},
		layouts:  map[*lab.Host]string{}, makers: map[*lab.Host]string{}, bare: map[*lab.Host]string{}, adopted: map[*lab.Host]string{},
	}
	for i, h := range nodes {
		a.layouts[h] = layouts[i]
		a.makers[h] = map[string]string{packageLayout: "kubeadm", kubeKeyLayout: "KubeKey", kubesprayLayout: "kubespray"}[layouts[i]]
	}
	if strings.HasPrefix(a.to, "v1.37.") { // undo cannot go back behind etcd 3.7
		a.apply = []string{"--etcd-upgrade=false"}
	}
	return a
}

// ready expects that all nodes have a version and all pods are well.
func (a *adopting) ready(t *testing.T, version string) {
	t.Helper()
	eventually(t, time.Minute, func() string {
		for _, got := range strings.Fields(kubectl(t, a.Site, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")) {
			if got != version {
				return "a kubelet of " + got
			}
		}
		return ""
	})
	systemIsUp(t, a.Site, len(a.hosts))
}

// make lets kubeadm make the cluster, and gives the nodes their layouts.
func (a *adopting) make(t *testing.T) {
	i := a.interop
	done := make(chan error)
	for _, h := range a.hosts {
		go func() { done <- prepareByHand(t.Context(), i.kit, h, t.Logf) }()
	}
	for range a.hosts {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if a.externalEtcd {
		i.etcd = etcdUnit(t, a.control)
	}
	if a.planes > 1 {
		i.endpoint = endpoint + ":6443"
		for _, h := range a.hosts {
			endpointAt(t, h, a.control)
		}
	}
	i.kubeadmInit(t)
	for n, h := range a.hosts[1:] {
		i.hand = h
		if n+1 < a.planes {
			i.kubeadmJoin(t, "--control-plane", "--certificate-key", i.key, "--apiserver-advertise-address", h.Addr.String())
			endpointAt(t, h, h)
		} else {
			i.kubeadmJoin(t)
		}
		nodeIsReady(t, a.control, h)
	}
	i.hand = a.control
	for _, h := range a.hosts {
		run(t, h, "bash", "-c", strings.NewReplacer("{address}", h.Addr.String(), "{name}", h.Name, "{version}", strings.TrimPrefix(version, "v")).Replace(a.layouts[h]))
	}
	time.Sleep(15 * time.Second) // the nodes report themselves again
	a.ready(t, version)
	a.answers = i.ask(t, a.control)
}

// etcdUnit runs etcd as a unit on a host, with the files that KubeKey and kubespray write, and returns kubeadm's field for it.
func etcdUnit(t *testing.T, h *lab.Host) string {
	t.Helper()
	runEtcd(t, h, h)
	run(t, h, "bash", "-c", strings.NewReplacer("{address}", h.Addr.String(), "{name}", h.Name).Replace(`set -e
systemctl stop site-etcd
mkdir -p /etc/ssl/etcd/ssl
cd /etc/site-etcd
cp ca.crt /etc/ssl/etcd/ssl/ca.pem
cp server.crt /etc/ssl/etcd/ssl/member-{name}.pem
cp server.key /etc/ssl/etcd/ssl/member-{name}-key.pem
cp client.crt /etc/ssl/etcd/ssl/node-{name}.pem
cp client.key /etc/ssl/etcd/ssl/node-{name}-key.pem
rm -r /etc/site-etcd /var/lib/site-etcd
cat >/etc/etcd.env <<'END'
ETCD_NAME=etcd-{name}
ETCD_DATA_DIR=/var/lib/etcd
ETCD_LISTEN_CLIENT_URLS=https://{address}:2379,https://127.0.0.1:2379
ETCD_ADVERTISE_CLIENT_URLS=https://{address}:2379
ETCD_CLIENT_CERT_AUTH=true
ETCD_TRUSTED_CA_FILE=/etc/ssl/etcd/ssl/ca.pem
ETCD_CERT_FILE=/etc/ssl/etcd/ssl/member-{name}.pem
ETCD_KEY_FILE=/etc/ssl/etcd/ssl/member-{name}-key.pem
END
cat >/etc/systemd/system/etcd.service <<'END'
[Unit]
Description=etcd
After=network.target
[Service]
Type=notify
EnvironmentFile=/etc/etcd.env
ExecStart=/usr/local/bin/etcd
Restart=always
RestartSec=10s
LimitNOFILE=40000
[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl enable --now etcd`))
	dir := "/etc/ssl/etcd/ssl/"
	return "etcd: {external: {endpoints: ['https://" + h.Addr.String() + ":2379'], caFile: " + dir + "ca.pem, certFile: " + dir + "node-" + h.Name + ".pem, keyFile: " + dir + "node-" + h.Name + "-key.pem}}\n"
}

// first are the stages from kubeadm's cluster through an upgrade and back.
func (a *adopting) first() []stage {
	return []stage{
		{"kubeadm makes a cluster", a.make},
		{"no command changes a node that is not adopted", func(t *testing.T) {
			for _, command := range [][]string{{"upgrade", "apply", "--yes"}, {"certs", "auto"}} {
				contains(t, newer(t, a.control, 3, command...), "Airlift did not install this node", "adopt")
			}
		}},
		{"a dry run changes nothing", func(t *testing.T) {
			for _, h := range a.hosts {
				a.bare[h] = nodeListing(t, h)
				var r adopt.Result
				if err := json.Unmarshal([]byte(newer(t, h, 0, "adopt", "--dry-run", "-o", "json")), &r); err != nil || r.Maker != a.makers[h] || r.Adopted || r.Kubernetes != version {
					t.Errorf("%s: %+v, %v", h.Name, r, err)
				}
				if a.layouts[h] == packageLayout {
					contains(t, fmt.Sprint(r.Findings), "the package kubelet "+strings.TrimPrefix(version, "v")+"-1.1 (dpkg, held)", "/etc/kubernetes/kubelet.d/10-site.conf")
				}
				same(t, a.bare[h], nodeListing(t, h))
			}
		}},
		{"adopt writes the ledger and the command airlift, and nothing else", func(t *testing.T) {
			for _, h := range a.hosts {
				transcribe(t, h, "./install adopt", newer(t, h, 0, "adopt"))
				a.adopted[h] = nodeListing(t, h)
				lines := newLines(a.bare[h], a.adopted[h])
				slices.Sort(lines)
				if len(lines) != 2 || !strings.HasPrefix(lines[0], "/usr/local/bin/airlift f 755 0:0 ") || !strings.HasPrefix(lines[1], "/var/lib/airlift/ledger.json f 600 0:0 ") {
					t.Errorf("%s: new: %q", h.Name, lines)
				}
				if gone := newLines(a.adopted[h], a.bare[h]); len(gone) > 0 {
					t.Errorf("%s: gone: %q", h.Name, gone)
				}
				contains(t, newer(t, h, 0, "adopt"), "There is nothing to do")
				same(t, a.adopted[h], nodeListing(t, h))
				contains(t, newer(t, h, 0, "status"), "made by "+a.makers[h]+", "+version)
			}
			contains(t, newer(t, a.control, 3, "init", "--skip-phases", "preflight"), "was adopted")
		}},
		{"upgrade to the next minor version", func(t *testing.T) {
			a.ask(t)
			transcribe(t, a.control, "./install upgrade plan", newer(t, a.control, 0, append([]string{"upgrade", "plan"}, a.apply...)...))
			for _, h := range a.hosts[1:] {
				newer(t, h, 0, "upgrade", "node", "phase", "unpack")
			}
			newer(t, a.control, 0, append([]string{"upgrade", "apply", "--yes"}, a.apply...)...)
			for n, h := range a.hosts[1:] {
				if n+1 < a.planes {
					newer(t, h, 0, append([]string{"upgrade", "node"}, a.apply...)...)
				} else {
					newer(t, h, 0, "upgrade", "node")
				}
			}
			a.ready(t, a.to)
			a.answered(t)
			for _, h := range a.hosts {
				if a.layouts[h] == packageLayout {
					if changed := run(t, h, "sh", "-c", "dpkg --verify kubelet kubectl; dpkg --get-selections | grep kube | grep -v 'hold$'; true"); changed != "" {
						t.Errorf("%s: the packages changed: %s", h.Name, changed)
					}
					contains(t, kubectl(t, a.Site, "get", "--raw", "/api/v1/nodes/"+h.Name+"/proxy/configz"), `"podPidsLimit":4321`)
					continue
				}
				// What only their own files had.
				flags := run(t, h, "sh", "-c", "tr '\\0' ' ' </proc/$(pgrep -x kubelet)/cmdline")
				contains(t, flags, "--node-ip="+h.Addr.String(), "--hostname-override="+h.Name)
				if a.layouts[h] == kubeKeyLayout && strings.Count(flags, "--v=3") != 1 {
					t.Errorf("%s: the kubelet does not have --v=3 once: %s", h.Name, flags)
				}
				if a.layouts[h] == kubesprayLayout {
					contains(t, kubectl(t, a.Site, "get", "--raw", "/api/v1/nodes/"+h.Name+"/proxy/configz"), `"maxPods":77`)
				}
			}
			contains(t, newer(t, a.control, 3, "reset", "--force"), "was upgraded from "+version, "upgrade undo")
		}},
		{"timers and a backup", func(t *testing.T) {
			newer(t, a.control, 0, "certs", "auto")
			if a.externalEtcd {
				contains(t, newer(t, a.control, 1, "etcd", "snapshot", "/root/backup.tar"), "an external etcd has its own tools")
			} else {
				newer(t, a.control, 0, "etcd", "snapshot", "/root/backup.tar")
			}
			newer(t, a.control, 0, "doctor", "/root/doctor.tar.gz")
		}},
		{"undo", func(t *testing.T) {
			for _, h := range slices.Backward(a.hosts) {
				newer(t, h, 0, "upgrade", "undo", "--yes")
			}
			a.ready(t, version)
			contains(t, kubectl(t, a.Site, "-n", "kube-system", "get", "daemonset/kube-proxy", "-o", "jsonpath={.spec.template.spec.containers[0].image}"), ":"+version)
			contains(t, kubectl(t, a.Site, "-n", "kube-system", "get", "configmap/kubeadm-config", "-o", "jsonpath={.data.ClusterConfiguration}"), "kubernetesVersion: "+version)
		}},
		{"real kubeadm reports the same as before", func(t *testing.T) {
			now := a.interop.ask(t, a.control)
			for line, before := range a.answers {
				same(t, answer(before, a.control), answer(now[line], a.control))
			}
		}},
	}
}

// last are the stages that give the nodes back.
func (a *adopting) last() []stage {
	return []stage{
		{"reset gives the nodes back as they were adopted", func(t *testing.T) {
			pods := kubectl(t, a.Site, "get", "pods", "-A", "-o", "jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}")
			for _, h := range a.hosts {
				transcribe(t, h, "./install reset", newer(t, h, 0, "reset", "--force"))
				is := nodeListing(t, h)
				if lines := newLines(withoutCredentials(a.bare[h]), withoutCredentials(is)); len(lines) != 1 || !strings.HasPrefix(lines[0], "/var/lib/airlift/ledger.json ") {
					t.Errorf("%s: left: %q", h.Name, lines)
				}
				if gone := newLines(withoutCredentials(is), withoutCredentials(a.bare[h])); len(gone) > 0 {
					t.Errorf("%s: gone: %q", h.Name, gone)
				}
			}
			a.ready(t, version)
			// A pod that undo has replaced may still end.
			if lines := newLines(pods, kubectl(t, a.Site, "get", "pods", "-A", "-o", "jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}")); len(lines) > 0 {
				t.Errorf("new or restarted pods: %q", lines)
			}
		}},
		{"disown", func(t *testing.T) {
			for _, h := range a.hosts {
				contains(t, newer(t, h, 2, "disown"), "Removed:", "/var/lib/airlift", "This ends the adoption of this node.") // no answer on standard input
				newer(t, h, 0, "disown", "--yes")
				same(t, withoutCredentials(a.bare[h]), withoutCredentials(nodeListing(t, h)))
				contains(t, newer(t, h, 0, "disown"), "nothing to do")
			}
		}},
		{"reset removes an adopted node", func(t *testing.T) {
			h := a.hosts[len(a.hosts)-1]
			newer(t, h, 0, "adopt")
			contains(t, newer(t, h, 2, "reset", "--remove-node"), "This removes the Kubernetes node")
			newer(t, h, 0, "reset", "--remove-node", "--force")
			if left := run(t, h, "sh", "-c", "find /var/lib/kubelet /etc/kubernetes -name '*.conf' -o -name config.yaml; ls -d /var/lib/airlift; systemctl is-active kubelet; true"); strings.TrimSpace(left) != "inactive" {
				t.Errorf("left: %s", left)
			}
			forget(t, a.control, h)
		}},
		{"no packet tried to leave", func(t *testing.T) { noEscapes(t, a.Site) }},
	}
}

// TestAdopt adopts a cluster that real kubeadm made, upgrades it, goes back, and gives its nodes back as they were. The control
// plane has the layout of the packages, one worker KubeKey's, one kubespray's.
func TestAdopt(t *testing.T) {
	a := newAdopting(t, lab.Options{Name: "e2e-adopt", Hosts: 3}, 1, packageLayout, kubeKeyLayout, kubesprayLayout)
	inOrder(t, a.Site, slices.Concat(a.first(), a.last()))
}

// TestAdoptEtcdUnit does the same with a control plane of KubeKey, whose etcd is a unit.
func TestAdoptEtcdUnit(t *testing.T) {
	a := newAdopting(t, lab.Options{Name: "e2e-adoptetcd", Hosts: 2}, 1, kubeKeyLayout, kubesprayLayout)
	a.externalEtcd = true
	inOrder(t, a.Site, slices.Concat(a.first(), a.last()))
}

// TestAdoptControlPlanes adopts three control planes and a worker. After the upgrade and its undo, the other commands run on
// these nodes, and "cluster" from a host that is none of them.
func TestAdoptControlPlanes(t *testing.T) {
	o := lab.Options{Name: "e2e-adopt3", Hosts: 5, SSH: true, Virtual: []netip.Addr{netip.MustParseAddr(virtual)}}
	a := newAdopting(t, o, 3, packageLayout, kubeKeyLayout, kubesprayLayout, packageLayout)
	inOrder(t, a.Site, slices.Concat(a.first(), a.commands()))
}

// commands are the stages with the commands of our own nodes.
func (a *adopting) commands() []stage {
	m := &multihost{Site: a.Site, driver: a.Hosts[len(a.hosts)], nodes: a.hosts, planes: a.planes}
	return []stage{
		{"an endpoint and back", func(t *testing.T) {
			follow := func() { // each control plane once more, when all of them serve the endpoint
				for _, h := range slices.Concat(a.hosts[1:], a.hosts[:a.planes]) {
					install(t, h, 0, "endpoint", "node")
				}
			}
			install(t, a.control, 0, "endpoint", "apply", "--control-plane-vip", virtual, "--control-plane-balancer")
			follow()
			contains(t, install(t, a.control, 0, "endpoint", "node"), "All nodes reach the API at https://"+endpoint+":6443")
			holder(t, a.hosts[:a.planes])
			contains(t, install(t, a.worker, 3, "reset", "--force"), "endpoint")
			contains(t, install(t, a.worker, 3, "disown", "--yes"), "endpoint")
			install(t, a.control, 0, "endpoint", "undo")
			follow()
			contains(t, install(t, a.control, 0, "endpoint", "node"), "is undone")
			a.ready(t, version)
		}},
		{"another configuration and back", func(t *testing.T) {
			args := `[{name: v, value: "2"}]`
			if config.APIVersion(version) == "v1beta3" {
				args = `{v: "2"}`
			}
			run(t, a.control, "sh", "-c", "/root/install reconfigure print >/root/printed.yaml; sed 's/^scheduler: {}/scheduler: {extraArgs: "+args+"}/' /root/printed.yaml >/root/changed.yaml; ! cmp /root/printed.yaml /root/changed.yaml")
			install(t, a.control, 0, "reconfigure", "--config", "/root/changed.yaml", "--yes")
			for _, h := range a.hosts[1:] {
				install(t, h, 0, "reconfigure", "node")
			}
			for _, h := range a.hosts[:a.planes] {
				contains(t, run(t, h, "cat", "/etc/kubernetes/manifests/kube-scheduler.yaml"), "--v=2")
			}
			install(t, a.control, 0, "reconfigure", "undo", "--yes")
			for _, h := range a.hosts[1:] {
				install(t, h, 0, "reconfigure", "node")
			}
			a.ready(t, version)
		}},
		{"an import", func(t *testing.T) {
			for _, h := range a.hosts {
				install(t, h, 0, "import")
			}
		}},
		{"an additional file with manifests", func(t *testing.T) {
			image, err := site.WorkloadImage(version)
			if err != nil {
				t.Fatal(err)
			}
			later := buildAdditional(t, siteregistry.Start(t, siteregistry.Options{Auth: "token"}), imageInBundle(t, image), aLayer, *bundlePath)
			kubectl(t, a.Site, "create", "namespace", "web")
			for _, h := range a.hosts {
				if _, err := h.CopyIn(t.Context(), later.path, "/root/more", 0o755); err != nil {
					t.Fatal(err)
				}
				more(t, h, 0, "import")
			}
			more(t, a.control, 0, "apply")
			kubectl(t, a.Site, "-n", "web", "rollout", "status", "daemonset/later", "--timeout=2m")
		}},
		{"new CAs", func(t *testing.T) {
			key := rotationKey(t, install(t, a.control, 0, "certs", "rotate-ca", "distribute"))
			for n, h := range a.hosts[1:] {
				if n+1 < a.planes {
					install(t, h, 0, "certs", "rotate-ca", "distribute", "--certificate-key", key)
				} else {
					install(t, h, 0, "certs", "rotate-ca", "distribute")
				}
			}
			for _, step := range []string{"issue", "finish"} {
				for _, h := range a.hosts {
					install(t, h, 0, "certs", "rotate-ca", step)
				}
			}
			a.ready(t, version)
			contains(t, install(t, a.control, 3, "reset", "--force"), "CA")
		}},
		{"cluster: the registry, and an upgrade", func(t *testing.T) {
			if _, err := m.driver.CopyIn(t.Context(), *bundlePath, "/root/install", 0o755); err != nil {
				t.Fatal(err)
			}
			m.learnHostKeys(t, m.driver)
			var hosts strings.Builder
			for _, h := range m.nodes {
				hosts.WriteString(m.entry(h, ""))
			}
			write(t, m.driver, "/root/cluster.yaml", site.ClusterFile("kubernetes", "endpoint: {address: "+endpoint+"}\n", hosts.String()))
			m.cluster(t, 5, "plan", "--detailed-exitcode")
			m.cluster(t, 0, "apply", "--yes")
			a.ready(t, version)
			m.cluster(t, 0, "apply", "--yes")
			m.cluster(t, 0, "status")
			for _, h := range a.hosts[:a.planes] {
				contains(t, install(t, h, 0, "registry", "status"), a.control.Addr.String())
			}
			a.ask(t)
			contains(t, newer(t, m.driver, 5, "cluster", "plan", "--detailed-exitcode"), version, a.to)
			newer(t, m.driver, 0, "cluster", "apply", "--yes")
			a.ready(t, a.to)
			a.answered(t)
		}},
		{"a backup is restored after all control planes were removed", func(t *testing.T) {
			kubectl(t, a.Site, "create", "configmap", "before", "--from-literal", "a=b")
			with := install
			if kubectl(t, a.Site, "get", "node", a.control.Name, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}") == a.to {
				with = newer
			}
			with(t, a.control, 0, "etcd", "snapshot", "/root/cluster.tar", "--force")
			for _, h := range slices.Backward(a.hosts[:a.planes]) {
				with(t, h, 0, "reset", "--remove-node", "--force")
			}
			// What belongs to the pod network of the site stays, and the restore names it with these commands.
			contains(t, with(t, a.control, 3, "etcd", "restore", "/root/cluster.tar"), "rm -r /run/flannel", "ip link delete cni0", "ip link delete flannel.1", "rm -r /var/lib/cni/networks/cbr0")
			run(t, a.control, "sh", "-c", "rm -r /run/flannel /var/lib/cni/networks/cbr0; ip link delete cni0; ip link delete flannel.1")
			with(t, a.control, 0, "etcd", "restore", "/root/cluster.tar")
			contains(t, kubectlAt(t, a.control, "get", "configmap", "before", "-o", "jsonpath={.data}"), `"a":"b"`)
			endpointAt(t, a.worker, a.control)
			nodeIsReady(t, a.control, a.worker)
		}},
		{"no packet tried to leave", func(t *testing.T) { noEscapes(t, a.Site) }},
	}
}
