package secrets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/cluster/health"
	"airlift/installer/etcd"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/port"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testcluster"
)

func TestMain(m *testing.M) { testcluster.Main(m) }

// A server is a real API server with its own file of keys.
type server struct {
	*ControlPlane
	version, prefix, file string
	port                  int
	process               *exec.Cmd
}

// realSite is a Cluster of real API servers and a real etcd. Other servers follow when the test lets them.
type realSite struct {
	*ControlPlane
	t        *testing.T
	cluster  *testcluster.ControlPlane
	servers  []*server
	prefix   string
	followed []bool
	left     int // operations until the run is killed; negative: never
	touched  int
}

func startSite(t *testing.T, version string, servers int) *realSite {
	p := testcluster.Start(t)
	s := &realSite{t: t, cluster: p, prefix: "/registry-" + t.Name() + version, followed: make([]bool, servers), left: -1}
	for i, n := range testcluster.Must(port.Free(servers))(t) {
		one := &server{version: version, prefix: s.prefix, port: n, file: filepath.Join(t.TempDir(), "secrets.yaml")}
		client := testcluster.Must(cluster.Load(p.Super, fmt.Sprintf("127.0.0.1:%d", n)))(t)
		one.ControlPlane = &ControlPlane{Machine: node.NewMachine(nil, &workflow.Console{Out: io.Discard}), Client: client, Kubeconfig: p.Super}
		s.servers, s.followed[i] = append(s.servers, one), true
		one.write(t, &Keys{Plain: true})
		s.restart(one, "readyz")
	}
	s.ControlPlane = s.servers[0].ControlPlane
	return s
}

