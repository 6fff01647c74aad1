package rotation

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/scripts/fixtures/testcluster/testclient"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/installer/cluster/workloads"
	"airlift/scripts/fixtures/testcluster"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/config"
	"airlift/installer/pki"
)

// What nodes read and write of a rotation, with their own rights.
func TestRealRotationState(t *testing.T) {
	p := testcluster.Start(t)
	ctx, super := testcluster.Within(t), testclient.Super(t, p)
	p.AddNode(t, "cp1", true)
	p.AddNode(t, "w2", false)
	kubelet := testcluster.Must(cluster.Load(p.KubeletConf(t), ""))(t)
	if r, err := Read(ctx, kubelet.API); err != nil || r != nil {
		t.Errorf("without a rotation: %+v, %v", r, err)
	}
	want := &Rotation{Stage: "distribute", ID: "sha256:a", Former: []byte("former\n"), Next: []byte("next\n"), FormerFrontProxy: []byte("front\n"), NextFrontProxy: []byte("next front\n")}
	p.Twice(t, func() bool { return len(testcluster.Must(Store(ctx, super, want))(t)) > 0 })
	var got *Rotation
	testcluster.Eventually(t, func() bool { // the authorizer learns of the Role a moment later
		got = testcluster.Must(Read(ctx, kubelet.API))(t)
		return got != nil
	})
	if got.Stage != want.Stage || got.ID != want.ID || !bytes.Equal(got.Next, want.Next) || !bytes.Equal(got.FormerFrontProxy, want.FormerFrontProxy) {
		t.Errorf("%+v", got)
	}
	// A control plane that joins with a token reads it, too.
	token := config.BootstrapToken{Token: "tokenr.0123456789abcdef", TTL: time.Hour, Usages: []string{"authentication"}, Groups: []string{config.NodeTokenGroup}}
	testcluster.Must(super.EnsureTokens(ctx, []config.BootstrapToken{token}))(t)
	ca := testcluster.Must(os.ReadFile(filepath.Join(p.Config.CertificatesDir, "ca.crt")))(t)
	joining := testcluster.Must(cluster.New(pki.BootstrapKubeconfig("https://"+p.Endpoint(), ca, token.Token), ""))(t)
	testcluster.Eventually(t, func() bool { return testcluster.Must(Read(ctx, joining.API))(t) != nil })
	p.Twice(t, func() bool {
		return testcluster.Must(SetStage(ctx, kubelet, "cp1", "sha256:a", "distribute"))(t)
	})
	if _, err := SetStage(ctx, kubelet, "w2", "sha256:a", "distribute"); err == nil {
		t.Error("a kubelet may record the stage of another node")
	}
	for id, stage := range map[string]string{"sha256:a": "distribute", "sha256:b": ""} {
		nodes := testcluster.Must(Nodes(ctx, super.API, id))(t)
		i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == "cp1" })
		if i < 0 || nodes[i].Stage != stage {
			t.Errorf("%s: %+v", id, nodes)
		}
	}

	files, key := map[string][]byte{"ca.key": []byte("secret"), "etcd-ca.crt": []byte("cert")}, strings.Repeat("ab", 32)
	p.Twice(t, func() bool { return testcluster.Must(StoreNextCAs(ctx, super, key, files))(t) })
	if stored := testcluster.Must(NextCAs(ctx, super.API, key))(t); !maps.EqualFunc(stored, files, bytes.Equal) {
		t.Errorf("%q", stored)
	}
	if _, err := NextCAs(ctx, super.API, strings.Repeat("cd", 32)); err == nil {
		t.Error("another key decrypts the new CAs")
	}
	if _, err := NextCAs(ctx, kubelet.API, key); err == nil {
		t.Error("a kubelet may read the new CAs")
	}
	for range 2 {
		if err := Remove(ctx, super); err != nil {
			t.Fatal(err)
		}
		if r := testcluster.Must(Read(ctx, super.API))(t); r != nil {
			t.Errorf("left: %+v", r)
		}
	}
	node := testcluster.Must(super.API.CoreV1().Nodes().Get(ctx, "cp1", metav1.GetOptions{}))(t)
	if _, ok := node.Annotations["airlift.dev/follows"]; ok {
		t.Error("the annotation of the node is left")
	}
}

