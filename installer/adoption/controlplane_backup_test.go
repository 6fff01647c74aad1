package adoption_test

import (
	"strings"
	"testing"

	"airlift/installer/adoption"
)

// TestBackupOfManifest checks that the only hint moves the backup, not the manifest of the component.
func TestBackupOfManifest(t *testing.T) {
	for _, name := range []string{"kube-apiserver-backup.yaml", "kube-apiserver.bak.yaml", "kube-apiserver.2026-05-01.yaml", "kube-apiserver.yaml.bak", "z.yaml"} {
		l := base()
		l.Files["/etc/kubernetes/manifests/"+name] = l.Files[apiserver]
		var hints []string
		for _, r := range adoption.Recognise(l.Input()).Refusals {
			if r.Name == "StaticPods" {
				hints = append(hints, r.Hint)
			}
		}
		if len(hints) != 1 || !strings.HasSuffix(hints[0], "mv /etc/kubernetes/manifests/"+name+" /root/") {
			t.Errorf("%s: %q", name, hints)
		}
	}
}
