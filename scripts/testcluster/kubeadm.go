package testcluster

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"airlift/scripts/rig"
)

// Kubeadm runs real kubeadm against the cluster.
func (p *ControlPlane) Kubeadm(t *testing.T, args ...string) string {
	t.Helper()
	program := rig.Component(t, Version, "kubeadm")
	if args[0] != "join" {
		args = append(args, "--kubeconfig", p.Super)
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

// KubeadmConfig writes a file with which kubeadm configures this cluster as
// Airlift does.
func (p *ControlPlane) KubeadmConfig(t *testing.T, certificateKey string) string {
	t.Helper()
	return WriteYAML(t,
		map[string]any{
			"apiVersion": "kubeadm.k8s.io/v1beta3", "kind": "InitConfiguration",
			"localAPIEndpoint": map[string]any{"advertiseAddress": DocumentationAddress, "bindPort": p.Port},
			"nodeRegistration": map[string]any{"name": "cp1", "criSocket": "unix:///run/containerd/containerd.sock"},
			"certificateKey":   certificateKey,
			"bootstrapTokens":  []any{map[string]any{"token": "kubadm.0123456789abcdef"}},
		},
		map[string]any{
			"apiVersion": "kubeadm.k8s.io/v1beta3", "kind": "ClusterConfiguration",
			"kubernetesVersion": Version, "certificatesDir": p.Config.CertificatesDir,
			"controlPlaneEndpoint": p.Config.ControlPlaneEndpoint,
			"networking":           map[string]any{"podSubnet": p.Config.Networking.PodSubnet.String()},
			"apiServer":            map[string]any{"certSANs": p.Config.APIServer.CertSANs},
		},
	)
}

// WriteYAML writes documents to a file and returns its path.
func WriteYAML(t *testing.T, docs ...any) string {
	t.Helper()
	var file []byte
	for _, doc := range docs {
		file = append(append(file, "---\n"...), Must(yaml.Marshal(doc))(t)...)
	}
	path := filepath.Join(t.TempDir(), "kubeadm.yaml")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
