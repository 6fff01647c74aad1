package phases

import (
	"bytes"
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	versionapi "github.com/containerd/containerd/api/services/version/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/pki"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testhost"
)

// A fakeRuntime is a containerd with one container: of the API server.
type fakeRuntime struct {
	versionapi.UnimplementedVersionServer
	criapi.UnimplementedRuntimeServiceServer

	mu      sync.Mutex
	uid     string // of the pod
	created time.Time
}

// newRuntime starts a runtime whose container is an hour old. It returns its socket.
func newRuntime(t *testing.T) (r *fakeRuntime, socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "containerd.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	r = &fakeRuntime{uid: "first", created: time.Now().Add(-time.Hour)}
	server := grpc.NewServer()
	versionapi.RegisterVersionServer(server, r)
	criapi.RegisterRuntimeServiceServer(server, criRuntime{runtime: r})
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return r, socket
}

func (r *fakeRuntime) Version(context.Context, *emptypb.Empty) (*versionapi.VersionResponse, error) {
	return &versionapi.VersionResponse{Version: "v2.4.2"}, nil
}

// replace does what the kubelet does after a manifest has changed.
func (r *fakeRuntime) replace(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uid, r.created = uid, time.Now()
}

type criRuntime struct {
	criapi.UnimplementedRuntimeServiceServer
	runtime *fakeRuntime
}

func (criRuntime) Status(context.Context, *criapi.StatusRequest) (*criapi.StatusResponse, error) {
	return &criapi.StatusResponse{Info: map[string]string{"config": `{"containerd":{"snapshotter":"overlayfs"}}`}}, nil
}

func (c criRuntime) ListContainers(context.Context, *criapi.ListContainersRequest) (*criapi.ListContainersResponse, error) {
	c.runtime.mu.Lock()
	defer c.runtime.mu.Unlock()
	return &criapi.ListContainersResponse{Containers: []*criapi.Container{{
		Id: c.runtime.uid, Metadata: &criapi.ContainerMetadata{Name: "kube-apiserver"}, State: criapi.ContainerState_CONTAINER_RUNNING, CreatedAt: c.runtime.created.UnixNano(),
		Labels: map[string]string{"io.kubernetes.pod.name": "kube-apiserver-one", "io.kubernetes.pod.namespace": "kube-system", "io.kubernetes.pod.uid": c.runtime.uid},
	}}}, nil
}

