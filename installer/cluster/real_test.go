package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/scripts/rig"
)

// within returns a context with a timeout for one test.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// initPhases returns the phases of init that only apply objects.
func (p *controlPlane) initPhases() map[string]func() ([]runtime.Object, error) {
	p.cfg.Images = map[string]string{
		"coredns":    "registry.k8s.io/coredns/coredns:v1.11.1",
		"kube-proxy": "registry.k8s.io/kube-proxy:" + realVersion,
		"flannel":    "ghcr.io/flannel-io/flannel:v0.28.4",
		"pause":      "registry.k8s.io/pause:3.9",
		"etcd":       "registry.k8s.io/etcd:3.5.16-0",
	}
	ca, err := os.ReadFile(filepath.Join(p.cfg.CertificatesDir, "ca.crt"))
	return map[string]func() ([]runtime.Object, error){
		"upload-config": func() ([]runtime.Object, error) { return render.UploadConfig(p.cfg) },
		"bootstrap-token": func() ([]runtime.Object, error) {
			return append(render.BootstrapRBAC(p.cfg), render.ClusterInfo(p.cfg, ca)...), err
		},
		"upload-certs": func() ([]runtime.Object, error) { return render.UploadCertsRBAC(), nil },
		"coredns":      func() ([]runtime.Object, error) { return render.CoreDNS(p.cfg) },
		"kube-proxy":   func() ([]runtime.Object, error) { return render.KubeProxy(p.cfg) },
		"flannel":      func() ([]runtime.Object, error) { return render.Flannel(p.cfg) },
	}
}

// init sets the cluster up so that a node can join.
func (p *controlPlane) init(t *testing.T) *Client {
	t.Helper()
	ctx := within(t)
	admin := must(Load(p.admin, ""))(t)
	must(EnsureAdmin(ctx, admin, p.client(t), render.ClusterAdmins()))(t)
	for _, name := range []string{"upload-config", "bootstrap-token", "upload-certs"} {
		must(admin.Apply(ctx, must(p.initPhases()[name]())(t)...))(t)
	}
	p.controllerManager(t)
	return admin
}

func TestRealAdminGetsItsRights(t *testing.T) {
	p := realCluster(t)
	ctx := within(t)
	super, admin := p.client(t), must(Load(p.admin, ""))(t)
	err := super.api.RbacV1().ClusterRoleBindings().Delete(ctx, "kubeadm:cluster-admins", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	// RBAC applies the deletion a moment later.
	for {
		if _, err := admin.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); apierrors.IsForbidden(err) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if _, err := EnsureAdmin(ctx, admin, nil, render.ClusterAdmins()); !apierrors.IsForbidden(err) {
		t.Errorf("without super-admin.conf: %v", err)
	}
	p.twice(t, func() bool {
		changed := must(EnsureAdmin(ctx, admin, super, render.ClusterAdmins()))(t)
		if _, err := admin.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
			t.Errorf("admin.conf right after: %v", err)
		}
		return len(changed) > 0
	})
}

func TestRealObjectsAreAppliedOnce(t *testing.T) {
	p := realCluster(t)
	ctx, super := within(t), p.client(t)
	for name, objects := range p.initPhases() {
		t.Run(name, func(t *testing.T) {
			list := must(objects())(t)
			start := time.Now()
			must(super.Apply(ctx, list...))(t)
			t.Logf("%d objects in %s", len(list), time.Since(start).Round(time.Millisecond))
			var changed []string
			if seen := p.writes(t, func() { changed = must(super.Apply(ctx, list...))(t) }); len(seen) > 0 || len(changed) > 0 {
				t.Errorf("second run wrote %q and says it changed %q", seen, changed)
			}
		})
	}
}

