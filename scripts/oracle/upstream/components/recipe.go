package components

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"runtime"
	"strings"
)

// Recipe describes how one component is built. It has only data, so that its hash can name the
// result in the cache.
type Recipe struct {
	Name    string
	Version string // "v1.29.15"
	Module  string // the Go module to build, at Version; empty for a C binary
	Source  string // the C file in the Kubernetes module at Version; empty for a Go binary
	// Archive is the source of a C program that is not in a Go module.
	Archive *Archive `json:",omitempty"`

	// Staging is the version that replaces the local replacements
	// (k8s.io/api => ./staging/src/k8s.io/api) of Module's go.mod. It is empty for
	// modules with real versions next to their local replacements.
	Staging string
	Replace map[string]string // additional replacements: module path => version, or path@version

	// Local has modules that are built from a directory instead of the module proxy.
	Local map[string]LocalModule `json:",omitempty"`

	Main    string `json:",omitempty"` // the source of a command that uses Module; Targets build main.go
	Targets []Target
	Files   map[string]string `json:",omitempty"` // additional files of the result: name => path in Module
	Debian  []string          // Debian packages the compiler needs
	Arch    string            `json:",omitempty"` // the architecture, if it is not amd64
}

// An Archive is a release archive of a C program's project, unchanged in the source package of a Debian
// package.
type Archive struct {
	Package  string // the Debian package
	File     string // the archive in the package's directory of the mirror
	SHA256   string
	Settings map[string]string // options of the project's default configuration that are different
}

// A LocalModule is a module with other files: a copy of Version, if it has one, with Files.
type LocalModule struct {
	Version string
	Files   map[string]string // path => text
}

// Target is one call of the compiler.
type Target struct {
	Packages map[string]string // binary name => import path
	Tags     string
	LDFlags  string // {commit} and {time} are replaced by the module version's commit and time
	PIE      bool
	CGO      bool
	Test     bool `json:",omitempty"` // the test binary of the only package
}

// Key names the result of the recipe with this Go toolchain.
func (r Recipe) Key() string {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings, maps of strings and booleans always marshal
	}
	sum := sha256.Sum256(append(b, runtime.Version()...))
	return r.Version + "-" + hex.EncodeToString(sum[:6])
}

// Binaries lists the recipe's binaries.
func (r Recipe) Binaries() []string {
	var names []string
	for _, t := range r.Targets {
		names = append(names, sortedKeys(t.Packages)...)
	}
	return names
}

// Recipes returns the recipes for everything in a release, in the best order for waiting users.
func (r Release) Recipes() []Recipe {
	list := []Recipe{
		r.kubernetes("kubeadm", "cmd/kubeadm"),
		containerd(),
		runc(),
		r.etcd("etcd", "server"),
		r.kubernetes("kubelet", "cmd/kubelet"),
		r.kubernetes("kube-apiserver", "cmd/kube-apiserver"),
		r.kubernetes("kube-controller-manager", "cmd/kube-controller-manager"),
		r.kubernetes("kube-scheduler", "cmd/kube-scheduler"),
		r.kubernetes("kubectl", "cmd/kubectl"),
		r.kubernetes("kube-proxy", "cmd/kube-proxy"),
		r.pause(),
		cniPlugins(),
		flannel(),
		r.coreDNS(),
		r.agnhost(),
	}
	for _, tool := range r.EtcdTools() {
		list = append(list, r.etcd(tool, tool))
	}
	return r.forArch(list)
}

// forArch makes recipes for the release's architecture.
func (r Release) forArch(list []Recipe) []Recipe {
	for i := range list {
		if r.arm64 {
			list[i].Arch = "arm64"
		}
	}
	return list
}

// EtcdTools lists the binaries that come with etcd.
func (r Release) EtcdTools() []string { return []string{"etcdctl", "etcdutl"} }

// ConformanceRecipes returns the recipes that only `make conformance` needs, next to Recipes.
func (r Release) ConformanceRecipes() []Recipe {
	list := []Recipe{r.e2eTest(), r.noNewPrivs(), r.testPages(), busybox()}
	if r.SampleAPIServer() != "" {
		list = append(list, r.sampleAPIServer())
	}
	return r.forArch(list)
}

