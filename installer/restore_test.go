package installer

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"airlift/bundle"
	"airlift/fault"
	"airlift/installer/backup"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// backedUp returns the configuration in a backup of the cluster that hostWith describes.
func backedUp(t *testing.T, change func(*config.Config)) []byte {
	t.Helper()
	n := hostWith(t, change)
	cfg := *n.plan.config
	cfg.Images["kube-proxy"] = "p:1"
	text, err := render.ClusterConfiguration(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	fetched := &cluster.FetchedConfig{}
	if fetched.Cluster, _, err = config.DecodeClusterConfiguration(text); err != nil {
		t.Fatal(err)
	}
	if fetched.Kubelet, err = render.KubeletConfig(&cfg); err != nil {
		t.Fatal(err)
	}
	objects, err := render.KubeProxy(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if m, ok := o.(*corev1.ConfigMap); ok {
			fetched.KubeProxy = &kubeproxyv1.KubeProxyConfiguration{}
			if err := yaml.Unmarshal([]byte(m.Data["config.conf"]), fetched.KubeProxy); err != nil {
				t.Fatal(err)
			}
		}
	}
	b := NewBackup(n.host, &Console{Out: new(bytes.Buffer)})
	document, err := b.configuration(fetched, "one", nil)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// TestConfigurationOfBackup restores the configuration of a cluster on another host.
func TestConfigurationOfBackup(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		document := backedUp(t, func(c *config.Config) {
			c.KubernetesVersion = version
			c.ControlPlaneEndpoint, c.ClusterName = "k8s.site.example:6443", "site"
			_ = c.Networking.ServiceSubnet.Set("10.20.0.0/16")
			c.APIServer.CertSANs = []string{"extra.example"}
		})
		f := &BackupFile{Path: "backup.tar", Backup: &backup.Backup{
			Manifest: backup.Manifest{CNI: "flannel", KubernetesVersion: version}, Files: map[string][]byte{backup.ConfigName: document},
		}}
		c, warnings, err := f.Config()
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%v %v\n%s", err, warnings, document)
		}
		c.Facts = config.Facts{Hostname: "two", NodeIP: "10.9.9.9", CgroupDriver: "cgroupfs"}
		c.KubernetesVersion = version
		c.CompleteInit()
		if err := c.ValidateInit(); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		if c.NodeRegistration.Name != "two" || c.LocalAPIEndpoint.AdvertiseAddress != "10.9.9.9" || c.ControlPlaneEndpoint != "k8s.site.example:6443" || c.ClusterName != "site" ||
			c.Networking.ServiceSubnet.String() != "10.20.0.0/16" || len(c.APIServer.CertSANs) != 1 || c.CNI != "flannel" {
			t.Errorf("%+v", c)
		}
		if c.Kubelet == nil || c.Kubelet.CgroupDriver != "" || c.Kubelet.StaticPodPath != "" || c.KubeProxy == nil {
			t.Errorf("the backup has values of the old host, or none of the cluster: %+v %+v", c.Kubelet, c.KubeProxy)
		}
		for bundled, fits := range map[string]bool{version: true, version[:len("v1.37")] + ".99": true, "v1.33.1": false} {
			b := &Bundle{manifest: &bundle.Manifest{KubernetesVersion: bundled}}
			if err := f.CheckVersion(b); (err == nil) != fits {
				t.Errorf("backup of %s, bundle of %s: %v", version, bundled, err)
			}
		}
	}
}

// restoring returns a restore onto an empty host directory.
func restoring(t *testing.T) *Restore {
	t.Helper()
	n := hostWith(t, nil)
	h, err := host.OpenDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := &BackupFile{Backup: &backup.Backup{Manifest: backup.Manifest{CACertHash: "sha256:ab", Entries: []backup.Entry{{Name: backup.SnapshotName, SHA256: "cd"}}}}}
	return NewRestore(n.plan, InitOptions{}, f, h, &Console{Out: new(bytes.Buffer)})
}