func TestRealApplyRepairsWhatIsOursAndKeepsTheRest(t *testing.T) {
	p := realCluster(t)
	ctx, super := within(t), p.client(t)
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "repair", Namespace: "default", Labels: map[string]string{"ours": "1"}},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
	}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "repair", Namespace: "default"}, Data: map[string]string{"ours": "1"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "repair", Namespace: "default"}, Data: map[string][]byte{"ours": []byte("1")}}
	must(super.Apply(ctx, role, configMap, secret))(t)

	edited := []byte(`{"metadata":{"labels":{"ours":"2","theirs":"1"}},"data":{"ours":"Mg==","theirs":"MQ=="},"rules":[]}`)
	must(super.api.RbacV1().Roles("default").Patch(ctx, "repair", types.MergePatchType, edited, metav1.PatchOptions{}))(t)
	must(super.api.CoreV1().ConfigMaps("default").Patch(ctx, "repair", types.MergePatchType, edited, metav1.PatchOptions{}))(t)
	must(super.api.CoreV1().Secrets("default").Patch(ctx, "repair", types.MergePatchType, edited, metav1.PatchOptions{}))(t)
	p.twice(t, func() bool { return len(must(super.Apply(ctx, role, configMap, secret))(t)) == 3 })

	gotRole := must(super.api.RbacV1().Roles("default").Get(ctx, "repair", metav1.GetOptions{}))(t)
	if gotRole.Labels["ours"] != "1" || gotRole.Labels["theirs"] != "1" || len(gotRole.Rules) != 1 {
		t.Errorf("role: labels %v, rules %v", gotRole.Labels, gotRole.Rules)
	}
	gotMap := must(super.api.CoreV1().ConfigMaps("default").Get(ctx, "repair", metav1.GetOptions{}))(t)
	if gotMap.Data["ours"] != "1" || gotMap.Data["theirs"] != "MQ==" {
		t.Errorf("config map: %v", gotMap.Data)
	}
	gotSecret := must(super.api.CoreV1().Secrets("default").Get(ctx, "repair", metav1.GetOptions{}))(t)
	if string(gotSecret.Data["ours"]) != "1" || len(gotSecret.Data) != 1 {
		t.Errorf("secret: %v", gotSecret.Data)
	}
}

// addNode registers a node as a kubelet would.
func (p *controlPlane) addNode(t *testing.T, name string, ready bool) {
	t.Helper()
	ctx, api := within(t), p.client(t).api
	_, err := api.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelHostname: name}, // kubeadm waits for the label
	}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	patch := must(json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: status, Message: "container runtime network not ready: cni plugin not initialized"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Message: "kubelet has no disk pressure"},
	}}}))(t)
	must(api.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"))(t)
}

func TestRealControlPlaneIsMarkedOnce(t *testing.T) {
	p := realCluster(t)
	ctx, super := within(t), p.client(t)
	p.addNode(t, "mark1", true)
	existing := []byte(`{"spec":{"taints":[{"key":"theirs","effect":"NoExecute"},{"key":"dedicated","value":"old","effect":"NoSchedule"}]}}`)
	must(super.api.CoreV1().Nodes().Patch(ctx, "mark1", types.MergePatchType, existing, metav1.PatchOptions{}))(t)

	taints := []corev1.Taint{config.ControlPlaneTaint, {Key: "dedicated", Value: "new", Effect: corev1.TaintEffectNoSchedule}}
	p.twice(t, func() bool { return must(super.NodeObjects().MarkControlPlane(ctx, "mark1", taints))(t) })
	node := must(super.api.CoreV1().Nodes().Get(ctx, "mark1", metav1.GetOptions{}))(t)
	got := p.taints(t, "mark1")
	want := []string{"dedicated=new:NoSchedule", "node-role.kubernetes.io/control-plane:NoSchedule", "theirs:NoExecute"}
	if !slices.Equal(got, want) {
		t.Errorf("taints = %q, want %q", got, want)
	}
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node.kubernetes.io/exclude-from-external-load-balancers"} {
		if value, ok := node.Labels[label]; !ok || value != "" {
			t.Errorf("label %s = %q, %t", label, value, ok)
		}
	}

	p.addNode(t, "mark2", true)
	p.twice(t, func() bool { return must(super.NodeObjects().MarkControlPlane(ctx, "mark2", []corev1.Taint{}))(t) })
	if got := p.taints(t, "mark2"); len(got) > 0 {
		t.Errorf("an empty list of taints gave %q", got)
	}
	p.addNode(t, "mark3", true)
	p.twice(t, func() bool { return must(super.NodeObjects().MarkControlPlane(ctx, "mark3", nil))(t) })
	if got := p.taints(t, "mark3"); !slices.Equal(got, []string{"node-role.kubernetes.io/control-plane:NoSchedule"}) {
		t.Errorf("no taints given gave %q", got)
	}
}