// TestRecipes returns the recipes for components that only tests use.
func (r Release) TestRecipes() []Recipe {
	return r.forArch([]Recipe{distribution(), versityGateway(), metalLB()})
}

// metalLB is another load balancer for TestLoadBalancerFaults: the binaries of its images, and its manifest.
func metalLB() Recipe {
	const module = "go.universe.tf/metallb"
	return Recipe{
		Name: "metallb", Version: MetalLB, Module: module,
		// The module proxy does not serve the version of frr-k8s in MetalLB's go.mod, and MetalLB's package for it does not
		// compile with the version before. It is for BGP.
		Replace: map[string]string{"github.com/metallb/frr-k8s": "v0.0.26"},
		Local:   map[string]LocalModule{module: {Version: MetalLB, Files: map[string]string{"internal/bgp/frrk8s/frrk8s.go": noFRR}}},
		Targets: []Target{{Packages: map[string]string{"controller": module + "/controller", "speaker": module + "/speaker"}}},
		Files:   map[string]string{"metallb-native.yaml": "config/manifests/metallb-native.yaml"},
	}
}

const noFRR = `package frr

import (
	"errors"

	"github.com/go-kit/log"
	"github.com/metallb/frr-k8s/api/v1beta1"

	"go.universe.tf/metallb/internal/bgp"
	"go.universe.tf/metallb/internal/logging"
)

var errNoFRR = errors.New("this binary has no BGP by frr-k8s")

func NewSessionManager(log.Logger, logging.Level, string, string) bgp.SessionManager { panic(errNoFRR) }
func ConfigName(node string) string                                                 { return node }
func ConfigToDump(v1beta1.FRRConfiguration) (string, error)                         { return "", errNoFRR }
`

// versityGateway is a server of S3, for backups.
func versityGateway() Recipe {
	const module = "github.com/versity/versitygw"
	return Recipe{
		Name: "versitygw", Version: VersityGateway, Module: module,
		Targets: []Target{{
			Packages: map[string]string{"versitygw": module + "/cmd/versitygw"},
			LDFlags:  "-s -w -X main.Version=" + VersityGateway,
		}},
	}
}

func distribution() Recipe {
	const module = "github.com/distribution/distribution/v3"
	return Recipe{
		Name: "registry", Version: Distribution, Module: module,
		Targets: []Target{{
			Packages: map[string]string{"registry": module + "/cmd/registry"},
			LDFlags:  "-s -w -X " + module + "/version.version=" + Distribution,
		}},
	}
}

// noNewPrivs, testPages and sampleAPIServer are in the images of upstream's tests
// (test/images/nonewprivs, kitten, nautilus and sample-apiserver).
func (r Release) noNewPrivs() Recipe {
	recipe := r.kubernetes("nonewprivs", "test/images/nonewprivs")
	recipe.Targets[0].Packages = map[string]string{"nnp": "k8s.io/kubernetes/test/images/nonewprivs"}
	recipe.Targets[0].LDFlags = "-s -w"
	return recipe
}

// busybox is library/busybox: the default configuration. Debian's own busybox has patches and settings
// that fail some tests: its shell drops variables such as data-1, and prefers its own nc. tc does not
// compile with the headers of newer kernels.
func busybox() Recipe {
	return Recipe{
		Name: "busybox", Version: "1.37.0",
		Archive: &Archive{
			Package: "busybox", File: "busybox_1.37.0.orig.tar.bz2", SHA256: "3311dff32e746499f4df0d5df04d7eb396382d7e108bb9250e7b519b837043a4",
			Settings: map[string]string{"CONFIG_STATIC": "y", "CONFIG_TC": "n"},
		},
		Targets: []Target{{Packages: map[string]string{"busybox": ""}}},
		Debian:  []string{"gcc", "libc6-dev", "make", "bzip2"},
	}
}

