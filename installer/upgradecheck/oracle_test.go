package upgradecheck

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/cluster/facts"
	"airlift/installer/config"
	"airlift/scripts/fixtures/rig"
)

// TestRemovedFlagsOfRealComponents gives each flag of the table to real components: the older one
// knows it, and the newer one does not.
func TestRemovedFlagsOfRealComponents(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		for _, f := range removedIn {
			// The last flag exists in no version, so that nothing starts.
			out, err := exec.Command(rig.Component(t, version, f.component), "--"+f.name+"=1", "--no-such-flag").CombinedOutput()
			if err == nil {
				t.Fatalf("%s started", f.component)
			}
			unknown := strings.Contains(string(out), "unknown flag: --"+f.name+"\n")
			if unknown != (version == "v1.37.1") {
				t.Errorf("%s %s: --%s: %.300s", f.component, version, f.name, out)
			}
		}
	}
}

// TestRefusedItemsOfRealComponents gives the controllers of a configuration, and the other refused
// parts of values, to real components: the older one starts with each, and the newer one only with
// items that are not reported.
func TestRefusedItemsOfRealComponents(t *testing.T) {
	controllers := "*,bootstrapsigner,tokencleaner"
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		for _, arg := range []config.Arg{
			{Name: "cidr-allocator-type", Value: "CloudAllocator"}, {Name: "cidr-allocator-type", Value: "RangeAllocator"},
			{Name: "cloud-provider", Value: "vsphere"}, {Name: "cloud-provider", Value: "external"}, {Name: "cloud-provider"},
			{Name: "controllers", Value: controllers}, {Name: "controllers", Value: controllers + ",-ttl"},
			{Name: "controllers", Value: controllers + ",-service-lb-controller"}, {Name: "controllers", Value: controllers + ",-service"},
			{Name: "controllers", Value: controllers + ",node-route-controller"}, {Name: "controllers", Value: controllers + ",-route"},
			{Name: "controllers", Value: controllers + ",-cloud-node-lifecycle-controller"}, {Name: "controllers", Value: controllers + ",-cloud-node-lifecycle"},
		} {
			out, _ := exec.Command(rig.Component(t, version, "kube-controller-manager"), "--"+arg.Name+"="+arg.Value, "--kubeconfig=/no/such/file").CombinedOutput()
			starts := strings.Contains(string(out), "stat /no/such/file") // after the flags were checked
			want := version == "v1.29.15" || len(refusedItems(map[string][]config.Arg{"kube-controller-manager": {arg}}, 37)) == 0
			if starts != want {
				t.Errorf("%s: --%s=%s: starts: %t, %.300s", version, arg.Name, arg.Value, starts, out)
			}
		}
	}
}

// TestRemovedItemsOfRealAPIServer gives each removed admission plugin and API version to a real
// kube-apiserver, which does not start with them.
func TestRemovedItemsOfRealAPIServer(t *testing.T) {
	const version = "v1.37.1"
	dir := t.TempDir()
	key := filepath.Join(dir, "sa.key")
	if out, err := exec.Command("openssl", "genrsa", "-out", key, "2048").CombinedOutput(); err != nil {
		t.Fatalf("openssl: %v\n%s", err, out)
	}
	refuses := func(flag, item, why string) {
		out, err := exec.CommandContext(t.Context(), rig.Component(t, version, "kube-apiserver"), "--etcd-servers=http://127.0.0.1:1", "--cert-dir="+dir, "--service-account-issuer=https://a.example",
			"--service-account-signing-key-file="+key, "--service-account-key-file="+key, "--authorization-mode=RBAC", "--"+flag+"="+item).CombinedOutput()
		if err == nil || !strings.Contains(string(out), why) {
			t.Errorf("--%s=%s: %v %.300s", flag, item, err, out)
		}
	}
	c := config.Cluster{KubernetesVersion: version}
	c.APIServer.ExtraArgs = []config.Arg{{Name: "enable-admission-plugins", Value: "SecurityContextDeny,PersistentVolumeLabel,JobValidation,PodGroupWorkloadExists"}}
	removed := c.RemovedPlugins()
	if len(removed) != 4 {
		t.Errorf("removed: %q", removed)
	}
	for _, name := range removed {
		refuses("enable-admission-plugins", name, `plugin \"`+name+`\" is unknown`)
	}
	for _, a := range facts.DroppedAPIs {
		c.APIServer.ExtraArgs = []config.Arg{{Name: "runtime-config", Value: a.API + "=true"}}
		for _, unknown := range facts.UnknownAPIs(&c) {
			refuses("runtime-config", unknown, "group version "+unknown+" that has not been registered")
		}
	}
}
