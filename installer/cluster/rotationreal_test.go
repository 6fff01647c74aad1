package cluster

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/config"
	"airlift/installer/pki"
)

// What nodes read and write of a rotation, with their own rights.
func TestRealRotationState(t *testing.T) {
	p := realCluster(t)
	ctx, super := within(t), p.client(t)
	p.addNode(t, "cp1", true)
	p.addNode(t, "w2", false)
	kubelet := must(Load(p.kubeletConf(t), ""))(t)
	if r, err := kubelet.Rotations().Rotation(ctx); err != nil || r != nil {
		t.Errorf("without a rotation: %+v, %v", r, err)
	}
	want := &CARotation{Stage: "distribute", ID: "sha256:a", Former: []byte("former\n"), Next: []byte("next\n"), FormerFrontProxy: []byte("front\n"), NextFrontProxy: []byte("next front\n")}
	p.twice(t, func() bool { return len(must(super.Rotations().StoreRotation(ctx, want))(t)) > 0 })
	var got *CARotation
	eventually(t, func() bool { // the authorizer learns of the Role a moment later
		got = must(kubelet.Rotations().Rotation(ctx))(t)
		return got != nil
	})
	if got.Stage != want.Stage || got.ID != want.ID || !bytes.Equal(got.Next, want.Next) || !bytes.Equal(got.FormerFrontProxy, want.FormerFrontProxy) {
		t.Errorf("%+v", got)
	}
	// A control plane that joins with a token reads it, too.
	token := config.BootstrapToken{Token: "tokenr.0123456789abcdef", TTL: time.Hour, Usages: []string{"authentication"}, Groups: []string{config.NodeTokenGroup}}
	must(super.Tokens().EnsureTokens(ctx, []config.BootstrapToken{token}))(t)
	ca := must(os.ReadFile(filepath.Join(p.cfg.CertificatesDir, "ca.crt")))(t)
	joining := must(New(pki.BootstrapKubeconfig("https://"+p.endpoint(), ca, token.Token), ""))(t)
	eventually(t, func() bool { return must(joining.Rotations().Rotation(ctx))(t) != nil })
	p.twice(t, func() bool {
		return must(kubelet.Rotations().SetRotationStage(ctx, "cp1", "sha256:a", "distribute"))(t)
	})
	if _, err := kubelet.Rotations().SetRotationStage(ctx, "w2", "sha256:a", "distribute"); err == nil {
		t.Error("a kubelet may record the stage of another node")
	}
	for id, stage := range map[string]string{"sha256:a": "distribute", "sha256:b": ""} {
		nodes := must(super.Rotations().RotationNodes(ctx, id))(t)
		i := slices.IndexFunc(nodes, func(n RotationNode) bool { return n.Name == "cp1" })
		if i < 0 || nodes[i].Stage != stage {
			t.Errorf("%s: %+v", id, nodes)
		}
	}

	files, key := map[string][]byte{"ca.key": []byte("secret"), "etcd-ca.crt": []byte("cert")}, strings.Repeat("ab", 32)
	p.twice(t, func() bool { return must(super.Rotations().StoreNextCAs(ctx, key, files))(t) })
	if stored := must(super.Rotations().NextCAs(ctx, key))(t); !maps.EqualFunc(stored, files, bytes.Equal) {
		t.Errorf("%q", stored)
	}
	if _, err := super.Rotations().NextCAs(ctx, strings.Repeat("cd", 32)); err == nil {
		t.Error("another key decrypts the new CAs")
	}
	if _, err := kubelet.Rotations().NextCAs(ctx, key); err == nil {
		t.Error("a kubelet may read the new CAs")
	}
	for range 2 {
		if err := super.Rotations().RemoveRotation(ctx); err != nil {
			t.Fatal(err)
		}
		if r := must(super.Rotations().Rotation(ctx))(t); r != nil {
			t.Errorf("left: %+v", r)
		}
	}
	node := must(super.api.CoreV1().Nodes().Get(ctx, "cp1", metav1.GetOptions{}))(t)
	if _, ok := node.Annotations[rotationAnnotation]; ok {
		t.Error("the annotation of the node is left")
	}
}

