package components

import "strings"

// AddOnRecipes returns the recipes for the optional add-ons of the catalog, and for a pod network that a
// site can carry instead of flannel, next to Recipes. They are the same for every release.
func (r Release) AddOnRecipes() []Recipe {
	return r.forArch([]Recipe{networkPolicies(), metricsServer(), localPathProvisioner(), traefik(), kubeRouter()})
}

// networkPolicies follows the target build-standard in the Makefile of kube-network-policies.
func networkPolicies() Recipe {
	const module = "sigs.k8s.io/kube-network-policies"
	return Recipe{
		Name: "kube-network-policies", Version: NetworkPolicies, Module: module,
		Targets: []Target{{
			Packages: map[string]string{"kube-network-policies": module + "/cmd/kube-network-policies/standard"},
			LDFlags:  "-s -w",
		}},
	}
}

// metricsServer follows the Makefile of metrics-server.
func metricsServer() Recipe {
	const stamp = " -X k8s.io/client-go/pkg/version."
	return Recipe{
		Name: "metrics-server", Version: MetricsServer, Module: "sigs.k8s.io/metrics-server",
		Targets: []Target{{
			Packages: map[string]string{"metrics-server": "sigs.k8s.io/metrics-server/cmd/metrics-server"},
			LDFlags:  "-s -w" + stamp + "gitVersion=" + MetricsServer + stamp + "gitCommit={commit}" + stamp + "buildDate={time}",
		}},
	}
}

// localPathProvisioner follows scripts/build of local-path-provisioner.
func localPathProvisioner() Recipe {
	const module = "github.com/rancher/local-path-provisioner"
	return Recipe{
		Name: "local-path-provisioner", Version: LocalPathProvisioner, Module: module,
		Targets: []Target{{
			Packages: map[string]string{"local-path-provisioner": module},
			LDFlags:  "-s -w -X main.VERSION=" + LocalPathProvisioner,
		}},
	}
}

// traefik follows the target binary in Traefik's Makefile. The module has no web UI, which the
// release compiles with yarn: in its directory there is only a note.
func traefik() Recipe {
	const (
		module = "github.com/traefik/traefik/v3"
		stamp  = " -X " + module + "/pkg/version."
		ext    = "github.com/traefik/traefik/dynamic/ext"
	)
	return Recipe{
		Name: "traefik", Version: Traefik, Module: module,
		// The module proxy does not serve the revision in Traefik's go.mod.
		Replace: map[string]string{"github.com/abbot/go-http-auth": "github.com/containous/go-http-auth@v0.4.1-0.20200324110947-a37a7636d23e"},
		Local: map[string]LocalModule{
			// A directory of Traefik's repository: types that extend its configuration, with
			// nothing in them.
			ext: {Files: map[string]string{
				"go.mod": "module " + ext + "\n",
				"ext.go": "package ext\n\ntype (\n\tHTTP   struct{}\n\tRouter struct{}\n)\n",
			}},
			// The client of ACME certificates without the DNS services of 200 companies: the
			// module proxy does not serve 14 of their modules.
			"github.com/go-acme/lego/v5": {Version: "v5.4.1", Files: map[string]string{"providers/dns/zz_gen_dns_providers.go": noDNSProviders}},
		},
		Targets: []Target{{
			Packages: map[string]string{"traefik": module + "/cmd/traefik"},
			LDFlags:  "-s -w" + stamp + "Version=" + strings.TrimPrefix(Traefik, "v") + stamp + "Codename=cheddar" + stamp + "BuildDate={time}",
		}},
	}
}

const noDNSProviders = `package dns

import (
	"fmt"

	"github.com/go-acme/lego/v5/challenge"
)

func NewDNSChallengeProviderByName(name string) (challenge.Provider, error) {
	return nil, fmt.Errorf("this binary has no DNS provider %q", name)
}
`

// kubeRouter follows the target kube-router in kube-router's Makefile.
func kubeRouter() Recipe {
	const module = "github.com/cloudnativelabs/kube-router/v2"
	return Recipe{
		Name: "kube-router", Version: KubeRouter, Module: module,
		Targets: []Target{{
			Packages: map[string]string{"kube-router": module + "/cmd/kube-router"},
			LDFlags:  "-s -w -X " + module + "/pkg/version.Version=" + KubeRouter,
		}},
	}
}
