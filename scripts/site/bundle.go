package site

import "airlift/bundle"

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
