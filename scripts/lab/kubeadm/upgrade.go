package kubeadm

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"airlift/scripts/lab"
)

// nextDir has the binaries of the version to upgrade to, on a host.
const nextDir = "/root/next"

// CopyNext copies the files for an upgrade to the kit's version to a host, next to what runs.
func (k *Kit) CopyNext(ctx context.Context, h *lab.Host) error {
	for _, p := range k.Programs {
		if _, err := h.CopyIn(ctx, p.Local, path.Join(nextDir, path.Base(p.Remote)), 0o755); err != nil {
			return err
		}
	}
	return k.carryArchives(ctx, h)
}

// An Upgrade is the upgrade of one node by hand, as upstream describes it ("Upgrading kubeadm
// clusters"). containerd, runc and the CNI plugins stay: the test rig has one version of each.
type Upgrade struct {
	Control *lab.Host // the first control plane
	Drain   bool      // move the node's pods to other nodes
}

// Upgrade upgrades a node. Call CopyNext and ImportImages first. part is called after each part; it may be nil.
func (k *Kit) Upgrade(ctx context.Context, h *lab.Host, u Upgrade, part func(name string)) (Done, error) {
	started := time.Now()
	var all strings.Builder
	kubectl := func(args ...string) func() (Done, error) {
		return func() (Done, error) {
			return k.command(ctx, u.Control, nil, append([]string{"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"}, args...)...)
		}
	}
	upgrade := []string{"kubeadm", "upgrade", "node"}
	if h == u.Control {
		upgrade = []string{"kubeadm", "upgrade", "apply", k.Version, "--yes"}
	}
	steps := []struct {
		name string
		run  func() (Done, error)
	}{
		{"kubeadm", func() (Done, error) {
			return k.script(ctx, h, "install -m 755 "+nextDir+"/kubeadm "+binDir+"/kubeadm\n")
		}},
		{strings.Join(upgrade, " "), func() (Done, error) {
			return k.command(ctx, h, nil, append(upgrade, "--ignore-preflight-errors", k.IgnoredChecks())...)
		}},
		{"drain", kubectl("drain", h.Name, "--ignore-daemonsets", "--delete-emptydir-data")},
		{"kubelet", func() (Done, error) {
			return k.script(ctx, h, "install -m 755 "+nextDir+"/kubelet "+nextDir+"/kubectl "+binDir+"\nsystemctl daemon-reload\nsystemctl restart kubelet\n")
		}},
		{"uncordon", kubectl("uncordon", h.Name)},
	}
	for _, s := range steps {
		if !u.Drain && (s.name == "drain" || s.name == "uncordon") {
			continue
		}
		done, err := s.run()
		fmt.Fprintf(&all, "# %s: %s\n%s", s.name, done.Took.Round(100*time.Millisecond), done.Output)
		if err != nil {
			return Done{all.String(), time.Since(started)}, fmt.Errorf("upgrading %s by hand: %s: %w", h.Name, s.name, err)
		}
		if part != nil {
			part(s.name)
		}
	}
	return Done{all.String(), time.Since(started)}, nil
}
