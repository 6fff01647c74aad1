package cluster

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"airlift/installer/cluster/wait"
	"airlift/scripts/fixtures/port"
	"airlift/scripts/fixtures/testcluster"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/render"
)

func TestRealAdminGetsItsRights(t *testing.T) {
	p := testcluster.Start(t)
	ctx := testcluster.Within(t)
	super, admin := superAdmin(t, p), testcluster.Must(Load(p.Admin, ""))(t)
	err := super.API.RbacV1().ClusterRoleBindings().Delete(ctx, "kubeadm:cluster-admins", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	// RBAC applies the deletion a moment later.
	for {
		if _, err := admin.API.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); apierrors.IsForbidden(err) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if _, err := EnsureAdmin(ctx, admin, nil, render.ClusterAdmins()); !apierrors.IsForbidden(err) {
		t.Errorf("without super-admin.conf: %v", err)
	}
	p.Twice(t, func() bool {
		changed := testcluster.Must(EnsureAdmin(ctx, admin, super, render.ClusterAdmins()))(t)
		if _, err := admin.API.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
			t.Errorf("admin.conf right after: %v", err)
		}
		return len(changed) > 0
	})
}

func TestRealObjectsAreAppliedOnce(t *testing.T) {
	p := testcluster.Start(t)
	ctx, super := testcluster.Within(t), superAdmin(t, p)
	for name, objects := range p.InitPhases() {
		t.Run(name, func(t *testing.T) {
			list := testcluster.Must(objects())(t)
			start := time.Now()
			testcluster.Must(super.Apply(ctx, list...))(t)
			t.Logf("%d objects in %s", len(list), time.Since(start).Round(time.Millisecond))
			var changed []string
			if seen := p.Writes(t, func() { changed = testcluster.Must(super.Apply(ctx, list...))(t) }); len(seen) > 0 || len(changed) > 0 {
				t.Errorf("second run wrote %q and says it changed %q", seen, changed)
			}
		})
	}
}

func TestRealApplyRepairsWhatIsOursAndKeepsTheRest(t *testing.T) {
	p := testcluster.Start(t)
	ctx, super := testcluster.Within(t), superAdmin(t, p)
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "repair", Namespace: "default", Labels: map[string]string{"ours": "1"}},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
	}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "repair", Namespace: "default"}, Data: map[string]string{"ours": "1"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "repair", Namespace: "default"}, Data: map[string][]byte{"ours": []byte("1")}}
	testcluster.Must(super.Apply(ctx, role, configMap, secret))(t)

	edited := []byte(`{"metadata":{"labels":{"ours":"2","theirs":"1"}},"data":{"ours":"Mg==","theirs":"MQ=="},"rules":[]}`)
	testcluster.Must(super.API.RbacV1().Roles("default").Patch(ctx, "repair", types.MergePatchType, edited, metav1.PatchOptions{}))(t)
	testcluster.Must(super.API.CoreV1().ConfigMaps("default").Patch(ctx, "repair", types.MergePatchType, edited, metav1.PatchOptions{}))(t)
	testcluster.Must(super.API.CoreV1().Secrets("default").Patch(ctx, "repair", types.MergePatchType, edited, metav1.PatchOptions{}))(t)
	p.Twice(t, func() bool { return len(testcluster.Must(super.Apply(ctx, role, configMap, secret))(t)) == 3 })

	gotRole := testcluster.Must(super.API.RbacV1().Roles("default").Get(ctx, "repair", metav1.GetOptions{}))(t)
	if gotRole.Labels["ours"] != "1" || gotRole.Labels["theirs"] != "1" || len(gotRole.Rules) != 1 {
		t.Errorf("role: labels %v, rules %v", gotRole.Labels, gotRole.Rules)
	}
	gotMap := testcluster.Must(super.API.CoreV1().ConfigMaps("default").Get(ctx, "repair", metav1.GetOptions{}))(t)
	if gotMap.Data["ours"] != "1" || gotMap.Data["theirs"] != "MQ==" {
		t.Errorf("config map: %v", gotMap.Data)
	}
	gotSecret := testcluster.Must(super.API.CoreV1().Secrets("default").Get(ctx, "repair", metav1.GetOptions{}))(t)
	if string(gotSecret.Data["ours"]) != "1" || len(gotSecret.Data) != 1 {
		t.Errorf("secret: %v", gotSecret.Data)
	}
}

