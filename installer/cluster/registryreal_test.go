package cluster

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/config"
	"airlift/installer/render"
	"airlift/scripts/fixtures/testcluster"
)

// A latest has what a follower passed on last.
type latest[T any] struct {
	mu    sync.Mutex
	value T
	err   error
	calls int
}

func (l *latest[T]) use(value T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.value, l.err = value, nil
	l.calls++
}

func (l *latest[T]) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *latest[T]) is(check func(value T, err error) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return check(l.value, l.err)
}

// The service of the registry reads the names of the Nodes and the ConfigMap, and reviews bootstrap tokens, with the
// kubelet's identity and the roles of the registry. Without them, the ConfigMap is forbidden.
func TestRealRegistryService(t *testing.T) {
	p := testcluster.Start(t)
	super := superAdmin(t, p)
	i := NewIdentity(p.KubeletConf(t))
	nodes, list := &latest[[]string]{}, &latest[map[string]string]{}
	ctx, cancel := context.WithCancel(t.Context())
	var followers sync.WaitGroup
	defer followers.Wait()
	defer cancel()
	followers.Go(func() { i.FollowNodes(ctx, nodes.use, nodes.failed) })
	followers.Go(func() {
		i.FollowConfigMap(ctx, metav1.NamespaceSystem, config.RegistryConfigMap, list.use, list.failed)
	})
	testcluster.Eventually(t, func() bool {
		return list.is(func(_ map[string]string, err error) bool { return apierrors.IsForbidden(err) })
	})

	cfg := *p.Config
	cfg.Registry = config.EmbeddedRegistry{Used: true}
	objects := testcluster.Must(render.UploadRegistry(&cfg))(t)
	testcluster.Must(super.Apply(t.Context(), append(objects, render.RegistryServer("cp1"))...))(t)
	eventually := func(what string, check func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !check(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %v %v, %v %v", what, nodes.value, nodes.err, list.value, list.err)
			}
		}
	}
	text := func() (s string) {
		list.is(func(data map[string]string, _ error) bool { s = data[config.RegistryKey]; return true })
		return s
	}
	eventually("the ConfigMap", func() bool {
		r, err := config.DecodeRegistry([]byte(text()))
		return err == nil && r.Used && len(r.Bundles) == 0
	})
	testcluster.Must(super.EditRegistry(t.Context(), func(r *config.EmbeddedRegistry) { r.Keep(config.KeptBundle{ID: "x", Size: 1}) }))(t)
	eventually("a change of the ConfigMap", func() bool {
		r, err := config.DecodeRegistry([]byte(text()))
		return err == nil && len(r.Bundles) == 1
	})

	has := func(name string) func() bool {
		return func() bool {
			return nodes.is(func(names []string, _ error) bool { return slices.IsSorted(names) && slices.Contains(names, name) })
		}
	}
	p.AddNode(t, "registry1", true)
	eventually("a new node", has("registry1"))
	if is, err := i.NodeExists(t.Context(), "registry1"); !is || err != nil {
		t.Errorf("%t, %v", is, err)
	}
	calls := func() int { nodes.mu.Lock(); defer nodes.mu.Unlock(); return nodes.calls }
	before := calls()
	p.AddNode(t, "registry1", false) // another status
	if err := p.API(t).CoreV1().Nodes().Delete(t.Context(), "registry1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("a node that was removed", func() bool { return !has("registry1")() })
	if n := calls() - before; n != 1 {
		t.Errorf("%d lists were passed on for one removal", n)
	}
	if is, err := i.NodeExists(t.Context(), "registry1"); is || err != nil {
		t.Errorf("%t, %v", is, err)
	}

	reviewTokens(t, p, super, i)

	if err := super.API.CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(t.Context(), config.RegistryConfigMap, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("a ConfigMap that was removed", func() bool {
		return list.is(func(data map[string]string, err error) bool { return data == nil && err == nil })
	})
}

// reviewTokens: only a bootstrap token that has not expired, and may be used for authentication, is valid.
func reviewTokens(t *testing.T, p *testcluster.ControlPlane, super *Client, i *Identity) {
	t.Helper()
	valid := testcluster.JoinToken("regsvc.0123456789abcdef")
	signing := testcluster.JoinToken("regsvd.0123456789abcdef")
	signing.Usages = []string{"signing"}
	signing.Groups = nil
	expired := testcluster.JoinToken("regsve.0123456789abcdef")
	testcluster.Must(super.EnsureTokens(t.Context(), []config.BootstrapToken{valid, signing, expired}))(t)
	review := func(token string) bool {
		t.Helper()
		is, err := i.ReviewToken(testcluster.Within(t), token)
		if err != nil {
			t.Error(err)
		}
		return is
	}
	testcluster.Eventually(t, func() bool { return review(valid.Token) }) // the authenticator reads Secrets a moment later
	testcluster.Eventually(t, func() bool { return review(expired.Token) })
	secrets := super.API.CoreV1().Secrets(metav1.NamespaceSystem)
	secret := testcluster.Must(secrets.Get(t.Context(), "bootstrap-token-regsve", metav1.GetOptions{}))(t)
	secret.Data["expiration"] = []byte(time.Now().Add(-time.Minute).UTC().Format(time.RFC3339))
	testcluster.Must(secrets.Update(t.Context(), secret, metav1.UpdateOptions{}))(t)
	testcluster.Eventually(t, func() bool { return !review(expired.Token) })
	for name, token := range map[string]string{
		"another secret": "regsvc.0123456789abcdee", "unknown": "nosuch.0123456789abcdef", "for signatures only": signing.Token,
	} {
		if review(token) {
			t.Errorf("%s: the token is valid", name)
		}
	}
	if err := super.API.CoreV1().Secrets(metav1.NamespaceSystem).Delete(t.Context(), "bootstrap-token-regsvc", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testcluster.Eventually(t, func() bool { return !review(valid.Token) })
	// A token of a service account is one of the API, and none of a joining host.
	accounts := super.API.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "registry-test"}}
	if _, err := accounts.Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	request := testcluster.Must(accounts.CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))(t)
	if review(request.Status.Token) || IsBootstrapToken(request.Status.Token) {
		t.Error("the token of a service account is valid")
	}
}
