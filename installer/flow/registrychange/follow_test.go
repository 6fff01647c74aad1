package registrychange

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
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
	"airlift/installer/registry"
	"airlift/installer/registry/hosts"
	"airlift/installer/render"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testcluster/testclient"
)

// noUnits is the systemd of a host without units.
type noUnits struct {
	systemd.Conn
	stopped []string
}

func (*noUnits) Close()                              {}
func (*noUnits) ReloadContext(context.Context) error { return nil }
func (*noUnits) GetAllPropertiesContext(context.Context, string) (map[string]any, error) {
	return map[string]any{"LoadState": "loaded", "ActiveState": "active"}, nil
}
func (n *noUnits) StopUnitContext(_ context.Context, unit, _ string, done chan<- string) (int, error) {
	n.stopped = append(n.stopped, unit)
	done <- "done"
	return 1, nil
}
func (*noUnits) DisableUnitFilesContext(context.Context, []string, bool) ([]dbus.DisableUnitFileChange, error) {
	return nil, nil
}
func (*noUnits) ResetFailedUnitContext(context.Context, string) error { return nil }

// A cell is one node of a cluster, as its timer sees both.
type cell struct {
	*Follower
	root   string
	client *cluster.Client
	writes func() []string
	units  *noUnits
	log    []string
	apiErr error
}

// newCell returns the node "one", whose containerd is Airlift's.
func newCell(t *testing.T, stored *config.EmbeddedRegistry, servers ...string) *cell {
	t.Helper()
	objects := []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(6443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: servers}},
	}}
	if stored != nil {
		data, err := stored.Encode()
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: config.RegistryConfigMap}, Data: map[string]string{config.RegistryKey: string(data)}})
	}
	c := &cell{root: t.TempDir(), units: &noUnits{}}
	c.client, c.writes = testclient.Fake(objects...)
	c.Follower = &Follower{
		Root: c.root, Log: func(format string, args ...any) { c.log = append(c.log, fmt.Sprintf(format, args...)) },
		connect: func(*host.Host) (*cluster.Client, error) { return c.client, c.apiErr },
		Use: func(h *host.Host) {
			h.ConnectSystemd = func(context.Context) (systemd.Conn, error) { return c.units, nil }
		},
	}
	pair := nodePair(t)
	for name, data := range map[string]string{
		"/etc/kubernetes/kubelet.conf": "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: \"https://10.0.0.1:6443\"}}]\n" +
			"users: [{name: u, user: {client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem, client-key: /var/lib/kubelet/pki/kubelet-client-current.pem}}]\n",
		"/var/lib/kubelet/config.yaml":                               "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nauthentication: {x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}\n",
		"/var/lib/kubelet/pki/kubelet-client-current.pem":            pair,
		"/etc/kubernetes/pki/ca.crt":                                 pair,
		"/etc/systemd/system/" + hosts.Timer.Name + ".timer":         "",
		"/etc/systemd/system/" + hosts.Timer.Name + ".service":       "",
		filepath.Join(registry.Directory, "0123", "not-the-bundles"): "",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(c.root, name)), 0o755), os.WriteFile(filepath.Join(c.root, name), []byte(data), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	h, unlock, err := host.OpenLocked(c.root)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := h.Records().SetOwnsRuntime(); err != nil {
		t.Fatal(err)
	}
	return c
}

// nodePair is a certificate of the kubelet of node one, and its key.
func nodePair(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:one", Organization: []string{"system:nodes"}}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs}))
}

func (c *cell) text(registry string) string {
	data, _ := os.ReadFile(filepath.Join(c.root, render.RegistriesDir, registry, "hosts.toml"))
	return string(data)
}

// generation returns the generation that the node follows, -1 if it does not use the registry.
func (c *cell) generation(t *testing.T) int {
	t.Helper()
	nodes, err := c.client.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !nodes[0].Follows.UsesRegistry {
		return -1
	}
	return nodes[0].Follows.Registry
}

func withRegistries(generation int, registries ...string) *config.EmbeddedRegistry {
	return &config.EmbeddedRegistry{Used: true, Generation: generation, Bundles: []config.KeptBundle{{ID: "a", Size: 1, KubernetesVersion: "v1.37.1", Registries: registries}}}
}

