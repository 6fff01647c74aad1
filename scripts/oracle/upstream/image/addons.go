package image

import (
	"context"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"airlift/scripts/oracle/upstream/components"
)

// addOns lists the images of the catalog's optional add-ons and of kube-router. Each follows the
// Dockerfile of its project, at the version that is built.
func (b *Builder) addOns(r components.Release) []spec {
	return []spec{b.networkPolicies(r), b.metricsServer(r), b.localPathProvisioner(r), b.traefik(r), b.kubeRouter(r)}
}

func (b *Builder) networkPolicies(r components.Release) spec {
	return spec{
		host: "registry.k8s.io", repository: "networking/kube-network-policies", tag: components.NetworkPolicies, kind: docker,
		others: linux("arm64", "s390x"),
		layers: append(static(), b.binaries(r, map[string]string{"usr/bin/netpol": "kube-network-policies/kube-network-policies"})),
		config: v1.Config{User: "0", WorkingDir: "/", Env: []string{searchPath, certFile}, Cmd: []string{"/bin/netpol"}},
	}
}

func (b *Builder) metricsServer(r components.Release) spec {
	return spec{
		host: "registry.k8s.io", repository: "metrics-server/metrics-server", tag: components.MetricsServer, kind: docker,
		others: linux("arm", "arm64", "ppc64le", "s390x"),
		layers: append(static(), b.binaries(r, map[string]string{"metrics-server": "metrics-server/metrics-server"})),
		config: v1.Config{User: "65534", WorkingDir: "/", Env: []string{searchPath, certFile}, Entrypoint: []string{"/metrics-server"}},
	}
}

// localPathProvisioner has Debian's busybox instead of Alpine. The provisioner runs the same image
// to create and remove the directory of a volume.
func (b *Builder) localPathProvisioner(r components.Release) spec {
	layers := append(static(), glibc(), smallBusybox())
	return spec{
		host: "docker.io", repository: "rancher/local-path-provisioner", tag: components.LocalPathProvisioner, kind: oci,
		others: linux("arm", "arm64", "riscv64"),
		layers: append(layers, b.binaries(r, map[string]string{"usr/bin/local-path-provisioner": "local-path-provisioner/local-path-provisioner"})),
		config: v1.Config{WorkingDir: "/", Env: []string{searchPath}, Cmd: []string{"local-path-provisioner"}},
	}
}

// traefik has no shell: Traefik runs none of Alpine's commands.
func (b *Builder) traefik(r components.Release) spec {
	return spec{
		host: "docker.io", repository: "library/traefik", tag: components.Traefik, kind: oci,
		others: linux("arm", "arm64", "ppc64le", "riscv64", "s390x"),
		layers: append(static(), b.binaries(r, map[string]string{"traefik": "traefik/traefik"})),
		config: v1.Config{
			WorkingDir: "/", Env: []string{searchPath},
			ExposedPorts: map[string]struct{}{"80/tcp": {}}, Volumes: map[string]struct{}{"/tmp": {}},
			Entrypoint: []string{"/traefik"},
		},
	}
}

// kubeRouter has Debian's commands instead of Alpine's, and none of those for people.
func (b *Builder) kubeRouter(r components.Release) spec {
	layers := append(static(), glibc(), netfilter(), smallBusybox(), routes())
	return spec{
		host: "docker.io", repository: "cloudnativelabs/kube-router", tag: components.KubeRouter, kind: oci,
		others: linux("arm", "arm64", "ppc64le", "riscv64", "s390x"),
		layers: append(layers, b.binaries(r, map[string]string{"usr/local/bin/kube-router": "kube-router/kube-router"})),
		config: v1.Config{WorkingDir: "/root", Env: []string{searchPath}, Entrypoint: []string{"/usr/local/bin/kube-router"}},
	}
}

// routes is the command ip, and the file with the names of routing tables, to which kube-router adds its own.
func routes() layerSpec {
	ip := debianBinaries("routes 1", []string{"iproute2"}, []string{"ip"}, nil)
	fill := ip.fill
	ip.fill = func(ctx context.Context, t *tree) error {
		t.file("etc/iproute2/rt_tables", 0o644, []byte("255\tlocal\n254\tmain\n253\tdefault\n0\tunspec\n"))
		return fill(ctx, t)
	}
	return ip
}
