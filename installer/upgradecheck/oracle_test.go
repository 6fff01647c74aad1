package upgradecheck

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"airlift/installer/cluster/inventory"
	"airlift/installer/config"
	"airlift/installer/kubeletcheck"
	"airlift/scripts/fixtures/rig"
)

// TestRemovedFlagsOfRealComponents gives each flag of the table to real components: the older one
// knows it, and the newer one does not.
func TestRemovedFlagsOfRealComponents(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		for _, f := range slices.Concat(removedIn, removedFromEtcd) {
			// The last flag exists in no version, so that nothing starts.
			out, err := exec.Command(rig.Component(t, version, f.component), "--"+f.name+"=1", "--no-such-flag").CombinedOutput()
			if err == nil {
				t.Fatalf("%s started", f.component)
			}
			message := "unknown flag: --"
			if f.component == "etcd" {
				message = "flag provided but not defined: -"
			}
			unknown := strings.Contains(string(out), message+f.name+"\n")
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
	for _, a := range inventory.DroppedAPIs {
		c.APIServer.ExtraArgs = []config.Arg{{Name: "runtime-config", Value: a.API + "=true"}}
		for _, unknown := range inventory.UnknownAPIs(&c) {
			refuses("runtime-config", unknown, "group version "+unknown+" that has not been registered")
		}
	}
}

// TestGatesOfRealComponents: each feature gate that a component lists is known.
func TestGatesOfRealComponents(t *testing.T) {
	gate := regexp.MustCompile(`(?m)(?:^|[ =:])([A-Z][A-Za-z0-9]+)=true\|false`)
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
			out, err := exec.Command(rig.Component(t, version, component), "--help").Output()
			if err != nil {
				t.Fatal(err)
			}
			listed := map[string]bool{}
			for _, m := range gate.FindAllStringSubmatch(string(out), -1) {
				listed[m[1]] = true
			}
			if len(listed) < 50 {
				t.Errorf("%s %s lists %d feature gates", component, version, len(listed))
			}
			for _, p := range kubeletcheck.GateProblems(version, listed) {
				if strings.Contains(p.Message, "does not exist") {
					t.Errorf("%s %s: %s", component, version, p.Message)
				}
			}
		}
		gone := map[string]bool{"TTLAfterFinished": true}
		if len(kubeletcheck.GateProblems(version, gone)) != 1 {
			t.Errorf("%s: a gate that was removed before is not reported", version)
		}
		out, err := exec.Command(rig.Component(t, version, "kube-scheduler"), "--feature-gates=TTLAfterFinished=true").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "unrecognized feature gate") {
			t.Errorf("kube-scheduler %s: %v, %.200s", version, err, out)
		}
	}
}