func (r Release) testPages() Recipe {
	recipe := Recipe{Name: "test-pages", Version: r.Kubernetes, Module: "k8s.io/kubernetes", Files: map[string]string{}}
	for _, name := range []string{"kitten", "nautilus"} {
		recipe.Files[name+".jpg"] = "test/images/" + name + "/html/" + name + ".jpg"
		recipe.Files[name+".json"] = "test/images/" + name + "/html/data.json"
	}
	return recipe
}

func (r Release) sampleAPIServer() Recipe {
	_, version, _ := strings.Cut(r.SampleAPIServer(), ".") // 1.29.2 is module v0.29.2
	return Recipe{
		Name: "sample-apiserver", Version: "v0." + version, Module: "k8s.io/sample-apiserver",
		Targets: []Target{{
			Packages: map[string]string{"sample-apiserver": "k8s.io/sample-apiserver"},
			LDFlags:  "-s -w",
		}},
	}
}

// e2eTest is upstream's own test of a cluster, and ginkgo, which runs its specs in parallel. Both
// come from one go.mod, because ginkgo refuses tests that were built with another version of it.
func (r Release) e2eTest() Recipe {
	recipe := r.kubernetes("e2e.test", "test/e2e")
	test := recipe.Targets[0]
	test.Test = true
	recipe.Targets = []Target{test, {
		Packages: map[string]string{"ginkgo": "github.com/onsi/ginkgo/v2/ginkgo"},
		LDFlags:  "-s -w",
	}}
	return recipe
}

func (r Release) agnhost() Recipe {
	recipe := r.kubernetes("agnhost", "test/images/agnhost")
	recipe.Targets[0].LDFlags = "-s -w -X main.Version=" + r.Agnhost
	recipe.Files = map[string]string{
		"localhost.crt": "test/images/agnhost/porter/localhost.crt",
		"localhost.key": "test/images/agnhost/porter/localhost.key",
	}
	return recipe
}

// kubernetes follows hack/lib/version.sh for the version stamps and
// KUBE_STATIC_BINARIES in hack/lib/golang.sh for CGO.
func (r Release) kubernetes(name, pkg string) Recipe {
	numbers := strings.Split(strings.TrimPrefix(r.Kubernetes, "v"), ".")
	stamps := []string{
		"gitVersion=" + r.Kubernetes,
		"gitMajor=" + numbers[0],
		"gitMinor=" + numbers[1],
		"gitTreeState=clean",
		"gitCommit={commit}",
		"buildDate={time}",
	}
	flags := []string{"-s", "-w"}
	for _, s := range stamps {
		flags = append(flags, "-X k8s.io/component-base/version."+s, "-X k8s.io/client-go/pkg/version."+s)
	}
	return Recipe{
		Name: name, Version: r.Kubernetes, Module: "k8s.io/kubernetes",
		Staging: "v0." + numbers[1] + "." + numbers[2],
		Replace: r.stagingSubstitutes(),
		Targets: []Target{{
			Packages: map[string]string{name: "k8s.io/kubernetes/" + pkg},
			LDFlags:  strings.Join(flags, " "),
		}},
	}
}

// Command is the recipe for a command of the caller that imports packages of this release.
func (r Release) Command(name, source string) Recipe {
	recipe := r.kubernetes(name, "")
	recipe.Main = source
	recipe.Targets[0].Packages = map[string]string{name: "main.go"}
	return recipe
}

func (r Release) etcd(name, dir string) Recipe {
	version, _, _ := strings.Cut(r.Etcd, "-")
	module := "go.etcd.io/etcd/" + dir + "/v3"
	return Recipe{
		Name: name, Version: cmp.Or(r.Substitutes()[module], "v"+version), Module: module,
		Targets: []Target{{
			Packages: map[string]string{name: module},
			LDFlags:  "-s -w -X go.etcd.io/etcd/api/v3/version.GitSHA={commit}",
		}},
	}
}

