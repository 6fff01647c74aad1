package node_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/profile"
	"airlift/installer/render"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/port"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testhost"
	"airlift/scripts/oracle"
)

// certificates are the certificates of a control plane at 127.0.0.1.
var certificates = sync.OnceValues(func() (pki.Result, error) {
	return pki.Ensure(testhost.Config(func(c *config.Config) { c.Facts.NodeIP = "127.0.0.1" }), fstest.MapFS{}, time.Now())
})

// hardenedHost returns a host with certificates, and the manifest of etcd in a hardened cluster.
func hardenedHost(t *testing.T, change func(*config.Config)) (m *node.Machine, cfg *config.Config, manifest []byte) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir, filepath.Join(dir, "var"), filepath.Join(dir, "var/lib")} { // another user runs etcd
		if err := errors.Join(os.MkdirAll(d, 0o755), os.Chmod(d, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	m = node.NewMachine(testhost.Open(t, dir), &workflow.Console{Out: new(bytes.Buffer)})
	cfg = testhost.Config(change)
	if _, err := profile.Apply(profile.Hardened, cfg); err != nil {
		t.Fatal(err)
	}
	made, err := certificates()
	if err == nil {
		err = m.Write(made.Files...)
	}
	if err == nil {
		err = m.Host.MkdirAll(cfg.Etcd.Local.DataDir, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m, cfg, etcdManifest(t, m, cfg)
}

func etcdManifest(t *testing.T, m *node.Machine, cfg *config.Config) []byte {
	t.Helper()
	pod, err := m.EtcdPod(cfg)
	if err != nil {
		t.Fatal(err)
	}
	data, err := render.YAML(pod)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestEtcdPod: a plain cluster has kubeadm's pod. In a hardened one, only the user and the directory behind the certificates differ.
func TestEtcdPod(t *testing.T) {
	m := node.NewMachine(testhost.Open(t, t.TempDir()), &workflow.Console{Out: new(bytes.Buffer)})
	plain := testhost.Config(nil)
	want, err := render.Etcd(plain)
	if err != nil {
		t.Fatal(err)
	}
	text := func(pod *corev1.Pod) string {
		data, err := render.YAML(pod)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if got := string(etcdManifest(t, m, plain)); got != text(want) {
		t.Errorf("the pod of a plain cluster differs:\n%s", got)
	}
	if err := m.PrepareEtcd(t.Context(), []byte(text(want))); err != nil || m.Host.Records().Used() {
		t.Errorf("a plain cluster gets files: %v", err)
	}
	if copies, err := node.EtcdCopies([]byte(text(want))); err != nil || len(copies) > 0 {
		t.Errorf("a plain cluster has %v: %v", copies, err)
	}
	hardened := testhost.Config(nil)
	if _, err := profile.Apply(profile.Hardened, hardened); err != nil {
		t.Fatal(err)
	}
	pod, err := m.EtcdPod(hardened)
	if err != nil {
		t.Fatal(err)
	}
	c := &pod.Spec.Containers[0]
	if s := c.SecurityContext; *s.RunAsUser == 0 || *s.RunAsGroup == 0 || *s.AllowPrivilegeEscalation || s.Capabilities.Drop[0] != "ALL" || pod.Spec.SecurityContext.SeccompProfile == nil {
		t.Errorf("%+v", s)
	}
	c.SecurityContext = nil
	for i, v := range pod.Spec.Volumes {
		if v.Name == "etcd-certs" {
			if v.HostPath.Path != node.EtcdFiles {
				t.Errorf("the certificates are in %s", v.HostPath.Path)
			}
			pod.Spec.Volumes[i] = want.Spec.Volumes[i]
		}
	}
	if got := text(pod); got != text(want) {
		t.Errorf("more differs:\n%s", got)
	}
}

// TestPrepareEtcdKilled: a run that is killed before any of its changes is continued, and ends as one that was not.
func TestPrepareEtcdKilled(t *testing.T) {
	rig.Root(t)
	rig.Tool(t, "systemd-sysusers")
	killed := errors.New("killed")
	for n := 0; ; n++ {
		m, cfg, manifest := hardenedHost(t, nil)
		root := string(m.Host.Root)
		left, done := n, true
		m.Host.GuardChanges(func(_ string, do func() error) error {
			if left--; left < 0 {
				done = false
				return killed
			}
			return do()
		})
		if err := m.PrepareEtcd(t.Context(), manifest); err != nil && !errors.Is(err, killed) {
			t.Fatal(err)
		}
		again := node.NewMachine(testhost.Open(t, root), m.Console)
		manifest = etcdManifest(t, again, cfg)
		for range 2 {
			if err := again.PrepareEtcd(t.Context(), manifest); err != nil {
				t.Fatalf("killed before change %d: %v", n, err)
			}
		}
		account, user, group, err := again.Host.FindAccount(host.EtcdAccount)
		if err != nil || !user || !group {
			t.Fatal(account, user, group, err)
		}
		for _, name := range []string{"ca.crt", "server.crt", "server.key", "peer.crt", "peer.key"} {
			is, err := os.ReadFile(again.Host.Path(node.EtcdFiles + "/" + name))
			want, _ := os.ReadFile(again.Host.Path(cfg.CertificatesDir + "/etcd/" + name))
			if err != nil || !bytes.Equal(is, want) {
				t.Errorf("killed before change %d: %s: %v", n, name, err)
			}
			checkOwner(t, again.Host.Path(node.EtcdFiles+"/"+name), account, 0o600)
			checkOwner(t, again.Host.Path(cfg.CertificatesDir+"/etcd/"+name), host.Account{}, 0)
		}
		files, err := os.ReadDir(again.Host.Path(node.EtcdFiles))
		if err != nil || len(files) != 5 {
			t.Errorf("%v, %v", files, err)
		}
		announced := map[string]string{}
		copies, err := node.EtcdCopies(manifest)
		for _, c := range copies {
			announced[filepath.Base(c.Path)] = c.Of
		}
		for _, f := range files {
			if of := announced[f.Name()]; err != nil || of != cfg.CertificatesDir+"/etcd/"+f.Name() || len(announced) != len(files) {
				t.Errorf("%s is announced as a copy of %q, %v", f.Name(), of, err)
			}
		}
		checkOwner(t, again.Host.Path(node.EtcdFiles), host.Account{}, 0o755)
		checkOwner(t, again.Host.Path(cfg.Etcd.Local.DataDir), account, 0o700)
		if done {
			return
		}
	}
}

// TestReleaseEtcd: when etcd runs as root again, the host is as before etcd had a user, also if the run was killed before any of its changes.
// As long as the pod uses the copies, nothing is taken back.
func TestReleaseEtcd(t *testing.T) {
	rig.Root(t)
	rig.Tool(t, "systemd-sysusers")
	rig.Tool(t, "userdel")
	killed := errors.New("killed")
	for n := 0; ; n++ {
		m, cfg, manifest := hardenedHost(t, nil)
		root := string(m.Host.Root)
		wal := cfg.Etcd.Local.DataDir + "/member/wal"
		if err := m.Host.MkdirAll(wal, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, do := range []func(context.Context, []byte) error{m.PrepareEtcd, m.ReleaseEtcd} {
			if err := do(t.Context(), manifest); err != nil {
				t.Fatal(err)
			}
		}
		account, user, group, err := m.Host.FindAccount(host.EtcdAccount)
		if err != nil || !user || !group {
			t.Fatal(account, user, group, err)
		}
		checkOwner(t, m.Host.Path(wal), account, 0)
		plain := etcdManifest(t, m, testhost.Config(nil))
		left, done := n, true
		m.Host.GuardChanges(func(_ string, do func() error) error {
			if left--; left < 0 {
				done = false
				return killed
			}
			return do()
		})
		if err := m.ReleaseEtcd(t.Context(), plain); err != nil && !errors.Is(err, killed) {
			t.Fatal(err)
		}
		again := node.NewMachine(testhost.Open(t, root), m.Console)
		for range 2 {
			if err := again.ReleaseEtcd(t.Context(), plain); err != nil {
				t.Fatalf("killed before change %d: %v", n, err)
			}
		}
		if _, user, group, err := again.Host.FindAccount(host.EtcdAccount); err != nil || user || group {
			t.Errorf("killed before change %d: the account stays: %t, %t, %v", n, user, group, err)
		}
		for _, file := range []string{node.EtcdFiles, host.AccountFile} {
			if again.Exists(file) {
				t.Errorf("killed before change %d: %s stays", n, file)
			}
		}
		for _, e := range again.Host.Records().Entries(ledger.File) {
			if e.CopyOf != "" {
				t.Errorf("killed before change %d: %s is still a copy of %s", n, e.Name, e.CopyOf)
			}
		}
		checkOwner(t, again.Host.Path(cfg.Etcd.Local.DataDir), host.Account{}, 0o700)
		checkOwner(t, again.Host.Path(wal), host.Account{}, 0)
		if done {
			return
		}
	}
}

func checkOwner(t *testing.T, file string, want host.Account, mode os.FileMode) {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	if is := (host.Account{UID: int(st.Uid), GID: int(st.Gid)}); is != want || mode != 0 && info.Mode().Perm() != mode {
		t.Errorf("%s belongs to %v with %v, want %v with %v", file, is, info.Mode(), want, mode)
	}
}

// TestRealEtcdAsUser: the real etcd starts as the user of its pod with the pod's arguments, serves a renewed certificate without a
// restart, and starts again, also with a restored snapshot that root wrote.
func TestRealEtcdAsUser(t *testing.T) {
	rig.Root(t)
	for _, version := range oracle.Versions {
		t.Run(version, func(t *testing.T) {
			ports, err := port.Free(3)
			if err != nil {
				t.Fatal(err)
			}
			m, cfg, manifest := hardenedHost(t, func(c *config.Config) {
				c.KubernetesVersion = version
				c.Facts.NodeIP = "127.0.0.1"
			})
			if err := m.PrepareEtcd(t.Context(), manifest); err != nil {
				t.Fatal(err)
			}
			program := m.Host.Path("/etcd") // the user cannot enter the directory of the cache
			data, err := os.ReadFile(rig.Component(t, version, "etcd"))
			if err == nil {
				err = os.WriteFile(program, data, 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
			pod, err := m.EtcdPod(cfg)
			if err != nil {
				t.Fatal(err)
			}
			client := fmt.Sprint("https://127.0.0.1:", ports[0])
			start := func(certificates string) *exec.Cmd {
				var args []string
				for _, arg := range pod.Spec.Containers[0].Command[1:] {
					arg = strings.NewReplacer(cfg.CertificatesDir+"/etcd", m.Host.Path(certificates), cfg.Etcd.Local.DataDir, m.Host.Path(cfg.Etcd.Local.DataDir),
						":2379", fmt.Sprint(":", ports[0]), ":2380", fmt.Sprint(":", ports[1]), ":2381", fmt.Sprint(":", ports[2])).Replace(arg)
					if strings.HasPrefix(arg, "--listen-client-urls=") {
						arg = "--listen-client-urls=" + client // both are this address
					}
					args = append(args, arg)
				}
				cmd := exec.Command(program, append(args, "--log-level=error", "--unsafe-no-fsync")...)
				cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
				s := pod.Spec.Containers[0].SecurityContext
				cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: uint32(*s.RunAsUser), Gid: uint32(*s.RunAsGroup)}}
				cmd.Dir = "/"
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				return cmd
			}
			stop := func(cmd *exec.Cmd) { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }
			if err := start(cfg.CertificatesDir + "/etcd").Wait(); err == nil {
				t.Error("etcd can read the files of root")
			}
			members := func() {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				for {
					c, err := node.ConnectEtcd(ctx, m.Host, nil, []string{client}, cfg.CertificatesDir, time.Minute)
					if err == nil {
						_, err = c.Members(ctx)
						c.Close()
					}
					if err == nil {
						return
					}
					if ctx.Err() != nil {
						t.Fatal(err)
					}
					time.Sleep(100 * time.Millisecond)
				}
			}
			ctl := func(args ...string) string {
				t.Helper()
				file := func(name string) string { return m.Host.Path(cfg.CertificatesDir + "/etcd/" + name) }
				out, err := exec.Command(rig.Component(t, version, "etcdctl"), append([]string{"--endpoints", client, "--command-timeout", "60s", "--dial-timeout", "60s",
					"--cacert", file("ca.crt"), "--cert", file("healthcheck-client.crt"), "--key", file("healthcheck-client.key")}, args...)...).Output()
				if err != nil {
					t.Fatal(err)
				}
				return string(out)
			}
			cmd := start(node.EtcdFiles)
			defer func() { stop(cmd) }()
			members()
			ctl("put", "key", "before the restart")
			for _, name := range []string{"etcd-server", "etcd-peer"} {
				made, err := pki.Renew(cfg, m.Files(), time.Now(), name)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range made.Files {
					if err := m.Host.RenewFile(f.Path, f.Data, f.Mode); err != nil {
						t.Fatal(err)
					}
				}
			}
			if served, renewed := served(t, strings.TrimPrefix(client, "https://")), firstCertificate(t, m.Host.Path(cfg.CertificatesDir+"/etcd/server.crt")); served != renewed {
				t.Error("etcd does not serve the renewed certificate")
			}
			snapshot := m.Host.Path("/snapshot.db")
			ctl("snapshot", "save", snapshot)
			stop(cmd)
			cmd = start(node.EtcdFiles)
			members()
			stop(cmd)

			work, dir := cfg.Etcd.Local.DataDir+"/.airlift-restore", cfg.Etcd.Local.DataDir
			if err := m.Host.RemoveTree(dir + "/member"); err != nil {
				t.Fatal(err)
			}
			db, err := os.ReadFile(snapshot)
			if err == nil {
				err = os.MkdirAll(filepath.Dir(m.Host.Path(etcd.DatabasePath(work))), 0o700)
			}
			if err == nil {
				err = os.WriteFile(m.Host.Path(etcd.DatabasePath(work)), db[:len(db)-32], 0o600) // without the checksum of the snapshot
			}
			if err == nil {
				err = etcd.Restore(m.Host.Path(work), "one", fmt.Sprint("https://127.0.0.1:", ports[1]), "token")
			}
			if err == nil {
				err = os.Rename(m.Host.Path(work+"/member"), m.Host.Path(dir+"/member"))
			}
			if err == nil {
				err = m.PrepareEtcd(t.Context(), manifest)
			}
			if err != nil {
				t.Fatal(err)
			}
			cmd = start(node.EtcdFiles)
			members()
			if got := ctl("get", "key", "--print-value-only"); got != "before the restart\n" {
				t.Errorf("the restored value is %q", got)
			}
		})
	}
}

// served returns the certificate that a server sends.
func served(t *testing.T, address string) string {
	t.Helper()
	var serial string
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, VerifyPeerCertificate: func(chain [][]byte, _ [][]*x509.Certificate) error {
		serial = string(chain[0])
		return nil
	}})
	if err == nil {
		conn.Close()
	}
	return serial
}

func firstCertificate(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	return string(block.Bytes)
}
