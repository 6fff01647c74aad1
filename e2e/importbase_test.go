//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	"airlift/scripts/fixtures/siteregistry"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// killAtSnapshot runs the import and kills it when containerd has a snapshot more.
const killAtSnapshot = `
count() { ctr -n k8s.io snapshots ls | wc -l; }
before=$(count)
/root/more import --base /root/install >/root/import.log 2>&1 &
while kill -0 $! 2>/dev/null && test "$(count)" = "$before"; do :; done
kill -9 $! && echo killed
wait
true`

// removeImage removes an image with all of its names, and what only it needs.
const removeImage = `digest=$(ctr -n k8s.io images ls "name==$0" | awk 'NR == 2 {print $3}')
ctr -n k8s.io images rm --sync $(ctr -n k8s.io images ls -q "target.digest==$digest")`

// imageState is what containerd has of images.
const imageState = `ctr -n k8s.io images ls -q | sort; ctr -n k8s.io content ls -q | sort; ctr -n k8s.io snapshots ls | sort; ctr -n k8s.io leases ls -q`

// TestImportBase imports an image whose lower layers are only in the base: on a node without
// them, which is refused and then reads them from the base, killed and run again, and on a node
// that has the base.
func TestImportBase(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-base", Hosts: 1})
	h := s.Hosts[0]
	image, err := site.WorkloadImage(version)
	if err != nil {
		t.Fatal(err)
	}
	registry := siteregistry.Start(t, siteregistry.Options{Auth: "token"})
	later := buildAdditional(t, registry, imageInBundle(t, image), aLayer, *bundlePath)
	if _, err := h.CopyIn(t.Context(), later.path, "/root/more", 0o755); err != nil {
		t.Fatal(err)
	}
	has := func(t *testing.T) bool {
		return strings.Contains(run(t, h, "ctr", "-n", "k8s.io", "images", "ls", "-q"), later.image)
	}
	runs := func(t *testing.T) {
		t.Helper()
		contains(t, more(t, h, 0, "apply"), "later: 1 object")
		eventually(t, time.Minute, func() string {
			ready := kubectl(t, s, "get", "-n", "web", "daemonset", "later", "-o", "jsonpath={.status.numberReady}")
			if ready != "1" {
				return "pods that are ready: " + ready
			}
			return ""
		})
		pod := kubectl(t, s, "get", "-n", "web", "pods", "-l", "app=later", "-o", "jsonpath={.items[0].metadata.name}")
		contains(t, kubectl(t, s, "exec", "-n", "web", strings.TrimSpace(pod), "--", "cat", "/later.txt"), "only the additional bundle")
		kubectl(t, s, "delete", "-n", "web", "daemonset", "later", "--wait", "--cascade=foreground")
	}
	for _, step := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"init", func(t *testing.T) {
			install(t, h, 0, "init")
			kubectl(t, s, "create", "namespace", "web")
		}},
		{"a node without the layers refuses and changes nothing", func(t *testing.T) {
			run(t, h, "sh", "-c", removeImage, image)
			before := run(t, h, "sh", "-c", imageState)
			contains(t, more(t, h, 3, "import"), "this file leaves out layers that this node does not have", "import --base FILE")
			same(t, before, run(t, h, "sh", "-c", imageState))
		}},
		{"killed and run again with the base", func(t *testing.T) {
			contains(t, run(t, h, "sh", "-c", killAtSnapshot), "killed")
			if has(t) {
				t.Error("the image was complete before the kill")
			}
			contains(t, more(t, h, 0, "import", "--base", "/root/install"), later.image, "2 images imported")
			contains(t, more(t, h, 0, "import"), "Nothing to do")
			runs(t)
		}},
		{"a node with the base needs no base", func(t *testing.T) {
			eventually(t, time.Minute, func() string { // the kubelet removes the container later
				if out := run(t, h, "ctr", "-n", "k8s.io", "containers", "ls"); strings.Contains(out, later.image) {
					return "containers: " + out
				}
				return ""
			})
			run(t, h, "sh", "-c", removeImage, later.image)
			run(t, h, "sh", "-c", removeImage, image) // the additional bundle has it, too
			contains(t, install(t, h, 0, "import"), image)
			contains(t, more(t, h, 0, "import"), later.image, "1 image imported")
			runs(t)
		}},
		{"reset", func(t *testing.T) { install(t, h, 0, "reset", "--force") }},
	} {
		if !t.Run(step.name, step.test) {
			diagnose(t, s)
			t.FailNow()
		}
	}
}
