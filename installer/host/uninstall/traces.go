package uninstall

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/pki"
)

// A host that kubeadm made a node, or whose ledger is lost, has no list of created files. Instead,
// use the list of what `kubeadm reset` removes.

// Traces are the configurable paths of a node without a ledger.
type Traces struct {
	CertificatesDir string
	EtcdDataDir     string // from this host's etcd manifest, if it has one
}

// kubeconfigNames are the kubeconfigs that kubeadm and the kubelet write.
var kubeconfigNames = []string{"admin", "super-admin", "kubelet", "bootstrap-kubelet", "controller-manager", "scheduler"}

// IsNode reports whether this host has a node's kubeconfigs, static pods or
// kubelet configuration.
func IsNode(h *host.Host) bool {
	paths := []string{config.KubeletConfigFile, config.KubeletFlagsFile}
	for _, name := range kubeconfigNames {
		paths = append(paths, filepath.Join(config.KubernetesDir, name+".conf"))
	}
	for _, pod := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		paths = append(paths, filepath.Join(config.ManifestsDir, pod+".yaml"))
	}
	for _, path := range paths {
		if filesystem.Exists(h.Path(path)) {
			return true
		}
	}
	return false
}

// AssumeTraces adds the existing paths of a node to the ledger in memory, and ends its adoption. Nothing
// is written before Commit or the first removal.
func AssumeTraces(h *host.Host, t Traces) {
	h.Records().Assume(ledger.Entry{Kind: ledger.Reset, Name: ledger.Traces})
	add := func(kind, name, contents string) {
		if filesystem.Exists(h.Path(name)) {
			h.Records().Assume(ledger.Entry{Kind: kind, Name: name, Contents: contents})
		}
	}
	add(ledger.Contents, config.ManifestsDir, "static pods")
	if onlyCertificates(h, t.CertificatesDir) {
		add(ledger.Contents, t.CertificatesDir, "certificates")
	} else {
		for _, name := range append(pki.FileNames(), pki.RotationDir) {
			add(ledger.Owned, filepath.Join(t.CertificatesDir, name), "")
		}
	}
	h.Records().Assume(ledger.Entry{Kind: ledger.Contents, Name: config.KubeletDir, Contents: "the kubelet's state"})
	if t.EtcdDataDir != "" {
		add(ledger.Contents, t.EtcdDataDir, ledger.EtcdData)
	}
	for _, name := range kubeconfigNames {
		add(ledger.Owned, filepath.Join(config.KubernetesDir, name+".conf"), "")
	}
	h.Records().Assume(ledger.Entry{Kind: ledger.Interface, Name: "kube-ipvs0"})
	var own []string // files of an adopted node, whose originals are not restored
	for _, e := range h.Records().Entries(ledger.File) {
		if _, owned := h.Records().Find(ledger.Owned, e.Name); owned || h.Records().InClaimed(e.Name) {
			own = append(own, e.Name)
		}
	}
	h.Records().EndAdoption(own)
}

// onlyCertificates reports whether a directory of certificates can be emptied: it is in kubeadm's own directory, which kubeadm reset
// empties too, or everything in it has kubeadm's names.
func onlyCertificates(h *host.Host, dir string) bool {
	if strings.HasPrefix(filepath.Clean(dir), config.KubernetesDir+"/") {
		return true
	}
	only := true
	err := fs.WalkDir(os.DirFS(h.Path(dir)), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == pki.RotationDir:
			return fs.SkipDir
		case name != "." && name != "etcd" && !slices.Contains(pki.FileNames(), name):
			only = false
		}
		return nil
	})
	return only && err == nil
}

// Assume adds a path that the user named to the ledger in memory.
func Assume(h *host.Host, path string) {
	if filesystem.Exists(h.Path(path)) {
		h.Records().Assume(ledger.Entry{Kind: ledger.Owned, Name: path})
	}
}