func TestRealControlPlaneIsMarkedOnce(t *testing.T) {
	p := testcluster.Start(t)
	ctx, super := testcluster.Within(t), superAdmin(t, p)
	p.AddNode(t, "mark1", true)
	existing := []byte(`{"spec":{"taints":[{"key":"theirs","effect":"NoExecute"},{"key":"dedicated","value":"old","effect":"NoSchedule"}]}}`)
	testcluster.Must(super.API.CoreV1().Nodes().Patch(ctx, "mark1", types.MergePatchType, existing, metav1.PatchOptions{}))(t)

	taints := []corev1.Taint{config.ControlPlaneTaint, {Key: "dedicated", Value: "new", Effect: corev1.TaintEffectNoSchedule}}
	p.Twice(t, func() bool { return testcluster.Must(super.NodeObjects().MarkControlPlane(ctx, "mark1", taints))(t) })
	node := testcluster.Must(super.API.CoreV1().Nodes().Get(ctx, "mark1", metav1.GetOptions{}))(t)
	got := p.Taints(t, "mark1")
	want := []string{"dedicated=new:NoSchedule", "node-role.kubernetes.io/control-plane:NoSchedule", "theirs:NoExecute"}
	if !slices.Equal(got, want) {
		t.Errorf("taints = %q, want %q", got, want)
	}
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node.kubernetes.io/exclude-from-external-load-balancers"} {
		if value, ok := node.Labels[label]; !ok || value != "" {
			t.Errorf("label %s = %q, %t", label, value, ok)
		}
	}

	p.AddNode(t, "mark2", true)
	p.Twice(t, func() bool {
		return testcluster.Must(super.NodeObjects().MarkControlPlane(ctx, "mark2", []corev1.Taint{}))(t)
	})
	if got := p.Taints(t, "mark2"); len(got) > 0 {
		t.Errorf("an empty list of taints gave %q", got)
	}
	p.AddNode(t, "mark3", true)
	p.Twice(t, func() bool { return testcluster.Must(super.NodeObjects().MarkControlPlane(ctx, "mark3", nil))(t) })
	if got := p.Taints(t, "mark3"); !slices.Equal(got, []string{"node-role.kubernetes.io/control-plane:NoSchedule"}) {
		t.Errorf("no taints given gave %q", got)
	}
}

func TestRealKubeletIdentityIsEnoughForAJoin(t *testing.T) {
	p := testcluster.Start(t)
	ctx := testcluster.Within(t)
	p.AddNode(t, "cp1", false)
	conf := p.KubeletConf(t)
	// The kubelet writes the file after it has got its certificate.
	late := filepath.Join(t.TempDir(), "kubelet.conf")
	go func() {
		time.Sleep(500 * time.Millisecond)
		os.Symlink(conf, late)
	}()
	var states []string
	kubelet := testcluster.Must(Bootstrap{Kubeconfig: late, Server: "localhost:" + strings.TrimPrefix(p.Endpoint(), "127.0.0.1:")}.Wait(ctx, wait.Limit{Timeout: 10 * time.Second, Report: func(s string) { states = append(states, s) }}))(t)
	if !slices.Equal(states, []string{"the file does not exist yet"}) {
		t.Errorf("states: %q", states)
	}
	if !strings.HasPrefix(kubelet.Server, "https://localhost:") {
		t.Errorf("server = %s", kubelet.Server)
	}
	p.Twice(t, func() bool {
		return testcluster.Must(kubelet.NodeObjects().AnnotateCRISocket(ctx, "cp1", "unix:///run/containerd/containerd.sock"))(t)
	})
	start := time.Now()
	becomesReady := make(chan struct{})
	time.AfterFunc(700*time.Millisecond, func() {
		defer close(becomesReady)
		p.AddNode(t, "cp1", true)
	})
	states = nil
	if err := kubelet.WaitForNodeReady(ctx, "cp1", time.Minute, func(s string) { states = append(states, s) }); err != nil {
		t.Fatal(err)
	}
	t.Logf("noticed after %s; a poll alone takes up to %s", time.Since(start), 2*time.Second)
	<-becomesReady // the watch may report it before the patch returns
	if len(states) != 1 || !strings.Contains(states[0], "cni plugin not initialized") {
		t.Errorf("states: %q", states)
	}
}

