package image

import (
	"context"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"airlift/scripts/oracle/upstream/components"
)

// spec is the name and the contents of one image.
type spec struct {
	host, repository, tag string
	kind                  kind
	arch                  string
	others                []v1.Platform // platforms in the index, apart from linux/amd64
	layers                []layerSpec
	config                v1.Config
}

// absentPlatforms lists the platforms of an image's index that are not created.
func absentPlatforms(image []spec) []v1.Platform {
	return slices.DeleteFunc(append(linux("amd64"), image[0].others...), func(p v1.Platform) bool {
		return p.OS == "linux" && slices.ContainsFunc(image, func(s spec) bool { return s.arch == p.Architecture })
	})
}

func (s spec) reference() string { return s.host + "/" + s.repository + ":" + s.tag }

// kind is a set of media types. registry.k8s.io uses docker's, flannel uses OCI's.
type kind struct{ index, manifest, config, layer types.MediaType }

var (
	docker = kind{types.DockerManifestList, types.DockerManifestSchema2, types.DockerConfigJSON, types.DockerLayer}
	oci    = kind{types.OCIImageIndex, types.OCIManifestSchema1, types.OCIConfigJSON, types.OCILayer}
)

func linux(architectures ...string) []v1.Platform {
	var list []v1.Platform
	for _, a := range architectures {
		p := v1.Platform{OS: "linux", Architecture: a}
		if a == "arm" {
			p.Variant = "v7"
		}
		list = append(list, p)
	}
	return list
}

const (
	searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	certFile   = "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt" // set by distroless
)

// specs lists the images of a release. Each follows the Dockerfile in its comment, at the
// version that is built.
func (b *Builder) specs(r components.Release) []spec {
	return []spec{
		b.server(r, "kube-apiserver"),
		b.server(r, "kube-controller-manager"),
		b.server(r, "kube-scheduler"),
		b.kubeProxy(r),
		b.pause(r),
		b.etcd(r),
		b.coreDNS(r),
		b.flannel(r),
		b.agnhost(r),
	}
}

// server is an image of build/server-image in kubernetes. Upstream's base also has
// /go-runner as the entry point. The module proxy does not serve its module, so the image
// has no entry point. kubeadm's manifests have the command.
func (b *Builder) server(r components.Release, name string) spec {
	path := "usr/local/bin/" + name
	var lowPorts []string
	if name == "kube-apiserver" { // build/server-image/kube-apiserver/Dockerfile
		lowPorts = []string{path}
	}
	return spec{
		host: "registry.k8s.io", repository: name, tag: r.Kubernetes, kind: docker,
		others: linux("arm64", "ppc64le", "s390x"),
		layers: append(static(), b.binaries(r, map[string]string{path: name + "/" + name}, lowPorts...)),
		config: v1.Config{User: "0", WorkingDir: "/", Env: []string{searchPath, certFile}},
	}
}

func (b *Builder) kubeProxy(r components.Release) spec {
	return spec{
		host: "registry.k8s.io", repository: "kube-proxy", tag: r.Kubernetes, kind: docker,
		others: linux("arm64", "ppc64le", "s390x"),
		layers: append(static(), glibc(), netfilter(), b.binaries(r, map[string]string{"usr/local/bin/kube-proxy": "kube-proxy/kube-proxy"})),
		config: v1.Config{User: "0", WorkingDir: "/", Env: []string{searchPath, certFile}},
	}
}

// pause follows build/pause/Dockerfile in kubernetes.
func (b *Builder) pause(r components.Release) spec {
	others := linux("arm", "arm64", "ppc64le", "s390x")
	others = append(others, v1.Platform{OS: "windows", Architecture: "amd64", OSVersion: "10.0.17763.2114"})
	return spec{
		host: "registry.k8s.io", repository: "pause", tag: r.Pause, kind: docker,
		others: others,
		layers: []layerSpec{b.binaries(r, map[string]string{"pause": "pause/pause"})},
		config: v1.Config{User: "65535:65535", WorkingDir: "/", Env: []string{searchPath}, Entrypoint: []string{"/pause"}},
	}
}