// TestRestoreNeedsAHostWithoutCluster: only an interrupted restore of the same backup continues.
func TestRestoreNeedsAHostWithoutCluster(t *testing.T) {
	if err := restoring(t).checkFresh(t.Context()); err != nil {
		t.Errorf("an empty host: %v", err)
	}
	for _, file := range []string{adminConf, kubeletConf, etcdManifest, "/var/lib/etcd/member/x"} {
		r := restoring(t)
		put(t, r, file, "x")
		if err := r.checkFresh(t.Context()); err == nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), "reset") {
			t.Errorf("with %s: %v", file, err)
		}
	}
	r := restoring(t)
	put(t, r, "/etc/kubernetes/pki/ca.crt", "x")
	if err := r.checkFresh(t.Context()); err == nil || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("with another CA: %v", err)
	}

	r = restoring(t)
	if err := r.restoreCerts(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, r, adminConf, "x")
	if err := r.checkFresh(t.Context()); err != nil {
		t.Errorf("interrupted: %v", err)
	}
	r.backup.Manifest.Entries[0].SHA256 = "ef"
	if err := r.checkFresh(t.Context()); err == nil || !strings.Contains(err.Error(), "another restore") {
		t.Errorf("another backup after an interruption: %v", err)
	}
	if err := r.finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.checkFresh(t.Context()); err == nil {
		t.Error("a complete restore is run again")
	}
}