func TestRealWaitsTellWhatTheySaw(t *testing.T) {
	p := testcluster.Start(t)
	ctx, super := testcluster.Within(t), superAdmin(t, p)
	p.AddNode(t, "waits", false)
	nobody := testcluster.Must(Load(p.Super, net.JoinHostPort("127.0.0.1", strconv.Itoa(testcluster.Must(port.Free(1))(t)[0]))))(t)
	for name, c := range map[string]struct {
		err  error
		want []string
	}{
		"api":         {testcluster.LastSeen(func(d time.Duration) error { return nobody.WaitForAPI(ctx, d, nil) }), []string{nobody.Server, "connection refused", "the kubelet does not answer"}},
		"absent node": {testcluster.LastSeen(func(d time.Duration) error { return super.WaitForNode(ctx, "nobody", d, nil) }), []string{`node "nobody" to be registered`, "the node does not exist", "gave up after "}},
		"not ready":   {testcluster.LastSeen(func(d time.Duration) error { return super.WaitForNodeReady(ctx, "waits", d, nil) }), []string{"Ready is False", "cni plugin not initialized"}},
		"no pod cidr": {testcluster.LastSeen(func(d time.Duration) error {
			return testcluster.Error(super.WaitForPodCIDR(ctx, "waits", d, nil))
		}), []string{"pod CIDR"}},
		"kubeconfig": {testcluster.LastSeen(func(d time.Duration) error {
			return testcluster.Error(Bootstrap{Kubeconfig: filepath.Join(t.TempDir(), "none")}.Wait(ctx, wait.Limit{Timeout: d}))
		}), []string{"the file does not exist yet", "kubelet"}},
	} {
		for _, want := range c.want {
			if c.err == nil || !strings.Contains(c.err.Error(), want) {
				t.Errorf("%s: %v, lacks %q", name, c.err, want)
			}
		}
	}
	if state, want := (Bootstrap{Node: "waits", Token: p.Super}).request(ctx), "the kubelet has not requested a certificate"; state != want {
		t.Errorf("%q, want %q", state, want)
	}
	cancelled, cancel := context.WithCancel(ctx)
	time.AfterFunc(300*time.Millisecond, cancel)
	if err := super.WaitForNode(cancelled, "nobody", time.Minute, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestRealPodCIDR(t *testing.T) {
	p := testcluster.Start(t)
	ctx, super := testcluster.Within(t), superAdmin(t, p)
	p.AddNode(t, "cidr", true)
	time.AfterFunc(300*time.Millisecond, func() {
		super.API.CoreV1().Nodes().Patch(ctx, "cidr", types.MergePatchType, []byte(`{"spec":{"podCIDR":"10.244.7.0/24","podCIDRs":["10.244.7.0/24"]}}`), metav1.PatchOptions{})
	})
	if got := testcluster.Must(super.WaitForPodCIDR(ctx, "cidr", time.Minute, nil))(t); !slices.Equal(got, []string{"10.244.7.0/24"}) {
		t.Errorf("pod CIDRs = %q", got)
	}
}

func TestRealTokens(t *testing.T) {
	p := testcluster.Start(t)
	ctx, super := testcluster.Within(t), superAdmin(t, p)
	token := config.BootstrapToken{
		Token: "tokena.0123456789abcdef", Description: "a test's", TTL: 3 * time.Hour,
		Usages: []string{"signing", "authentication"}, Groups: []string{"system:bootstrappers:kubeadm:default-node-token"},
	}
	p.Twice(t, func() bool {
		return len(testcluster.Must(super.EnsureTokens(ctx, []config.BootstrapToken{token}))(t)) > 0
	})
	if err := super.CreateToken(ctx, token); err == nil || !strings.Contains(err.Error(), `"tokena" already exists`) {
		t.Errorf("creating it again: %v", err)
	}
	token.Usages = []string{"authentication"}
	p.Twice(t, func() bool {
		return len(testcluster.Must(super.EnsureTokens(ctx, []config.BootstrapToken{token}))(t)) > 0
	})
	secret := testcluster.Must(super.API.CoreV1().Secrets("kube-system").Get(ctx, "bootstrap-token-tokena", metav1.GetOptions{}))(t)
	if _, ok := secret.Data["usage-bootstrap-signing"]; ok {
		t.Error("a usage that was taken away is still there")
	}
	eternal := config.BootstrapToken{Token: "eterna.0123456789abcdef", Usages: []string{"signing", "authentication"}, Groups: token.Groups}
	if err := super.CreateToken(ctx, eternal); err != nil {
		t.Fatal(err)
	}
	if found := testcluster.Must(super.FindJoinToken(ctx, time.Hour))(t); found != eternal.Token {
		t.Errorf("found %q", found)
	}
	list := testcluster.Must(super.ListTokens(ctx))(t)
	if last := list[len(list)-1]; last.Token != eternal.Token || !last.Expires.IsZero() {
		t.Errorf("last of the list: %+v", last)
	}
	i := slices.IndexFunc(list, func(b config.BootstrapToken) bool { return b.Token == token.Token })
	if i < 0 || list[i].Description != token.Description || !slices.Equal(list[i].Usages, token.Usages) || !slices.Equal(list[i].Groups, token.Groups) ||
		time.Until(list[i].Expires).Round(time.Minute) != token.TTL {
		t.Errorf("listed: %+v", list)
	}
	// Real kubeadm must read the tokens that Airlift wrote.
	out := p.Kubeadm(t, "token", "list", "-o", "json")
	for _, want := range []string{`"token": "tokena.0123456789abcdef"`, `"token": "eterna.0123456789abcdef"`, `"description": "a test's"`} {
		if !strings.Contains(out, want) {
			t.Errorf("kubeadm token list lacks %s:\n%s", want, out)
		}
	}
	dry := superAdmin(t, p)
	dry.SetDryRun()
	another := eternal
	another.Token = "dryrun.0123456789abcdef"
	if err := dry.CreateToken(ctx, another); err != nil {
		t.Errorf("a dry run of create: %v", err)
	}
	if err := dry.CreateToken(ctx, eternal); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("a dry run of create, for a token that exists: %v", err)
	}
	if err := dry.DeleteToken(ctx, "tokena"); err != nil {
		t.Errorf("a dry run of delete: %v", err)
	}
	if again := testcluster.Must(super.ListTokens(ctx))(t); len(again) != len(list) {
		t.Errorf("after dry runs there are %d tokens, before %d", len(again), len(list))
	}
	for _, id := range []string{"tokena", eternal.Token} {
		if err := super.DeleteToken(ctx, id); err != nil {
			t.Error(err)
		}
	}
	if err := super.DeleteToken(ctx, "tokena"); err == nil {
		t.Error("deleting a deleted token is no error")
	}
}

func TestRealCertificatesInBothDirections(t *testing.T) {
	p := testcluster.Start(t)
	ctx := testcluster.Within(t)
	admin := initialized(t, p)
	key := NewCertificateKey()
	p.Twice(t, func() bool { return testcluster.Must(admin.UploadCerts(ctx, os.DirFS("/"), p.Config, key))(t) })
	checkDownload(t, p, admin, key)
	if _, err := admin.DownloadCerts(ctx, p.Config, NewCertificateKey()); err == nil || !strings.Contains(err.Error(), "decrypting") {
		t.Errorf("with a wrong key: %v", err)
	}
	// The Secret is deleted with its token.
	secret := testcluster.Must(admin.API.CoreV1().Secrets("kube-system").Get(ctx, "kubeadm-certs", metav1.GetOptions{}))(t)
	owner := secret.OwnerReferences[0].Name
	token := testcluster.Must(parseToken(testcluster.Must(admin.API.CoreV1().Secrets("kube-system").Get(ctx, owner, metav1.GetOptions{}))(t)))(t)
	if life := time.Until(token.Expires).Round(time.Minute); life != 2*time.Hour || len(token.Usages) > 0 {
		t.Errorf("the owner lives for %s and may %q", life, token.Usages)
	}

	// Airlift must read what kubeadm uploads.
	theirs := NewCertificateKey()
	p.Kubeadm(t, "init", "phase", "upload-certs", "--upload-certs", "--config", p.KubeadmConfig(t, theirs))
	checkDownload(t, p, admin, theirs)

	// kubeadm must read what Airlift uploads, here in a complete join.
	ours := NewCertificateKey()
	testcluster.Must(admin.UploadCerts(ctx, os.DirFS("/"), p.Config, ours))(t)
	other := *p.Config
	other.CertificatesDir = filepath.Join(t.TempDir(), "pki")
	testcluster.Must(admin.Apply(ctx, testcluster.Must(testcluster.UploadConfig(&other))(t)...))(t)
	t.Cleanup(func() { admin.Apply(context.Background(), testcluster.Must(testcluster.UploadConfig(p.Config))(t)...) })
	join := testcluster.JoinToken("joinin.0123456789abcdef")
	testcluster.Must(admin.EnsureTokens(ctx, []config.BootstrapToken{join}))(t)
	hash := testcluster.Must(pki.CAHashes(admin.CA))(t)[0]
	joinFile := testcluster.WriteYAML(t, map[string]any{
		"apiVersion": "kubeadm.k8s.io/v1beta3", "kind": "JoinConfiguration",
		"nodeRegistration": map[string]any{"name": "cp2", "criSocket": "unix:///run/containerd/containerd.sock"},
		"discovery": map[string]any{"bootstrapToken": map[string]any{
			"token": join.Token, "apiServerEndpoint": p.Endpoint(), "caCertHashes": []string{hash},
		}},
		"controlPlane": map[string]any{
			"certificateKey":   ours,
			"localAPIEndpoint": map[string]any{"advertiseAddress": testcluster.DocumentationAddress},
		},
	})
	p.Kubeadm(t, "join", "phase", "control-plane-prepare", "download-certs", "--config", joinFile)
	for name, path := range sharedCerts(p.Config) {
		want := testcluster.Must(os.ReadFile(path))(t)
		got := testcluster.Must(os.ReadFile(strings.Replace(path, p.Config.CertificatesDir, other.CertificatesDir, 1)))(t)
		if !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(want)) {
			t.Errorf("kubeadm got another %s", name)
		}
	}
}

