package release

import "fmt"

// Versions are the versions of the components that depend on the Kubernetes version.
type Versions struct {
	Etcd    string `json:"etcd"`    // image tag: "3.5.16-0"
	CoreDNS string `json:"coredns"` // image tag: "v1.11.1"
	Pause   string `json:"pause"`   // image tag: "3.9"
	Crictl  string `json:"crictl"`  // "v1.28.0"
}

// A Range is releases of one minor version that have the same components.
type Range struct {
	Minor string `json:"minor"` // "v1.29"
	First string `json:"first"` // "v1.29.11"
	// Last is the last of them; for the newest range of a minor version, it is the newest
	// release whose sources were read.
	Last string `json:"last"` // "v1.29.15"
	Versions
	// ConfigAPIs are the versions of kubeadm's configuration that kubeadm of these releases reads,
	// and Experimental the versions that it reads only with --allow-experimental-api.
	ConfigAPIs   []string `json:"kubeadmConfig"`
	Experimental []string `json:"kubeadmConfigExperimental"`
}

// Ranges lists the releases of the catalog, oldest first.
func Ranges() []Range {
	var list []Range
	for number := OldestMinor; number <= NewestMinor; number++ {
		m := minors[number]
		for n, row := range m.rows {
			last := m.newest
			if n+1 < len(m.rows) {
				last = m.rows[n+1].since - 1
			}
			r := Range{Minor: fmt.Sprintf("v1.%d", number), First: release{number, row.since}.String(), Last: release{number, last}.String(),
				Versions: m.at(row.since)}
			r.ConfigAPIs, r.Experimental = configAPIs(number)
			list = append(list, r)
		}
	}
	return list
}

// configAPIs was read from cmd/kubeadm/app/apis/kubeadm/scheme and util/config/common.go
// (experimentalAPIVersions) of v1.29.15 to v1.37.2.
func configAPIs(minor int) (read, experimental []string) {
	switch {
	case minor <= 30:
		return []string{"v1beta3"}, []string{"v1beta4"}
	case minor <= 36:
		return []string{"v1beta3", "v1beta4"}, []string{}
	}
	return []string{"v1beta4"}, []string{"v1"}
}

// A Component is one that is the same for every Kubernetes version of the catalog.
type Component struct{ Name, Version string }

// Common lists these components.
func Common() []Component {
	return []Component{
		{"containerd", containerdVersion},
		{"runc", runcVersion},
		{"cni-plugins", cniPluginsVersion},
		{Flannel, flannelVersion},
	}
}