// existing returns the control plane of a host that has one already, its runtime and its API server.
func existing(t *testing.T) (*ControlPlane, *fakeRuntime, *httptest.Server) {
	t.Helper()
	api := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(api.Close)
	at := netip.MustParseAddrPort(api.Listener.Addr().String())
	h, cfg := testhost.ControlPlane(t, func(c *config.Config) {
		c.LocalAPIEndpoint = config.APIEndpoint{AdvertiseAddress: at.Addr().String(), BindPort: int32(at.Port())}
	})
	r, socket := newRuntime(t)
	cfg.NodeRegistration.CRISocket = "unix://" + socket
	cfg.APIServer.TimeoutForControlPlane = time.Second
	n := NewNode(&Plan{Role: FirstControlPlane, Bundle: new(payload.Bundle), Config: cfg}, node.NewMachine(h, &workflow.Console{Out: new(bytes.Buffer)}))
	t.Cleanup(n.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	if _, err := h.WriteFile(node.AdminConf, pki.BootstrapKubeconfig(cfg.LocalURL(), ca, "token"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &ControlPlane{Machine: n.Machine, Node: n, Hold: func(pki.File) bool { return false }}, r, api
}

// setImage gives a component another image, and applies the manifest.
func (p *ControlPlane) setImage(t *testing.T, component, image string) {
	t.Helper()
	other := *p.Node.Config
	other.Images = map[string]string{"etcd": "etcd:3.5.16-0", "kube-apiserver": "a:1", "kube-controller-manager": "c:1", "kube-scheduler": "s:1", component: image}
	p.Node.Config = &other
	l, err := p.StaticPods(component)(t.Context())
	if err == nil {
		err = p.ApplyStaticPods(t.Context(), l)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The API server that still answers is the previous one, until the kubelet has replaced it.
func TestWaitReplaced(t *testing.T) {
	p, r, _ := existing(t)
	if err := p.WaitReplaced(t.Context()); err != nil {
		t.Errorf("nothing has changed: %v", err)
	}
	p.setImage(t, "kube-apiserver", "a:1")
	if err := p.WaitReplaced(t.Context()); err != nil {
		t.Errorf("the same manifest: %v", err)
	}
	p.setImage(t, "kube-apiserver", "a:2")
	if err := p.WaitReplaced(t.Context()); err == nil || !strings.Contains(err.Error(), "the previous container still runs") {
		t.Errorf("the previous API server runs: %v", err)
	}
	p.setImage(t, "kube-apiserver", "a:3")
	r.replace("second")
	if err := p.WaitReplaced(t.Context()); err != nil {
		t.Errorf("the new API server runs: %v", err)
	}
	r.replace("first")
	if err := p.WaitReplaced(t.Context()); err != nil {
		t.Errorf("waits again: %v", err)
	}
}

// A manifest that waits for the API server is one that replaces another, too.
func TestWaitReplacedOfHeld(t *testing.T) {
	p, r, _ := existing(t)
	p.Hold = func(pki.File) bool { return true }
	p.setImage(t, "kube-apiserver", "a:2")
	if err := p.WaitReplaced(t.Context()); err != nil {
		t.Errorf("before the manifest is written: %v", err)
	}
	if err := p.PlaceHeld(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.WaitReplaced(t.Context()); err == nil {
		t.Error("the previous API server runs")
	}
	r.replace("second")
	if err := p.WaitReplaced(t.Context()); err != nil {
		t.Error(err)
	}
}

// A phase that runs alone waits by itself, unless no API server answers: then other phases may have to follow.
func TestPhaseAloneWaits(t *testing.T) {
	for _, answers := range []bool{true, false} {
		p, _, api := existing(t)
		p.Node.Plan.OnePhase = true
		if !answers {
			api.Close()
		}
		other := *p.Node.Config
		other.Images = map[string]string{"kube-apiserver": "a:2", "kube-controller-manager": "c:1", "kube-scheduler": "s:1"}
		p.Node.Config = &other
		l, err := p.StaticPods("kube-apiserver")(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := p.ApplyStaticPods(t.Context(), l); (err != nil) != answers {
			t.Errorf("an API server answers: %t: %v", answers, err)
		}
	}
}

// A file with an older etcd keeps the manifest of the newer one. A damaged manifest is written again.
func TestOlderEtcdIsKept(t *testing.T) {
	p, _, _ := existing(t)
	file := p.Host.Path(node.EtcdManifest)
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	etcd := func(image string) []byte {
		t.Helper()
		other := *p.Node.Config
		other.Images = map[string]string{"etcd": image}
		p.Node.Config = &other
		l, err := p.Etcd()
		if err == nil {
			err = p.ApplyEtcd(t.Context(), l, true)
		}
		if err != nil || len(l.Files) != 1 || len(l.Claims) != 1 {
			t.Fatalf("%s: %+v, %v", image, l, err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	if is := etcd("etcd:3.5.9-0"); !bytes.Equal(is, was) || len(p.changed) > 0 {
		t.Errorf("an older etcd:\n%s", is)
	}
	if out := p.Console.Out.(*bytes.Buffer).String(); !strings.Contains(out, "etcd is not replaced: this host has etcd:3.5.16-0, and this file has the older etcd:3.5.9-0") {
		t.Errorf("output:\n%s", out)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if is := etcd("etcd:3.5.9-0"); !bytes.Contains(is, []byte("image: etcd:3.5.9-0\n")) {
		t.Errorf("a damaged manifest:\n%s", is)
	}
	if is := etcd("etcd:3.6.0-0"); !bytes.Contains(is, []byte("image: etcd:3.6.0-0\n")) || len(p.changed) != 1 {
		t.Errorf("a newer etcd:\n%s", is)
	}
}
