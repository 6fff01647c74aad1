//go:build e2e

package e2e

import (
	"io"
	"path"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/kubeadm"
)

// containerdLayouts are the places in which hosts have a containerd of their own. Its binaries are
// the bundle's with one more byte, so the checksums differ as those of another build do.
var containerdLayouts = []struct {
	name, about string
	packages    []string
	bin, runc   string // directories; "" if a package brings the binaries
	unit        string
	config      string
}{
	{name: "e2e-releasearchive", about: "containerd's release archive in /usr/local",
		bin: "/usr/local/bin", runc: "/usr/local/sbin", unit: "/usr/local/lib/systemd/system/containerd.service", config: containerd2},
	{name: "e2e-dockerlayout", about: "binaries in /usr, as in Docker's packages",
		bin: "/usr/bin", runc: "/usr/bin", unit: "/lib/systemd/system/containerd.service", config: containerd2},
	{name: "e2e-debian", about: "Debian's package", packages: []string{"containerd"}, config: containerd1},
}

const containerd2 = `version = 3
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
`

const containerd1 = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/opt/cni/bin"
`

const ownContainerdUnit = `[Unit]
Description=the host's own containerd
After=network.target
[Service]
ExecStart=BIN/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
LimitNOFILE=infinity
[Install]
WantedBy=multi-user.target
`

// ownContainerd lists everything of the host's containerd that Airlift must leave alone, also its
// process, and what the names of its commands mean.
const ownContainerd = `
	sha256sum /usr/local/bin/containerd* /usr/local/bin/ctr /usr/local/sbin/runc /usr/local/bin/runc /usr/bin/containerd* /usr/bin/ctr /usr/bin/runc /usr/sbin/runc 2>/dev/null
	find /etc/containerd /etc/crictl.yaml /usr/local/lib/systemd /lib/systemd/system/containerd.service /etc/systemd/system/containerd.service* -type f -exec sha256sum {} + 2>/dev/null
	command -v containerd ctr runc containerd-shim-runc-v2
	systemctl show -p MainPID -p FragmentPath containerd`

// TestUpgradeExistingContainerd installs, upgrades, undoes and resets on hosts with a containerd of
// their own, in each place in which they have it. It is never changed nor restarted.
func TestUpgradeExistingContainerd(t *testing.T) {
	for _, layout := range containerdLayouts {
		t.Run(layout.name, func(t *testing.T) {
			s := up(t, lab.Options{Name: layout.name, Hosts: 1, ExtraPackages: layout.packages})
			h := s.Hosts[0]
			to := carryNewer(t, h)
			if layout.bin != "" {
				placeContainerd(t, h, layout.bin, layout.runc, layout.unit)
			}
			run(t, h, "sh", "-c", "mkdir -p /etc/containerd && cat >/etc/containerd/config.toml <<'END'\n"+layout.config+"END\nsystemctl daemon-reload; systemctl enable --now containerd; systemctl restart containerd")
			importTiny(t, h, "docker.io/library/unrelated:1")
			secondNames(t, h)
			images, before := containerdHas(t, h), run(t, h, "sh", "-c", ownContainerd)
			untouched := func(t *testing.T) {
				t.Helper()
				same(t, before, run(t, h, "sh", "-c", ownContainerd))
			}
			inOrder(t, s, []stage{
				{"init uses it", func(t *testing.T) {
					contains(t, install(t, h, 0, "init"), "this host's existing containerd")
					systemIsUp(t, s, 1)
					untouched(t)
				}},
				{"the plan of an upgrade does not name it", func(t *testing.T) {
					out := newer(t, h, 0, "upgrade", "plan")
					contains(t, out, "/usr/local/bin/kubelet")
					for _, file := range []string{"bin/containerd", "bin/ctr", "runc", "/etc/containerd", "containerd.service", "crictl.yaml"} {
						if strings.Contains(out, file) {
							t.Errorf("the plan names %s:\n%s", file, out)
						}
					}
				}},
				{"upgrade", func(t *testing.T) {
					newer(t, h, 0, "upgrade", "apply", "--yes")
					contains(t, run(t, h, "/usr/local/bin/kubelet", "--version"), to)
					systemIsUp(t, s, 1)
					untouched(t)
				}},
				{"undo", func(t *testing.T) {
					newer(t, h, 0, "upgrade", "undo", "--yes")
					contains(t, run(t, h, "/usr/local/bin/kubelet", "--version"), version)
					systemIsUp(t, s, 1)
					untouched(t)
				}},
				{"reset", func(t *testing.T) {
					newer(t, h, 0, "reset", "--force")
					untouched(t)
					same(t, images, containerdHas(t, h))
				}},
			})
		})
	}
}

// secondNames imports images of the bundle under other names: the pause image, and one whose layers
// are there before init imports the same content under its own name.
func secondNames(t *testing.T, h *lab.Host) {
	t.Helper()
	kit, err := kubeadm.Gather(t.Context(), version, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range kit.Archives {
		for _, name := range []string{"pause", "coredns"} {
			if !strings.Contains(a.Reference, "/"+name+":") {
				continue
			}
			if _, err := h.CopyIn(t.Context(), a.Path, "/root/image.tar", 0o644); err != nil {
				t.Fatal(err)
			}
			run(t, h, "sh", "-c", "ctr -n k8s.io images import /root/image.tar && ctr -n k8s.io images tag "+a.Reference+" site.example/"+name+":copy && ctr -n k8s.io images rm --sync "+a.Reference+"; rm /root/image.tar")
		}
	}
	eventually(t, time.Minute, func() string {
		if names := run(t, h, "ctr", "-n", "k8s.io", "images", "ls", "-q"); strings.Contains(names, "registry.k8s.io") || strings.Count(names, "site.example/") != 2 {
			return names
		}
		return ""
	})
}

// placeContainerd installs a containerd and a runc in directories of the host.
func placeContainerd(t *testing.T, h *lab.Host, bin, runc, unit string) {
	t.Helper()
	kit, err := kubeadm.Gather(t.Context(), version, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	run(t, h, "mkdir", "-p", bin, runc, path.Dir(unit))
	for _, p := range kit.Programs {
		name, dir := path.Base(p.Remote), bin
		switch {
		case name == "runc":
			dir = runc
		case name == "ctr", strings.HasPrefix(name, "containerd"):
		default:
			continue
		}
		if _, err := h.CopyIn(t.Context(), p.Local, path.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		run(t, h, "sh", "-c", "printf x >>"+path.Join(dir, name))
	}
	run(t, h, "sh", "-c", "cat >"+unit+" <<'END'\n"+strings.ReplaceAll(ownContainerdUnit, "BIN", bin)+"END")
}
