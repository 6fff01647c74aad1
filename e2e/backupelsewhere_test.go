//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"airlift/scripts/lab"
	"airlift/scripts/oracle/upstream/components"
)

// TestBackupElsewhere backs up a control plane to a server of S3 and to a server of SFTP on another host by the timer, switches
// the target off and on, destroys the control plane, and restores it from the URL on a fresh host. The steps depend on each other.
func TestBackupElsewhere(t *testing.T) {
	gateway, err := components.Path("v1.37.1", "versitygw")
	if err != nil {
		t.Fatalf("NOTHING WAS TESTED: %v", err)
	}
	s := up(t, lab.Options{Name: "e2e-elsewhere", Hosts: 3, SSH: true})
	first, storage, fresh := s.Hosts[0], s.Hosts[1], s.Hosts[2]
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	const (
		s3secret = "c4nary-s3-secret-0815"
		config   = "/root/target.yaml"
		bucket   = "s3://backups/plant-7"
		service  = "airlift-backup.service"
		// The service would start again after 15 minutes, and systemd limits how often it is started.
		fails = "! systemctl start " + service + " && { systemctl stop " + service + "; systemctl reset-failed " + service + " 2>/dev/null; true; }"
	)
	s3config := fmt.Sprintf("apiVersion: airlift/v1\nkind: BackupTarget\ns3:\n  endpoint: http://%s:7070\n  accessKey: plant\n  secretKey: %s\n", storage.Addr, s3secret)
	dir := fmt.Sprintf("sftp://backup@%s/srv/sftp/plant-7", storage.Addr)
	var sftpConfig, sftpKey, hash string
	write := func(t *testing.T, h *lab.Host, name, text string) {
		t.Helper()
		if err := h.Exec(t.Context(), strings.NewReader(text), io.Discard, io.Discard, "sh", "-c", "umask 077; cat >"+name); err != nil {
			t.Fatal(err)
		}
	}
	startS3 := func(t *testing.T) {
		t.Helper()
		run(t, storage, "systemd-run", "--unit", "s3", "--setenv", "ROOT_ACCESS_KEY_ID=plant", "--setenv", "ROOT_SECRET_ACCESS_KEY="+s3secret,
			"/usr/local/bin/versitygw", "--port", ":7070", "posix", "--sidecar", "/srv/metadata", "/srv/s3")
		eventually(t, time.Minute, func() string {
			if _, err := first.Output(t.Context(), "bash", "-c", fmt.Sprintf("</dev/tcp/%s/7070", storage.Addr)); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	stored := func(t *testing.T, where string) int {
		return strings.Count(run(t, storage, "ls", where), "airlift-backup-")
	}
	const inS3, inSFTP = "/srv/s3/backups/plant-7", "/srv/sftp/plant-7"
	steps := []struct {
		name string
		test func(t *testing.T)
	}{
		{"a cluster, and servers of S3 and SFTP", func(t *testing.T) {
			install(t, first, 0, "init")
			kubectl(t, s, "create", "configmap", "saved", "--from-literal=word=kept")
			if _, err := storage.CopyIn(t.Context(), gateway, "/usr/local/bin/versitygw", 0o755); err != nil {
				t.Fatal(err)
			}
			run(t, storage, "mkdir", "-p", inS3, "/srv/metadata", inSFTP)
			write(t, storage, inS3+"/notes.txt", "of the site")
			startS3(t)
			run(t, storage, "sh", "-ec", `sed -i '/^Subsystem/d' /etc/ssh/sshd_config; echo 'Subsystem sftp internal-sftp' >>/etc/ssh/sshd_config; systemctl restart ssh
				useradd --create-home --shell /bin/sh backup 2>/dev/null || usermod --home /home/backup --shell /bin/sh backup; mkdir -p /home/backup/.ssh
				ssh-keygen -q -t ed25519 -N '' -f /root/backup-key; cp /root/backup-key.pub /home/backup/.ssh/authorized_keys
				chown -R backup /home/backup /srv/sftp; chmod 700 /home/backup /home/backup/.ssh`)
			sftpKey = run(t, storage, "cat", "/root/backup-key")
			sftpConfig = "apiVersion: airlift/v1\nkind: BackupTarget\nsftp:\n  hostKey: " + strings.TrimSpace(run(t, storage, "cat", "/etc/ssh/ssh_host_ed25519_key.pub")) +
				"\n  privateKey: |\n    " + strings.ReplaceAll(strings.TrimSpace(sftpKey), "\n", "\n    ") + "\n"
		}},
		{"mistakes send nothing", func(t *testing.T) {
			write(t, first, config, s3config)
			contains(t, install(t, first, 2, "etcd", "snapshot", bucket, "--target-config", config), "not encrypted", "--recipient")
			contains(t, install(t, first, 2, "etcd", "snapshot", bucket, "--recipient", key.Recipient().String()), "--target-config")
			run(t, first, "chmod", "644", config)
			contains(t, install(t, first, 2, "etcd", "snapshot", bucket, "--recipient", key.Recipient().String(), "--target-config", config), "other users", "chmod 600")
			run(t, first, "chmod", "600", config)
			contains(t, install(t, first, 1, "etcd", "snapshot", "s3://no-such-bucket", "--recipient", key.Recipient().String(), "--target-config", config), "does not exist")
			if n := stored(t, inS3); n != 0 {
				t.Errorf("%d backups", n)
			}
		}},
		{"one backup, and a timer", func(t *testing.T) {
			out := install(t, first, 0, "etcd", "snapshot", bucket, "--recipient", key.Recipient().String(), "--target-config", config)
			_, hash, _ = strings.Cut(out, "--ca-cert-hash ")
			hash, _, _ = strings.Cut(hash, "\n")
			contains(t, install(t, first, 0, "etcd", "snapshot", bucket, "--every", "6h", "--keep", "2", "--recipient", key.Recipient().String(), "--target-config", config), "airlift-backup.timer")
			run(t, first, "rm", config) // the timer has its own
			for range 2 {
				time.Sleep(1100 * time.Millisecond)
				run(t, first, "systemctl", "start", service)
			}
			if n := stored(t, inS3); n != 3 { // two of the timer, and the one without it
				t.Errorf("%d backups", n)
			}
			contains(t, run(t, storage, "cat", inS3+"/notes.txt"), "of the site")
			contains(t, install(t, first, 0, "etcd", "status"), "left this host for "+bucket, "waiting here: 0")
		}},
		{"the target is off, and on again", func(t *testing.T) {
			run(t, storage, "systemctl", "stop", "s3")
			for range 2 {
				run(t, first, "sh", "-c", fails)
			}
			contains(t, install(t, first, 0, "etcd", "status"), "failed: ", "connection refused", "waiting here: 1")
			if n := strings.Count(run(t, first, "ls", "/var/lib/airlift-backups/waiting"), "airlift-backup-"); n != 1 {
				t.Errorf("%d backups wait", n)
			}
			kubectl(t, s, "create", "configmap", "saved-later", "--from-literal=word=kept")
			startS3(t)
			run(t, first, "systemctl", "start", service)
			contains(t, install(t, first, 0, "etcd", "status"), "waiting here: 0")
			if n := stored(t, inS3); n != 3 {
				t.Errorf("%d backups", n)
			}
			run(t, first, "sh", "-c", "test -z \"$(ls /var/lib/airlift-backups/waiting)\"")
		}},
		{"no secret is where it must not be", func(t *testing.T) {
			found := run(t, first, "sh", "-c", `airlift doctor /root/doctor.tar.gz >/root/doctor.txt 2>&1; mkdir /root/doctor && tar -C /root/doctor -xf /root/doctor.tar.gz || true
				journalctl --no-pager >/root/doctor/journal; cat /proc/[0-9]*/cmdline >/root/doctor/arguments; kubectl --kubeconfig /etc/kubernetes/admin.conf get configmaps,secrets -A -o yaml >/root/doctor/objects
				cp -r /etc/systemd/system /var/lib/airlift /var/lib/airlift-backups /root/doctor/; grep -r -l -a -e `+strings.Replace(s3secret, "secret", "secre[t]", 1)+` /root/doctor /root/doctor.txt /etc/systemd /var/log || true
				rm -r /root/doctor`)
			if found != "" {
				t.Errorf("the secret is in: %s", found)
			}
		}},
		{"a timer for SFTP", func(t *testing.T) {
			write(t, first, config, sftpConfig)
			install(t, first, 0, "etcd", "snapshot", dir, "--every", "6h", "--keep", "2", "--recipient", key.Recipient().String(), "--target-config", config)
			run(t, storage, "systemctl", "stop", "ssh")
			run(t, first, "sh", "-c", fails)
			run(t, storage, "systemctl", "start", "ssh")
			run(t, first, "systemctl", "start", service)
			if n := stored(t, inSFTP); n != 2 {
				t.Errorf("%d backups", n)
			}
			contains(t, install(t, first, 0, "etcd", "list", dir, "--target-config", config), "REVISION", first.Name)
		}},
		{"the control plane is lost, and restored from the URL", func(t *testing.T) {
			if err := first.PowerCut(t.Context()); err != nil {
				t.Fatal(err)
			}
			write(t, fresh, config, sftpConfig)
			write(t, fresh, "/root/key", key.String()+"\n")
			before := untouched(t, fresh)
			contains(t, install(t, fresh, 2, "etcd", "restore", dir, "--target-config", config), "--identity")
			write(t, fresh, "/root/wrong", strings.Replace(sftpConfig, "ssh-ed25519 AAAA", "ssh-ed25519 AAAB", 1))
			install(t, fresh, 2, "etcd", "restore", dir, "--target-config", "/root/wrong", "--identity", "/root/key")
			contains(t, install(t, fresh, 2, "etcd", "restore", dir, "--target-config", config, "--identity", "/root/key", "--ca-cert-hash", "sha256:"+strings.Repeat("0", 64)), "no backup of this cluster")
			// The newest backup is damaged at the target.
			newest := strings.TrimSpace(run(t, storage, "sh", "-c", "ls "+inSFTP+" | sort | tail -n 1"))
			run(t, storage, "sh", "-c", fmt.Sprintf("cp -p %[1]s/%[2]s /root/ && printf X | dd of=%[1]s/%[2]s bs=1 seek=300000 conv=notrunc", inSFTP, newest))
			contains(t, install(t, fresh, 4, "etcd", "restore", dir, "--target-config", config, "--identity", "/root/key"), "damaged")
			run(t, storage, "cp", "-p", "/root/"+newest, inSFTP+"/"+newest)
			same(t, before, untouched(t, fresh))
			install(t, fresh, 0, "etcd", "restore", dir, "--target-config", config, "--identity", "/root/key", "--ca-cert-hash", hash)
			for _, name := range []string{"saved", "saved-later"} {
				if got := kubectlAt(t, fresh, "get", "configmap", name, "-o", "jsonpath={.data.word}"); got != "kept" {
					t.Errorf("the ConfigMap %s has %q", name, got)
				}
			}
		}},
		{"reset forgets the target and keeps what is there", func(t *testing.T) {
			install(t, fresh, 0, "etcd", "snapshot", dir, "--every", "6h", "--recipient", key.Recipient().String(), "--target-config", config)
			n := stored(t, inSFTP)
			install(t, fresh, 0, "reset", "--force")
			run(t, fresh, "sh", "-c", "! test -e /etc/kubernetes/airlift-backup-target.yaml && ! test -e /etc/systemd/system/airlift-backup.timer && ! test -e /var/lib/airlift")
			if after := stored(t, inSFTP); after != n || n < 3 {
				t.Errorf("%d backups, and %d after the reset", n, after)
			}
		}},
	}
	for _, step := range steps {
		if !t.Run(step.name, step.test) {
			diagnose(t, s)
			t.FailNow()
		}
	}
}
