package profile_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"airlift/builder/addons"
	"airlift/images/release"
	"airlift/installer/cluster/health"
	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/profile"
	"airlift/installer/render"
	"airlift/internal/documents"
	"airlift/scripts/fixtures/port"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/oracle"
)

const loopback, advertised = "127.0.0.1", "192.0.2.10"

// A server is a real API server with the flags and files of the profile.
type server struct {
	client *kubernetes.Clientset
	rest   *rest.Config
	log    string // the audit log
}

// start runs etcd and the API server with the command line that its static pod has, below a directory, until the test ends.
func start(t *testing.T, version string) server {
	t.Helper()
	apiServer, etcd := rig.Component(t, version, "kube-apiserver"), rig.Component(t, version, "etcd")
	ports, err := port.Free(3)
	if err != nil {
		t.Fatal(err)
	}
	c := &config.Config{
		CNI:              "flannel",
		LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: advertised, BindPort: int32(ports[0])},
		Facts:            config.Facts{Hostname: "cp1", NodeIP: advertised, CgroupVersion: 2, CgroupDriver: "systemd"},
		Images:           map[string]string{"kube-apiserver": "a:1", "kube-controller-manager": "c:1", "kube-scheduler": "s:1"},
	}
	c.KubernetesVersion = version
	c.ControlPlaneEndpoint = fmt.Sprintf("%s:%d", loopback, ports[0])
	c.CompleteInit()
	if _, err := profile.Apply(profile.Hardened, c); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(path string, data []byte) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, build := range []func(*config.Config, fs.FS, time.Time, ...string) (pki.Result, error){pki.Ensure, pki.Kubeconfigs} {
		made, err := build(c, os.DirFS(dir), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range made.Files {
			write(f.Path, bytes.ReplaceAll(f.Data, []byte(advertised), []byte(loopback)))
		}
	}
	for _, f := range profile.Files(&c.Cluster) {
		write(f.Path, f.Data)
	}
	write(profile.AuditDir+"/x", nil)
	pods, err := render.ControlPlane(c, os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	client, peer := fmt.Sprintf("http://%s:%d", loopback, ports[1]), fmt.Sprintf("http://%s:%d", loopback, ports[2])
	run(t, etcd, "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn", "--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	var args []string
	for _, arg := range pods["kube-apiserver"].Spec.Containers[0].Command[1:] {
		switch name, _, _ := strings.Cut(arg, "="); name {
		case "--etcd-cafile", "--etcd-certfile", "--etcd-keyfile":
			continue
		case "--etcd-servers":
			arg = "--etcd-servers=" + client
		}
		arg = strings.NewReplacer("/etc/kubernetes/", dir+"/etc/kubernetes/", "/var/log/", dir+"/var/log/").Replace(arg)
		args = append(args, arg)
	}
	log := run(t, apiServer, append(args, "--bind-address="+loopback)...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := health.WaitForComponent(ctx, "kube-apiserver", "https://"+c.ControlPlaneEndpoint+"/readyz", 2*time.Minute, nil); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	s := server{log: filepath.Join(dir, profile.AuditDir, "audit.log")}
	if s.rest, err = clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "etc/kubernetes/super-admin.conf")); err != nil {
		t.Fatal(err)
	}
	s.rest.WarningHandler = rest.NoWarnings{}
	if s.client, err = kubernetes.NewForConfig(s.rest); err != nil {
		t.Fatal(err)
	}
	return s
}

// run starts a program until the test ends, and returns its output.
func run(t *testing.T, program string, args ...string) *bytes.Buffer {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return &log
}

// events returns the events of the audit log.
func (s server) events(t *testing.T) (list []auditEvent) {
	t.Helper()
	data, err := os.ReadFile(s.log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) {
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

type auditEvent struct {
	Level, Stage, Verb            string
	ObjectRef                     struct{ Resource, Subresource, Name string }
	RequestObject, ResponseObject json.RawMessage
}

// pod returns a pod that the level restricted accepts, with a change.
func pod(change func(*corev1.PodSpec)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a:1", SecurityContext: &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), RunAsNonRoot: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}}}}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

// namespace creates a namespace with its default ServiceAccount, which the controller manager would create.
func (s server) namespace(t *testing.T, n *corev1.Namespace) {
	t.Helper()
	if _, err := s.client.CoreV1().Namespaces().Create(t.Context(), n, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	s.account(t, n.Name, "default")
}

func (s server) account(t *testing.T, namespace, name string) {
	t.Helper()
	_, err := s.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func (s server) create(t *testing.T, namespace string, p *corev1.Pod) error {
	t.Helper()
	_, err := s.client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// TestRealServer: the real API server starts with the profile, refuses what the profile forbids, and records who read a Secret
// without its value.
func TestRealServer(t *testing.T) {
	for _, version := range oracle.Versions {
		t.Run(version, func(t *testing.T) {
			s := start(t, version)
			s.namespace(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "app"}})
			s.admission(t)
			s.audit(t)
			s.addOns(t, version)
		})
	}
}

func (s server) admission(t *testing.T) {
	if err := s.create(t, "app", pod(nil)); err != nil {
		t.Errorf("a restricted pod: %v", err)
	}
	for name, change := range map[string]func(*corev1.PodSpec){
		"privileged": func(p *corev1.PodSpec) {
			p.Containers[0].SecurityContext.Privileged, p.Containers[0].SecurityContext.AllowPrivilegeEscalation = new(true), nil
		},
		"host path": func(p *corev1.PodSpec) {
			p.Volumes = []corev1.Volume{{Name: "r", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		},
		"host network":    func(p *corev1.PodSpec) { p.HostNetwork = true },
		"as root":         func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.RunAsNonRoot = nil },
		"with privileges": func(p *corev1.PodSpec) { p.Containers[0].SecurityContext = nil },
	} {
		if err := s.create(t, "app", pod(change)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PodSecurity") {
			t.Errorf("%s: %v", name, err)
		}
		s.account(t, metav1.NamespaceSystem, "default")
		if err := s.create(t, metav1.NamespaceSystem, pod(change)); err != nil {
			t.Errorf("%s in kube-system: %v", name, err)
		}
	}
	_, err := s.client.CoreV1().Services("app").Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.ServiceSpec{
		Ports: []corev1.ServicePort{{Port: 80}}, ExternalIPs: []string{"192.0.2.1"},
	}}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a Service with an external address: %v", err)
	}
	client, err := rest.HTTPClientFor(s.rest)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Get(s.rest.Host + "/debug/pprof/")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("/debug/pprof/: %s", response.Status)
	}
}

func (s server) audit(t *testing.T) {
	ctx, api := t.Context(), s.client
	const value = "the-value-of-the-secret"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "audited"}, StringData: map[string]string{"key": value}}
	if _, err := api.CoreV1().Secrets("app").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := api.CoreV1().Secrets("app").Get(ctx, "audited", metav1.GetOptions{}); err != nil || string(got.Data["key"]) != value {
		t.Fatal(got, err)
	}
	if _, err := api.CoreV1().ConfigMaps("app").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "audited"}, Data: map[string]string{"key": value}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := api.CoreV1().ServiceAccounts("app").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token}}
	if review, err = api.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{}); err != nil || !review.Status.Authenticated {
		t.Fatal(review, err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "audited"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}
	if _, err := api.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "audited"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.CoreV1().Events("app").List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	events := s.events(t)
	for _, want := range []struct {
		verb, resource, subresource, level string
	}{
		{"create", "secrets", "", "Metadata"},
		{"get", "secrets", "", "Metadata"},
		{"create", "configmaps", "", "Metadata"},
		{"create", "serviceaccounts", "token", "Metadata"},
		{"create", "tokenreviews", "", "Metadata"},
		{"create", "clusterroles", "", "Request"},
		{"create", "nodes", "", "Request"},
		{"create", "pods", "", "Metadata"},
	} {
		i := slices.IndexFunc(events, func(e auditEvent) bool {
			return e.Verb == want.verb && e.ObjectRef.Resource == want.resource && e.ObjectRef.Subresource == want.subresource
		})
		if i < 0 {
			t.Errorf("%v: not recorded", want)
		} else if e := events[i]; e.Level != want.level || (len(e.RequestObject) > 0) != (want.level == "Request") || len(e.ResponseObject) > 0 {
			t.Errorf("%v: recorded as %s, %s", want, e.Level, e.RequestObject)
		}
	}
	for _, e := range events {
		if e.Stage == "RequestReceived" || e.ObjectRef.Resource == "events" || e.ObjectRef.Resource == "leases" {
			t.Errorf("recorded: %+v", e)
		}
	}
	log, err := os.ReadFile(s.log)
	if err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []string{value, base64.StdEncoding.EncodeToString([]byte(value)), token.Status.Token} {
		if bytes.Contains(log, []byte(hidden)) {
			t.Errorf("the audit log has %q", hidden)
		}
	}
	if info, err := os.Stat(s.log); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// addOns creates the pods of each add-on that Airlift has, in their namespaces with their labels.
func (s server) addOns(t *testing.T, version string) {
	list, err := release.AddOns(version)
	if err != nil {
		t.Fatal(err)
	}
	cfg := oracle.Cases(version)[0].Config
	var objects []runtime.Object
	for _, build := range []func(*config.Config) ([]runtime.Object, error){render.Flannel, render.KubeProxy} {
		more, err := build(cfg)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, more...)
	}
	for _, a := range list {
		text, err := addons.Objects(a)
		if err != nil {
			t.Fatal(err)
		}
		list, problems := documents.Read(text)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		for _, d := range list {
			if object, _, err := scheme.Codecs.UniversalDeserializer().Decode(d.JSON, nil, nil); err == nil { // not a CustomResourceDefinition
				objects = append(objects, object)
			}
		}
	}
	templates := 0
	for _, object := range objects {
		if n, ok := object.(*corev1.Namespace); ok {
			s.namespace(t, n)
		}
	}
	for _, object := range objects {
		var template corev1.PodTemplateSpec
		var namespace, name string
		switch o := object.(type) {
		case *appsv1.DaemonSet:
			template, namespace, name = o.Spec.Template, o.Namespace, o.Name
		case *appsv1.Deployment:
			template, namespace, name = o.Spec.Template, o.Namespace, o.Name
		default:
			continue
		}
		templates++
		if account := template.Spec.ServiceAccountName; account != "" {
			s.account(t, namespace, account)
		}
		if err := s.create(t, namespace, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: template.Labels}, Spec: template.Spec}); err != nil {
			t.Errorf("%s of %s: %v", name, namespace, err)
		}
	}
	if want := 2 + len(list); templates < want {
		t.Errorf("%d workloads, want %d", templates, want)
	}
	helper := pod(func(p *corev1.PodSpec) {
		p.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: release.VolumesDir}}}}
	})
	if err := s.create(t, "local-path-storage", helper); err != nil {
		t.Errorf("the pod that creates a volume: %v", err)
	}
}
