package boot

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/multihost/seed"
	"airlift/installer/render"
	"airlift/scripts/fixtures/testcluster"
)

func TestMain(m *testing.M) { testcluster.Main(m) }

// Against a real API server: a host with the token writes its report and nothing else, the first control plane believes only names of the
// seed, and the end leaves no right and no secret.
func TestRealSite(t *testing.T) {
	p := testcluster.Start(t)
	ctx := testcluster.Within(t)
	admin := testcluster.Must(cluster.Load(p.Admin, ""))(t)
	super := testcluster.Must(cluster.Load(p.Super, ""))(t)
	testcluster.Must(cluster.EnsureAdmin(ctx, admin, super, render.ClusterAdmins()))(t)
	p.Init(t, admin.Apply)
	h := testcluster.Must(host.Open(p.Dir))(t)
	s := newDrive(t).seed
	token := config.BootstrapToken{Token: s.Token, Expires: s.Expires.AddDate(50, 0, 0), Usages: []string{"signing", "authentication"}, Groups: []string{config.NodeTokenGroup, seed.Group}}
	if err := admin.CreateToken(ctx, token); err != nil {
		t.Fatal(err)
	}
	p.AddNode(t, "cp-1", true)

	missing, err := lead(ctx, admin, h, s)
	if err != nil || strings.Join(missing, " ") != "w-1" {
		t.Fatalf("missing %q, %v", missing, err)
	}
	joining := tokenClient(t, p, admin, s.Token)
	if err := report(ctx, joining, "w-1", Claim{State: seed.Failed, Message: "swap is on\n\x1b[2J" + strings.Repeat("x", 1000)}); err != nil {
		t.Fatal(err)
	}
	if err := report(ctx, joining, "stranger", Claim{State: seed.Done}); err != nil {
		t.Fatal(err)
	}
	rows := testcluster.Must(rowsOf(ctx, admin, recordOf(s, s.First()).Hosts))(t)
	if len(rows) != 2 || rows[0].Node != nodeReady || rows[1].State != seed.Failed || rows[1].Node != "" || len([]rune(rows[1].Message)) > maxMessage || strings.ContainsRune(rows[1].Message, 0x1b) {
		t.Errorf("%+v", rows)
	}
	// The token has no other right on ConfigMaps of kube-system.
	maps := joining.API.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	for what, err := range map[string]error{
		"list":          testcluster.Error(maps.List(ctx, metav1.ListOptions{})),
		"create":        testcluster.Error(maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})),
		"delete":        maps.Delete(ctx, objectName, metav1.DeleteOptions{}),
		"patch another": testcluster.Error(maps.Patch(ctx, "kubeadm-config", "application/merge-patch+json", []byte(`{"data":{"x":"y"}}`), metav1.PatchOptions{})),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}

	p.AddNode(t, "w-1", true)
	if missing, err = lead(ctx, admin, h, s); err != nil || len(missing) != 1 {
		t.Errorf("a Node without the report of its host: %q, %v", missing, err)
	}
	if err := report(ctx, joining, "w-1", Claim{State: seed.Done}); err != nil {
		t.Fatal(err)
	}
	if missing, err = lead(ctx, admin, h, s); err != nil || len(missing) != 0 {
		t.Errorf("all are done: %q, %v", missing, err)
	}
	for range 2 { // twice, as after an interruption
		if err := end(ctx, admin, s); err != nil {
			t.Fatal(err)
		}
	}
	testcluster.Eventually(t, func() bool { // the API server notices a little later
		err := report(ctx, joining, "w-1", Claim{State: seed.Done})
		return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)
	})
	secrets := testcluster.Must(admin.API.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{}))(t)
	for _, secret := range secrets.Items {
		if id, _, _ := strings.Cut(s.Token, "."); secret.Name == "bootstrap-token-"+id || secret.Name == "kubeadm-certs" {
			t.Errorf("%s is left", secret.Name)
		}
	}
	rows = testcluster.Must(rowsOf(ctx, admin, recordOf(s, s.First()).Hosts))(t) // status still shows them
	if rows[1].State != seed.Done {
		t.Errorf("%+v", rows)
	}
}

// tokenClient returns a client with the rights of a token.
func tokenClient(t *testing.T, p *testcluster.ControlPlane, admin *cluster.Client, token string) *cluster.Client {
	t.Helper()
	kubeconfig := testcluster.WriteYAML(t, map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": admin.Server, "certificate-authority-data": admin.CA}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": token}}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
	})
	return testcluster.Must(cluster.Load(kubeconfig, ""))(t)
}