// etcd follows cluster/images/etcd/Dockerfile in kubernetes, without the
// older etcd, the static bash and the scripts that migrate from it.
func (b *Builder) etcd(r components.Release) spec {
	files := map[string]string{"usr/local/bin/etcd": "etcd/etcd"}
	for _, tool := range r.EtcdTools() {
		files["usr/local/bin/"+tool] = tool + "/" + tool
	}
	return spec{
		host: "registry.k8s.io", repository: "etcd", tag: r.Etcd, kind: docker,
		others: linux("arm", "arm64", "ppc64le", "s390x"),
		layers: append(static(), b.binaries(r, files)),
		config: v1.Config{
			WorkingDir: "/", Env: []string{searchPath, certFile},
			ExposedPorts: map[string]struct{}{"2379/tcp": {}, "2380/tcp": {}, "4001/tcp": {}, "7001/tcp": {}},
		},
	}
}

// coreDNS follows Dockerfile in coredns.
func (b *Builder) coreDNS(r components.Release) spec {
	return spec{
		host: "registry.k8s.io", repository: "coredns/coredns", tag: r.CoreDNS, kind: docker,
		others: linux("arm", "arm64", "mips64le", "ppc64le", "riscv64", "s390x"),
		layers: append(static(), b.binaries(r, map[string]string{"coredns": "coredns/coredns"}, "coredns")),
		config: v1.Config{
			User: "nonroot:nonroot", WorkingDir: "/", Env: []string{searchPath, certFile},
			ExposedPorts: map[string]struct{}{"53/tcp": {}, "53/udp": {}},
			Entrypoint:   []string{"/coredns"},
		},
	}
}

// flannel follows images/Dockerfile in flannel, with Debian's busybox and iptables instead
// of Alpine's, and without strongswan and wireguard-tools.
func (b *Builder) flannel(r components.Release) spec {
	layers := append(static(), glibc(), netfilter(), smallBusybox())
	return spec{
		host: "ghcr.io", repository: "flannel-io/flannel", tag: components.Flannel, kind: oci,
		others: linux("arm64", "arm", "ppc64le", "riscv64", "s390x"),
		layers: append(layers, b.binaries(r, map[string]string{
			"opt/bin/flanneld":          "flanneld/flanneld",
			"opt/bin/mk-docker-opts.sh": "flanneld/mk-docker-opts.sh",
		})),
		config: v1.Config{WorkingDir: "/", Env: []string{searchPath}, Entrypoint: []string{"/opt/bin/flanneld"}},
	}
}

// agnhost follows test/images/agnhost/Dockerfile in kubernetes, with busybox instead of
// Alpine: it has wget and nslookup, but not curl and dig.
func (b *Builder) agnhost(r components.Release) spec {
	program := b.binaries(r, map[string]string{
		"agnhost":       "agnhost/agnhost",
		"localhost.crt": "agnhost/localhost.crt",
		"localhost.key": "agnhost/localhost.key",
	})
	rest := layerSpec{"agnhost rest 1", func(_ context.Context, t *tree) error {
		t.dir("uploads", 0o755, 0)
		t.link("agnhost-2", "agnhost")
		return nil
	}}
	return spec{
		host: "registry.k8s.io", repository: "e2e-test-images/agnhost", tag: r.Agnhost, kind: docker,
		others: linux("arm", "arm64", "ppc64le", "s390x"),
		layers: append(static(), glibc(), smallBusybox(), rest, program),
		config: v1.Config{
			WorkingDir: "/", Env: []string{searchPath},
			ExposedPorts: map[string]struct{}{"80/tcp": {}, "8080/tcp": {}, "8081/tcp": {}, "9376/tcp": {}, "5000/tcp": {}},
			Entrypoint:   []string{"/agnhost"}, Cmd: []string{"pause"},
		},
	}
}
