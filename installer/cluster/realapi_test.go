package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/scripts/rig"
	"airlift/scripts/upstream/components"
)

// realVersion is the Kubernetes version that these tests run against.
const realVersion = "v1.29.15"

// documentationAddress belongs to no host (RFC 5737).
const documentationAddress = "192.0.2.10"

// controlPlane is a real etcd and API server on loopback, and on demand a
// controller manager. All of them end with the test binary.
type controlPlane struct {
	dir   string
	cfg   *config.Config
	port  int
	etcd  string // URL
	admin string // kubeconfigs
	super string
	kcm   string
	audit string

	processes []*exec.Cmd
	kcmOnce   sync.Once
}

var (
	realOnce sync.Once
	real     *controlPlane
	realErr  error
)

func TestMain(m *testing.M) {
	code := m.Run()
	if real != nil {
		real.stop()
	}
	os.Exit(code)
}

// realCluster starts the control plane once for all tests.
func realCluster(t *testing.T) *controlPlane {
	t.Helper()
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		rig.Component(t, realVersion, name)
	}
	realOnce.Do(func() { real, realErr = startControlPlane() })
	if realErr != nil {
		t.Fatal(realErr)
	}
	return real
}

func startControlPlane() (*controlPlane, error) {
	dir, err := os.MkdirTemp("", "airlift-cluster-test-")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	p := &controlPlane{
		dir: dir, port: ports[0],
		admin: filepath.Join(dir, "etc/kubernetes/admin.conf"),
		super: filepath.Join(dir, "etc/kubernetes/super-admin.conf"),
		kcm:   filepath.Join(dir, "etc/kubernetes/controller-manager.conf"),
		audit: filepath.Join(dir, "audit.log"),
		cfg: &config.Config{
			CNI: "flannel",
			// kubeadm refuses to advertise loopback. No client uses this
			// address.
			LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: documentationAddress, BindPort: int32(ports[0])},
			Facts:            config.Facts{Hostname: "cp1", NodeIP: documentationAddress, CgroupVersion: 2, CgroupDriver: "systemd"},
		},
	}
	p.cfg.KubernetesVersion = realVersion
	p.cfg.ControlPlaneEndpoint = p.endpoint()
	p.cfg.APIServer.CertSANs = []string{"localhost"}
	p.cfg.CompleteInit()
	if err := p.makeFiles(); err != nil {
		return p, err
	}
	// The other components need the real directory of their certificates.
	p.cfg.CertificatesDir = filepath.Join(dir, config.CertificatesDir)
	pkiFile := func(name string) string { return filepath.Join(p.cfg.CertificatesDir, name) }

	etcdURL := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	p.etcd = etcdURL
	peerURL := fmt.Sprintf("http://127.0.0.1:%d", ports[2])
	if err := p.start("etcd",
		"--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=default="+peerURL,
		"--log-level=warn"); err != nil {
		return p, err
	}
	policy := filepath.Join(dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		return p, err
	}
	if err := p.start("kube-apiserver",
		"--etcd-servers="+etcdURL,
		"--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", p.port), "--bind-address=127.0.0.1",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth=true", "--allow-privileged=true",
		"--runtime-config=resource.k8s.io/v1alpha2=true", // for TestRealFeatures
		"--client-ca-file="+pkiFile("ca.crt"), "--tls-cert-file="+pkiFile("apiserver.crt"), "--tls-private-key-file="+pkiFile("apiserver.key"),
		"--service-account-key-file="+pkiFile("sa.pub"), "--service-account-signing-key-file="+pkiFile("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local", "--service-cluster-ip-range=10.96.0.0/12",
		"--audit-policy-file="+policy, "--audit-log-path="+p.audit, "--audit-log-mode=blocking"); err != nil {
		return p, err
	}
	super, err := Load(p.super, "")
	if err != nil {
		return p, err
	}
	if err := super.Waits().WaitForAPI(context.Background(), time.Minute, nil); err != nil {
		return p, fmt.Errorf("%w\n%s", err, p.log("kube-apiserver"))
	}
	return p, nil
}