func (r Release) coreDNS() Recipe {
	return Recipe{
		Name: "coredns", Version: r.CoreDNS, Module: "github.com/coredns/coredns",
		Targets: []Target{{
			Packages: map[string]string{"coredns": "github.com/coredns/coredns"},
			LDFlags:  "-s -w -X github.com/coredns/coredns/coremain.GitCommit={commit}",
		}},
	}
}

// pause is one C file; the flags are from build/pause/Makefile.
func (r Release) pause() Recipe {
	return Recipe{
		Name: "pause", Version: r.Kubernetes, Source: "build/pause/linux/pause.c",
		Targets: []Target{{
			Packages: map[string]string{"pause": ""},
			LDFlags:  "-Os -Wall -Werror -static -DVERSION=v" + r.Pause,
		}},
		Debian: []string{"gcc", "libc6-dev"},
	}
}

// containerd is the static release: the normal one needs btrfs headers and the glibc of the build
// machine.
func containerd() Recipe {
	const (
		module = "github.com/containerd/containerd/v2"
		flags  = `-s -w -X ` + module + `/version.Version=` + Containerd +
			` -X ` + module + `/version.Revision={commit} -X ` + module + `/version.Package=` + module
		tags = "urfave_cli_no_docs,no_btrfs,osusergo,netgo,static_build"
	)
	return Recipe{
		Name: "containerd", Version: Containerd, Module: module,
		Targets: []Target{{
			Packages: map[string]string{
				"containerd":        module + "/cmd/containerd",
				"ctr":               module + "/cmd/ctr",
				"containerd-stress": module + "/cmd/containerd-stress",
			},
			Tags: tags, LDFlags: flags,
		}, {
			Packages: map[string]string{"containerd-shim-runc-v2": module + "/cmd/containerd-shim-runc-v2"},
			Tags:     tags + ",no_grpc", LDFlags: flags,
		}},
	}
}

// runc does not use the libpathrs tag of upstream's Makefile: Debian 12 does not have this
// library, and runc has a replacement in Go.
func runc() Recipe {
	return Recipe{
		Name: "runc", Version: Runc, Module: "github.com/opencontainers/runc",
		Targets: []Target{{
			Packages: map[string]string{"runc": "github.com/opencontainers/runc"},
			Tags:     "seccomp,urfave_cli_no_docs,netgo,osusergo",
			LDFlags:  "-s -w -buildid= -linkmode external -extldflags -static-pie",
			PIE:      true, CGO: true,
		}},
		Debian: []string{"gcc", "libc6-dev", "libseccomp-dev", "pkg-config"},
	}
}

func cniPlugins() Recipe {
	const module = "github.com/containernetworking/plugins"
	packages := make(map[string]string)
	for dir, names := range map[string]string{
		"ipam": "dhcp host-local static",
		"main": "bridge dummy host-device ipvlan loopback macvlan ptp tap vlan",
		"meta": "bandwidth firewall portmap sbr tuning vrf",
	} {
		for _, name := range strings.Fields(names) {
			packages[name] = module + "/plugins/" + dir + "/" + name
		}
	}
	return Recipe{
		Name: "cni-plugins", Version: CNIPlugins, Module: module,
		Targets: []Target{{
			Packages: packages,
			LDFlags:  "-X " + module + "/pkg/utils/buildversion.BuildVersion=" + CNIPlugins,
		}},
		Files: map[string]string{"LICENSE": "LICENSE", "README.md": "README.md"},
	}
}

func flannel() Recipe {
	const module = "github.com/flannel-io/flannel"
	return Recipe{
		Name: "flanneld", Version: Flannel, Module: module,
		// The module proxy does not serve the version in flannel's go.mod. This version has the
		// same API.
		Replace: map[string]string{"github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/common": "v1.3.103"},
		Targets: []Target{{
			Packages: map[string]string{"flanneld": module},
			Tags:     "netgo,osusergo",
			LDFlags:  "-s -w -X " + module + "/pkg/version.Version=" + Flannel + ` -extldflags -static`,
			CGO:      true,
		}},
		Files:  map[string]string{"mk-docker-opts.sh": "dist/mk-docker-opts.sh"},
		Debian: []string{"gcc", "libc6-dev"},
	}
}
