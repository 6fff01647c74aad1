//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// encryption writes a configuration of init with which the API server encrypts Secrets in etcd.
const encryption = `mkdir -p /etc/site && key=$(head -c 32 /dev/urandom | base64) && umask 077 && cat >/etc/site/keys.yaml <<END
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources: [{resources: [secrets], providers: [{aescbc: {keys: [{name: one, secret: $key}]}}]}]
END
cat >/root/init.yaml <<END
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
apiServer:
  extraArgs: [{name: encryption-provider-config, value: /etc/site/keys.yaml}]
  extraVolumes: [{name: site, hostPath: /etc/site, mountPath: /etc/site, readOnly: true}]
END
`

// TestEtcdBackup creates a cluster with a worker, saves a backup, destroys all its control
// planes, and restores it on a host with another name and address. The steps depend on each
// other.
func TestEtcdBackup(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-backup", Hosts: 3})
	first, second, third := s.Hosts[0], s.Hosts[1], s.Hosts[2]
	var backup, objects, hash string
	const file = "/root/cluster.tar"
	steps := []struct {
		name string
		test func(t *testing.T)
	}{
		{"a cluster with objects", func(t *testing.T) {
			run(t, first, "sh", "-c", encryption)
			join, err := site.JoinArgs(install(t, first, 0, "init", "--config", "/root/init.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			install(t, second, 0, join...)
			files := hostState(t, first)
			contains(t, install(t, first, 3, "init"), "apiServer.extraArgs: encryption-provider-config", "apiServer.extraVolumes: site", "--config")
			same(t, files, hostState(t, first))
			kubectl(t, s, "create", "secret", "generic", "sealed", "--from-literal=word=kept")
			run(t, first, "sh", "-c", `export KUBECONFIG=/etc/kubernetes/admin.conf; for i in $(seq 50); do
				printf -- '---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: saved-%s, namespace: default}\ndata: {n: "%s"}\n' $i $i; done | kubectl apply -f - >/dev/null`)
			s.Nodes = 2
			if _, err := s.Deploy(t.Context(), version); err != nil {
				t.Fatal(err)
			}
		}},
		{"status, defrag and a backup", func(t *testing.T) {
			contains(t, install(t, first, 0, "etcd", "status"), first.Name, "leader", "healthy", "Last backup on this host: none")
			contains(t, install(t, first, 0, "etcd", "defrag"), first.Name)
			install(t, second, 1, "etcd", "snapshot", file)
			saved := install(t, first, 0, "etcd", "snapshot", file)
			contains(t, saved, "keys at revision", "verified")
			_, hash, _ = strings.Cut(strings.TrimSpace(saved), "--ca-cert-hash ")
			contains(t, install(t, first, 2, "etcd", "snapshot", file), "exists", "--force")
			contains(t, install(t, first, 0, "etcd", "status"), file, hash)
			run(t, first, "sh", "-c", "ln -s /var/lib/airlift /root/state && mkdir /mnt/state && mount --bind /var/lib/airlift /mnt/state")
			for _, dir := range []string{"/var/lib/airlift", "/root/state", "/mnt/state", "/var/lib/etcd", "/etc/kubernetes", "/var/lib/kubelet"} {
				contains(t, install(t, first, 2, "etcd", "snapshot", dir+"/cluster.tar"), "would be lost")
				contains(t, install(t, first, 2, "etcd", "snapshot", dir, "--every", "6h"), "would be lost")
			}
			run(t, first, "sh", "-c", "umount /mnt/state; rm -r /mnt/state /root/state; ! test -e /var/lib/airlift/cluster.tar")
			contains(t, run(t, first, "sh", "-c", "stat -c %a "+file+"; tar -tf "+file), "600\n", "manifest.json\n", "pki/ca.key\n", "config/kubeadm.yaml\n", "files/etc/site/keys.yaml\n", "etcd/snapshot.db\n")
			kubectl(t, s, "create", "configmap", "too-late")
			objects = kubectl(t, s, "get", "configmaps,deployments,services,serviceaccounts,secrets", "-A", "--no-headers", "-o", "custom-columns=KIND:.kind,NS:.metadata.namespace,NAME:.metadata.name,UID:.metadata.uid")
			backup = run(t, first, "cat", file)
			contains(t, install(t, first, 3, "etcd", "restore", file), "part of a cluster", "/root/install reset")
		}},
		{"a timer", func(t *testing.T) {
			run(t, first, "mkdir", "/root/backups")
			contains(t, install(t, first, 0, "etcd", "snapshot", "/root/backups", "--every", "6h", "--keep", "2"), "airlift-backup.timer")
			contains(t, run(t, first, "systemctl", "list-timers", "--all"), "airlift-backup.timer")
			for range 2 {
				time.Sleep(1100 * time.Millisecond)
				run(t, first, "systemctl", "start", "airlift-backup.service")
			}
			if n := strings.Count(run(t, first, "ls", "/root/backups"), "airlift-backup-"); n != 2 {
				t.Errorf("%d backups", n)
			}
			contains(t, install(t, first, 2, "etcd", "snapshot", "/root/backups", "--every", "7h"), "divide", "6h")
			// The drive is gone, and its empty directory remains.
			run(t, first, "sh", "-c", "mkdir /mnt/drive && mount -t tmpfs drive /mnt/drive")
			install(t, first, 0, "etcd", "snapshot", "/mnt/drive", "--every", "24h")
			contains(t, run(t, first, "systemctl", "show", "airlift-backup.timer", "--property", "TimersCalendar,Persistent"), "*-*-* 00:00:00 UTC", "Persistent=yes")
			run(t, first, "sh", "-c", "umount /mnt/drive; ! systemctl start airlift-backup.service; test -z \"$(ls /mnt/drive)\"")
			contains(t, install(t, first, 0, "etcd", "status"), "no file system is mounted at /mnt/drive")
			contains(t, install(t, first, 0, "etcd", "snapshot", "--every", "off"), "removed")
			run(t, first, "sh", "-c", "! test -e /etc/systemd/system/airlift-backup.timer && ! test -e /etc/systemd/system/airlift-backup.service")
		}},
		{"all hosts of the cluster are lost", func(t *testing.T) {
			for _, h := range []*lab.Host{first, second} {
				if err := h.PowerCut(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := third.Exec(t.Context(), strings.NewReader(backup), io.Discard, io.Discard, "sh", "-c", "cat >"+file); err != nil {
				t.Fatal(err)
			}
		}},
		{"bad files change nothing", func(t *testing.T) {
			before := untouched(t, third)
			run(t, third, "sh", "-c", "head -c 100000 "+file+" >/root/short; yes text | head -c 5000 >/root/text; cp "+file+" /root/bit; printf X | dd of=/root/bit bs=1 seek=300000 conv=notrunc")
			contains(t, install(t, third, 4, "etcd", "restore", "/root/short"), "ends early")
			contains(t, install(t, third, 2, "etcd", "restore", "/root/text"), "not an Airlift backup")
			contains(t, install(t, third, 4, "etcd", "restore", "/root/bit"), "damaged")
			contains(t, install(t, third, 2, "etcd", "restore", "/root/missing"), "no such file")
			contains(t, install(t, third, 3, "etcd", "restore", file, "--ca-cert-hash", "sha256:"+strings.Repeat("0", 64)), "another cluster")
			same(t, before, untouched(t, third))
			run(t, third, "sh", "-c", "mkdir -p /etc/kubernetes/pki && openssl req -x509 -newkey rsa:2048 -nodes -keyout /dev/null -subj /CN=other -out /etc/kubernetes/pki/ca.crt")
			contains(t, install(t, third, 3, "etcd", "restore", file), "another cluster")
			run(t, third, "rm", "-r", "/etc/kubernetes")
			same(t, before, untouched(t, third))
		}},
		{"restore on a host with another name and address", func(t *testing.T) {
			// A run that was killed before it had etcd's data.
			run(t, third, "sh", "-c", "/root/install etcd restore "+file+" >/dev/null 2>&1 & pid=$!; mark=/var/lib/airlift/restore.json; while kill -0 $pid && ! test -e $mark; do sleep 0.01; done; kill -KILL $pid; wait; test -e $mark")
			contains(t, install(t, third, 3, "init"), "a restore on this host is not finished", "/root/install etcd restore "+file, "/root/install reset")
			out := install(t, third, 0, "etcd", "restore", file, "--ca-cert-hash", hash)
			contains(t, out, "removed node "+first.Name, "kept worker "+second.Name, "keys at revision")
			got := kubectlAt(t, third, "get", "configmaps,deployments,services,serviceaccounts,secrets", "-A", "--no-headers", "-o", "custom-columns=KIND:.kind,NS:.metadata.namespace,NAME:.metadata.name,UID:.metadata.uid")
			have := map[string]bool{}
			for line := range strings.Lines(got) {
				have[strings.Join(strings.Fields(line), " ")] = true
			}
			found, missing := 0, []string{}
			for line := range strings.Lines(objects) {
				fields := strings.Join(strings.Fields(line), " ")
				switch {
				case have[fields]:
					found++
				case !strings.Contains(fields, "too-late") && !strings.Contains(fields, "bootstrap-token"):
					missing = append(missing, fields)
				}
			}
			t.Logf("%d objects are there again, with their UIDs", found)
			if len(missing) > 0 || found < 60 {
				t.Errorf("%d found, missing: %v", found, missing)
			}
			if got := kubectlAt(t, third, "get", "secret", "sealed", "-o", "jsonpath={.data.word}"); got != "a2VwdA==" {
				t.Errorf("the encrypted Secret has %q", got)
			}
			if strings.Contains(got, "too-late") {
				t.Error("an object is there that was created after the backup")
			}
			contains(t, kubectlAt(t, third, "get", "nodes", "-o", "name"), third.Name)
			contains(t, kubectlAt(t, third, "-n", "kube-public", "get", "configmap", "cluster-info", "-o", "yaml"), third.Addr.String())
			contains(t, install(t, third, 3, "etcd", "restore", file), "part of a cluster")
			contains(t, install(t, third, 0, "etcd", "status"), third.Name, "leader")
		}},
		{"the workload runs again on a worker that joins", func(t *testing.T) {
			if err := second.Boot(t.Context()); err != nil {
				t.Fatal(err)
			}
			install(t, second, 0, "reset", "--force")
			kubectlAt(t, third, "delete", "node", second.Name)
			join, err := site.JoinArgs(install(t, third, 0, "token", "create", "--print-join-command"))
			if err != nil {
				t.Fatal(err)
			}
			install(t, second, 0, join...)
			eventually(t, 3*time.Minute, func() string {
				out, err := kubectlTry(t.Context(), third, "get", "deployments,daemonsets", "-A", "--no-headers", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.readyReplicas}{.status.numberReady} {.status.replicas}{.status.desiredNumberScheduled}{"\n"}{end}`)
				if err != nil {
					return err.Error()
				}
				for line := range strings.Lines(out) {
					if f := strings.Fields(line); len(f) != 3 || f[1] != f[2] {
						return out
					}
				}
				return ""
			})
		}},
	}
	for _, step := range steps {
		if !t.Run(step.name, step.test) {
			diagnose(t, s)
			t.FailNow()
		}
	}
}

// TestEtcdBackupControlPlanes restores an encrypted backup of two control planes behind a name,
// and makes a cluster of three control planes of it. The steps depend on each other.
func TestEtcdBackupControlPlanes(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-restore", Hosts: 3})
	first, second, third := s.Hosts[0], s.Hosts[1], s.Hosts[2]
	for _, h := range s.Hosts {
		endpointAt(t, h, first)
	}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	const file = "/root/cluster.tar.age"
	planeJoin := regexp.MustCompile(`(?m)^\s*\./install (join ` + endpoint + `:6443 .* --control-plane --certificate-key [0-9a-f]{64})$`)
	steps := []struct {
		name string
		test func(t *testing.T)
	}{
		{"two control planes, and an encrypted backup", func(t *testing.T) {
			m := planeJoin.FindStringSubmatch(install(t, first, 0, "init", "--control-plane-endpoint", endpoint, "--upload-certs"))
			if m == nil {
				t.Fatal("no join command for a control plane")
			}
			install(t, second, 0, strings.Fields(m[1])...)
			kubectl(t, s, "create", "configmap", "saved")
			install(t, second, 0, "etcd", "snapshot", file, "--recipient", key.Recipient().String())
			kubectl(t, s, "create", "configmap", "too-late")
			install(t, second, 0, "etcd", "defrag")
			contains(t, install(t, second, 0, "etcd", "status"), first.Name, second.Name, "leader", "follower", file)
		}},
		{"both are lost", func(t *testing.T) {
			backup := run(t, second, "cat", file)
			for _, h := range []*lab.Host{first, second} {
				if err := h.PowerCut(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for name, text := range map[string]string{file: backup, "/root/key": key.String() + "\n"} {
				if err := third.Exec(t.Context(), strings.NewReader(text), io.Discard, io.Discard, "sh", "-c", "cat >"+name); err != nil {
					t.Fatal(err)
				}
			}
			contains(t, install(t, third, 2, "etcd", "restore", file), "encrypted", "--identity")
		}},
		{"restore, and join the others again", func(t *testing.T) {
			endpointAt(t, third, third)
			out := install(t, third, 0, "etcd", "restore", file, "--identity", "/root/key", "--upload-certs")
			contains(t, out, "removed node "+first.Name, "removed node "+second.Name)
			m := planeJoin.FindStringSubmatch(out)
			if m == nil {
				t.Fatal("no join command for a control plane")
			}
			for i, h := range []*lab.Host{first, second} {
				if err := h.Boot(t.Context()); err != nil {
					t.Fatal(err)
				}
				install(t, h, 0, "reset", "--force")
				endpointAt(t, h, third)
				install(t, h, 0, strings.Fields(m[1])...)
				voters(t, third, i+2)
			}
			contains(t, kubectlAt(t, first, "get", "configmaps", "-o", "name"), "configmap/saved")
			if strings.Contains(kubectlAt(t, first, "get", "configmaps", "-o", "name"), "too-late") {
				t.Error("an object is there that was created after the backup")
			}
		}},
		{"the quorum is lost, without a backup", func(t *testing.T) {
			kubectlAt(t, third, "create", "configmap", "last")
			for _, h := range []*lab.Host{first, second} {
				if err := h.PowerCut(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			const last = "/root/last.tar"
			contains(t, install(t, third, 1, "etcd", "snapshot", last), "may not have the last changes", "--without-quorum")
			run(t, third, "test", "!", "-e", last)
			contains(t, install(t, third, 2, "etcd", "snapshot", "/root", "--every", "6h", "--without-quorum"), "cannot be combined")
			contains(t, install(t, third, 0, "etcd", "snapshot", last, "--without-quorum"), "may not have the last changes", "verified")
			install(t, third, 0, "reset", "--force")
			contains(t, install(t, third, 0, "etcd", "restore", last), "removed node "+first.Name, "removed node "+second.Name)
			contains(t, kubectlAt(t, third, "get", "configmaps", "-o", "name"), "configmap/saved", "configmap/last")
			eventually(t, time.Minute, func() string {
				out, err := kubectlTry(t.Context(), third, "get", "nodes", "--no-headers")
				if err != nil || strings.Count(out, "\n") != 1 || !strings.Contains(out, third.Name+" ") || !strings.Contains(out, " Ready ") {
					return fmt.Sprintf("%s %v", out, err)
				}
				return ""
			})
			voters(t, third, 1)
		}},
	}
	for _, step := range steps {
		if !t.Run(step.name, step.test) {
			diagnose(t, s)
			t.FailNow()
		}
	}
}