// taints returns a node's taints, without the taint of every new node.
func (p *controlPlane) taints(t *testing.T, name string) (list []string) {
	t.Helper()
	node := must(p.client(t).api.CoreV1().Nodes().Get(within(t), name, metav1.GetOptions{}))(t)
	for _, taint := range node.Spec.Taints {
		if taint.Key != corev1.TaintNodeNotReady {
			list = append(list, taint.ToString())
		}
	}
	slices.Sort(list)
	return list
}

// kubeletConf writes a kubelet.conf for the node cp1 and returns its path.
func (p *controlPlane) kubeletConf(t *testing.T) string {
	t.Helper()
	cfg := *p.cfg
	cfg.CertificatesDir = config.CertificatesDir
	files := must(pki.KubeletClient(&cfg, os.DirFS(p.dir), time.Now()))(t)
	dir := t.TempDir()
	for _, f := range files.Files {
		path := filepath.Join(dir, filepath.Base(f.Path))
		if f.Link != "" {
			if err := os.Symlink(filepath.Base(f.Link), path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		data := bytes.ReplaceAll(f.Data, []byte(config.KubeletPKIDir), []byte(dir))
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "kubelet.conf")
}

func TestRealKubeletIdentityIsEnoughForAJoin(t *testing.T) {
	p := realCluster(t)
	ctx := within(t)
	p.addNode(t, "cp1", false)
	conf := p.kubeletConf(t)
	// The kubelet writes the file after it has got its certificate.
	late := filepath.Join(t.TempDir(), "kubelet.conf")
	go func() {
		time.Sleep(500 * time.Millisecond)
		os.Symlink(conf, late)
	}()
	var states []string
	kubelet := must(Bootstrap{Kubeconfig: late, Server: "localhost:" + strings.TrimPrefix(p.endpoint(), "127.0.0.1:")}.Wait(ctx, Waiting{10 * time.Second, func(s string) { states = append(states, s) }}))(t)
	if !slices.Equal(states, []string{"the file does not exist yet"}) {
		t.Errorf("states: %q", states)
	}
	if !strings.HasPrefix(kubelet.Server(), "https://localhost:") {
		t.Errorf("server = %s", kubelet.Server())
	}
	p.twice(t, func() bool {
		return must(kubelet.NodeObjects().AnnotateCRISocket(ctx, "cp1", "unix:///run/containerd/containerd.sock"))(t)
	})
	start := time.Now()
	becomesReady := make(chan struct{})
	time.AfterFunc(700*time.Millisecond, func() {
		defer close(becomesReady)
		p.addNode(t, "cp1", true)
	})
	states = nil
	if err := kubelet.Waits().WaitForNodeReady(ctx, "cp1", time.Minute, func(s string) { states = append(states, s) }); err != nil {
		t.Fatal(err)
	}
	t.Logf("noticed after %s; a poll alone takes up to %s", time.Since(start), watchedInterval)
	<-becomesReady // the watch may report it before the patch returns
	if len(states) != 1 || !strings.Contains(states[0], "cni plugin not initialized") {
		t.Errorf("states: %q", states)
	}
}

func TestRealWaitsTellWhatTheySaw(t *testing.T) {
	p := realCluster(t)
	ctx, super := within(t), p.client(t)
	p.addNode(t, "waits", false)
	nobody := must(Load(p.super, net.JoinHostPort("127.0.0.1", strconv.Itoa(must(freePorts(1))(t)[0]))))(t)
	for name, c := range map[string]struct {
		err  error
		want []string
	}{
		"api":         {lastSeen(func(d time.Duration) error { return nobody.Waits().WaitForAPI(ctx, d, nil) }), []string{nobody.Server(), "connection refused", "the kubelet does not answer"}},
		"absent node": {lastSeen(func(d time.Duration) error { return super.Waits().WaitForNode(ctx, "nobody", d, nil) }), []string{`node "nobody" to be registered`, "the node does not exist", "gave up after "}},
		"not ready":   {lastSeen(func(d time.Duration) error { return super.Waits().WaitForNodeReady(ctx, "waits", d, nil) }), []string{"Ready is False", "cni plugin not initialized"}},
		"no pod cidr": {lastSeen(func(d time.Duration) error { return second(super.Waits().WaitForPodCIDR(ctx, "waits", d, nil)) }), []string{"pod CIDR"}},
		"pods": {lastSeen(func(d time.Duration) error {
			return super.Waits().WaitForPods(ctx, Pods{Namespaces: []string{"default"}, Names: []string{"default/ghost"}}, d, nil)
		}), []string{"default/ghost: does not exist"}},
		"kubeconfig": {lastSeen(func(d time.Duration) error {
			return second(Bootstrap{Kubeconfig: filepath.Join(t.TempDir(), "none")}.Wait(ctx, Waiting{Timeout: d}))
		}), []string{"the file does not exist yet", "kubelet"}},
	} {
		for _, want := range c.want {
			if c.err == nil || !strings.Contains(c.err.Error(), want) {
				t.Errorf("%s: %v, lacks %q", name, c.err, want)
			}
		}
	}
	if state, want := (Bootstrap{Node: "waits", Token: p.super}).request(ctx), "the kubelet has not requested a certificate"; state != want {
		t.Errorf("%q, want %q", state, want)
	}
	cancelled, cancel := context.WithCancel(ctx)
	time.AfterFunc(300*time.Millisecond, cancel)
	if err := super.Waits().WaitForNode(cancelled, "nobody", time.Minute, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// lastSeen returns the error of a wait that cannot succeed. A slow host gets more
// time until the wait has seen a state.
func lastSeen(wait func(timeout time.Duration) error) (err error) {
	for timeout := time.Second / 2; timeout < time.Minute; timeout *= 2 {
		if err = wait(timeout); err == nil || !strings.Contains(err.Error(), "last seen: nothing") {
			break
		}
	}
	return err
}

func second[T any](_ T, err error) error { return err }

func TestRealPodCIDR(t *testing.T) {
	p := realCluster(t)
	ctx, super := within(t), p.client(t)
	p.addNode(t, "cidr", true)
	time.AfterFunc(300*time.Millisecond, func() {
		super.api.CoreV1().Nodes().Patch(ctx, "cidr", types.MergePatchType, []byte(`{"spec":{"podCIDR":"10.244.7.0/24","podCIDRs":["10.244.7.0/24"]}}`), metav1.PatchOptions{})
	})
	if got := must(super.Waits().WaitForPodCIDR(ctx, "cidr", time.Minute, nil))(t); !slices.Equal(got, []string{"10.244.7.0/24"}) {
		t.Errorf("pod CIDRs = %q", got)
	}
}

func TestRealPodsAreWaitedFor(t *testing.T) {
	p := realCluster(t)
	ctx, super := within(t), p.client(t)
	const ns = "wait-pods"
	must(super.Apply(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: ns}},
	))(t)
	noToken := false
	must(super.Apply(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "static-cp1", Namespace: ns},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: &noToken, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}))(t)
	want := Pods{Namespaces: []string{ns}, Names: []string{ns + "/static-cp1"}}
	err := lastSeen(func(d time.Duration) error { return super.Waits().WaitForPods(ctx, want, d, nil) })
	if err == nil || !strings.Contains(err.Error(), ns+"/static-cp1: Pending") {
		t.Errorf("pending pod: %v", err)
	}
	setStatus := func(status corev1.PodStatus) {
		patch := must(json.Marshal(map[string]any{"status": status}))(t)
		must(super.api.CoreV1().Pods(ns).Patch(ctx, "static-cp1", types.MergePatchType, patch, metav1.PatchOptions{}, "status"))(t)
	}
	setStatus(corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "c",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull", Message: "image none is not present"}}}}})
	err = lastSeen(func(d time.Duration) error { return super.Waits().WaitForPods(ctx, want, d, nil) })
	if err == nil || !strings.Contains(err.Error(), "container c: ErrImageNeverPull: image none is not present") {
		t.Errorf("waiting pod: %v", err)
	}
	time.AfterFunc(300*time.Millisecond, func() {
		setStatus(corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}})
	})
	if err := super.Waits().WaitForPods(ctx, want, time.Minute, nil); err != nil {
		t.Error(err)
	}
	// In this cluster no pods exist for the Deployments and DaemonSets in
	// kube-system.
	must(super.Apply(ctx, must(p.initPhases()["coredns"]())(t)...))(t)
	err = lastSeen(func(d time.Duration) error {
		return super.Waits().WaitForPods(ctx, Pods{Namespaces: []string{"kube-system"}}, d, nil)
	})
	if err == nil || !strings.Contains(err.Error(), "deployment kube-system/coredns: 0 of 2 pods ready") {
		t.Errorf("deployment without pods: %v", err)
	}
}

