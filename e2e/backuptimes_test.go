//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	costs "airlift/scripts/bench/measure"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
	"airlift/scripts/oracle/upstream/components"
)

// TestBackupTimes measures one backup to a server of S3 on another host, by `etcd snapshot URL` and by hand: etcdctl, age, `rclone copyto`, and
// `rclone cat` to compare what is there. Five times each, in turns. It fails on errors only.
func TestBackupTimes(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-backuptimes", Hosts: 2})
	first, storage := s.Hosts[0], s.Hosts[1]
	copyIn := func(h *lab.Host, name, path string, err error) {
		if err == nil {
			_, err = h.CopyIn(t.Context(), path, "/usr/local/bin/"+name, 0o755)
		}
		if err != nil {
			t.Fatalf("NOTHING WAS MEASURED: %v", err)
		}
	}
	for _, name := range []string{"age", "rclone"} {
		path, err := exec.LookPath(name)
		copyIn(first, name, path, err)
	}
	path, err := components.Path(version, "etcdctl")
	copyIn(first, "etcdctl", path, err)
	path, err = components.Path(version, "versitygw")
	copyIn(storage, "versitygw", path, err)
	gauge, err := costs.BuildGauge(t.Context(), t.TempDir())
	if err == nil {
		err = costs.CopyGauge(t.Context(), gauge, first)
	}
	key, kerr := age.GenerateX25519Identity()
	if err != nil || kerr != nil {
		t.Fatal(err, kerr)
	}
	install(t, first, 0, "init")
	run(t, storage, "mkdir", "-p", "/srv/s3/backups", "/srv/metadata")
	run(t, storage, "systemd-run", "--unit", "s3", "--setenv", "ROOT_ACCESS_KEY_ID=plant", "--setenv", "ROOT_SECRET_ACCESS_KEY=c4nary-s3-secret",
		"/usr/local/bin/versitygw", "--port", ":7070", "posix", "--sidecar", "/srv/metadata", "/srv/s3")
	const config, rclone = "/root/target.yaml", "/root/rclone.conf"
	endpoint := fmt.Sprintf("http://%s:7070", storage.Addr)
	for name, text := range map[string]string{
		config: "apiVersion: airlift/v1\nkind: BackupTarget\ns3:\n  endpoint: " + endpoint + "\n  accessKey: plant\n  secretKey: c4nary-s3-secret\n",
		rclone: "[s3]\ntype = s3\nprovider = Other\nendpoint = " + endpoint + "\naccess_key_id = plant\nsecret_access_key = c4nary-s3-secret\nregion = us-east-1\nupload_cutoff = 5G\nno_check_bucket = true\n", // with its defaults, rclone 1.60 waits without an end for versitygw 1.8
	} {
		if err := first.Exec(t.Context(), strings.NewReader(text), io.Discard, io.Discard, "sh", "-c", "umask 077; cat >"+name); err != nil {
			t.Fatal(err)
		}
	}
	// 200 objects of 500 kB that zstd cannot compress.
	run(t, first, "sh", "-ec", `export KUBECONFIG=/etc/kubernetes/admin.conf; for i in $(seq 200); do head -c 375000 /dev/urandom | base64 -w 0 >/root/filling; kubectl create configmap filling-$i --from-file /root/filling >/dev/null; done`)
	byHand := fmt.Sprintf(`set -e; umask 077
etcdctl --endpoints https://127.0.0.1:2379 --cacert /etc/kubernetes/pki/etcd/ca.crt --cert /etc/kubernetes/pki/etcd/server.crt --key /etc/kubernetes/pki/etcd/server.key snapshot save /root/hand.db >/dev/null
age -r %s -o /root/hand.age /root/hand.db
rclone --config %s copyto /root/hand.age s3:backups/hand.age
test "$(rclone --config %[2]s cat s3:backups/hand.age | sha256sum | cut -c1-64)" = "$(sha256sum /root/hand.age | cut -c1-64)"
rm /root/hand.db /root/hand.age`, key.Recipient(), rclone)
	for n := range 5 {
		for _, way := range []struct {
			name string
			argv []string
		}{
			{"Airlift", []string{site.Installer, "etcd", "snapshot", "s3://backups/plant-7", "--recipient", key.Recipient().String(), "--target-config", config}},
			{"by hand", []string{"sh", "-c", byHand}},
		} {
			_, u, err := costs.Run(t.Context(), first, way.argv...)
			if err != nil {
				t.Fatal(way.name, err)
			}
			t.Logf("%s, run %d: %.1f s, processor %.1f s, %d MB", way.name, n+1, u.Wall.Seconds(), u.CPU.Seconds(), u.Memory/1e6)
			time.Sleep(1100 * time.Millisecond)
		}
	}
	t.Log(run(t, storage, "sh", "-c", "find /srv/s3/backups -type f | xargs ls -l; cat /proc/loadavg"))
}