func put(t *testing.T, r *Restore, file, text string) {
	t.Helper()
	path := r.host.Path(file)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// TestRestoreDuringARotation: of two certificates of a rotated CA, the one that signs is restored. A
// chain of other CAs stays.
func TestRestoreDuringARotation(t *testing.T) {
	var cas, others [2][]byte
	for i := range cas {
		made, err := pki.Ensure(hostWith(t, nil).config, fstest.MapFS{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range made.Files {
			switch f.Path {
			case "/etc/kubernetes/pki/ca.crt":
				cas[i] = f.Data
			case "/etc/kubernetes/pki/etcd/ca.crt":
				others[i] = f.Data
			}
		}
	}
	r := restoring(t)
	r.backup.Files = map[string][]byte{
		"pki/ca.crt":      slices.Concat(cas[0], cas[1]),
		"pki/ca.key":      []byte("key"),
		"pki/etcd/ca.crt": slices.Concat(others[0], cas[0]),
	}
	for name := range r.backup.Files {
		r.backup.Manifest.Entries = append(r.backup.Manifest.Entries, backup.Entry{Name: name})
	}
	if err := r.restoreCerts(t.Context()); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]byte{"ca.crt": cas[0], "ca.key": []byte("key"), "etcd/ca.crt": slices.Concat(others[0], cas[0])} {
		if got, err := os.ReadFile(r.host.Path("/etc/kubernetes/pki/" + file)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v\n%s", file, err, got)
		}
	}
	if out := r.console.Out.(*bytes.Buffer).String(); !strings.Contains(out, "during a rotation of the CAs") {
		t.Errorf("printed %q", out)
	}
}

// TestRestoreWasKilledAfterTheData: the next run removes the copy of the snapshot, which has all
// secrets of the cluster.
func TestRestoreWasKilledAfterTheData(t *testing.T) {
	r := restoring(t)
	r.config.Etcd.Local.DataDir = "/var/lib/etcd"
	put(t, r, "/var/lib/etcd/member/snap/db", "x")
	put(t, r, "/var/lib/etcd/.airlift-restore/snapshot.db", "x")
	if err := r.restoreEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(r.host.Path("/var/lib/etcd"))
	if err != nil || len(list) != 1 || list[0].Name() != "member" {
		t.Errorf("left in etcd's data directory: %v, %v", list, err)
	}
}

// TestCheckCurrent: a member without a leader sends a snapshot too, and it may be old.
func TestCheckCurrent(t *testing.T) {
	const own, other = "https://10.1.2.3:2379", "https://10.1.2.4:2379"
	for _, c := range []struct {
		url     string
		err     error
		refused bool
	}{
		{own, nil, false},
		{own, etcd.ErrNoSpace, false},
		{own, errors.New("it has no leader"), true},
		{other, errors.New("it has no leader"), false},
	} {
		members := []etcd.Status{{Member: etcd.Member{Name: "one", PeerURL: "https://one:2380", ClientURLs: []string{c.url}}, Err: c.err}}
		err := checkCurrent(members, own)
		if c.refused != (err != nil) || err != nil && (!strings.Contains(err.Error(), "one (https://one:2380) may not have the last changes: it has no leader") || fault.Hint(err) == "") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestScheduledCommand: the timer runs with the flags of the command, in systemd's words.
func TestScheduledCommand(t *testing.T) {
	for _, c := range []struct {
		schedule         BackupSchedule
		kubeconfig, want string
	}{
		{BackupSchedule{Directory: "/mnt/a b", Keep: 8}, adminConf, `etcd snapshot "/mnt/a b" --scheduled --keep 8 --mount-point "/mnt"`},
		{BackupSchedule{Directory: "/mnt", Keep: 1, Recipients: "age1"}, "/root/my.conf", `etcd snapshot "/mnt" --scheduled --keep 1 --mount-point "/mnt" --kubeconfig "/root/my.conf" --recipients-file ` + backupRecipients},
	} {
		if got, err := c.schedule.command(c.kubeconfig, "/mnt"); err != nil || got != c.want {
			t.Errorf("%+v: %q, %v; want %q", c.schedule, got, err, c.want)
		}
	}
	for _, path := range []string{"/mnt/$backups", "/mnt/%h", `/mnt/"`} {
		if _, err := (BackupSchedule{Directory: path}).command(adminConf, "/"); err == nil || fault.ExitCode(err) != fault.Usage {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := (BackupSchedule{Directory: "/mnt"}).command(path, "/"); err == nil {
			t.Errorf("the kubeconfig %s is accepted", path)
		}
	}
}

// TestCalendar: backups are at times of the day, which systemd makes up for after the host was off.
func TestCalendar(t *testing.T) {
	for every, want := range map[time.Duration]string{
		time.Minute:      "*-*-* *:*:00 UTC",
		15 * time.Minute: "*-*-* *:00/15:00 UTC",
		time.Hour:        "*-*-* 00/1:00:00 UTC",
		6 * time.Hour:    "*-*-* 00/6:00:00 UTC",
		24 * time.Hour:   "*-*-* 00:00:00 UTC",
		168 * time.Hour:  "Mon *-*-* 00:00:00 UTC",
		7 * time.Hour:    "", 90 * time.Minute: "", 48 * time.Hour: "", 90 * time.Second: "", 0: "",
	} {
		got, err := calendar(every)
		if got != want || (err != nil) != (want == "") || err != nil && fault.ExitCode(err) != fault.Usage {
			t.Errorf("%s: %q, %v; want %q", every, got, err, want)
		}
	}
}

// TestMountPoint: a directory is on the file system that is mounted closest to it, also through links.
func TestMountPoint(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/proc/self", link); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"/": "/", "/proc": "/proc", link: "/proc", "/proc/self/net": "/proc"} {
		if got, err := host.MountPoint(dir); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", dir, got, err, want)
		}
	}
	if _, err := host.MountPoint("/no/such/directory"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestFilesOfComponents: a backup has the files that the flags of the control plane name, and a
// restore writes them where no file is.
func TestFilesOfComponents(t *testing.T) {
	const keys, policy, plugin = "/etc/site/keys.yaml", "/srv/audit.yaml", "/etc/kubernetes/pki/plugin.yaml"
	change := func(c *config.Config) {
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
	}
	n := hostWith(t, change)
	root := t.TempDir()
	h, err := host.OpenDirectory(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{keys, policy, plugin, "/var/log/audit/audit.log", "/etc/site/other", "/etc/kubernetes/pki/sa.pub", "/etc/shadow"} {
		if err := os.MkdirAll(filepath.Dir(h.Path(file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.Path(file), []byte(file), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b := NewBackup(h, &Console{Out: new(bytes.Buffer)})
	files, err := b.componentFiles(&n.plan.config.Cluster, []backup.File{{Name: "pki/sa.pub"}})
	if err != nil {
		t.Fatal(err)
	}
	r := restoring(t)
	change(r.config)
	r.backup.Files = map[string][]byte{"files/etc/passwd": []byte("no flag names it")}
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
		r.backup.Files[f.Name] = f.Data
	}
	if got := strings.Join(names, " "); got != "files/etc/kubernetes/pki/plugin.yaml files/etc/site/keys.yaml files/srv/audit.yaml" {
		t.Errorf("the backup has %s", got)
	}
	put(t, r, policy, "the user's")
	if err := r.restoreFiles(t.Context()); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{keys: keys, plugin: plugin, policy: "the user's"} {
		info, err := os.Stat(r.host.Path(file))
		if err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(r.host.Path(file)); err != nil || string(data) != want || file == keys && info.Mode() != 0o600 {
			t.Errorf("%s: %q, mode %v, %v", file, data, info.Mode(), err)
		}
	}
	if _, err := os.Stat(r.host.Path("/etc/passwd")); err == nil {
		t.Error("a file was restored that no flag names")
	}
	if out := r.console.Out.(*bytes.Buffer).String(); !strings.Contains(out, policy+" exists and differs") {
		t.Errorf("printed %q", out)
	}
}