func TestRealTokens(t *testing.T) {
	p := realCluster(t)
	ctx, super := within(t), p.client(t)
	token := config.BootstrapToken{
		Token: "tokena.0123456789abcdef", Description: "a test's", TTL: 3 * time.Hour,
		Usages: []string{"signing", "authentication"}, Groups: []string{"system:bootstrappers:kubeadm:default-node-token"},
	}
	p.twice(t, func() bool { return len(must(super.Tokens().EnsureTokens(ctx, []config.BootstrapToken{token}))(t)) > 0 })
	if err := super.Tokens().CreateToken(ctx, token); err == nil || !strings.Contains(err.Error(), `"tokena" already exists`) {
		t.Errorf("creating it again: %v", err)
	}
	token.Usages = []string{"authentication"}
	p.twice(t, func() bool { return len(must(super.Tokens().EnsureTokens(ctx, []config.BootstrapToken{token}))(t)) > 0 })
	secret := must(super.api.CoreV1().Secrets("kube-system").Get(ctx, "bootstrap-token-tokena", metav1.GetOptions{}))(t)
	if _, ok := secret.Data["usage-bootstrap-signing"]; ok {
		t.Error("a usage that was taken away is still there")
	}
	eternal := config.BootstrapToken{Token: "eterna.0123456789abcdef", Usages: []string{"signing", "authentication"}, Groups: token.Groups}
	if err := super.Tokens().CreateToken(ctx, eternal); err != nil {
		t.Fatal(err)
	}
	if found := must(super.Tokens().FindJoinToken(ctx, time.Hour))(t); found != eternal.Token {
		t.Errorf("found %q", found)
	}
	list := must(super.Tokens().ListTokens(ctx))(t)
	if last := list[len(list)-1]; last.Token != eternal.Token || !last.Expires.IsZero() {
		t.Errorf("last of the list: %+v", last)
	}
	i := slices.IndexFunc(list, func(b config.BootstrapToken) bool { return b.Token == token.Token })
	if i < 0 || list[i].Description != token.Description || !slices.Equal(list[i].Usages, token.Usages) || !slices.Equal(list[i].Groups, token.Groups) ||
		time.Until(list[i].Expires).Round(time.Minute) != token.TTL {
		t.Errorf("listed: %+v", list)
	}
	// Real kubeadm must read the tokens that Airlift wrote.
	out := p.kubeadm(t, "token", "list", "-o", "json")
	for _, want := range []string{`"token": "tokena.0123456789abcdef"`, `"token": "eterna.0123456789abcdef"`, `"description": "a test's"`} {
		if !strings.Contains(out, want) {
			t.Errorf("kubeadm token list lacks %s:\n%s", want, out)
		}
	}
	dry := p.client(t)
	dry.SetDryRun()
	another := eternal
	another.Token = "dryrun.0123456789abcdef"
	if err := dry.Tokens().CreateToken(ctx, another); err != nil {
		t.Errorf("a dry run of create: %v", err)
	}
	if err := dry.Tokens().CreateToken(ctx, eternal); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("a dry run of create, for a token that exists: %v", err)
	}
	if err := dry.Tokens().DeleteToken(ctx, "tokena"); err != nil {
		t.Errorf("a dry run of delete: %v", err)
	}
	if again := must(super.Tokens().ListTokens(ctx))(t); len(again) != len(list) {
		t.Errorf("after dry runs there are %d tokens, before %d", len(again), len(list))
	}
	for _, id := range []string{"tokena", eternal.Token} {
		if err := super.Tokens().DeleteToken(ctx, id); err != nil {
			t.Error(err)
		}
	}
	if err := super.Tokens().DeleteToken(ctx, "tokena"); err == nil {
		t.Error("deleting a deleted token is no error")
	}
}

