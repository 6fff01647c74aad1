package endpointchange

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/endpoint"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testcluster/testclient"
	"airlift/scripts/fixtures/testhost"
)

// console is one that nobody reads.
func console() *workflow.Console { return &workflow.Console{Out: io.Discard} }

// onControlPlane returns the change to an endpoint on the control plane "one", with the nodes that the cluster has besides.
func onControlPlane(t *testing.T, e config.Endpoint, others ...runtime.Object) (*Change, func() []string) {
	t.Helper()
	h, cfg := testhost.ControlPlane(t, func(c *config.Config) { c.Endpoint = e })
	client, writes := testclient.Fake(append(others, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "one", Labels: map[string]string{cluster.ControlPlaneLabel: ""}, Annotations: map[string]string{"airlift.dev/endpoint-change": "1"},
	}})...)
	return &Change{Machine: node.NewMachine(h, console()), controlPlane: node.NewMachine(h, console()).IsControlPlane(), client: client, config: cfg}, writes
}

// worker returns the change on a worker whose kubelet uses an API server.
func worker(t *testing.T, server string, e config.Endpoint) (*Change, *host.Host) {
	t.Helper()
	h := testhost.Open(t, t.TempDir())
	kubeconfig := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]\nusers: [{name: u, user: {token: t}}]\n", server)
	if _, err := h.WriteFile(node.KubeletConf, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := node.LoadClient(h, node.KubeletConf, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	stored := config.Cluster{Endpoint: e}
	return &Change{Machine: node.NewMachine(h, console()), controlPlane: node.NewMachine(h, console()).IsControlPlane(), client: client, config: &config.Config{Cluster: stored}, stored: stored}, h
}

// TestBalancerWaitsForCertificates: a balancer leads to all API servers, so no process uses it before all have its name.
func TestBalancerWaitsForCertificates(t *testing.T) {
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "two", Labels: map[string]string{cluster.ControlPlaneLabel: ""}}}
	for name, e := range map[string]config.Endpoint{"a balancer": {Balancer: true}, "a load balancer": {}} {
		e.Change = &config.EndpointChange{Number: 1, Server: "https://lb.example:6443"}
		c, _ := onControlPlane(t, e, other)
		c.config.ControlPlaneEndpoint = "lb.example:6443"
		if ready, err := c.reachable(t.Context()); ready || err != nil {
			t.Errorf("%s: %t, %v", name, ready, err)
		}
	}
}

