//go:build e2e

package e2e

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/kubeadm"
	"airlift/scripts/oracle"
)

// upgradeDifferences are the intended differences between a cluster that Airlift has upgraded and
// one that kubeadm has, in addition to those of new clusters. They are the complete list.
var upgradeDifferences = []liveDifference{
	{
		What:  "the startup probes in the manifests",
		Why:   "as in the pods: they probe every second",
		Where: `File /etc/kubernetes/manifests/\S+ spec\.containers\[0\]\.startupProbe\.(failureThreshold|initialDelaySeconds|periodSeconds)`,
	}, {
		What:  "the container runtime's socket in the kubelet's configuration",
		Why:   "/var/run, which kubeadm's default goes through, is a link to /run",
		Where: `File /var/lib/kubelet/\S+ (kubelet\.)?(containerRuntimeEndpoint|content)`,
	}, {
		What:   "etcd's certificates, where the cluster has a newer etcd than the new version: v1.29.15 than v1.30.4",
		Why:    "kubeadm keeps that etcd, and then does not renew its certificates; they would expire before the next upgrade",
		Where:  `File /etc/kubernetes/pki/etcd/(healthcheck-client|peer|server)\.(crt|key) written by the upgrade`,
		Minors: oracle.Minors{Since: 30, Until: 30},
	},
}

// TestUpgradeOracle upgrades a cluster with Airlift and an equal one with real kubeadm, and compares
// the files of the control planes and all objects.
func TestUpgradeOracle(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-upgradekubeadm", Hosts: 2})
	own, hand := s.Hosts[0], s.Hosts[1]
	to := carryNewer(t, own)
	gather := func(version string) *kubeadm.Kit {
		kit, err := kubeadm.Gather(t.Context(), version, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return kit
	}
	next := gather(to)
	i := &interop{kit: gather(version), site: s, own: own, hand: hand}
	inOrder(t, s, []stage{
		{"clusters of the older version", func(t *testing.T) {
			run(t, own, "sh", "-c", "echo nameserver "+kubeadm.Nameserver(own)+" >/etc/resolv.conf")
			i.initOwn(t)
			i.kubeadmInit(t)
		}},
		{"both are upgraded", func(t *testing.T) {
			for _, h := range s.Hosts {
				run(t, h, "touch", upgradeBegan)
			}
			if err := next.CopyNext(t.Context(), hand); err != nil {
				t.Fatal(err)
			}
			byHand := make(chan error, 1)
			var done kubeadm.Done
			go func() {
				_, err := next.ImportImages(t.Context(), hand, true)
				if err == nil {
					done, err = next.Upgrade(t.Context(), hand, kubeadm.Upgrade{Control: hand}, nil)
				}
				byHand <- err
			}()
			newer(t, own, 0, "upgrade", "apply", "--yes")
			err := <-byHand
			transcribe(t, hand, "kubeadm upgrade apply", done.Output)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("by hand, at the same time: %s", done.Took.Round(100*time.Millisecond))
			for _, h := range s.Hosts {
				systemIsUp(t, i.all(h), 1)
				staticPodsAreKnown(t, h)
				allControllersWork(t, h)
			}
		}},
		{"both have the same files and objects", func(t *testing.T) {
			theirs, ours := dump(t, hand), dump(t, own)
			for name, file := range files(t, hand) {
				theirs[name] = file
			}
			for name, file := range files(t, own) {
				ours[name] = file
			}
			compare(t, to, slices.Concat(liveDifferences, upgradeDifferences), theirs, ours)
		}},
	})
}

// upgradeBegan is a file that is older than what the upgrade writes.
const upgradeBegan = "/root/upgrade-began"

// dataField matches the fields of a kubeconfig with keys and certificates.
var dataField = regexp.MustCompile(`-data$`)

// files returns the files of a control plane: the fields of those that are YAML, and of every other
// only whether the upgrade has written it.
func files(t *testing.T, h *lab.Host) cluster {
	t.Helper()
	const dirs = "/etc/kubernetes /var/lib/kubelet/config.yaml /var/lib/kubelet/kubeadm-flags.env /var/lib/kubelet/instance-config.yaml"
	list := func(test string) string {
		return run(t, h, "sh", "-c", "find "+dirs+" -path /etc/kubernetes/tmp -prune -o -type f "+test+" -print 2>/dev/null; true")
	}
	written := strings.Fields(list("-newer " + upgradeBegan))
	c := cluster{}
	for _, name := range strings.Fields(list("")) {
		fields := map[string]string{}
		switch {
		case strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".conf"):
			text := run(t, h, "cat", name)
			fields = document(t, strings.NewReplacer(h.Name, "HOST", h.Addr.String(), "ADDRESS").Replace(text))
			for path := range fields {
				if dataField.MatchString(path) {
					fields[path] = "DATA"
				}
			}
		case strings.HasSuffix(name, ".env"):
			fields["content"] = strings.ReplaceAll(run(t, h, "cat", name), h.Addr.String(), "ADDRESS")
		}
		if strings.HasPrefix(name, "/etc/kubernetes/pki/") || strings.HasSuffix(name, ".conf") {
			fields["written by the upgrade"] = map[bool]string{true: "yes", false: "no"}[slices.Contains(written, name)]
		}
		c["File "+name] = fields
	}
	if len(c) < 25 {
		t.Fatalf("%s has only %d files", h.Name, len(c))
	}
	return c
}
