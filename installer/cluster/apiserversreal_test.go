package cluster

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"airlift/installer/config"
	"airlift/installer/render"
	"airlift/scripts/fixtures/testcluster"
)

// A recorder records what FollowAPIServers passes on.
type recorder struct {
	mu    sync.Mutex
	lists [][]netip.AddrPort
	errs  []error
}

func (r *recorder) use(list []netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists = append(r.lists, list)
}

func (r *recorder) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

func (r *recorder) last() (list []netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lists) > 0 {
		list = r.lists[len(r.lists)-1]
	}
	return list
}

func (r *recorder) lastError() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errs) > 0 {
		err = r.errs[len(r.errs)-1]
	}
	return err
}

// registered writes addresses to the EndpointSlice. The API server of these tests cannot register itself,
// because it advertises a loopback address.
func registered(t *testing.T, admin *Client, addresses ...string) {
	t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(6443))}},
	}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	slices := admin.API.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	ctx := testcluster.Within(t)
	_, err := slices.Update(ctx, slice, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = slices.Create(ctx, slice, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func at(addresses ...string) (list []netip.AddrPort) {
	for _, a := range addresses {
		list = append(list, netip.MustParseAddrPort(a+":6443"))
	}
	return list
}

func TestRealNodeFollowsAPIServers(t *testing.T) {
	p := testcluster.Start(t)
	super := superAdmin(t, p)
	registered(t, super, "192.0.2.1")
	for _, o := range render.APIServersRBAC() {
		u := testcluster.Must(toUnstructured(o))(t)
		if err := super.resource(u).Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	got, done := &recorder{}, make(chan struct{})
	go func() {
		defer close(done)
		FollowAPIServers(ctx, p.KubeletConf(t), got.use, got.failed)
	}()
	// Without the Role, a node's identity is not enough.
	testcluster.Eventually(t, func() bool { return apierrors.IsForbidden(got.lastError()) })
	t.Logf("without: %v", got.lastError())
	if got.last() != nil {
		t.Errorf("without permission: %v", got.last())
	}
	p.Twice(t, func() bool {
		return len(testcluster.Must(super.Apply(t.Context(), render.APIServersRBAC()...))(t)) > 0
	})
	for end := time.Now().Add(time.Minute); !slices.Equal(got.last(), at("192.0.2.1")); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("with the Role: %v, %v", got.last(), got.lastError())
		}
	}
	start := time.Now()
	registered(t, super, "192.0.2.1", "192.0.2.2", "192.0.2.3")
	testcluster.Eventually(t, func() bool { return slices.Equal(got.last(), at("192.0.2.1", "192.0.2.2", "192.0.2.3")) })
	t.Logf("a change is seen after %s", time.Since(start).Round(time.Millisecond))

	// Neither an empty list nor the deletion is passed on.
	registered(t, super)
	endpointSlices := super.API.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	if err := endpointSlices.Delete(t.Context(), "kubernetes", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	registered(t, super, "192.0.2.3")
	testcluster.Eventually(t, func() bool { return slices.Equal(got.last(), at("192.0.2.3")) })
	for _, list := range got.lists {
		if len(list) == 0 {
			t.Error("an empty list was passed on")
		}
	}
	cancel()
	<-done
}

func TestRealJoiningNodeReadsAPIServers(t *testing.T) {
	p := testcluster.Start(t)
	super := superAdmin(t, p)
	registered(t, super, "192.0.2.1", "192.0.2.2")
	testcluster.Must(super.Apply(t.Context(), render.APIServersRBAC()...))(t)
	token := testcluster.JoinToken("reader.0123456789abcdef")
	testcluster.Must(super.EnsureTokens(t.Context(), []config.BootstrapToken{token}))(t)
	joining := tokenClient(t, p, token.Token)
	testcluster.Eventually(t, func() bool { // the authorizer reads Roles a moment later
		list, err := joining.APIServers(t.Context())
		return err == nil && slices.Equal(list, at("192.0.2.1", "192.0.2.2"))
	})
	// Nothing else: no other EndpointSlice.
	_, err := joining.API.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("all EndpointSlices: %v", err)
	}
}

// tokenClient returns a client that has only a bootstrap token.
func tokenClient(t *testing.T, p *testcluster.ControlPlane, token string) *Client {
	t.Helper()
	cfg := testcluster.Must(clientcmd.LoadFromFile(p.Super))(t)
	for _, a := range cfg.AuthInfos {
		a.Token, a.ClientCertificateData, a.ClientKeyData = token, nil, nil
	}
	return testcluster.Must(New(testcluster.Must(clientcmd.Write(*cfg))(t), ""))(t)
}

// An agent that read its credentials only once would stop when they expire.
func TestRealRenewedCredentialsAreUsedWithoutRestart(t *testing.T) {
	p := testcluster.Start(t)
	super := superAdmin(t, p)
	registered(t, super, "192.0.2.1")
	kubeconfig := filepath.Join(t.TempDir(), "kubelet.conf")
	ctx, cancel := context.WithCancel(t.Context())
	got, done := &recorder{}, make(chan struct{})
	go func() {
		defer close(done)
		FollowAPIServers(ctx, kubeconfig, got.use, got.failed)
	}()
	testcluster.Eventually(t, func() bool { return errors.Is(got.lastError(), os.ErrNotExist) })
	write := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(kubeconfig+".new", data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(kubeconfig+".new", kubeconfig); err != nil {
			t.Fatal(err)
		}
	}
	valid := testcluster.Must(os.ReadFile(p.Super))(t)
	cfg := testcluster.Must(clientcmd.Load(valid))(t)
	for _, a := range cfg.AuthInfos {
		a.Token, a.ClientCertificateData, a.ClientKeyData = "abcdef.0123456789abcdef", nil, nil
	}
	write(testcluster.Must(clientcmd.Write(*cfg))(t))
	testcluster.Eventually(t, func() bool { return apierrors.IsUnauthorized(got.lastError()) })
	write(valid)
	for end := time.Now().Add(time.Minute); got.last() == nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(got.lastError())
		}
	}
	// While a watch is open, too.
	write([]byte(strings.Replace(string(valid), "https://127.0.0.1:", "https://localhost:", 1)))
	got.mu.Lock()
	before := len(got.lists)
	got.mu.Unlock()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		got.mu.Lock()
		after := len(got.lists)
		got.mu.Unlock()
		if after > before {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the change was not noticed")
		}
	}
	cancel()
	<-done
}