// The real controller manager approves and signs what a node requests for itself.
func TestRealKubeletCertificate(t *testing.T) {
	p := realCluster(t)
	p.init(t)
	ctx := within(t)
	p.addNode(t, "cp1", true)
	conf := p.kubeletConf(t)
	root := t.TempDir()
	data := must(os.ReadFile(conf))(t)
	if err := os.MkdirAll(filepath.Join(root, "etc/kubernetes"), 0o755); err != nil {
		t.Fatal(err)
	}
	pem := must(os.ReadFile(filepath.Join(filepath.Dir(conf), "kubelet-client-current.pem")))(t)
	place := filepath.Join(root, filepath.Dir(conf))
	if err := os.MkdirAll(place, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{filepath.Join(root, "etc/kubernetes/kubelet.conf"): data, filepath.Join(place, "kubelet-client-current.pem"): pem} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other := must(os.ReadFile(filepath.Join(p.cfg.CertificatesDir, "front-proxy-ca.crt")))(t)
	request := must(pki.RequestKubelet(p.cfg, os.DirFS(root), other))(t)
	certPEM := must(must(Load(conf, ""))(t).KubeletCertificate(ctx, request.CSR, Waiting{Timeout: time.Minute}))(t)
	ca := must(os.ReadFile(filepath.Join(p.cfg.CertificatesDir, "ca.crt")))(t)
	if signed := must(pki.SignedBy(certPEM, ca))(t); !signed {
		t.Error("it is not signed by the cluster's CA")
	}
	made := must(request.Files(os.DirFS(root), time.Now(), certPEM))(t)
	if len(made.Files) != 2 || made.Files[1].Link != made.Files[0].Path {
		t.Errorf("%+v", made.Files)
	}
}

func TestRealRestartWorkloads(t *testing.T) {
	p := realCluster(t)
	ctx, super := within(t), p.client(t)
	const ns = "restarts"
	labels := map[string]string{"app": "a"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	noToken, selector := template, &metav1.LabelSelector{MatchLabels: labels}
	noToken.Spec.AutomountServiceAccountToken = new(bool)
	must(super.Apply(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "d"}, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "s"}, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: noToken}},
		&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "t"}, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template, ServiceName: "t"}},
	))(t)
	all := []string{"Deployment restarts/d", "DaemonSet restarts/s", "StatefulSet restarts/t"}
	if got := must(super.Rollouts().RestartWorkloads(ctx, "one", ns))(t); !slices.Equal(got, all) {
		t.Errorf("%q", got)
	}
	if got := must(super.Rollouts().RestartWorkloads(ctx, "one", ns))(t); len(got) > 0 {
		t.Errorf("the same reason again: %q", got)
	}
	if got := must(super.Rollouts().RestartWorkloads(ctx, "two", ns))(t); !slices.Equal(got, all) {
		t.Errorf("another reason: %q", got)
	}
	names := must(super.Rollouts().APIWorkloads(ctx, "kube-system"))(t)
	if !slices.Contains(names, "Deployment restarts/d") || slices.Contains(names, "DaemonSet restarts/s") {
		t.Errorf("workloads with a token: %q", names)
	}
	// No controller runs here, so none of them gets new pods.
	err := lastSeen(func(d time.Duration) error { return super.Rollouts().WaitForRollouts(ctx, Waiting{Timeout: d}, ns) })
	if err == nil || !strings.Contains(err.Error(), "Deployment restarts/d, DaemonSet restarts/s, StatefulSet restarts/t") {
		t.Errorf("%v", err)
	}
}

func TestRealExtensionCAs(t *testing.T) {
	p := realCluster(t)
	ctx, super := within(t), p.client(t)
	ca := must(os.ReadFile(filepath.Join(p.cfg.CertificatesDir, "ca.crt")))(t)
	other := must(os.ReadFile(filepath.Join(p.cfg.CertificatesDir, "front-proxy-ca.crt")))(t)
	edit := func(bundle []byte) ([]byte, error) { return pki.WithoutCerts(append(bundle, other...), other) }
	if changed := must(super.Rotations().EditExtensionCAs(ctx, edit))(t); len(changed) > 0 {
		t.Logf("changed %q", changed)
	}
	m := must(super.api.CoreV1().ConfigMaps("kube-system").Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{}))(t)
	if got := m.Data["client-ca-file"]; got != string(ca) {
		t.Errorf("%s", got)
	}
}

// eventually repeats a check until it succeeds, for at most ten seconds.
func eventually(t *testing.T, check func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !check(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen within ten seconds")
		}
	}
}
