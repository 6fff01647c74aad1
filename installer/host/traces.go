package host

import (
	"os"
	"path/filepath"

	"airlift/installer/config"
)

// A host that kubeadm made a node, or whose ledger is lost, has no list of what
// was created there. Traces makes one up from what `kubeadm reset` removes.

// Traces are the paths of a node that is not in a ledger.
type Traces struct {
	CertificatesDir string
	EtcdDataDir     string // where this host's own etcd manifest names one
}

// kubeconfigs that kubeadm, or the kubelet, writes.
var kubeconfigNames = []string{"admin", "super-admin", "kubelet", "bootstrap-kubelet", "controller-manager", "scheduler"}

// IsNode says whether this host has a node's kubeconfigs, static pods or
// kubelet configuration.
func (h *Host) IsNode() bool {
	paths := []string{config.KubeletConfigFile, config.KubeletFlagsFile}
	for _, name := range kubeconfigNames {
		paths = append(paths, filepath.Join(config.KubernetesDir, name+".conf"))
	}
	for _, pod := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		paths = append(paths, filepath.Join(config.ManifestsDir, pod+".yaml"))
	}
	for _, path := range paths {
		if exists(h.Path(path)) {
			return true
		}
	}
	return false
}

// AdoptTraces puts what is there of a node into the ledger in memory. Nothing
// is written before Commit or the first removal.
func (h *Host) AdoptTraces(t Traces) {
	add := func(kind, name, holds string) {
		if exists(h.Path(name)) {
			h.plan(entry{Kind: kind, Name: name, Holds: holds})
		}
	}
	add(kindContents, config.ManifestsDir, "static pods")
	add(kindContents, t.CertificatesDir, "certificates")
	h.plan(entry{Kind: kindContents, Name: config.KubeletDir, Holds: "the kubelet's state"})
	if t.EtcdDataDir != "" {
		add(kindContents, t.EtcdDataDir, EtcdData)
	}
	for _, name := range kubeconfigNames {
		add(kindOwned, filepath.Join(config.KubernetesDir, name+".conf"), "")
	}
	h.plan(entry{Kind: kindInterface, Name: "kube-ipvs0"})
}

// Adopt puts a path that the user named into the ledger in memory.
func (h *Host) Adopt(path string) {
	if exists(h.Path(path)) {
		h.plan(entry{Kind: kindOwned, Name: path})
	}
}

func (h *Host) plan(e entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.find(e.Kind, e.Name); !ok {
		h.ledger.Entries = append(h.ledger.Entries, e)
	}
}

// Commit writes the ledger, so that a reset that was interrupted can go on.
func (h *Host) Commit() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := os.Lstat(h.Path(LedgerPath)); err == nil || h.folder {
		return nil
	}
	return h.writeLedger(h.ledger.Entries)
}