// TestFollow: a node follows the control planes and the registries. A run without a change writes nothing, neither to the host nor
// to the cluster, and logs nothing.
func TestFollow(t *testing.T) {
	c := newCell(t, withRegistries(3, "quay.io", "registry.k8s.io"), "10.0.0.1", "10.0.0.2")
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, registry := range []string{"quay.io", "registry.k8s.io"} {
		if text := c.text(registry); !strings.Contains(text, "10.0.0.1:7444") || !strings.Contains(text, "10.0.0.2:7444") {
			t.Errorf("%s: %q", registry, text)
		}
	}
	if c.generation(t) != 3 || len(c.log) != 2 {
		t.Errorf("generation %d, log %q", c.generation(t), c.log)
	}
	c.writes()
	c.log = nil
	if err := c.Run(t.Context()); err != nil || len(c.writes()) > 0 || len(c.log) > 0 {
		t.Errorf("a run without a change: %v, %q", err, c.log)
	}
	edit := func(change func(*config.EmbeddedRegistry)) {
		if _, err := c.client.EditRegistry(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	edit(func(r *config.EmbeddedRegistry) {
		r.Keep(config.KeptBundle{ID: "b", Size: 1, KubernetesVersion: "v1.37.1", Only: []string{"images"}, Registries: []string{"site.example:5000"}})
	})
	if err := c.Run(t.Context()); err != nil || c.text("site.example:5000") == "" || c.generation(t) != 4 {
		t.Errorf("another file: %v, generation %d", err, c.generation(t))
	}
	edit(func(r *config.EmbeddedRegistry) { r.Drop("b") })
	if err := c.Run(t.Context()); err != nil || c.text("site.example:5000") != "" || c.generation(t) != 5 {
		t.Errorf("a file less: %v, generation %d", err, c.generation(t))
	}
}

// TestNothingChangesWithoutAnAnswer: whatever the API, the lock or the certificate refuses, the files stay.
func TestNothingChangesWithoutAnAnswer(t *testing.T) {
	c := newCell(t, withRegistries(1, "quay.io"), "10.0.0.1")
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := c.text("quay.io")

	c.apiErr = errors.New("connection refused")
	if err := c.Run(t.Context()); err == nil || c.text("quay.io") != before {
		t.Errorf("no API: %v", err)
	}
	c.apiErr = nil
	if err := c.client.API.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), "kubernetes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err == nil || c.text("quay.io") != before {
		t.Errorf("no API servers: %v", err)
	}

	other := newCell(t, withRegistries(1, "quay.io"), "10.0.0.1")
	_, unlock, err := host.OpenLocked(other.root)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Run(t.Context()); err != nil || other.text("quay.io") != "" || other.generation(t) != -1 || len(other.log) != 1 {
		t.Errorf("another installer runs: %v, log %q", err, other.log)
	}
	unlock()
	if err := os.WriteFile(filepath.Join(other.root, "/etc/kubernetes/pki/ca.crt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := other.Run(t.Context()); err == nil || other.text("quay.io") != "" || other.generation(t) != -1 {
		t.Errorf("a damaged CA: %v", err)
	}
}

// TestImagesThatCannotBePulled: the node counts as one that uses the registry, so that disable waits for it, and keeps what it
// has followed.
func TestImagesThatCannotBePulled(t *testing.T) {
	stored := withRegistries(3, "quay.io")
	stored.Images = []string{"quay.io/a:1"}
	c := newCell(t, stored, "10.0.0.1") // without a containerd
	for _, want := range []int{0, 2} {
		if err := c.Run(t.Context()); err == nil || c.text("quay.io") == "" || c.generation(t) != want {
			t.Errorf("%v, generation %d, want %d", err, c.generation(t), want)
		}
		if _, err := c.client.NodeObjects().Follow(t.Context(), "one", func(f *cluster.Follows) { f.UsesRegistry, f.Registry = true, 2 }); err != nil {
			t.Fatal(err)
		}
	}
}

// TestImagesArePulledOnce: a node that follows does not pull an image again that a user deleted or unpinned.
func TestImagesArePulledOnce(t *testing.T) {
	stored := withRegistries(3, "quay.io")
	stored.Images = []string{"quay.io/a:1"}
	c := newCell(t, stored, "10.0.0.1") // without a containerd
	if _, err := c.client.NodeObjects().Follow(t.Context(), "one", func(f *cluster.Follows) { f.UsesRegistry, f.Registry = true, 3 }); err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err != nil || c.text("quay.io") == "" {
		t.Errorf("%v, %q", err, c.text("quay.io"))
	}
}

// TestExistingContainerd: the configuration of a containerd that was there before Airlift does not change.
func TestExistingContainerd(t *testing.T) {
	c := newCell(t, withRegistries(2, "quay.io"), "10.0.0.1")
	if err := os.Remove(filepath.Join(c.root, "/var/lib/airlift/ledger.json")); err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err != nil || c.text("quay.io") != "" || c.generation(t) != 2 {
		t.Errorf("%v, %q", err, c.text("quay.io"))
	}
}

// TestLeave: a node removes everything when the registry was disabled, and its timer goes last. If the registry is enabled again
// before all nodes have left, this one does not count as a node that uses it.
func TestLeave(t *testing.T) {
	c := newCell(t, withRegistries(1, "quay.io", "registry.k8s.io"), "10.0.0.1")
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	edited := filepath.Join(c.root, render.RegistriesDir, "registry.k8s.io/hosts.toml")
	if err := os.WriteFile(edited, []byte(c.text("registry.k8s.io")+"# mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.EditRegistry(t.Context(), (*config.EmbeddedRegistry).Disable); err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if log := strings.Join(c.log, "\n"); !strings.HasSuffix(c.text("registry.k8s.io"), "# mine\n") || !strings.Contains(log, render.RegistriesDir+"/registry.k8s.io/hosts.toml stays, because it was changed") {
		t.Errorf("%s", log)
	}
	for _, path := range []string{render.RegistriesDir + "/quay.io", registry.Directory, hosts.Timer.UnitPath()} {
		if _, err := os.Stat(filepath.Join(c.root, path)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if !slices.Contains(c.units.stopped, registry.Unit) || c.units.stopped[len(c.units.stopped)-1] != hosts.Timer.Unit() {
		t.Errorf("stopped %v", c.units.stopped)
	}
	if g := c.generation(t); g != -1 {
		t.Errorf("generation %d", g)
	}
}

// TestDeletedList: if a user deletes the ConfigMap, the kept files and the configuration stay.
func TestDeletedList(t *testing.T) {
	c := newCell(t, withRegistries(1, "quay.io"), "10.0.0.1")
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.client.API.CoreV1().ConfigMaps("kube-system").Delete(t.Context(), config.RegistryConfigMap, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err == nil || c.text("quay.io") == "" {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(c.root, registry.Directory)); err != nil {
		t.Error(err)
	}
}

// TestDisable: the command waits for the nodes that use the registry and are Ready, and then deletes what the cluster has of it. While
// a node is off, the list stays, so that the node sees it.
func TestDisable(t *testing.T) {
	for name, off := range map[string]bool{"all nodes are Ready": false, "a node is off": true} {
		t.Run(name, func(t *testing.T) {
			c := newCell(t, withRegistries(1, "quay.io"), "10.0.0.1")
			stored := *withRegistries(1, "quay.io")
			objects, err := render.UploadRegistry(&config.Config{Cluster: config.Cluster{Registry: stored}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.client.Apply(t.Context(), append(objects, render.RegistryServer("one"))...); err != nil {
				t.Fatal(err)
			}
			nodes := c.client.API.CoreV1().Nodes()
			status := corev1.ConditionTrue
			if off {
				status = corev1.ConditionFalse
			}
			two := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "two", Annotations: map[string]string{"airlift.dev/registry": "1"}},
				Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
			if !off {
				two.Annotations["airlift.dev/registry"] = "2" // its timer was fast
			}
			if _, err := nodes.Create(t.Context(), two, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			h, unlock, err := host.OpenLocked(c.root)
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			c.Use(h)
			d := &Disable{Machine: node.NewMachine(h, &workflow.Console{Out: io.Discard}), client: c.client}
			if err := d.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			now, err := c.client.Registry(t.Context())
			if err != nil || (now != nil) != off || now != nil && now.Used {
				t.Errorf("%+v, %v", now, err)
			}
			bindings, err := c.client.API.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
			if err != nil || (len(bindings.Items) > 0) != off {
				t.Errorf("%d bindings, %v", len(bindings.Items), err)
			}
		})
	}
}
