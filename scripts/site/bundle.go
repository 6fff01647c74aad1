package site

import (
	"path/filepath"

	"airlift/bundle"
	"airlift/scripts/upstream/components"
)

// BuildCache is the cache of the bundles that are made from the rig. It is never
// the user's own, airlift/bundle in the user's cache directory: what the rig serves
// under upstream's names was compiled on this machine.
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