// TestAddOnsWaitForWorkers: nothing has checked yet that a worker reaches the new endpoint, for example that it resolves its name.
func TestAddOnsWaitForWorkers(t *testing.T) {
	c, writes := onControlPlane(t, config.Endpoint{Change: &config.EndpointChange{Number: 1, Server: "https://lb.example:6443", Before: config.FormerEndpoint{Server: ownServer}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "two"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"}, Data: map[string]string{"kubeconfig.conf": "clusters: [{cluster: {server: " + ownServer + "}}]"}})
	if err := c.useInAddons(t.Context()); err != nil {
		t.Error(err)
	}
	if w := writes(); len(w) > 0 {
		t.Errorf("%q", w)
	}
}

// TestExternalCA: without the key of the CA, the change ends before anything changes, unless the certificate has the names.
func TestExternalCA(t *testing.T) {
	c, _ := onControlPlane(t, config.Endpoint{})
	made, err := pki.Ensure(c.config, c.Files(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range made.Files {
		if _, err := c.Host.WriteFile(f.Path, f.Data, f.Mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(c.Host.Path(config.CertificatesDir + "/ca.key")); err != nil {
		t.Fatal(err)
	}
	if err := c.checkCertificate(); err != nil {
		t.Errorf("it has all names: %v", err)
	}
	c.config.APIServer.CertSANs = []string{"10.1.2.100"}
	c.config.Endpoint.VIPs = []string{"10.1.2.100"}
	err = c.checkCertificate()
	if err == nil || !strings.Contains(err.Error(), "10.1.2.100") || !strings.Contains(fault.Hint(err), "./install certs generate-csr") {
		t.Errorf("%v, hint %q", err, fault.Hint(err))
	}
}

// TestUndoNeedsTheFormerEndpoint: an undo changes nothing if the former endpoint does not answer.
func TestUndoNeedsTheFormerEndpoint(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	c, _ := worker(t, closed.URL, config.Endpoint{Change: &config.EndpointChange{Number: 2, Undone: true, Server: closed.URL}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := c.preflight(ctx); err == nil {
		t.Error("no error")
	}
}

// TestDryRunNamesFiles: the dry run of an undo names the files that it removes, and removes none.
func TestDryRunNamesFiles(t *testing.T) {
	c, h := worker(t, "https://10.1.2.3:6443", config.Endpoint{Change: &config.EndpointChange{Number: 2, Undone: true, Server: "https://10.1.2.3:6443"}})
	for _, file := range []string{endpoint.SettingsPath, endpoint.UnitPath} {
		if _, err := h.WriteFile(file, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	c.Console = &workflow.Console{Out: &out}
	c.DryRun()
	if want := "cleanup: stop the balancer; this removes " + endpoint.SettingsPath + ", " + endpoint.UnitPath + "\n"; !strings.Contains(out.String(), want) || !c.Exists(endpoint.UnitPath) {
		t.Errorf("%q is not in:\n%s", want, &out)
	}
}

// TestOnlyAPIServer: after the restore of a backup, a worker may not have the permission to list the API servers, and those that
// it knew may be gone.
func TestOnlyAPIServer(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
		}
	}))
	defer server.Close()
	closed := httptest.NewServer(nil)
	closed.Close()
	c, h := worker(t, server.URL, config.Endpoint{})
	settings, err := endpoint.For(&config.Config{Cluster: config.Cluster{Endpoint: config.Endpoint{Balancer: true}}}, false,
		closed.Listener.Addr().String(), server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	files, err := settings.Files()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteFile(files[0].Path, files[0].Data, files[0].Mode); err != nil {
		t.Fatal(err)
	}
	if err := c.connect(t.Context()); err != nil || c.client.Server != server.URL {
		t.Errorf("%s, %v", c.client.Server, err)
	}
	if err := c.planFollow(t.Context()); err != nil || c.config.Endpoint.Change.Server != server.URL {
		t.Errorf("%+v, %v", c.config.Endpoint.Change, err)
	}
}

// TestConnectWithoutBalancer: a worker whose balancer is what 'endpoint node' repairs reaches the API without it.
func TestConnectWithoutBalancer(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	closed := httptest.NewServer(nil)
	closed.Close()
	c, h := worker(t, "https://"+closed.Listener.Addr().String(), config.Endpoint{Balancer: true})
	if _, err := h.WriteFile(endpoint.StateFile, []byte(server.Listener.Addr().String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Damaged settings are a reason to run it.
	if _, err := h.WriteFile(endpoint.SettingsPath, []byte("balancer: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.connect(ctx); err != nil || c.client.Server != server.URL {
		t.Errorf("%s, %v", c.client.Server, err)
	}
}

// TestUndoStoresNoNumberAlone: an undo that is interrupted after the step addon must still know what kubeadm-config is to have.
func TestUndoStoresNoNumberAlone(t *testing.T) {
	e := config.Endpoint{Change: &config.EndpointChange{Number: 2, Undone: true, Server: ownServer, Before: config.FormerEndpoint{
		Server: ownServer, VIPs: []string{"10.0.0.100"}, ControlPlaneEndpoint: "10.0.0.100:6443",
	}}}
	c, writes := onControlPlane(t, e)
	c.stored = c.config.Cluster
	c.stored.Endpoint.Change = &config.EndpointChange{Number: 1, Server: "https://10.0.0.100:6443"}
	if err := c.useInAddons(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w := writes(); len(w) > 0 || !c.config.Endpoint.Change.InAddOns {
		t.Errorf("wrote %q, change %+v", w, c.config.Endpoint.Change)
	}
	c.stored.Endpoint.Change = &config.EndpointChange{Number: 2, Undone: true} // a repeated run
	c.config.Endpoint.Change.InAddOns = false
	if err := c.useInAddons(t.Context()); err != nil || len(writes()) == 0 {
		t.Errorf("a repeated run does not record that the add-ons use it: %v", err)
	}
}