func checkDownload(t *testing.T, p *testcluster.ControlPlane, c *Client, key string) {
	t.Helper()
	got := testcluster.Must(c.DownloadCerts(testcluster.Within(t), p.Config, key))(t)
	if len(got) != 8 {
		t.Errorf("downloaded %d files", len(got))
	}
	for path, data := range got {
		if want := testcluster.Must(os.ReadFile(path))(t); !bytes.Equal(data, want) {
			t.Errorf("downloaded another %s", path)
		}
	}
}

// Real kubeadm must find nothing to change after Airlift.
func TestRealKubeadmFindsNothingToChange(t *testing.T) {
	p := testcluster.Start(t)
	ctx := testcluster.Within(t)
	admin := initialized(t, p)
	p.AddNode(t, "cp1", true)
	testcluster.Must(admin.NodeObjects().AnnotateCRISocket(ctx, "cp1", "unix:///run/containerd/containerd.sock"))(t)
	for _, name := range []string{"coredns", "kube-proxy"} {
		testcluster.Must(admin.Apply(ctx, testcluster.Must(p.InitPhases()[name]())(t)...))(t)
	}
	file := p.KubeadmConfig(t, "")
	before := p.Objects(t)
	for _, phase := range [][]string{{"upload-config", "all"}, {"bootstrap-token"}, {"addon", "all"}} {
		p.Kubeadm(t, append(append([]string{"init", "phase"}, phase...), "--config", file)...)
	}
	for name, content := range p.Objects(t) {
		switch name {
		case "Secret kube-system/bootstrap-token-kubadm":
			continue // the file asks kubeadm for this token
		case "ConfigMap kube-public/cluster-info":
			content, before[name] = withoutSignatures(content), withoutSignatures(before[name])
		case "ConfigMap kube-system/kubeadm-config", "ConfigMap kube-system/kubelet-config", "ConfigMap kube-system/kube-proxy":
			// kubeadm also writes zero values here. The tests of package render
			// compare the meaning.
			continue
		}
		if old, ok := before[name]; !ok {
			t.Errorf("kubeadm made %s, we did not", name)
		} else if old != content {
			t.Errorf("kubeadm changed %s\nfrom %s\nto   %s", name, old, content)
		}
	}
}

// withoutSignatures removes the bootstrap signer's signatures from
// cluster-info.
func withoutSignatures(clusterInfo string) string {
	return regexp.MustCompile(`"jws-kubeconfig-[^"]*":"[^"]*",?`).ReplaceAllString(clusterInfo, "")
}
