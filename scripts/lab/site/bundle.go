package site

import (
	"path/filepath"

	"airlift/bundle"
	"airlift/scripts/oracle/upstream/components"
)

// BuildCache is the cache for bundles from the rig. It is not the user's airlift/bundle: the
// rig serves components under upstream's names that were compiled on this machine.
func BuildCache() (string, error) {
	rig, err := components.CacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(rig), "rig-bundle"), nil
}

// KubernetesVersion is the version that a bundle file installs.
func KubernetesVersion(path string) (string, error) {
	f, err := bundle.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	m, err := f.Manifest()
	if err != nil {
		return "", err
	}
	return m.KubernetesVersion, nil
}
