package config

import (
	"path"
	"strings"

	"airlift/internal/documents/problems"
	"airlift/internal/fault"
)

// ImageNames returns the names of images with this configuration, by component.
// bundled are their names in the bundle. A configured registry changes the names,
// as in kubeadm (images.go). A configured tag must be the bundle's: the error
// (fault.Usage) lists all that are not.
func (c *Config) ImageNames(bundled map[string]string) (map[string]string, error) {
	names, wrong := c.imageNames(bundled)
	if err := messages(wrong).err(); err != nil {
		return nil, fault.Wrap(err, fault.Usage, hintImageTag)
	}
	return names, nil
}

const hintImageTag = "remove imageTag, or build a bundle with that image"

// CheckImages returns the problems of ImageNames one by one.
func (c *Config) CheckImages(bundled map[string]string) []problems.Problem {
	_, wrong := c.imageNames(bundled)
	for i := range wrong {
		wrong[i].Hint = hintImageTag
	}
	return wrong
}

func (c *Config) imageNames(bundled map[string]string) (names map[string]string, wrong messages) {
	names = map[string]string{}
	for component, reference := range bundled {
		names[component] = reference
		base, tag, tagged := strings.Cut(path.Base(reference), ":")
		if !tagged || strings.Contains(reference, "@") || !kubeadmImages[component] {
			continue
		}
		repository, own, field := c.ImageRepository, ImageMeta{}, ""
		switch component {
		case "coredns":
			own, field = c.DNS.ImageMeta, "dns"
		case "etcd":
			own, field = c.Etcd.Local.ImageMeta, "etcd.local"
		}
		if own.ImageRepository != "" {
			repository = own.ImageRepository
		}
		if repository != "" && repository != DefaultImageRepository {
			names[component] = repository + "/" + base + ":" + tag
		}
		if own.ImageTag != "" && own.ImageTag != tag {
			field += ".imageTag"
			wrong.addf("%s requires %s %s; the bundle has %s", c.origin.at("ClusterConfiguration."+field, field), component, own.ImageTag, reference)
		}
	}
	return names, wrong
}

// kubeadmImages are the images that a configured registry applies to.
var kubeadmImages = map[string]bool{
	"kube-apiserver": true, "kube-controller-manager": true, "kube-scheduler": true, "kube-proxy": true,
	"pause": true, "etcd": true, "coredns": true,
}
