package registry

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testhost"
)

func TestSettings(t *testing.T) {
	s := For(testhost.Config(nil))
	if s.Listen != ":7444" || s.CertificatesDir != "/etc/kubernetes/pki" || s.Directory != "/var/lib/airlift/bundles" {
		t.Errorf("%+v", s)
	}
	files, err := s.Files()
	if err != nil || len(files) != 2 || files[0].Path != "/etc/kubernetes/registry.yaml" || files[1].Path != "/etc/systemd/system/airlift-registry.service" {
		t.Fatalf("%+v, %v", files, err)
	}
	if back, err := Decode(files[0].Data); err != nil || !reflect.DeepEqual(back, s) {
		t.Errorf("wrote %+v, read %+v, %v", s, back, err)
	}
	for _, line := range []string{"CapabilityBoundingSet=", "NoNewPrivileges=yes", "ProtectSystem=strict", "ReadWritePaths=/var/lib/airlift/bundles", "Restart=always", "WatchdogSec=30"} {
		if !strings.Contains(string(files[1].Data), "\n"+line+"\n") {
			t.Errorf("the unit has no %s", line)
		}
	}
}

func TestReadAndPrepare(t *testing.T) {
	h := testhost.Open(t, t.TempDir())
	if s, err := Read(h); s != nil || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
	s := For(testhost.Config(nil))
	for range 2 {
		if err := s.Prepare(h); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(h.Path(Directory)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info, err)
		}
		// The service fills it.
		if err := os.WriteFile(h.Path(s.KnownPath()), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !h.Records().IsClaimed(Directory) || h.Records().Claimed("the kept bundles") != Directory {
		t.Errorf("%+v", h.Records().Entries(ledger.Owned))
	}
	files, err := s.Files()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteFile(files[0].Path, files[0].Data, files[0].Mode); err != nil {
		t.Fatal(err)
	}
	if back, err := Read(h); err != nil || !reflect.DeepEqual(back, s) {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestDecodeDamaged(t *testing.T) {
	const head = "apiVersion: airlift/v1\nkind: NodeRegistry\ncertificatesDir: /pki\ndirectory: /d\nlisten: ':7444'\n"
	if _, err := Decode([]byte(head)); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"empty":           "",
		"another kind":    strings.Replace(head, "NodeRegistry", "Registry", 1),
		"another format":  strings.Replace(head, "airlift/v1", "airlift/v2", 1),
		"no port":         strings.Replace(head, "':7444'", "10.1.2.3", 1),
		"no directory":    strings.Replace(head, "directory: /d\n", "", 1),
		"relative":        strings.Replace(head, "/pki", "pki", 1),
		"a negative size": head + "cacheLimit: -1\n",
		"two documents":   head + "---\n" + head,
		"binary":          "\x00\x01\x02",
	} {
		if s, err := Decode([]byte(data)); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestUnit checks the unit with systemd's own command, which reports unknown names and values.
func TestUnit(t *testing.T) {
	analyze := rig.Tool(t, "systemd-analyze")
	files, err := For(testhost.Config(nil)).Files()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), Unit)
	text := strings.ReplaceAll(string(files[1].Data), host.CommandPath, "/bin/true") // this machine has no installer
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "verify", "--man=no", "--generators=no", file).CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, Unit) {
			t.Errorf("systemd reports: %s", line)
		}
	}
}
