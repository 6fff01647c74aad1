package config

import (
	"path"
	"strings"

	"airlift/internal/fault"
)

// ImageNames returns the names of images with this configuration, by component.
// bundled are their names in the bundle. A configured registry changes the names,
// as in kubeadm (images.go). A configured tag must be the bundle's: the error
// (fault.Usage) lists all that are not.
func (c *Config) ImageNames(bundled map[string]string) (map[string]string, error) {
	var p messages
	names := map[string]string{}
	for component, reference := range bundled {
		names[component] = reference
		base, tag, tagged := strings.Cut(path.Base(reference), ":")
		if !tagged || strings.Contains(reference, "@") || !kubeadmImages[component] {
			continue
		}
		repository, own := c.ImageRepository, ImageMeta{}
		switch component {
		case "coredns":
			own = c.DNS.ImageMeta
		case "etcd":
			own = c.Etcd.Local.ImageMeta
		}
		if own.ImageRepository != "" {
			repository = own.ImageRepository
		}
		if repository != "" && repository != DefaultImageRepository {
			names[component] = repository + "/" + base + ":" + tag
		}
		if own.ImageTag != "" && own.ImageTag != tag {
			p.addf("the configuration requires %s %s; the bundle has %s", component, own.ImageTag, reference)
		}
	}
	if err := p.err(); err != nil {
		return nil, fault.Wrap(err, fault.Usage, "remove imageTag, or build a bundle with that image")
	}
	return names, nil
}

// kubeadmImages are the images that a configured registry applies to.
var kubeadmImages = map[string]bool{
	"kube-apiserver": true, "kube-controller-manager": true, "kube-scheduler": true, "kube-proxy": true,
	"pause": true, "etcd": true, "coredns": true,
}
