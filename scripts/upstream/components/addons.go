package components

// AddOnRecipes returns the recipes for the optional add-ons of the catalog, next to Recipes. They
// are the same for every release.
func (r Release) AddOnRecipes() []Recipe {
	return r.forArch([]Recipe{networkPolicies(), metricsServer(), localPathProvisioner()})
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
