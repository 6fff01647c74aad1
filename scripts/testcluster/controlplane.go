// Package testcluster runs a real etcd and API server, and has fake clients, for the tests of installer/cluster.
// It does not use the client that they test.
package testcluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"airlift/installer/cluster/health"
	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/scripts/rig"
	"airlift/scripts/upstream/components"
)

// Version is the Kubernetes version that these tests run against.
const Version = "v1.29.15"

// DocumentationAddress belongs to no host (RFC 5737).
const DocumentationAddress = "192.0.2.10"

// ControlPlane is a real etcd and API server on loopback, and on demand a
// controller manager. All of them end with the test binary.
type ControlPlane struct {
	Config  *config.Config
	Dir     string // the root of the files that init would write
	EtcdURL string
	Port    int
	Admin   string // the path of admin.conf
	Super   string // that of super-admin.conf

	kcm, audit string
	processes  []*exec.Cmd
	kcmOnce    sync.Once
}

var (
	realOnce sync.Once
	real     *ControlPlane
	realErr  error
)

// Start returns the control plane, which it starts once for all tests of a package. Main ends it.
func Start(t *testing.T) *ControlPlane {
	t.Helper()
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		rig.Component(t, Version, name)
	}
	realOnce.Do(func() { real, realErr = start() })
	if realErr != nil {
		t.Fatal(realErr)
	}
	return real
}

func start() (*ControlPlane, error) {
	dir, err := os.MkdirTemp("", "airlift-cluster-test-")
	if err != nil {
		return nil, err
	}
	ports, err := FreePorts(3)
	if err != nil {
		return nil, err
	}
	p := &ControlPlane{
		Dir: dir, Port: ports[0],
		Admin: filepath.Join(dir, "etc/kubernetes/admin.conf"),
		Super: filepath.Join(dir, "etc/kubernetes/super-admin.conf"),
		kcm:   filepath.Join(dir, "etc/kubernetes/controller-manager.conf"),
		audit: filepath.Join(dir, "audit.log"),
		Config: &config.Config{
			CNI: "flannel",
			// kubeadm refuses to advertise loopback. No client uses this
			// address.
			LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: DocumentationAddress, BindPort: int32(ports[0])},
			Facts:            config.Facts{Hostname: "cp1", NodeIP: DocumentationAddress, CgroupVersion: 2, CgroupDriver: "systemd"},
		},
	}
	p.Config.KubernetesVersion = Version
	p.Config.ControlPlaneEndpoint = p.Endpoint()
	p.Config.APIServer.CertSANs = []string{"localhost"}
	p.Config.CompleteInit()
	if err := p.makeFiles(); err != nil {
		return p, err
	}
	// The other components need the real directory of their certificates.
	p.Config.CertificatesDir = filepath.Join(dir, config.CertificatesDir)
	pkiFile := func(name string) string { return filepath.Join(p.Config.CertificatesDir, name) }

	etcdURL := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	p.EtcdURL = etcdURL
	peerURL := fmt.Sprintf("http://127.0.0.1:%d", ports[2])
	if err := p.run("etcd",
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
	if err := p.run("kube-apiserver",
		"--etcd-servers="+etcdURL,
		"--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", p.Port), "--bind-address=127.0.0.1",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth=true", "--allow-privileged=true",
		"--runtime-config=resource.k8s.io/v1alpha2=true", // for TestRealFeatures
		"--client-ca-file="+pkiFile("ca.crt"), "--tls-cert-file="+pkiFile("apiserver.crt"), "--tls-private-key-file="+pkiFile("apiserver.key"),
		"--service-account-key-file="+pkiFile("sa.pub"), "--service-account-signing-key-file="+pkiFile("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local", "--service-cluster-ip-range=10.96.0.0/12",
		"--audit-policy-file="+policy, "--audit-log-path="+p.audit, "--audit-log-mode=blocking"); err != nil {
		return p, err
	}
	if err := health.WaitForComponent(context.Background(), "kube-apiserver", "https://"+p.Endpoint()+"/readyz", time.Minute, nil); err != nil {
		return p, fmt.Errorf("%w\n%s", err, p.log("kube-apiserver"))
	}
	return p, nil
}

