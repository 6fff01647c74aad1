package render_test

import (
	"os"
	"path/filepath"
	"testing"

	"airlift/installer/config"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
	"airlift/scripts/oracle"
)

// TestReconfiguredEqualsKubeadm: a cluster whose configuration is changed has the static pods, the kubelet's configuration and
// the objects of a new cluster that real kubeadm makes with the same documents.
func TestReconfiguredEqualsKubeadm(t *testing.T) {
	for _, version := range oracle.Versions {
		for _, change := range oracle.Changes(version) {
			t.Run(version+" "+change.Name, func(t *testing.T) {
				t.Parallel()
				c := change.Case(version)
				cfg := reconfigured(t, version, c)
				c.Config = cfg
				compareRendered(t, cfg, os.DirFS(hostWith(t, nil)), nil, oracle.Expect(t, c))
			})
		}
	}
}

// reconfigured is the configuration of a cluster after a change, as reconfigure computes it.
func reconfigured(t *testing.T, version string, c oracle.Case) *config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeadm.yaml")
	if err := os.WriteFile(file, []byte(c.Documents()), 0o600); err != nil {
		t.Fatal(err)
	}
	given, _, err := config.ReadReconfigure(file)
	if err != nil {
		t.Fatal(err)
	}
	before := oracle.Before(version)
	text, err := render.ClusterConfiguration(before)
	if err != nil {
		t.Fatal(err)
	}
	stored, warnings, err := config.DecodeClusterConfiguration(text)
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	cfg := *before
	var refused []reconfiguration.Refusal
	cfg.Cluster, refused = reconfiguration.Merge(stored, given, reconfiguration.Node{
		Name: "n1", CRISocket: cfg.NodeRegistration.CRISocket, Endpoint: cfg.LocalAPIEndpoint, CgroupDriver: cfg.Facts.CgroupDriver,
	})
	if len(refused) > 0 {
		t.Fatal(refused)
	}
	cfg.NodeRegistration.Taints, cfg.NodeRegistration.KubeletExtraArgs = given.Config.NodeRegistration.Taints, given.Config.NodeRegistration.KubeletExtraArgs
	cfg.CompleteUpgrade(true)
	if err := given.Check(&cfg, true); err != nil {
		t.Fatal(err)
	}
	if cfg.Images, err = cfg.ImageNames(before.Images); err != nil {
		t.Fatal(err)
	}
	return &cfg
}