// kubeadm runs real kubeadm against the cluster.
func (p *controlPlane) kubeadm(t *testing.T, args ...string) string {
	t.Helper()
	program := rig.Component(t, realVersion, "kubeadm")
	if args[0] != "join" {
		args = append(args, "--kubeconfig", p.super)
	}
	cmd := exec.Command(program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	start := time.Now()
	out, err := cmd.Output()
	t.Logf("kubeadm %s: %s", strings.Join(args[:3], " "), time.Since(start).Round(time.Millisecond))
	if err != nil {
		t.Fatalf("kubeadm %q: %v\n%s%s", args, err, out, stderr.String())
	}
	return string(out)
}

// kubeadmConfig writes a file with which kubeadm configures this cluster as
// Airlift does.
func (p *controlPlane) kubeadmConfig(t *testing.T, certificateKey string) string {
	t.Helper()
	return writeYAML(t,
		map[string]any{
			"apiVersion": "kubeadm.k8s.io/v1beta3", "kind": "InitConfiguration",
			"localAPIEndpoint": map[string]any{"advertiseAddress": documentationAddress, "bindPort": p.port},
			"nodeRegistration": map[string]any{"name": "cp1", "criSocket": "unix:///run/containerd/containerd.sock"},
			"certificateKey":   certificateKey,
			"bootstrapTokens":  []any{map[string]any{"token": "kubadm.0123456789abcdef"}},
		},
		map[string]any{
			"apiVersion": "kubeadm.k8s.io/v1beta3", "kind": "ClusterConfiguration",
			"kubernetesVersion": realVersion, "certificatesDir": p.cfg.CertificatesDir,
			"controlPlaneEndpoint": p.cfg.ControlPlaneEndpoint,
			"networking":           map[string]any{"podSubnet": p.cfg.Networking.PodSubnet.String()},
			"apiServer":            map[string]any{"certSANs": p.cfg.APIServer.CertSANs},
		},
	)
}

// writeYAML writes documents to a file and returns its path.
func writeYAML(t *testing.T, docs ...any) string {
	t.Helper()
	var file []byte
	for _, doc := range docs {
		file = append(append(file, "---\n"...), must(yaml.Marshal(doc))(t)...)
	}
	path := filepath.Join(t.TempDir(), "kubeadm.yaml")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRealCertificatesInBothDirections(t *testing.T) {
	p := realCluster(t)
	ctx := within(t)
	admin := p.init(t)
	key := NewCertificateKey()
	p.twice(t, func() bool { return must(admin.Tokens().UploadCerts(ctx, p.cfg, key))(t) })
	p.checkDownload(t, admin, key)
	if _, err := admin.Tokens().DownloadCerts(ctx, p.cfg, NewCertificateKey()); err == nil || !strings.Contains(err.Error(), "decrypting") {
		t.Errorf("with a wrong key: %v", err)
	}
	// The Secret is deleted with its token.
	secret := must(admin.api.CoreV1().Secrets("kube-system").Get(ctx, "kubeadm-certs", metav1.GetOptions{}))(t)
	owner := secret.OwnerReferences[0].Name
	token := must(parseToken(must(admin.api.CoreV1().Secrets("kube-system").Get(ctx, owner, metav1.GetOptions{}))(t)))(t)
	if life := time.Until(token.Expires).Round(time.Minute); life != 2*time.Hour || len(token.Usages) > 0 {
		t.Errorf("the owner lives for %s and may %q", life, token.Usages)
	}

	// Airlift must read what kubeadm uploads.
	theirs := NewCertificateKey()
	p.kubeadm(t, "init", "phase", "upload-certs", "--upload-certs", "--config", p.kubeadmConfig(t, theirs))
	p.checkDownload(t, admin, theirs)

	// kubeadm must read what Airlift uploads, here in a complete join.
	ours := NewCertificateKey()
	must(admin.Tokens().UploadCerts(ctx, p.cfg, ours))(t)
	other := *p.cfg
	other.CertificatesDir = filepath.Join(t.TempDir(), "pki")
	must(admin.Apply(ctx, must(render.UploadConfig(&other))(t)...))(t)
	t.Cleanup(func() { admin.Apply(context.Background(), must(render.UploadConfig(p.cfg))(t)...) })
	join := joinToken("joinin.0123456789abcdef")
	must(admin.Tokens().EnsureTokens(ctx, []config.BootstrapToken{join}))(t)
	hash := must(pki.CAHashes(admin.CA()))(t)[0]
	joinFile := writeYAML(t, map[string]any{
		"apiVersion": "kubeadm.k8s.io/v1beta3", "kind": "JoinConfiguration",
		"nodeRegistration": map[string]any{"name": "cp2", "criSocket": "unix:///run/containerd/containerd.sock"},
		"discovery": map[string]any{"bootstrapToken": map[string]any{
			"token": join.Token, "apiServerEndpoint": p.endpoint(), "caCertHashes": []string{hash},
		}},
		"controlPlane": map[string]any{
			"certificateKey":   ours,
			"localAPIEndpoint": map[string]any{"advertiseAddress": documentationAddress},
		},
	})
	p.kubeadm(t, "join", "phase", "control-plane-prepare", "download-certs", "--config", joinFile)
	for name, path := range sharedCerts(p.cfg) {
		want := must(os.ReadFile(path))(t)
		got := must(os.ReadFile(strings.Replace(path, p.cfg.CertificatesDir, other.CertificatesDir, 1)))(t)
		if !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(want)) {
			t.Errorf("kubeadm got another %s", name)
		}
	}
}

func (p *controlPlane) checkDownload(t *testing.T, c *Client, key string) {
	t.Helper()
	got := must(c.Tokens().DownloadCerts(within(t), p.cfg, key))(t)
	if len(got) != 8 {
		t.Errorf("downloaded %d files", len(got))
	}
	for path, data := range got {
		if want := must(os.ReadFile(path))(t); !bytes.Equal(data, want) {
			t.Errorf("downloaded another %s", path)
		}
	}
}

func joinToken(token string) config.BootstrapToken {
	return config.BootstrapToken{
		Token: token, TTL: time.Hour, Usages: []string{"signing", "authentication"},
		Groups: []string{"system:bootstrappers:kubeadm:default-node-token"},
	}
}

// Real kubeadm must find nothing to change after Airlift.
func TestRealKubeadmFindsNothingToChange(t *testing.T) {
	p := realCluster(t)
	ctx := within(t)
	admin := p.init(t)
	p.addNode(t, "cp1", true)
	must(admin.NodeObjects().AnnotateCRISocket(ctx, "cp1", "unix:///run/containerd/containerd.sock"))(t)
	for _, name := range []string{"coredns", "kube-proxy"} {
		must(admin.Apply(ctx, must(p.initPhases()[name]())(t)...))(t)
	}
	file := p.kubeadmConfig(t, "")
	before := p.snapshot(t)
	for _, phase := range [][]string{{"upload-config", "all"}, {"bootstrap-token"}, {"addon", "all"}} {
		p.kubeadm(t, append(append([]string{"init", "phase"}, phase...), "--config", file)...)
	}
	for name, content := range p.snapshot(t) {
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
