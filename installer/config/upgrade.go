package config

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// UpgradeRun is the part of kubeadm's UpgradeConfiguration that a run of upgrade apply or
// upgrade node needs, and the flags that both have.
type UpgradeRun struct {
	KubernetesVersion     string // only of upgrade apply
	CertificateRenewal    bool
	EtcdUpgrade           bool
	Drain                 bool // only a flag of Airlift, not in kubeadm
	DryRun                bool
	IgnorePreflightErrors []string
	SkipPhases            []string
	Patches               string
	ImagePullPolicy       corev1.PullPolicy
	Timeouts              Timeouts
}

// ReadUpgradeApply reads the UpgradeConfiguration of a file for upgrade apply.
func ReadUpgradeApply(path string) (*UpgradeRun, []string, error) {
	return readUpgrade(path, func(in *upgradeConfiguration) *UpgradeRun {
		a := &in.Apply
		return &UpgradeRun{
			KubernetesVersion:  a.KubernetesVersion,
			CertificateRenewal: orTrue(a.CertificateRenewal), EtcdUpgrade: orTrue(a.EtcdUpgrade), DryRun: a.DryRun != nil && *a.DryRun,
			IgnorePreflightErrors: a.IgnorePreflightErrors, SkipPhases: a.SkipPhases, Patches: a.Patches.directory(), ImagePullPolicy: a.ImagePullPolicy,
		}
	})
}

// ReadUpgradeNode reads the UpgradeConfiguration of a file for upgrade node.
func ReadUpgradeNode(path string) (*UpgradeRun, []string, error) {
	return readUpgrade(path, func(in *upgradeConfiguration) *UpgradeRun {
		n := &in.Node
		return &UpgradeRun{
			CertificateRenewal: orTrue(n.CertificateRenewal), EtcdUpgrade: orTrue(n.EtcdUpgrade), DryRun: n.DryRun != nil && *n.DryRun,
			IgnorePreflightErrors: n.IgnorePreflightErrors, SkipPhases: n.SkipPhases, Patches: n.Patches.directory(), ImagePullPolicy: n.ImagePullPolicy,
		}
	})
}

func readUpgrade(path string, take func(*upgradeConfiguration) *UpgradeRun) (*UpgradeRun, []string, error) {
	s, err := readSource(path)
	if err != nil {
		return nil, nil, err
	}
	s.check(false)
	s.need([]string{"UpgradeConfiguration"})
	u := &Upgrade{*decoded[upgradeConfiguration](s), s.origin()}
	run := take(&u.wire)
	run.Drain = true
	run.IgnorePreflightErrors = slices.Clone(run.IgnorePreflightErrors)
	run.Timeouts = u.wire.Timeouts
	if err := s.Err(); err != nil {
		return nil, s.warnings, err
	}
	return run, s.warnings, u.Validate()
}

func (p *patches) directory() string {
	if p == nil {
		return ""
	}
	return p.Directory
}

func orTrue(b *bool) bool { return b == nil || *b }

// CompleteUpgrade sets the defaults for an upgrade of a node. The cluster's configuration, Facts
// and, on a control plane, LocalAPIEndpoint must be set.
func (c *Config) CompleteUpgrade(controlPlane bool) {
	// The stored configuration omits defaults. An empty pod subnet is not a default there, so it
	// stays empty.
	pods := c.Networking.PodSubnet
	if controlPlane {
		c.CompleteInit()
	} else {
		c.CompleteJoin()
	}
	c.Networking.PodSubnet = pods
}