func (s *server) write(t *testing.T, k *Keys) {
	t.Helper()
	if err := os.WriteFile(s.file, k.Text(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// restart starts an API server with its file, and waits until a check succeeds.
func (s *realSite) restart(one *server, check string) {
	s.t.Helper()
	if one.process != nil {
		_ = one.process.Process.Kill()
		_ = one.process.Wait()
	}
	pki := func(name string) string { return filepath.Join(s.cluster.Config.CertificatesDir, name) }
	log := testcluster.Must(os.Create(one.file + ".log"))(s.t)
	defer log.Close()
	one.process = exec.Command(rig.Component(s.t, one.version, "kube-apiserver"),
		"--etcd-servers="+s.cluster.EtcdURL, "--etcd-prefix="+one.prefix,
		"--endpoint-reconciler-type=none", fmt.Sprintf("--secure-port=%d", one.port), "--bind-address=127.0.0.1", "--authorization-mode=RBAC",
		"--client-ca-file="+pki("ca.crt"), "--tls-cert-file="+pki("apiserver.crt"), "--tls-private-key-file="+pki("apiserver.key"),
		"--service-account-key-file="+pki("sa.pub"), "--service-account-signing-key-file="+pki("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local", "--service-cluster-ip-range=10.96.0.0/12",
		"--"+providerFlag+"="+one.file, "--"+reloadFlag+"=true")
	one.process.Stderr, one.process.SysProcAttr = log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := one.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	process := one.process
	s.t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
	if err := health.WaitForComponent(s.t.Context(), "kube-apiserver", fmt.Sprintf("https://127.0.0.1:%d/%s", one.port, check), 3*time.Minute, nil); err != nil {
		text, _ := os.ReadFile(one.file + ".log")
		s.t.Fatalf("%v\n%s", err, text[max(0, len(text)-3000):])
	}
}

// readable fails if a server cannot read Secrets: one that it cannot decrypt breaks the list.
func (s *realSite) readable() {
	s.t.Helper()
	for i, one := range s.servers {
		if _, err := one.Client.API.CoreV1().Secrets("").List(s.t.Context(), metav1.ListOptions{Limit: 5000}); err != nil {
			s.t.Fatalf("server %d cannot list Secrets: %v", i, err)
		}
	}
}

func (s *realSite) step() error {
	if s.left == 0 {
		return errKilled
	}
	s.left--
	return nil
}

func (s *realSite) Keys() (*Keys, error) {
	data, err := os.ReadFile(s.servers[0].file)
	if err != nil {
		return nil, err
	}
	k, err := Parse(data)
	return k, errors.Join(err, s.step())
}

func (s *realSite) Behind(context.Context) (names []string, err error) {
	for i, is := range s.followed {
		if !is {
			names = append(names, fmt.Sprint("server", i))
		}
	}
	return names, s.step()
}

func (s *realSite) Walk(ctx context.Context, visit func(string, []byte)) error {
	client, err := etcd.Connect(ctx, []string{s.cluster.EtcdURL}, nil, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	err = client.Walk(ctx, s.prefix+"/secrets/", func(key string, value []byte) bool { visit(key, value); return false })
	return errors.Join(err, s.step())
}

func (s *realSite) Touch(ctx context.Context, names []string) error {
	if s.left == 0 { // killed in the middle of a page
		names = names[:len(names)/2]
	}
	s.touched += len(names)
	err := s.ControlPlane.Touch(ctx, names)
	return errors.Join(err, s.step())
}

func (s *realSite) Change(_ context.Context, k *Keys) error {
	if err := s.step(); err != nil {
		return err
	}
	s.servers[0].write(s.t, k)
	s.restart(s.servers[0], "readyz")
	for i := range s.followed {
		s.followed[i] = i == 0
	}
	s.readable()
	return s.step()
}

func (s *realSite) Resume(context.Context) error { return nil }

// follow gives the file of the first server to the others.
func (s *realSite) follow() {
	for i, one := range s.servers {
		if s.followed[i] {
			continue
		}
		data := testcluster.Must(os.ReadFile(s.servers[0].file))(s.t)
		if err := os.WriteFile(one.file, data, 0o600); err != nil {
			s.t.Fatal(err)
		}
		s.restart(one, "readyz")
		s.followed[i] = true
		s.readable()
	}
}

// reach repeats a command. Each run is killed one operation later than the one before.
func (s *realSite) reach(g Goal, kill bool) {
	s.t.Helper()
	for run := 0; run < 60; run++ {
		if s.left = -1; kill {
			s.left = run
		}
		err := Run(s.t.Context(), s, g, &workflow.Console{Out: io.Discard})
		switch {
		case err == nil:
			s.follow()
			return
		case errors.Is(err, errKilled):
			s.readable()
		case fault.ExitCode(err) == fault.Waiting:
			s.follow()
		default:
			s.t.Fatal(err)
		}
	}
	s.t.Fatalf("%s does not end", g)
}

func (s *server) keys() (*Keys, error) {
	data, err := os.ReadFile(s.file)
	if err != nil {
		return nil, err
	}
	return Parse(data)
}

func (s *realSite) create(namespace string, n int) {
	s.t.Helper()
	work := make(chan int)
	var running sync.WaitGroup
	for w := range 16 {
		running.Go(func() {
			for i := range work {
				_, err := s.servers[w%len(s.servers)].Client.API.CoreV1().Secrets(namespace).Create(s.t.Context(), &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", i)}, StringData: map[string]string{"value": fmt.Sprintf("canary-%d", i)}}, metav1.CreateOptions{})
				if err != nil {
					s.t.Error(err)
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	running.Wait()
}

// scan returns how etcd stores the Secrets, and fails if a value is plain that must not be.
func (s *realSite) scan(k *Keys) *Scan {
	s.t.Helper()
	s.left = -1
	scan, canary := NewScan(k), false
	if err := s.Walk(s.t.Context(), func(key string, value []byte) {
		scan.Add(key, value)
		canary = canary || strings.Contains(string(value), "canary-")
	}); err != nil {
		s.t.Fatal(err)
	}
	if want := k.Writes() == ""; canary != want {
		s.t.Errorf("the values can be read in etcd: %t, want %t", canary, want)
	}
	return scan
}

// TestRealRotation: with two API servers of v1.37.1 and 2,000 Secrets, each run of each command is killed. Afterwards all values of etcd
// are under the new key, and both servers read them all.
func TestRealRotation(t *testing.T) {
	const secrets = 2000
	s := startSite(t, "v1.37.1", 2)
	s.create("default", secrets)
	s.reach(Enable, true)
	k := testcluster.Must(s.servers[1].keys())(t)
	scan := s.scan(k)
	if scan.Total != secrets || len(scan.Stale)+len(scan.Unreadable) > 0 {
		t.Fatalf("enabled: %d Secrets, %v, not readable: %v", scan.Total, scan.By, scan.Unreadable)
	}
	s.touched = 0
	s.reach(Rotate, true)
	rotated := testcluster.Must(s.servers[1].keys())(t)
	scan = s.scan(rotated)
	if len(rotated.Active) != 1 || rotated.Active[0] == k.Active[0] || !slices.Contains(rotated.Retired, k.Active[0]) ||
		scan.Total != secrets || len(scan.Stale)+len(scan.Unreadable) > 0 || scan.By["secretbox "+rotated.Active[0].Name] != secrets {
		t.Errorf("rotated: %v, %v, not readable: %v", names(rotated.Active), scan.By, scan.Unreadable)
	}
	t.Logf("%d writes for %d Secrets", s.touched, secrets)
	for i := range 20 { // the contents are the same
		got := testcluster.Must(s.servers[i%2].Client.API.CoreV1().Secrets("default").Get(t.Context(), fmt.Sprintf("s%d", i*99), metav1.GetOptions{}))(t)
		if want := fmt.Sprintf("canary-%d", i*99); string(got.Data["value"]) != want {
			t.Errorf("%s has %q", got.Name, got.Data["value"])
		}
	}
	// The server reports the sum of its file.
	data := testcluster.Must(os.ReadFile(s.servers[1].file))(t)
	if sum := testcluster.Must(s.servers[1].loaded(t.Context(), fmt.Sprintf("127.0.0.1:%d", s.servers[1].port)))(t); sum != sha256Of(data) {
		t.Errorf("the API server reports %s, and its file has %s", sum, sha256Of(data))
	}
}

// TestRealOldVersion: v1.29.15 encrypts, rotates and stops as v1.37.1. A Secret that another key with the same name has encrypted is found,
// as the API server does.
func TestRealOldVersion(t *testing.T) {
	s := startSite(t, "v1.29.15", 1)
	s.create("default", 40)
	for _, g := range []Goal{Enable, Rotate, Disable, Enable} {
		s.reach(g, false)
		k := testcluster.Must(s.servers[0].keys())(t)
		if scan := s.scan(k); scan.Total != 40 || len(scan.Stale)+len(scan.Unreadable) > 0 {
			t.Fatalf("%s: %v, not readable: %v", g, scan.By, scan.Unreadable)
		}
	}
	k := testcluster.Must(s.servers[0].keys())(t)
	wrong := *k
	wrong.Active = []Key{{Name: k.Active[0].Name, Secret: [32]byte{7}}}
	s.servers[0].write(t, &wrong)
	s.restart(s.servers[0], "livez") // it is never ready: its own caches cannot list Secrets
	_, err := s.servers[0].Client.API.CoreV1().Secrets("default").Get(t.Context(), "s1", metav1.GetOptions{})
	scan := s.scan(&wrong)
	if err == nil || len(scan.Unreadable) != 40 || !strings.Contains(scan.Unreadable[0], k.Active[0].Name) {
		t.Errorf("the API server: %v; the scan: %q", err, scan.Unreadable)
	}
	t.Logf("the API server: %v; the scan: %s", err, scan.Unreadable[0])
}
