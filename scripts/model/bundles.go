package model

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/installer/payload"
	"airlift/installer/render"
	"airlift/scripts/fixtures/testbundle"
)

// Versions are the versions of the model's bundles: each is an upgrade of the one before. The second one has
// another minor version of etcd.
var Versions = []struct{ Kubernetes, Etcd string }{
	{"v1.36.3", "3.6.8-0"}, {"v1.37.1", "3.7.1-0"}, {"v1.37.2", "3.7.2-0"},
}

// newBundle writes a bundle without layers, whose binaries print their version.
func newBundle(t *testing.T, version, etcd string, packages, balancer bool) *payload.Bundle {
	t.Helper()
	b := testbundle.NewImages()
	m := &b.Manifest
	m.KubernetesVersion, m.CNI = version, "flannel"
	add := func(name, text string) {
		b.Content[name] = []byte(text)
		m.Entries = append(m.Entries, bundle.Entry{Name: name, Size: int64(len(text)), SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(text)))})
	}
	for _, name := range []string{"runc", "containerd", "containerd-shim-runc-v2", "ctr", "kubelet", "kubectl", "crictl"} {
		entry := bundle.BinDir + name
		if name == "kubelet" || name == "kubectl" || name == "crictl" {
			add(entry, "#!/bin/sh\necho Kubernetes "+version+"\n")
		} else {
			add(entry, "#!/bin/sh\necho "+name+" v2.4.2\n")
		}
		m.Components = append(m.Components, bundle.Component{Name: name, Version: version, URL: "https://example.org/" + name, Checksum: fmt.Sprintf("sha256:%064x", 1), Entries: []string{entry}})
	}
	plugins := bundle.Component{Name: "cni-plugins", Version: "v1.8.0", URL: "https://example.org/cni", Checksum: fmt.Sprintf("sha256:%064x", 1)}
	for _, name := range slices.Sorted(slices.Values(render.CNIPlugins)) {
		add(bundle.CNIDir+name, "#!/bin/sh\necho CNI "+name+"\n")
		plugins.Entries = append(plugins.Entries, bundle.CNIDir+name)
	}
	m.Components = append(m.Components, plugins)
	slices.SortFunc(m.Components, func(a, b bundle.Component) int { return strings.Compare(a.Name, b.Name) })
	name := version
	if packages {
		name += "-packages"
		addPackages(t, b, slices.IndexFunc(Versions, func(v struct{ Kubernetes, Etcd string }) bool { return v.Kubernetes == version }))
	}
	if balancer {
		name += "-balancer"
		addBalancer(t, b, version)
	}
	for _, image := range []struct{ name, reference string }{
		{"pause", "registry.k8s.io/pause:3.10.1"}, {"etcd", "registry.k8s.io/etcd:" + etcd},
		{"kube-apiserver", "registry.k8s.io/kube-apiserver:" + version}, {"kube-controller-manager", "registry.k8s.io/kube-controller-manager:" + version},
		{"kube-scheduler", "registry.k8s.io/kube-scheduler:" + version}, {"kube-proxy", "registry.k8s.io/kube-proxy:" + version},
		{"flannel", "ghcr.io/flannel-io/flannel:v0.27.0"}, {"coredns", "registry.k8s.io/coredns/coredns:v1.13.1"},
	} {
		b.Add(t, image.name, image.reference, nil)
	}
	return openBundle(t, name, version, b)
}

// installerText is the installer in the bundle of a version.
func installerText(version string) string { return "installer of " + version }