// makeFiles writes certificates and kubeconfigs below p.Dir.
func (p *ControlPlane) makeFiles() error {
	for _, build := range []func(*config.Config, fs.FS, time.Time, ...string) (pki.Result, error){pki.Ensure, pki.Kubeconfigs} {
		made, err := build(p.Config, os.DirFS(p.Dir), time.Now())
		if err != nil {
			return err
		}
		for _, file := range made.Files {
			path := filepath.Join(p.Dir, file.Path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			data := bytes.ReplaceAll(file.Data, []byte(DocumentationAddress), []byte("127.0.0.1"))
			if err := os.WriteFile(path, data, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// ControllerManager starts the real controller manager on first use. It signs
// cluster-info and CSRs.
func (p *ControlPlane) ControllerManager(t *testing.T) {
	t.Helper()
	p.kcmOnce.Do(func() {
		ca := filepath.Join(p.Config.CertificatesDir, "ca")
		if err := p.run("kube-controller-manager",
			"--kubeconfig="+p.kcm, "--leader-elect=false", "--secure-port=0",
			"--controllers=bootstrapsigner,tokencleaner,csrapproving,csrsigning,garbagecollector",
			"--cluster-signing-cert-file="+ca+".crt", "--cluster-signing-key-file="+ca+".key",
			"--use-service-account-credentials=true"); err != nil {
			t.Fatal(err)
		}
	})
}

func (p *ControlPlane) run(name string, args ...string) error {
	program, err := components.Path(Version, name)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(p.Dir, name+".log"))
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

func (p *ControlPlane) stop() {
	for i := len(p.processes) - 1; i >= 0; i-- {
		p.processes[i].Process.Kill()
		p.processes[i].Wait()
	}
	os.RemoveAll(p.Dir)
}

// log returns the end of a process's output.
func (p *ControlPlane) log(name string) string {
	data, _ := os.ReadFile(filepath.Join(p.Dir, name+".log"))
	if len(data) > 4000 {
		data = data[len(data)-4000:]
	}
	return string(data)
}

func (p *ControlPlane) Endpoint() string { return fmt.Sprintf("127.0.0.1:%d", p.Port) }

// Writes runs do and returns Airlift's writes during that time, from the API
// server's audit log: "create secrets kube-system/x".
func (p *ControlPlane) Writes(t *testing.T, do func()) (seen []string) {
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
		if event.UserAgent != "airlift-install" {
			continue
		}
		switch event.Verb {
		case "get", "list", "watch":
		default:
			seen = append(seen, strings.TrimSpace(event.Verb+" "+event.ObjectRef.Resource+" "+strings.TrimPrefix(event.ObjectRef.Namespace+"/"+event.ObjectRef.Name, "/")))
		}
	}
	return seen
}

// Twice calls do two times. The first call Must write, the second Must not.
func (p *ControlPlane) Twice(t *testing.T, do func() (changed bool)) {
	t.Helper()
	var changed bool
	if first := p.Writes(t, func() { changed = do() }); len(first) == 0 || !changed {
		t.Errorf("first run wrote %q and says changed=%t", first, changed)
	}
	if second := p.Writes(t, func() { changed = do() }); len(second) > 0 || changed {
		t.Errorf("second run wrote %q and says changed=%t", second, changed)
	}
}

// Main runs the tests of a package, and ends the control plane.
func Main(m *testing.M) {
	code := m.Run()
	if real != nil {
		real.stop()
	}
	os.Exit(code)
}

// dieWithTest makes the kernel kill cmd when the test binary ends, for whatever
// reason.
func dieWithTest(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// FreePorts returns free TCP ports of 127.0.0.1.
func FreePorts(n int) (ports []int, err error) {
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
