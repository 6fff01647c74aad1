//go:build e2e

package e2e

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
)

// olderEtcd makes the etcd of a host one of an older minor version, by name: then an upgrade replaces it
// by another minor version.
const olderEtcd = `set -e
manifest=/etc/kubernetes/manifests/etcd.yaml
image=$(sed -n 's/^ *image: *//p' $manifest)
tag=${image##*:}
minor=${tag#*.}
minor=${minor%%.*}
older=${image%:*}:${tag%%.*}.$((minor-1)).99-0
ctr -n k8s.io images tag $image $older
former=$(pgrep -x etcd)
sed "s|$image|$older|" $manifest >/root/etcd.yaml
cat /root/etcd.yaml >$manifest
until now=$(pgrep -x etcd) && test "$now" != "$former"; do sleep 0.5; done
until kubectl --kubeconfig /etc/kubernetes/admin.conf get --raw /readyz; do sleep 0.5; done
`

// slowEtcd makes an upgrade give up on an etcd, however fast that starts: its readiness probe asks for a path
// that etcd does not have, and the timeout is short.
const slowEtcd = `mkdir -p /root/slow && cat >/root/slow/etcd+json.json <<END
[{"op": "add", "path": "/spec/containers/0/readinessProbe", "value": {"httpGet": {"host": "127.0.0.1", "port": 2381, "path": "/never", "scheme": "HTTP"}}}]
END
cat >/root/slow.yaml <<END
apiVersion: kubeadm.k8s.io/v1beta4
kind: UpgradeConfiguration
apply: {patches: {directory: /root/slow}}
timeouts: {upgradeManifests: 5s}
END`

// TestUpgradeWayBack upgrades etcd to another minor version, which cannot be undone, and returns with
// the commands that undo prints: reset, and a restore of the backup that the upgrade saved. The steps
// depend on each other.
func TestUpgradeWayBack(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-wayback", Hosts: 1})
	h := s.Hosts[0]
	to := carryNewer(t, h)
	const backups = "/var/lib/airlift-backups"
	manifest := func(t *testing.T) string { return run(t, h, "cat", "/etc/kubernetes/manifests/etcd.yaml") }
	keys := func(t *testing.T) string {
		return run(t, h, "sh", "-c", "cd /etc/kubernetes/pki && sha256sum ca.key etcd/ca.key front-proxy-ca.key sa.key")
	}
	var older, cas, stub string
	backup := regexp.MustCompile(`\./FILE etcd restore (` + backups + `/\S+\.tar);`)
	var file string
	inOrder(t, s, []stage{
		{"a cluster with an older etcd", func(t *testing.T) {
			install(t, h, 0, "init")
			systemIsUp(t, s, 1)
			run(t, h, "sh", "-c", olderEtcd)
			older, cas = manifest(t), keys(t)
			stub = run(t, h, "sha256sum", "/usr/local/bin/airlift")
			kubectl(t, s, "create", "configmap", "before")
		}},
		{"etcd is healthy too late", func(t *testing.T) {
			run(t, h, "sh", "-c", slowEtcd)
			out := newer(t, h, 1, "upgrade", "apply", "--yes", "--config", "/root/slow.yaml")
			contains(t, out, "replacing etcd", "its previous manifest is not restored", "run the same command again", "./FILE reset --force", "./FILE etcd restore "+backups)
			if now := manifest(t); now == older {
				t.Errorf("the older etcd is restored over the new data:\n%s", now)
			}
			contains(t, newer(t, h, 3, "upgrade", "undo", "--yes"), "cannot be undone", "./FILE etcd restore "+backups)
			contains(t, run(t, h, "sh", "-c", "stat -c '%a %U' "+backups+" "+backups+"/*.tar"), "700 root\n600 root\n")
		}},
		{"the same command finishes", func(t *testing.T) {
			newer(t, h, 0, "upgrade", "apply", "--yes")
			systemIsUp(t, s, 1)
			if got := kubectl(t, s, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"); got != to {
				t.Errorf("kubelet: %s", got)
			}
			t.Logf("the installer of this host's units: %s before, %s now", stub, run(t, h, "sha256sum", "/usr/local/bin/airlift"))
		}},
		{"another apply keeps the backup", func(t *testing.T) {
			before := run(t, h, "sh", "-c", "sha256sum "+backups+"/*")
			run(t, h, "sh", "-c", `mkdir -p /root/patches && printf '%s' '[{"op":"add","path":"/spec/containers/0/command/-","value":"--v=3"}]' >/root/patches/kube-scheduler+json.json`)
			newer(t, h, 0, "upgrade", "apply", "--yes", "--patches", "/root/patches")
			newer(t, h, 0, "upgrade", "apply", "--yes")
			same(t, before, run(t, h, "sh", "-c", "sha256sum "+backups+"/*"))
			kubectl(t, s, "create", "configmap", "after")
			m := backup.FindStringSubmatch(newer(t, h, 3, "upgrade", "undo", "--yes"))
			if m == nil {
				t.Fatal("no command that restores the backup")
			}
			file = m[1]
		}},
		{"the commands that undo prints", func(t *testing.T) {
			contains(t, install(t, h, 0, "reset", "--force"), "left: "+backups)
			install(t, h, 0, "etcd", "restore", file)
			systemIsUp(t, s, 1)
			if got := kubectl(t, s, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"); got != version {
				t.Errorf("kubelet: %s", got)
			}
			if got := kubectl(t, s, "get", "configmaps", "-o", "name"); !strings.Contains(got, "configmap/before") || strings.Contains(got, "configmap/after") {
				t.Errorf("the cluster has %s", got)
			}
			same(t, cas, keys(t))
			same(t, stub, run(t, h, "sha256sum", "/usr/local/bin/airlift"))
		}},
		{"the upgrade again, and its undo", func(t *testing.T) {
			newer(t, h, 0, "upgrade", "apply", "--yes")
			systemIsUp(t, s, 1)
			newer(t, h, 0, "upgrade", "undo", "--yes")
			eventually(t, time.Minute, func() string {
				if got := kubectl(t, s, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"); got != version {
					return "kubelet: " + got
				}
				return ""
			})
			systemIsUp(t, s, 1)
			same(t, stub, run(t, h, "sha256sum", "/usr/local/bin/airlift"))
			if n := run(t, h, "sh", "-c", "ls "+backups+" | wc -l"); strings.TrimSpace(n) != "2" {
				t.Errorf("%s backups", n)
			}
		}},
	})
}