// makeFiles writes certificates and kubeconfigs below p.dir.
func (p *controlPlane) makeFiles() error {
	certs, err := pki.Ensure(p.cfg, os.DirFS(p.dir), time.Now())
	if err != nil {
		return err
	}
	host := pki.Overlay(os.DirFS(p.dir), certs.Files...)
	kubeconfigs, err := pki.Kubeconfigs(p.cfg, host, time.Now())
	if err != nil {
		return err
	}
	for _, file := range append(certs.Files, kubeconfigs.Files...) {
		path := filepath.Join(p.dir, file.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		data := bytes.ReplaceAll(file.Data, []byte(documentationAddress), []byte("127.0.0.1"))
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// controllerManager starts the real controller manager on first use. It signs
// cluster-info and CSRs.
func (p *controlPlane) controllerManager(t *testing.T) {
	t.Helper()
	p.kcmOnce.Do(func() {
		ca := filepath.Join(p.cfg.CertificatesDir, "ca")
		if err := p.start("kube-controller-manager",
			"--kubeconfig="+p.kcm, "--leader-elect=false", "--secure-port=0",
			"--controllers=bootstrapsigner,tokencleaner,csrapproving,csrsigning,garbagecollector",
			"--cluster-signing-cert-file="+ca+".crt", "--cluster-signing-key-file="+ca+".key",
			"--use-service-account-credentials=true"); err != nil {
			t.Fatal(err)
		}
	})
}

func (p *controlPlane) start(name string, args ...string) error {
	program, err := components.Path(realVersion, name)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(p.dir, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	dieWithTest(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	p.processes = append(p.processes, cmd)
	return nil
}

func (p *controlPlane) stop() {
	for i := len(p.processes) - 1; i >= 0; i-- {
		p.processes[i].Process.Kill()
		p.processes[i].Wait()
	}
	os.RemoveAll(p.dir)
}

// log returns the end of a process's output.
func (p *controlPlane) log(name string) string {
	data, _ := os.ReadFile(filepath.Join(p.dir, name+".log"))
	if len(data) > 4000 {
		data = data[len(data)-4000:]
	}
	return string(data)
}

func (p *controlPlane) endpoint() string { return fmt.Sprintf("127.0.0.1:%d", p.port) }

// client returns a client with the rights of system:masters.
func (p *controlPlane) client(t *testing.T) *Client {
	t.Helper()
	c, err := Load(p.super, "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// writes runs do and returns Airlift's writes during that time, from the API
// server's audit log: "create secrets kube-system/x".
func (p *controlPlane) writes(t *testing.T, do func()) (seen []string) {
	t.Helper()
	file, err := os.Open(p.audit)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Seek(0, 2); err != nil {
		t.Fatal(err)
	}
	do()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb, UserAgent string
			ObjectRef       struct{ Resource, Namespace, Name string }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		if event.UserAgent != userAgent {
			continue
		}
		switch event.Verb {
		case "get", "list", "watch":
		default:
			seen = append(seen, strings.TrimSpace(event.Verb+" "+event.ObjectRef.Resource+" "+qualified(event.ObjectRef.Namespace, event.ObjectRef.Name)))
		}
	}
	return seen
}

// twice calls do two times. The first call must write, the second must not.
func (p *controlPlane) twice(t *testing.T, do func() (changed bool)) {
	t.Helper()
	var changed bool
	if first := p.writes(t, func() { changed = do() }); len(first) == 0 || !changed {
		t.Errorf("first run wrote %q and says changed=%t", first, changed)
	}
	if second := p.writes(t, func() { changed = do() }); len(second) > 0 || changed {
		t.Errorf("second run wrote %q and says changed=%t", second, changed)
	}
}

func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
