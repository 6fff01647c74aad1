package join

import (
	"bytes"
	"os"
	"path"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"airlift/installer/cluster/discovery"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// joining returns a host that is about to become another control plane, with
// the cluster's shared certificates in place. It also returns the cluster's CA.
func joining(t *testing.T, version string) (*controlPlaneJoin, []byte) {
	t.Helper()
	cfg := &config.Config{Facts: config.Facts{Hostname: "two", NodeIP: "10.1.2.4", CgroupDriver: "systemd"}, ControlPlane: true}
	cfg.KubernetesVersion, cfg.ControlPlaneEndpoint = version, "k8s.site.example:6443"
	cfg.CompleteInit()
	first := *cfg
	first.ControlPlane = false
	made, err := pki.Ensure(&first, fstest.MapFS{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.OpenDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := newControlPlaneJoin(&phases.Plan{Role: phases.NextControlPlane, Bundle: new(payload.Bundle), Config: cfg}, node.NewMachine(h, &workflow.Console{Out: new(bytes.Buffer)}))
	var ca []byte
	for _, f := range made.Files {
		switch base := strings.TrimPrefix(f.Path, cfg.CertificatesDir+"/"); base {
		case "ca.crt":
			ca = f.Data
			fallthrough
		case "ca.key", "sa.key", "sa.pub", "front-proxy-ca.crt", "front-proxy-ca.key", "etcd/ca.crt", "etcd/ca.key":
			if err := n.Write(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n, ca
}

func TestReadyForAControlPlane(t *testing.T) {
	n, ca := joining(t, "v1.29.15")
	found := &discovery.Cluster{CA: ca}
	if err := n.certs.checkReady(found); err != nil {
		t.Errorf("with all in place: %v", err)
	}

	_, other := joining(t, "v1.29.15")
	if err := n.certs.checkReady(&discovery.Cluster{CA: append(other, ca...)}); err != nil {
		t.Errorf("a cluster that has an old CA and a new one: %v", err)
	}
	err := n.certs.checkReady(&discovery.Cluster{CA: other})
	if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "/etc/kubernetes/pki/ca.crt is not the CA") {
		t.Errorf("another cluster's certificates: %v", err)
	}

	hashes, _ := pki.CAHashes(ca)
	n.node.Config.Discovery.CACertHashes = []string{"sha256:" + strings.Repeat("0", 64)}
	if hint := fault.Hint(n.certs.checkReady(&discovery.Cluster{CA: other})); !strings.Contains(hint, "--discovery-token-ca-cert-hash "+hashes[0]) {
		t.Errorf("the hint does not say how to trust this CA too: %s", hint)
	}

	for _, name := range []string{"sa.key", "front-proxy-ca.crt"} {
		if err := os.Remove(n.Host.Path(path.Join(n.node.Config.CertificatesDir, name))); err != nil {
			t.Fatal(err)
		}
	}
	err = n.certs.checkReady(found)
	if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "sa.key") || !strings.Contains(err.Error(), "front-proxy-ca.crt") ||
		!strings.Contains(fault.Hint(err), "--certificate-key") {
		t.Errorf("two files are missing: %v; hint %q", err, fault.Hint(err))
	}
	n.node.Config.CertificateKey = strings.Repeat("ab", 32)
	if err := n.certs.checkReady(found); err != nil {
		t.Errorf("they will be downloaded: %v", err)
	}

	n.node.Config.ControlPlaneEndpoint = ""
	if err := n.certs.checkReady(found); err == nil || !strings.Contains(err.Error(), "controlPlaneEndpoint") || fault.Hint(err) == "" {
		t.Errorf("a cluster for one control plane only: %v", err)
	}
}

func TestControlPlanesHaveOneVersion(t *testing.T) {
	n, _ := joining(t, "v1.29.15")
	if err := n.checkVersion("v1.29.15"); err != nil {
		t.Error(err)
	}
	for _, v := range []string{"v1.29.14", "v1.30.0", "v1.28.15"} {
		if err := n.checkVersion(v); fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), v) {
			t.Errorf("%s: %v, hint %q", v, err, fault.Hint(err))
		}
	}
}

// TestBootstrapServer: the kubelet requests its certificate at the address that
// the user gave. In versions where a control plane's kubelet uses the local API
// server, it requests it there.
func TestBootstrapServer(t *testing.T) {
	for version, want := range map[string]string{
		"v1.29.15": "https://10.1.2.100:6443",
		"v1.37.1":  "https://10.1.2.4:6443",
	} {
		n, ca := joining(t, version)
		const vip = "https://10.1.2.100:6443"
		n.nodeJoin.cluster = &joinedCluster{found: &discovery.Cluster{Server: vip, CA: ca, Kubeconfig: pki.BootstrapKubeconfig(vip, ca, "abcdef.0123456789abcdef")}}
		files, err := n.nodeJoin.bootstrapFiles()
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Write(files...); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(n.Host.Path(node.BootstrapConf))
		if err != nil || !strings.Contains(string(data), "server: "+want+"\n") || !strings.Contains(string(data), "abcdef.0123456789abcdef") {
			t.Errorf("%s: %v\n%s", version, err, data)
		}
	}
}
