package config

import (
	"path"
	"strings"

	"airlift/fault"
)

// ImageNames returns the names that images have under this configuration, by
// component. brought are the bundle's. A configured registry gives them other
// names, as kubeadm would (images.go); a configured tag must be what the
// bundle brings, since nothing else can be had: the error (fault.Usage) names
// all that is not.
func (c *Config) ImageNames(brought map[string]string) (map[string]string, error) {
	var p problems
	names := map[string]string{}
	for component, reference := range brought {
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
			p.addf("the configuration asks for %s %s; the bundle brings %s", component, own.ImageTag, reference)
		}
	}
	if err := p.err(); err != nil {
		return nil, fault.Wrap(err, fault.Usage, "leave imageTag out, or make a bundle with that image")
	}
	return names, nil
}

// kubeadmImages are those that a configured registry applies to.
var kubeadmImages = map[string]bool{
	"kube-apiserver": true, "kube-controller-manager": true, "kube-scheduler": true, "kube-proxy": true,
	"pause": true, "etcd": true, "coredns": true,
}
