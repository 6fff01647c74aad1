package phases

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/systemd"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/pki"
	"airlift/installer/registry"
	"airlift/installer/render"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testcluster/testclient"
	"airlift/scripts/fixtures/testhost"
)

// apiServers are objects of a cluster with API servers at these addresses, and the node "one".
func apiServers(addresses ...string) []runtime.Object {
	return []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(6443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}},
	}}
}

// registryRun is the step registry of a control plane with a bundle, on a host with a runtime of Airlift.
func registryRun(t *testing.T, b *payload.Bundle, client *cluster.Client, used bool) (Registry, *running) {
	t.Helper()
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	units := &running{since: time.Now().Add(-time.Hour)}
	h.ConnectSystemd = func(context.Context) (systemd.Conn, error) { return units, nil }
	m := node.NewMachine(h, &workflow.Console{Out: new(bytes.Buffer)})
	n := NewNode(&Plan{Role: FirstControlPlane, Bundle: b, Config: testhost.Config(func(c *config.Config) { c.Registry.Used = used })}, m)
	return NewRegistry(&API{Machine: m, Node: n, Client: client}, func() []string { return []string{"10.1.2.3:6443"} }), units
}

// TestRegistryServer: a control plane keeps the file, starts its service, and lists the file. A repeated run changes nothing.
func TestRegistryServer(t *testing.T) {
	b := siteBundle(t, nil, nil)
	client, _ := testclient.Fake(apiServers("10.1.2.3")...)
	r, units := registryRun(t, b, client, true)
	for range 2 {
		r.Machine.Changes = 0
		l, err := r.server(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.serve(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	if r.Machine.Changes != 0 || units.restarted != 1 {
		t.Errorf("a repeated run: %d changes, restarted %d times", r.Machine.Changes, units.restarted)
	}
	kept, err := os.ReadFile(r.Host.Path(filepath.Join(registry.Directory, b.File.ID())))
	original, err2 := os.ReadFile(b.File.Path())
	if err != nil || err2 != nil || !bytes.Equal(kept, original) {
		t.Errorf("the kept file has %d bytes: %v %v", len(kept), err, err2)
	}
	now, err := client.Registry(t.Context())
	if err != nil || !now.Used || len(now.Bundles) != 1 || now.Bundles[0].ID != b.File.ID() || now.Bundles[0].Size != b.File.Size() || now.Generation != 1 {
		t.Errorf("%+v, %v", now, err)
	}
	binding, err := client.API.RbacV1().ClusterRoleBindings().Get(t.Context(), "airlift:registry:one", metav1.GetOptions{})
	if err != nil || binding.Subjects[0].Name != "system:node:one" || binding.RoleRef.Name != "airlift:registry" {
		t.Errorf("%+v, %v", binding, err)
	}
}

// TestRegistryNode: the files of a node name all control planes and this one, for the registries of all files. Without the
// embedded registry there are none, and with an existing containerd only the timer.
func TestRegistryNode(t *testing.T) {
	b := siteBundle(t, nil, nil)
	client, _ := testclient.Fake(apiServers("10.1.2.4", "fd00::4")...)
	r, _ := registryRun(t, b, client, true)
	r.node.Config.Registry.Keep(config.KeptBundle{ID: "a", Registries: []string{"site.example:5000"}})
	l, err := r.client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Concat([]string{"site.example:5000"}, registry.Describe(b.File, b.Manifest).Registries)
	for _, host := range want {
		i := slices.IndexFunc(l.Files, func(f pki.File) bool { return f.Path == render.RegistriesDir+"/"+host+"/hosts.toml" })
		if i < 0 {
			t.Errorf("no file for %s", host)
			continue
		}
		for _, server := range []string{"https://10.1.2.3:7444", "https://10.1.2.4:7444", "https://[fd00::4]:7444"} {
			if strings.Count(string(l.Files[i].Data), `"`+server+`"`) != 1 {
				t.Errorf("%s: %s", server, l.Files[i].Data)
			}
		}
	}
	if err := r.use(t.Context(), l); err == nil || r.Exists(l.Files[len(l.Files)-1].Path) {
		t.Errorf("written before the kubelet has its certificate: %v", err)
	}
	r.node.Observed.KeepsRuntime = true
	if l, err := r.client(t.Context()); err != nil || len(l.Files) != 2 {
		t.Errorf("with an existing containerd: %d files, %v", len(l.Files), err)
	}
	r.node.Config.Registry.Used = false
	for _, compute := range []Desired{r.client, r.server} {
		if l, err := compute(t.Context()); err != nil || len(l.Files)+len(l.Objects) > 0 {
			t.Errorf("without the embedded registry: %v, %v", l, err)
		}
	}
}

// A dry run has no client: it shows the files with the API servers that it knows.
func TestRegistryDryRun(t *testing.T) {
	r, _ := registryRun(t, siteBundle(t, nil, nil), nil, true)
	if l, err := r.client(t.Context()); err != nil || len(l.Files) < 3 || !strings.Contains(string(l.Files[2].Data), "https://10.1.2.3:7444") {
		t.Errorf("%v, %v", l.Files, err)
	}
}

// TestWaitFollowed waits only for the nodes that use the registry and are Ready.
func TestWaitFollowed(t *testing.T) {
	of := func(name, generation string, ready corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
		if generation != "" {
			n.Annotations["airlift.dev/registry"] = generation
		}
		return n
	}
	client, _ := testclient.Fake(of("follows", "5", corev1.ConditionTrue), of("ahead", "6", corev1.ConditionTrue), of("off", "4", corev1.ConditionUnknown), of("uses-none", "", corev1.ConditionTrue))
	var out bytes.Buffer
	m := node.NewMachine(testhost.Open(t, t.TempDir()), &workflow.Console{Out: &out})
	off, err := WaitFollowed(t.Context(), m, client, 5)
	if err != nil || !slices.Equal(off, []string{"off"}) || strings.Count(out.String(), "follows") != 1 || strings.Contains(out.String(), "uses-none") {
		t.Errorf("%v, %v\n%s", off, err, &out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	client, _ = testclient.Fake(of("slow", "4", corev1.ConditionTrue))
	if _, err := WaitFollowed(ctx, m, client, 5); err == nil {
		t.Error("an interrupted wait has no error")
	}
}

// TestUpgradeAgain: after an upgrade that was undone, the former file decides. If the upgrade is done again, the newer one does.
func TestUpgradeAgain(t *testing.T) {
	b := siteBundle(t, nil, nil)
	client, _ := testclient.Fake(apiServers("10.1.2.3")...)
	r, _ := registryRun(t, b, client, true)
	l, err := r.server(t.Context())
	if err == nil {
		err = r.serve(t.Context(), l)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.EditRegistry(t.Context(), func(r *config.EmbeddedRegistry) { r.Keep(config.KeptBundle{ID: "former", Size: 1}) }); err != nil {
		t.Fatal(err)
	}
	if _, err := AddToRegistry(t.Context(), r.Machine, client, b, nil); err != nil {
		t.Fatal(err)
	}
	if now, err := client.Registry(t.Context()); err != nil || len(now.Bundles) != 2 || now.Bundles[0].ID != b.File.ID() {
		t.Errorf("%+v, %v", now, err)
	}
}

// TestDropSuperseded: the file of a version stays while a kubelet has the version, and the first one always.
func TestDropSuperseded(t *testing.T) {
	of := func(name, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: version}}}
	}
	ids := func(t *testing.T, client *cluster.Client) (list []string) {
		now, err := client.Registry(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range now.Bundles {
			list = append(list, b.ID)
		}
		return list
	}
	for name, c := range map[string]struct {
		nodes         []runtime.Object
		version, self string
		want          []string
	}{
		"upgraded in part": {[]runtime.Object{of("one", "v1.37.2"), of("two", "v1.37.1")}, "", "", []string{"new", "more", "old"}},
		"upgraded":         {[]runtime.Object{of("one", "v1.37.2"), of("two", "v1.37.2")}, "", "", []string{"new", "more"}},
		"not upgraded yet": {[]runtime.Object{of("one", "v1.37.1"), of("two", "v1.37.1")}, "", "", []string{"new", "more", "old"}},
		"undone in part":   {[]runtime.Object{of("one", "v1.37.2"), of("two", "v1.37.2")}, "v1.37.1", "one", []string{"old", "new", "more"}},
		"undone":           {[]runtime.Object{of("one", "v1.37.2"), of("two", "v1.37.1")}, "v1.37.1", "one", []string{"old", "more"}},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := testclient.Fake(c.nodes...)
			_, err := client.EditRegistry(t.Context(), func(r *config.EmbeddedRegistry) {
				*r = config.EmbeddedRegistry{Used: true, Bundles: []config.KeptBundle{{ID: "new", KubernetesVersion: "v1.37.2"}, {ID: "more", KubernetesVersion: "v1.37.1", Only: []string{"images"}}, {ID: "old", KubernetesVersion: "v1.37.1"}}}
			})
			if err != nil {
				t.Fatal(err)
			}
			m := node.NewMachine(testhost.Open(t, t.TempDir()), &workflow.Console{Out: new(bytes.Buffer)})
			if err := PreferVersion(t.Context(), m, client, c.version, c.self); err != nil {
				t.Fatal(err)
			}
			if is := ids(t, client); !slices.Equal(is, c.want) {
				t.Errorf("%v, want %v", is, c.want)
			}
		})
	}
}
