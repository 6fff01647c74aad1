package config

import "slices"

// UpgradePlan is the part of kubeadm's UpgradeConfiguration that upgrade plan needs, and the
// flags with the same names.
type UpgradePlan struct {
	KubernetesVersion     string
	AllowExperimental     bool
	AllowRC               bool
	EtcdUpgrade           bool
	PrintConfig           bool
	IgnorePreflightErrors []string
}

// ReadUpgradePlan reads the UpgradeConfiguration of a file for upgrade plan.
func ReadUpgradePlan(path string) (*UpgradePlan, []string, error) {
	p := &UpgradePlan{}
	_, warnings, err := readUpgrade(path, func(in *upgradeConfiguration) *UpgradeRun {
		is := func(b *bool) bool { return b != nil && *b }
		*p = UpgradePlan{
			KubernetesVersion: in.Plan.KubernetesVersion, AllowExperimental: is(in.Plan.AllowExperimentalUpgrades), AllowRC: is(in.Plan.AllowRCUpgrades),
			EtcdUpgrade: orTrue(in.Plan.EtcdUpgrade), PrintConfig: is(in.Plan.PrintConfig), IgnorePreflightErrors: slices.Clone(in.Plan.IgnorePreflightErrors),
		}
		return &UpgradeRun{}
	})
	return p, warnings, err
}
