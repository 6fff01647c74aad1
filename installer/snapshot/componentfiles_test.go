package snapshot

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/backup"
	"airlift/installer/config"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testhost"
)

// TestFilesOfComponents: a backup has the files that the flags of the control plane name.
func TestFilesOfComponents(t *testing.T) {
	const keys, policy, plugin = "/etc/site/keys.yaml", "/srv/audit.yaml", "/etc/kubernetes/pki/plugin.yaml"
	h, cfg := testhost.ControlPlane(t, func(c *config.Config) {
		c.APIServer.ExtraVolumes = []config.HostPathMount{
			{Name: "site", HostPath: "/etc/site", MountPath: "/conf"},
			{Name: "audit", HostPath: policy, MountPath: "/audit/policy.yaml"},
			{Name: "log", HostPath: "/var/log/audit", MountPath: "/log"},
		}
		c.APIServer.ExtraArgs = []config.Arg{
			{Name: "encryption-provider-config", Value: "/conf/keys.yaml"},
			{Name: "audit-policy-file", Value: "/audit/policy.yaml"},
			{Name: "audit-log-path", Value: "/log/audit.log"},
			{Name: "admission-control-config-file", Value: plugin},
			{Name: "service-account-key-file", Value: "/etc/kubernetes/pki/sa.pub"},
			{Name: "tls-cert-file", Value: "/conf/../../etc/shadow"},
		}
	})
	for _, file := range []string{keys, policy, plugin, "/var/log/audit/audit.log", "/etc/site/other", "/etc/kubernetes/pki/sa.pub", "/etc/shadow"} {
		if err := os.MkdirAll(filepath.Dir(h.Path(file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.Path(file), []byte(file), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b := New(h, &workflow.Console{Out: new(bytes.Buffer)})
	files, err := b.componentFiles(&cfg.Cluster, []backup.File{{Name: "pki/sa.pub"}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
		if path := strings.TrimPrefix(f.Name, "files"); string(f.Data) != path {
			t.Errorf("%s has the data of %s", f.Name, f.Data)
		}
	}
	if got := strings.Join(names, " "); got != "files/etc/kubernetes/pki/plugin.yaml files/etc/site/keys.yaml files/srv/audit.yaml" {
		t.Errorf("the backup has %s", got)
	}
}
