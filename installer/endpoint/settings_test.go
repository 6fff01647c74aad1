package endpoint

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testhost"
)

// settingsOf returns the settings of a node of a cluster.
func settingsOf(t *testing.T, e config.Endpoint, controlPlane bool, servers ...string) *Settings {
	t.Helper()
	s, err := For(testhost.Config(func(c *config.Config) { c.Endpoint = e }), controlPlane, servers...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFor(t *testing.T) {
	vip := config.Endpoint{VIPs: []string{"10.1.2.100", "fd00::100"}}
	balancer := config.Endpoint{Balancer: true}
	both := config.Endpoint{Balancer: true, VIPs: vip.VIPs}
	for _, c := range []struct {
		name             string
		endpoint         config.Endpoint
		controlPlane     bool
		needed           bool
		balancer         string
		vips             int
		apiServer, needs string
	}{
		{"nothing", config.Endpoint{}, true, false, "", 0, "", ""},
		{"a worker has no virtual address", vip, false, false, "", 0, "", ""},
		{"a control plane with virtual addresses", vip, true, true, "", 2, "10.1.2.3:6443", "CAP_NET_ADMIN CAP_NET_RAW"},
		{"a worker with a balancer", balancer, false, true, "127.0.0.1:7443", 0, "", ""},
		{"a control plane with a balancer", balancer, true, true, "127.0.0.1:7443", 0, "10.1.2.3:6443", ""},
		{"a worker with both", both, false, true, "127.0.0.1:7443", 0, "", ""},
		{"a control plane with both", both, true, true, "127.0.0.1:7443", 2, "10.1.2.3:6443", "CAP_NET_ADMIN CAP_NET_RAW"},
	} {
		s := settingsOf(t, c.endpoint, c.controlPlane, "10.1.2.3:6443", "10.1.2.4:6443")
		if (s != nil) != c.needed {
			t.Errorf("%s: %+v", c.name, s)
		}
		if s == nil {
			continue
		}
		if s.Balancer != c.balancer || len(s.VIPs) != c.vips || s.APIServer != c.apiServer || len(s.ControlPlanes) != 2 || s.CertificatesDir != "/etc/kubernetes/pki" {
			t.Errorf("%s: %+v", c.name, s)
		}
		files, err := s.Files()
		if err != nil || len(files) != 2 || files[0].Path != "/etc/kubernetes/endpoint.yaml" || files[1].Path != "/etc/systemd/system/airlift-endpoint.service" {
			t.Fatalf("%s: %+v, %v", c.name, files, err)
		}
		if back, err := Decode(files[0].Data); err != nil || !reflect.DeepEqual(back, s) {
			t.Errorf("%s: wrote %+v, read %+v, %v", c.name, s, back, err)
		}
		if !strings.Contains(string(files[1].Data), "\nCapabilityBoundingSet="+c.needs+"\n") {
			t.Errorf("%s: its capabilities are not %q:\n%s", c.name, c.needs, files[1].Data)
		}
	}
}

func TestForAnotherAddress(t *testing.T) {
	c := testhost.Config(nil)
	c.Endpoint.VIPs = []string{"k8s.example.org"}
	if s, err := For(c, true); err == nil || !strings.Contains(err.Error(), "k8s.example.org") {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestDecodeDamaged(t *testing.T) {
	for name, data := range map[string]string{
		"empty":          "",
		"another kind":   "apiVersion: airlift/v1\nkind: Endpoint\n",
		"another format": "apiVersion: airlift/v2\nkind: NodeEndpoint\n",
		"cut":            "apiVersion: airlift/v1\nkind: NodeEndpoint\nvips: [10.1.",
		"no address":     "apiVersion: airlift/v1\nkind: NodeEndpoint\nvips: [k8s.example.org]\n",
		"two documents":  "apiVersion: airlift/v1\nkind: NodeEndpoint\n---\nbalancer: 127.0.0.1:7443\n",
		"binary":         "\x00\x01\x02",
	} {
		if s, err := Decode([]byte(data)); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestUnit checks the unit with systemd's own command, which reports unknown names and values.
func TestUnit(t *testing.T) {
	analyze := rig.Tool(t, "systemd-analyze")
	for name, e := range map[string]config.Endpoint{
		"balancer": {Balancer: true},
		"vip":      {VIPs: []string{"10.1.2.100"}},
	} {
		files, err := settingsOf(t, e, true).Files()
		if err != nil {
			t.Fatal(err)
		}
		verify := func(text string) string {
			t.Helper()
			file := filepath.Join(t.TempDir(), Unit)
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(analyze, "verify", "--man=no", "--generators=no", file)
			cmd.Env = append(os.Environ(), "SYSTEMD_LOG_COLOR=0")
			out, err := cmd.CombinedOutput()
			if err != nil && len(out) == 0 {
				t.Fatal(err)
			}
			var about []string // the unit, and not a unit of this machine
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, Unit) {
					about = append(about, line)
				}
			}
			return strings.Join(about, "")
		}
		text := strings.ReplaceAll(string(files[1].Data), host.CommandPath, "/bin/true") // this machine has no installer
		if out := verify(text); out != "" {
			t.Errorf("%s: systemd reports:\n%s", name, out)
		}
		for _, wrong := range []string{"WatchdogSec=soon", "Type=notfy", "Restrat=always"} {
			if out := verify(text + "\n[Service]\n" + wrong + "\n"); out == "" {
				t.Errorf("%s: systemd accepts %s", name, wrong)
			}
		}
	}
}
