package host

import (
	"os"
	"path/filepath"

	"airlift/installer/config"
)

// A host that kubeadm made a node, or whose ledger is lost, has no list of what
// was created there. Its replacement is what `kubeadm reset` removes.

// Traces are the configurable paths of a node without a ledger.
type Traces struct {
	CertificatesDir string
	EtcdDataDir     string // from this host's etcd manifest, if it has one
}

// kubeconfigNames are the kubeconfigs that kubeadm and the kubelet write.
var kubeconfigNames = []string{"admin", "super-admin", "kubelet", "bootstrap-kubelet", "controller-manager", "scheduler"}

// IsNode reports whether this host has a node's kubeconfigs, static pods or
// kubelet configuration.
func (h Removal) IsNode() bool {
	paths := []string{config.KubeletConfigFile, config.KubeletFlagsFile}
	for _, name := range kubeconfigNames {
		paths = append(paths, filepath.Join(config.KubernetesDir, name+".conf"))
	}
	for _, pod := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		paths = append(paths, filepath.Join(config.ManifestsDir, pod+".yaml"))
	}
	for _, path := range paths {
		if exists(h.host.Path(path)) {
			return true
		}
	}
	return false
}

// AdoptTraces adds the existing paths of a node to the ledger in memory. Nothing
// is written before Commit or the first removal.
func (h Removal) AdoptTraces(t Traces) {
	add := func(kind, name, contents string) {
		if exists(h.host.Path(name)) {
			h.plan(entry{Kind: kind, Name: name, Contents: contents})
		}
	}
	add(kindContents, config.ManifestsDir, "static pods")
	add(kindContents, t.CertificatesDir, "certificates")
	h.plan(entry{Kind: kindContents, Name: config.KubeletDir, Contents: "the kubelet's state"})
	if t.EtcdDataDir != "" {
		add(kindContents, t.EtcdDataDir, EtcdData)
	}
	for _, name := range kubeconfigNames {
		add(kindOwned, filepath.Join(config.KubernetesDir, name+".conf"), "")
	}
	h.plan(entry{Kind: kindInterface, Name: "kube-ipvs0"})
}

// Adopt adds a path that the user named to the ledger in memory.
func (h Removal) Adopt(path string) {
	if exists(h.host.Path(path)) {
		h.plan(entry{Kind: kindOwned, Name: path})
	}
}

func (h Removal) plan(e entry) {
	h.host.mu.Lock()
	defer h.host.mu.Unlock()
	if _, ok := h.host.Records().find(e.Kind, e.Name); !ok {
		h.host.ledger.Entries = append(h.host.ledger.Entries, e)
	}
}

// Commit writes the ledger, so that an interrupted reset can continue.
func (h Removal) Commit() error {
	h.host.mu.Lock()
	defer h.host.mu.Unlock()
	if _, err := os.Lstat(h.host.Path(LedgerPath)); err == nil || h.host.outputOnly {
		return nil
	}
	return h.host.Records().writeLedger(h.host.ledger.Entries)
}
