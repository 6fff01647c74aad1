package initcluster

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/workflow"
)

// bindingServer is an API server on which the token of admin.conf has permissions only if the
// ClusterRoleBinding of the administrators exists. It has no other objects.
type bindingServer struct {
	*httptest.Server
	mu      sync.Mutex
	binding []byte
}

func newBindingServer(t *testing.T) *bindingServer {
	s := &bindingServer{}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *bindingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	status := func(code int, reason string) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code})
	}
	superAdmin := r.Header.Get("Authorization") == "Bearer "+superAdminToken
	switch {
	case !superAdmin && s.binding == nil:
		status(http.StatusForbidden, "Forbidden")
	case r.Method == http.MethodPost:
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		s.binding = body.Bytes()
		_, _ = w.Write(s.binding)
	case s.binding == nil:
		status(http.StatusNotFound, "NotFound")
	default:
		_, _ = w.Write(s.binding)
	}
}

const (
	adminToken      = "aaaaaa.0123456789abcdef"
	superAdminToken = "bbbbbb.0123456789abcdef"
	// The control-plane endpoint: nothing listens there.
	endpointURL = "https://127.0.0.1:1"
)

func (s *bindingServer) endpoint() config.APIEndpoint {
	at := netip.MustParseAddrPort(s.Listener.Addr().String())
	return config.APIEndpoint{AdvertiseAddress: at.Addr().String(), BindPort: int32(at.Port())}
}

// onePhase returns an Init for one phase, without the flags with which init ran: its config
// has other addresses. The host has the kubeconfigs and the API server's static pod.
func onePhase(t *testing.T, s *bindingServer) *Init {
	t.Helper()
	i := initOn(t, func(c *config.Config) { c.LocalAPIEndpoint = s.endpoint() })
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	err := i.Write(
		pki.File{Path: node.AdminConf, Data: pki.BootstrapKubeconfig(endpointURL, ca, adminToken), Mode: 0o600},
		pki.File{Path: node.SuperAdminConf, Data: pki.BootstrapKubeconfig(endpointURL, ca, superAdminToken), Mode: 0o600},
		pki.File{Path: config.CACertPath, Data: ca, Mode: 0o644})
	if err != nil {
		t.Fatal(err)
	}
	other := *i.node.Plan
	cfg := *i.node.Config
	cfg.LocalAPIEndpoint = config.APIEndpoint{AdvertiseAddress: "192.0.2.1", BindPort: 6443}
	other.Config, other.OnePhase = &cfg, true
	return New(&other, phases.InitOptions{Kubeconfig: node.AdminConf}, i.Host, i.Console)
}

// A phase that runs alone connects to the API server of this host, also if init had other flags
// than the phase, and makes the user of admin.conf an administrator, as in kubeadm: its phase
// wait-control-plane is hidden up to v1.29 and does not do that.
func TestPhaseAloneReachesTheAPI(t *testing.T) {
	s := newBindingServer(t)
	i := onePhase(t, s)
	if err := i.access.admin(t.Context()); err != nil || i.api.Client.Server != s.URL || !i.api.Client.Answers(t.Context()) {
		t.Fatalf("connecting to %s: %v", s.URL, err)
	}
	if !strings.Contains(string(s.binding), "kubeadm:cluster-admins") {
		t.Errorf("the binding of the administrators is %q", s.binding)
	}
}

// The wait for the control plane does not send requests before the API server answers.
func TestOnlyLaterPhasesNeedAnAdministrator(t *testing.T) {
	s := newBindingServer(t)
	i := onePhase(t, s)
	if err := i.access.client(t.Context()); err != nil || s.binding != nil {
		t.Errorf("client: %v, %q", err, s.binding)
	}
	i.node.Plan.OnePhase, i.node.Config.LocalAPIEndpoint = false, s.endpoint()
	if err := i.access.admin(t.Context()); err != nil || s.binding != nil {
		t.Errorf("a whole run: %v, %q", err, s.binding)
	}
	i.node.Plan.Config.SkipPhases = []string{"wait-control-plane"}
	if err := i.access.admin(t.Context()); err != nil || s.binding == nil {
		t.Errorf("without wait-control-plane: %v, %q", err, s.binding)
	}
}

// cluster-info and the join command have the control-plane endpoint, which a phase that runs
// alone takes from admin.conf.
func TestPhaseAloneKeepsTheEndpoint(t *testing.T) {
	i := onePhase(t, newBindingServer(t))
	objects, err := i.credentials.bootstrapObjects(i.node.Config)
	if err != nil {
		t.Fatal(err)
	}
	if info := clusterInfoOf(objects); !strings.Contains(info, "server: "+endpointURL+"\n") {
		t.Errorf("cluster-info:\n%s", info)
	}
	var out bytes.Buffer
	i.Console.Out, i.credentials.token = &out, "abcdef.0123456789abcdef"
	if err := i.credentials.show(t.Context()); err != nil {
		t.Fatal(err)
	}
	i.Console.Close()
	if want := "./install join " + strings.TrimPrefix(endpointURL, "https://") + " --token"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in:\n%s", want, &out)
	}
}

// The phase bootstrap-token prints its token, unless the user does not want that.
func TestBootstrapTokenPhasePrintsItsToken(t *testing.T) {
	for _, skip := range []bool{false, true} {
		i := onePhase(t, newBindingServer(t))
		var out bytes.Buffer
		i.Console.Out, i.credentials.token, i.credentials.options.SkipTokenPrint = &out, "abcdef.0123456789abcdef", skip
		step, _ := workflow.Find(i.Steps(), "bootstrap-token")
		if err := workflow.RunPhase(t.Context(), i.Console, []workflow.Step{step}, "bootstrap-token"); err != nil {
			t.Fatal(err)
		}
		i.Console.Close()
		if strings.Contains(out.String(), "abcdef.0123456789abcdef") == skip {
			t.Errorf("--skip-token-print=%t:\n%s", skip, &out)
		}
	}
}

func clusterInfoOf(objects []runtime.Object) string {
	for _, o := range objects {
		if m, ok := o.(*corev1.ConfigMap); ok && m.Name == "cluster-info" {
			return m.Data["kubeconfig"]
		}
	}
	return ""
}

// A whole run of init takes the endpoint from its configuration.
func TestWholeRunUsesItsConfiguration(t *testing.T) {
	i := onePhase(t, newBindingServer(t))
	i.node.Plan.OnePhase = false
	if got := i.credentials.serverURL(); got != "https://192.0.2.1:6443" {
		t.Errorf("the URL for other nodes is %s", got)
	}
	if got := i.access.localURL(); got != i.node.Config.LocalURL() {
		t.Errorf("the URL of this host is %s", got)
	}
}
