package configfile

import (
	"fmt"
	"runtime"

	"airlift/images/release"
	"airlift/installer/config"
)

// Images returns the names of the bundle's images that a cluster uses, in their order. Without a
// bundle it returns the catalog's names.
func (r *Reader) Images(c *config.Config) ([]string, error) {
	m, err := r.Bundle()
	if err != nil {
		return nil, err
	}
	kubernetes, err := r.version(m, c.KubernetesVersion)
	if err != nil {
		return nil, err
	}
	c.KubernetesVersion = kubernetes
	if err := c.CheckFeatureGates(); err != nil {
		return nil, err
	}
	brought := map[string]string{}
	var order []string
	add := func(name, reference string) {
		brought[name] = reference
		order = append(order, name)
	}
	if m != nil {
		for _, i := range m.Images {
			add(i.Name, i.Reference)
		}
	} else {
		catalog, err := release.For(kubernetes, runtime.GOARCH, release.Flannel, release.Versions{})
		if err != nil {
			return nil, err
		}
		for _, a := range catalog.Assumptions() {
			fmt.Fprintln(r.Messages, "warning: "+a)
		}
		for _, i := range catalog.Images {
			add(i.Name, i.Reference)
		}
	}
	names, err := c.ImageNames(brought)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, component := range order {
		unused := component == release.Etcd && c.Etcd.External != nil ||
			component == release.CoreDNS && c.DNS.Disabled || component == release.Proxy && c.Proxy.Disabled
		if !unused {
			list = append(list, names[component])
		}
	}
	return list, nil
}