// The real controller manager approves and signs what a node requests for itself.
func TestRealKubeletCertificate(t *testing.T) {
	p := testcluster.Start(t)
	testclient.Initialized(t, p)
	ctx := testcluster.Within(t)
	p.AddNode(t, "cp1", true)
	conf := p.KubeletConf(t)
	root := t.TempDir()
	data := testcluster.Must(os.ReadFile(conf))(t)
	if err := os.MkdirAll(filepath.Join(root, "etc/kubernetes"), 0o755); err != nil {
		t.Fatal(err)
	}
	pem := testcluster.Must(os.ReadFile(filepath.Join(filepath.Dir(conf), "kubelet-client-current.pem")))(t)
	place := filepath.Join(root, filepath.Dir(conf))
	if err := os.MkdirAll(place, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{filepath.Join(root, "etc/kubernetes/kubelet.conf"): data, filepath.Join(place, "kubelet-client-current.pem"): pem} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other := testcluster.Must(os.ReadFile(filepath.Join(p.Config.CertificatesDir, "front-proxy-ca.crt")))(t)
	request := testcluster.Must(pki.RequestKubelet(p.Config, os.DirFS(root), other))(t)
	certPEM := testcluster.Must(testcluster.Must(cluster.Load(conf, ""))(t).KubeletCertificate(ctx, request.CSR, wait.Limit{Timeout: time.Minute}))(t)
	ca := testcluster.Must(os.ReadFile(filepath.Join(p.Config.CertificatesDir, "ca.crt")))(t)
	if signed := testcluster.Must(pki.SignedBy(certPEM, ca))(t); !signed {
		t.Error("it is not signed by the cluster's CA")
	}
	made := testcluster.Must(request.Files(os.DirFS(root), time.Now(), certPEM))(t)
	if len(made.Files) != 2 || made.Files[1].Link != made.Files[0].Path {
		t.Errorf("%+v", made.Files)
	}
}

func TestRealRestartWorkloads(t *testing.T) {
	p := testcluster.Start(t)
	ctx, super := testcluster.Within(t), testclient.Super(t, p)
	const ns = "restarts"
	labels := map[string]string{"app": "a"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	noToken, selector := template, &metav1.LabelSelector{MatchLabels: labels}
	noToken.Spec.AutomountServiceAccountToken = new(bool)
	testcluster.Must(super.Apply(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "d"}, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "s"}, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: noToken}},
		&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "t"}, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template, ServiceName: "t"}},
	))(t)
	all := []string{"Deployment restarts/d", "DaemonSet restarts/s", "StatefulSet restarts/t"}
	if got := testcluster.Must(workloads.Restart(ctx, super.API, "one", ns))(t); !slices.Equal(got, all) {
		t.Errorf("%q", got)
	}
	if got := testcluster.Must(workloads.Restart(ctx, super.API, "one", ns))(t); len(got) > 0 {
		t.Errorf("the same reason again: %q", got)
	}
	if got := testcluster.Must(workloads.Restart(ctx, super.API, "two", ns))(t); !slices.Equal(got, all) {
		t.Errorf("another reason: %q", got)
	}
	names := testcluster.Must(workloads.UsingAPI(ctx, super.API, "kube-system"))(t)
	if !slices.Contains(names, "Deployment restarts/d") || slices.Contains(names, "DaemonSet restarts/s") {
		t.Errorf("workloads with a token: %q", names)
	}
	// No controller runs here, so none of them gets new pods.
	err := testcluster.LastSeen(func(d time.Duration) error {
		return workloads.WaitForRollouts(ctx, super.API, wait.Limit{Timeout: d}, ns)
	})
	if err == nil || !strings.Contains(err.Error(), "Deployment restarts/d, DaemonSet restarts/s, StatefulSet restarts/t") {
		t.Errorf("%v", err)
	}
}

func TestRealExtensionCAs(t *testing.T) {
	p := testcluster.Start(t)
	ctx, super := testcluster.Within(t), testclient.Super(t, p)
	ca := testcluster.Must(os.ReadFile(filepath.Join(p.Config.CertificatesDir, "ca.crt")))(t)
	other := testcluster.Must(os.ReadFile(filepath.Join(p.Config.CertificatesDir, "front-proxy-ca.crt")))(t)
	edit := func(bundle []byte) ([]byte, error) { return pki.WithoutCerts(append(bundle, other...), other) }
	if changed := testcluster.Must(EditExtensionCAs(ctx, super, edit))(t); len(changed) > 0 {
		t.Logf("changed %q", changed)
	}
	m := testcluster.Must(super.API.CoreV1().ConfigMaps("kube-system").Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{}))(t)
	if got := m.Data["client-ca-file"]; got != string(ca) {
		t.Errorf("%s", got)
	}
}
