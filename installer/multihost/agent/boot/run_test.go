package boot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"airlift/bundle"
	"airlift/bundle/signature"
	"airlift/installer/host"
	"airlift/installer/host/systemd"
	"airlift/installer/host/uninstall"
	"airlift/installer/multihost/seed"
	"airlift/installer/multihost/spec"
	"airlift/internal/dialer"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testbundle"
	"airlift/scripts/fixtures/testhost"
)

// targetConfig is of an S3 target.
const targetConfig = "apiVersion: airlift/v1\nkind: BackupTarget\ns3:\n  endpoint: https://s3.site.example:9000\n  accessKey: me\n  secretKey: s3-secret\n"

const twoHosts = `apiVersion: airlift/v1
kind: Cluster
name: plant-7
registries: {auth: auth.json}
backups: {target: "s3://backups/plant-7", targetConfig: target.yaml, every: 6h, keep: 3, recipients: [age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p]}
hosts:
- {name: cp-1, role: control-plane, nodeIP: 10.0.0.11, match: {serial: ABC123}}
- {name: w-1, role: worker, nodeIP: 10.0.0.21, match: {label: w1}, patches: patches}
`

// A drive is a seed of two hosts with its installer.
type drive struct {
	dir, key string
	bundle   *bundle.File
	seed     *seed.Seed
}

var created = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func newDrive(t *testing.T) *drive {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"cluster.yaml": twoHosts, "auth.json": `{"auths":{"r.example":{"auth":"dTpw"}}}`, "target.yaml": targetConfig, "patches/kubeletconfiguration.yaml": "maxPods: 50\n"} {
		testhost.Write(t, filepath.Join(dir, name), text, 0o600)
	}
	c, err := spec.Read(filepath.Join(dir, "cluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	d := &drive{dir: filepath.Join(dir, "drive"), key: filepath.Join(dir, "k.pub")}
	file := filepath.Join(d.dir, seed.Installer)
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	testbundle.WriteFile(t, file, bundle.Executables{Launcher: elf(t), Installer: []byte("installer")}, &bundle.Manifest{FormatVersion: bundle.FormatVersion, KubernetesVersion: "v1.37.1", Platform: "linux/amd64", CNI: "none"}, bundle.Fastest, nil)
	if d.bundle, err = bundle.Open(file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.bundle.Close() })
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d.seed, err = seed.New(c, seed.Bundle{ID: d.bundle.ID(), Version: "v1.37.1", Arch: "amd64", SHA256: fmt.Sprintf("%x", sha256.Sum256(data)), Size: d.bundle.Size()}, created, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signature.WriteKeyPair(filepath.Join(dir, "k.key"), d.key, ""); err != nil {
		t.Fatal(err)
	}
	d.sign(t, filepath.Join(dir, "k.key"))
	return d
}

// sign writes the seed and its signature to the drive.
func (d *drive) sign(t *testing.T, keyFile string) {
	t.Helper()
	key, err := signature.ReadSecretKey(keyFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := d.seed.Encode()
	if err != nil {
		t.Fatal(err)
	}
	testhost.Write(t, filepath.Join(d.dir, seed.File), string(text), 0o600)
	testhost.Write(t, filepath.Join(d.dir, seed.File+".minisig"), string(d.seed.Sign(text, key)), 0o600)
}

// elf returns a small launcher: it is copied often.
func elf(t *testing.T) []byte {
	data, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A machine is a host in a directory. Its clock moves with each pause.
type machine struct {
	*Host
	t     *testing.T
	drive *drive
	root  string
	out   strings.Builder
	now   time.Time
	ran   []string
	units *testhost.Units
	// fail is called before each change of the host and each command: an error is a power cut.
	fail    func(what string) error
	leadErr error
	lead    int // how often Lead still has a host that is missing
	end     error
	claims  []Claim
	begun   error // the cluster exists
	stopped bool  // the unit, before the end in the cluster
}

func newMachine(t *testing.T, d *drive, serial string) *machine {
	m := &machine{t: t, drive: d, root: t.TempDir(), now: created.Add(time.Minute), fail: func(string) error { return nil }}
	for _, file := range []string{seed.KeyFile, seed.ScriptFile, seed.UnitFile} {
		testhost.Write(t, filepath.Join(m.root, file), "of the first boot", 0o644)
	}
	m.Host = &Host{Root: m.root, Console: &m.out, Key: d.key, Drive: d.dir,
		Open: func() (*host.Host, func(), error) {
			h := testhost.Open(t, m.root)
			if m.units == nil {
				m.units = testhost.NewUnits(h, created)
			}
			h.ConnectSystemd = func(context.Context) (systemd.Conn, error) { return m.units, nil }
			h.GuardChanges(func(path string, do func() error) error {
				if err := m.fail(path); err != nil {
					return err
				}
				return do()
			})
			return h, func() { _ = h.Records().Save() }, nil
		},
		Look: func() (*host.Host, error) {
			h := testhost.Open(t, m.root)
			if m.units == nil {
				m.units = testhost.NewUnits(h, created)
			}
			h.ConnectSystemd = func(context.Context) (systemd.Conn, error) { return m.units, nil }
			return h, nil
		},
		Machine:   func() seed.Machine { return seed.Machine{Serial: serial, Labels: []string{serial}} },
		Addresses: func() []string { return []string{"127.0.0.1", "10.0.0.11", "10.0.0.21"} },
		Now:       func() time.Time { return m.now },
		Sleep: func(ctx context.Context, d time.Duration) error {
			m.now = m.now.Add(d)
			return ctx.Err()
		},
		Run: func(_ context.Context, args []string, stdin []byte) error {
			if err := m.fail(args[0]); err != nil {
				return err
			}
			for _, arg := range args { // files of the command are there
				if _, err := os.Stat(filepath.Join(m.root, arg)); strings.HasPrefix(arg, "/var/lib/airlift/") && err != nil {
					return err
				}
			}
			if slices.Contains(args, "--target-config") && string(stdin) != targetConfig {
				return fmt.Errorf("the credentials of the target are %q", stdin)
			}
			m.ran = append(m.ran, args[0])
			return nil
		},
		Site: m,
	}
	return m
}

func (m *machine) Begun(context.Context, *seed.Seed) error { return m.begun }

func (m *machine) Report(_ context.Context, _ *seed.Seed, _ string, c Claim) error {
	m.claims = append(m.claims, c)
	return m.fail("report")
}

func (m *machine) Lead(context.Context, *seed.Seed) ([]string, error) {
	if m.leadErr != nil {
		return nil, m.leadErr
	}
	if m.lead--; m.lead >= 0 {
		return []string{"w-1"}, nil
	}
	return nil, nil
}

func (m *machine) End(context.Context, *seed.Seed) error {
	m.ran = append(m.ran, "end")
	m.stopped = slices.Contains(m.units.Done, "disable "+seed.Unit)
	return m.end
}

// files are the host's, without the ledger's own and /run.
func (m *machine) files() map[string]string {
	all := testhost.Tree(m.t, m.root)
	maps.DeleteFunc(all, func(name, _ string) bool {
		return strings.Contains(name, "ledger") || strings.Contains(name, "runs.json") || strings.HasPrefix(name, "/run")
	})
	return all
}

func TestTwoHosts(t *testing.T) {
	d := newDrive(t)
	for serial, want := range map[string][]string{"ABC123": {"init", "registry", "etcd", "end"}, "w1": {"join", "registry"}} {
		m := newMachine(t, d, serial)
		m.lead = 3
		if err := m.Start(t.Context()); err != nil {
			t.Fatalf("%v\n%s", err, m.out.String())
		}
		if !slices.Equal(m.ran, want) {
			t.Errorf("%s ran %q", serial, m.ran)
		}
		r, err := seed.ReadRecord(m.root)
		if err != nil || r.State != seed.Done && r.State != seed.Ended || len(r.Hosts) != 2 {
			t.Errorf("record: %+v, %v", r, err)
		}
		for name, text := range m.files() {
			if strings.Contains(text, d.seed.Token) || strings.Contains(text, d.seed.CertificateKey) || strings.Contains(text, "dTpw") || strings.Contains(text, "s3-secret") {
				t.Errorf("%s has a secret of the seed", name)
			}
		}
		if !slices.Contains(m.units.Done, "disable "+seed.Unit) {
			t.Errorf("systemd: %q", m.units.Done)
		}
		// At a later boot, nothing happens, and reset removes all.
		before := m.files()
		m.ran = nil
		if err := m.Start(t.Context()); err != nil || len(m.ran) > 0 || !maps.Equal(before, m.files()) {
			t.Errorf("again: %v, ran %q", err, m.ran)
		}
		h, unlock, _ := m.Open()
		err = uninstall.RemoveState(t.Context(), h)
		_, err2 := uninstall.RemoveInstalled(t.Context(), h)
		unlock()
		for name, text := range testhost.Tree(t, m.root) {
			if text != "dir" && !strings.HasSuffix(name, ".lock") {
				t.Errorf("reset left %s (%v, %v)", name, err, err2)
			}
		}
	}
}

// A power cut before any change or command only repeats what did not end: the host ends in the same state.
func TestPowerCuts(t *testing.T) {
	d := newDrive(t)
	for _, serial := range []string{"ABC123", "w1"} {
		whole := newMachine(t, d, serial)
		count := 0
		whole.fail = func(string) error { count++; return nil }
		if err := whole.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := whole.files()
		t.Logf("%s: %d moments", serial, count)
		for cut := range count {
			m := newMachine(t, d, serial)
			ctx, off := context.WithCancelCause(t.Context())
			n := 0
			m.fail = func(what string) error {
				if n++; n > cut {
					off(errors.New("power cut")) // all that follows fails, too
					return errors.New("power cut")
				}
				return nil
			}
			_ = m.Start(ctx) // of the last cuts, only the ledger notices
			m.fail = func(string) error { return nil }
			_, err := os.Stat(filepath.Join(m.root, Installer))
			if r, _ := seed.ReadRecord(m.root); err == nil && r != nil && r.State == seed.Running {
				m.Drive = "" // as the script starts it
			}
			if err := m.Start(t.Context()); err != nil {
				t.Fatalf("after cut %d: %v\n%s", cut, err, m.out.String())
			}
			if got := m.files(); !maps.Equal(got, want) {
				for name := range got {
					if got[name] != want[name] {
						t.Errorf("after cut %d, %s is %.80q, want %.80q", cut, name, got[name], want[name])
					}
				}
				for name := range want {
					if _, found := got[name]; !found {
						t.Errorf("after cut %d, %s is missing", cut, name)
					}
				}
			}
			for i, verb := range []string{"init", "join"} {
				if n := len(m.ran); slices.Contains(m.ran, verb) && n > 0 && slices.Contains(m.ran, []string{"join", "init"}[i]) {
					t.Errorf("cut %d: ran %q", cut, m.ran)
				}
			}
		}
	}
}

// What is refused has changed nothing.
func TestRefusals(t *testing.T) {
	d, other := newDrive(t), newDrive(t)
	for name, c := range map[string]struct {
		change func(m *machine)
		code   fault.Code
		want   string
	}{
		"in no row": {func(m *machine) { m.Machine = func() seed.Machine { return seed.Machine{Serial: "X"} } }, fault.Preflight, "in no row of the seed"},
		"in two rows": {func(m *machine) {
			m.Machine = func() seed.Machine { return seed.Machine{Serial: "ABC123", Labels: []string{"w1"}} }
		}, fault.Preflight, "in several rows"},
		"another key":    {func(m *machine) { m.Key = other.key }, fault.Bundle, "another key"},
		"no drive":       {func(m *machine) { m.Drive = filepath.Join(m.root, "none") }, fault.Bundle, "reading the seed"},
		"no copy":        {func(m *machine) { m.Drive = "" }, fault.Usage, "has taken no seed"},
		"expired":        {func(m *machine) { m.now = created.Add(2 * time.Hour) }, fault.Preflight, "expired"},
		"another bundle": {func(m *machine) { m.Drive = otherFile(m.t, d) }, fault.Bundle, "not the file for which the seed was created"},
		"k3s": {func(m *machine) {
			testhost.Write(m.t, filepath.Join(m.root, "/etc/systemd/system/k3s-agent.service"), "", 0o600)
		}, fault.Preflight, "files of another installation: /etc/systemd/system/k3s-agent.service"},
		"leftovers": {func(m *machine) {
			testhost.Write(m.t, filepath.Join(m.root, "/var/lib/rancher/rke2/server/token"), "", 0o600)
		}, fault.Preflight, "files of another installation: /var/lib/rancher"},
		"a node already": {func(m *machine) {
			testhost.Write(m.t, filepath.Join(m.root, "/etc/kubernetes/kubelet.conf"), "", 0o600)
		}, fault.Preflight, "already: the seed for cluster plant-7 is refused"},
	} {
		m := newMachine(t, d, "w1")
		c.change(m)
		before := m.files()
		err := m.Start(t.Context())
		if fault.ExitCode(err) != c.code || !strings.Contains(fmt.Sprint(err), c.want) || fault.Hint(err) == "" {
			t.Errorf("%s: %v (%d), hint %q", name, err, fault.ExitCode(err), fault.Hint(err))
		}
		if !maps.Equal(before, m.files()) || len(m.ran) > 0 {
			t.Errorf("%s changed the host, ran %q", name, m.ran)
		}
	}
	m := newMachine(t, d, "w1")
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.Drive, m.Key = other.dir, other.key
	before := testhost.Tree(t, m.root)
	if err := m.Start(t.Context()); fault.ExitCode(err) != fault.Preflight || !strings.Contains(fmt.Sprint(err), "by another seed") || !maps.Equal(before, testhost.Tree(t, m.root)) {
		t.Errorf("a drive of another cluster: %v", err)
	}
}

// otherFile returns a drive with the seed of another one, and another file.
func otherFile(t *testing.T, d *drive) string {
	dir := t.TempDir()
	for _, name := range []string{seed.File, seed.File + ".minisig"} {
		testhost.Write(t, filepath.Join(dir, name), testhost.Read(t, filepath.Join(d.dir, name)), 0o600)
	}
	file := filepath.Join(dir, seed.Installer)
	testbundle.WriteFile(t, file, bundle.Executables{Launcher: elf(t), Installer: []byte("another")}, &bundle.Manifest{FormatVersion: bundle.FormatVersion, KubernetesVersion: "v1.37.1", Platform: "linux/amd64", CNI: "none"}, bundle.Fastest, nil)
	return dir
}

// A host waits for its clock, its address and the first control plane, prints that once a minute, and gives up when the seed expires.
func TestWaits(t *testing.T) {
	d := newDrive(t)
	m := newMachine(t, d, "w1")
	m.now = time.Unix(0, 0)
	slept := 0
	inner := m.Sleep
	m.Sleep = func(ctx context.Context, d time.Duration) error {
		if slept++; slept == 5 {
			m.now = created // a time server
		}
		return inner(ctx, d)
	}
	m.Addresses = func() []string {
		if m.now.Before(created.Add(10 * time.Minute)) {
			return nil
		}
		return []string{"10.0.0.21"}
	}
	m.fail = func(what string) error {
		if what == "report" && m.now.Before(created.Add(20*time.Minute)) {
			return errors.New("connection refused")
		}
		return nil
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := m.out.String()
	for line, most := range map[string]int{"the clock of this host is right": 1, "waiting for the address 10.0.0.21": 11, "connection refused; trying again": 14} {
		if n := strings.Count(out, line); n < 1 || n > most {
			t.Errorf("%q is printed %d times:\n%s", line, n, out)
		}
	}
	m = newMachine(t, d, "w1")
	m.fail = func(what string) error {
		if what == "report" {
			return errors.New("connection refused")
		}
		return nil
	}
	if err := m.Start(t.Context()); fault.ExitCode(err) != fault.Preflight || !strings.Contains(fmt.Sprint(err), "expired") || slices.Contains(m.ran, "join") {
		t.Errorf("after the seed: %v", err)
	}
	m = newMachine(t, d, "ABC123")
	m.lead = 10000
	if err := m.Start(t.Context()); err != nil || !strings.Contains(m.out.String(), "has expired; these hosts are not done: w-1") || m.ran[len(m.ran)-1] != "end" {
		t.Errorf("the first control plane: %v\n%s", err, m.out.String())
	}
}

// A host that has begun refuses the drive of another seed, and does not go on with its own instead.
func TestOtherSeed(t *testing.T) {
	d, other := newDrive(t), newDrive(t)
	m := newMachine(t, d, "w1")
	m.begin(t, "join")
	other.sign(t, filepath.Join(filepath.Dir(d.key), "k.key"))
	m.Drive = other.dir
	before := testhost.Tree(t, m.root)
	if err := m.Start(t.Context()); fault.ExitCode(err) != fault.Preflight || !strings.Contains(fmt.Sprint(err), "by another seed") || len(m.ran) > 0 || !maps.Equal(before, testhost.Tree(t, m.root)) {
		t.Errorf("%v, ran %q", err, m.ran)
	}
}

// A clock that is set back is not the end of the seed: hosts wait and go on.
func TestClockSetBack(t *testing.T) {
	d := newDrive(t)
	m := newMachine(t, d, "ABC123")
	m.lead = 5
	m.fail = func(what string) error {
		if what == "init" {
			m.now = created.Add(-time.Hour)
		}
		return nil
	}
	if err := m.Start(t.Context()); err != nil || m.lead >= 0 {
		t.Errorf("%v: the first control plane did not wait for %d reports:\n%s", err, m.lead+1, m.out.String())
	}
	m = newMachine(t, d, "w1")
	failed := 0
	m.fail = func(what string) error {
		if what == "join" {
			m.now = created.Add(-time.Hour)
			if failed++; failed < 3 {
				return errors.New("connection refused")
			}
		}
		return nil
	}
	if err := m.Start(t.Context()); err != nil {
		t.Errorf("a worker: %v", err)
	}
	m = newMachine(t, d, "w1") // a clock without a battery, after a power cut
	m.begin(t, "join")
	m.Drive, m.now = "", time.Unix(0, 0)
	sleep := m.Sleep
	m.Sleep = func(ctx context.Context, d time.Duration) error {
		if m.now.Before(created) && strings.Contains(m.out.String(), "the clock of this host is right") {
			m.now = created.Add(time.Minute)
		}
		return sleep(ctx, d)
	}
	m.fail = func(what string) error {
		if what == "join" && m.now.Before(created) {
			return errors.New("certificate is not yet valid")
		}
		return nil
	}
	if err := m.Start(t.Context()); err != nil || strings.Contains(m.out.String(), "not yet valid") {
		t.Errorf("after a power cut: %v\n%s", err, m.out.String())
	}
}

// What the first control plane cannot do for the others does not keep the token in the cluster after the seed has expired.
func TestLeadFails(t *testing.T) {
	m := newMachine(t, newDrive(t), "ABC123")
	m.leadErr = errors.New("the ConfigMap is immutable")
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	if err := m.Start(ctx); err != nil || m.ran[len(m.ran)-1] != "end" {
		t.Errorf("%v, ran %q", err, m.ran)
	}
}

// seed end stops the unit before it deletes the token and the certificates: the unit would upload them again.
func TestEndStopsFirst(t *testing.T) {
	m := newMachine(t, newDrive(t), "ABC123")
	m.begin(t, "registry")
	testhost.Write(t, filepath.Join(m.root, "/etc/kubernetes/kubelet.conf"), "", 0o600)
	if err := m.Host.End(t.Context()); err != nil || !slices.Contains(m.ran, "end") || !m.stopped {
		t.Errorf("%v, ran %q, stopped before: %t", err, m.ran, m.stopped)
	}
}

// While a command of the seed has the lock of the host, seed end stops the unit, and then takes the lock. Without a unit, it refuses.
func TestEndWhileACommandRuns(t *testing.T) {
	m := newMachine(t, newDrive(t), "w1")
	m.begin(t, "registry")
	_, unlock, err := host.OpenLocked(m.root)
	if err != nil {
		t.Fatal(err)
	}
	open := m.Open
	m.Open = func() (*host.Host, func(), error) {
		if slices.Contains(m.units.Done, "stop "+seed.Unit) { // the command ends with the unit
			unlock()
		}
		_, free, err := host.OpenLocked(m.root)
		if err != nil {
			return nil, nil, err
		}
		free()
		return open()
	}
	m.units.Done = nil
	if err := m.Host.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(m.root, seed.CopyDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the copy is left: %v", err)
	}

	m = newMachine(t, newDrive(t), "w1")
	m.Run = func(ctx context.Context, args []string, _ []byte) error { // by hand: systemd does not know it
		if err := m.Host.End(ctx); fault.Hint(err) == "" || !strings.Contains(fmt.Sprint(err), "the seed of cluster plant-7") {
			t.Errorf("end next to a run by hand: %v", err)
		}
		return nil
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A driver such as cluster apply and a seed keep each other out.
func TestOneDriver(t *testing.T) {
	m := newMachine(t, newDrive(t), "ABC123")
	_, _, release, err := host.LockForDriver(m.root, "me@laptop cluster apply", false)
	if err != nil || release == nil {
		t.Fatal(err)
	}
	sleep, waited := m.Sleep, 0
	m.Sleep = func(ctx context.Context, d time.Duration) error {
		if waited++; waited == 3 {
			release()
		}
		return sleep(ctx, d)
	}
	run := m.Run
	m.Run = func(ctx context.Context, args []string, stdin []byte) error {
		if holder, _, other, err := host.LockForDriver(m.root, "me@laptop cluster apply", false); other != nil || err != nil || holder.Who != "the seed of cluster plant-7" {
			t.Errorf("a driver got the lock during %s: %+v, %v", args[0], holder, err)
		}
		return run(ctx, args, stdin)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := m.out.String(); waited < 3 || strings.Count(out, "waiting for another command that changes this host: me@laptop cluster apply") != 1 || strings.Contains(out[:strings.Index(out, "me@laptop")], "copying") {
		t.Errorf("waited %d times:\n%s", waited, out)
	}
	if _, _, release, err = host.LockForDriver(m.root, "x", false); release == nil || err != nil {
		t.Errorf("after the seed: %v", err)
	}
	release()
}

// A command that waits for another one of the seed goes on from where that one has ended.
func TestOneSeedAtATime(t *testing.T) {
	for name, c := range map[string]struct {
		drive bool
		ends  func(m *machine, other *machine) error
		want  string
	}{
		"done":          {false, func(_, other *machine) error { return other.Start(t.Context()) }, seed.Done},
		"done, a drive": {true, func(_, other *machine) error { return other.Start(t.Context()) }, seed.Done},
		"another command": {false, func(m, _ *machine) error {
			return m.change(func(h *host.Host) error { return h.RemoveTree(seed.CopyDir) })
		}, ""},
	} {
		d := newDrive(t)
		m := newMachine(t, d, "w1")
		m.begin(t, "join")
		other := newMachine(t, d, "w1")
		other.root, other.Root = m.root, m.root
		if !c.drive {
			m.Drive = ""
		}
		_, _, release, err := host.LockForDriver(m.root, "the seed of cluster plant-7", false)
		if err != nil || release == nil {
			t.Fatal(err)
		}
		sleep := m.Sleep
		m.Sleep = func(ctx context.Context, d time.Duration) error {
			if release != nil {
				release()
				release = nil
				if err := c.ends(m, other); err != nil {
					t.Error(err)
				}
			}
			return sleep(ctx, d)
		}
		ran := len(m.ran)
		if err := m.Start(t.Context()); (err == nil) != (c.want != "") || c.want == "" && fault.ExitCode(err) != fault.Usage || len(m.ran) != ran {
			t.Errorf("%s: %v, ran %q", name, err, m.ran[ran:])
		}
		if r, err := seed.ReadRecord(m.root); err != nil || (r != nil) != (c.want != "") || r != nil && r.State != c.want {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// The other hosts can join while a later command of the first control plane fails, such as one that needs a target of backups that is down.
func TestFirstFailsAfterInit(t *testing.T) {
	d := newDrive(t)
	for _, verb := range []string{"registry", "etcd"} {
		m := newMachine(t, d, "ABC123")
		m.lead = 100
		left, failed := 3, 0
		m.fail = func(what string) error {
			if what == verb && left > 0 {
				left--
				failed++
				return errors.New("the target does not answer")
			}
			if what == verb && 100-m.lead != failed {
				t.Errorf("%s: after %d failures, the others were served %d times", verb, failed, 100-m.lead)
			}
			if what == verb {
				m.lead = 0
			}
			return nil
		}
		if err := m.Start(t.Context()); err != nil || failed != 3 {
			t.Errorf("%s: %v, %d failures\n%s", verb, err, failed, m.out.String())
		}
		if n := len(m.claims); n != 3 || m.claims[n-1].State != seed.Failed {
			t.Errorf("%s: reports %+v", verb, m.claims)
		}
		m = newMachine(t, d, "ABC123")
		m.fail = func(what string) error {
			if what == verb {
				return errors.New("it stays broken")
			}
			return nil
		}
		if err := m.Start(t.Context()); fault.ExitCode(err) != fault.Preflight || m.ran[len(m.ran)-1] != "end" {
			t.Errorf("%s, until the seed expired: %v, ran %q", verb, err, m.ran)
		}
	}
}

// TestSecondCluster: a first control plane that has lost its disk does not make a second cluster while another control plane is there.
func TestSecondCluster(t *testing.T) {
	d := newDrive(t)
	other := d.seed.Cluster.Hosts[1]
	other.Name, other.Role, other.NodeIP = "cp-2", spec.ControlPlane, []netip.Addr{netip.MustParseAddr("10.0.0.12"), netip.MustParseAddr("fd00::12")}
	s := *d.seed
	s.Cluster.Hosts = append(slices.Clone(s.Cluster.Hosts), other)
	s.Cluster.Kubeadm = []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {bindPort: 7443}\n")
	for _, up := range []string{"", "10.0.0.12:7443"} {
		var asked []string
		err := (&site{}).Begun(dialer.With(t.Context(), func(_ context.Context, _, address string) (net.Conn, error) {
			if asked = append(asked, address); address != up {
				return nil, errors.New("connection refused")
			}
			client, _ := net.Pipe()
			return client, nil
		}), &s)
		if (err != nil) != (up != "") || err != nil && (!strings.Contains(err.Error(), "cp-2 at 10.0.0.12:7443") || fault.ExitCode(err) != fault.Preflight) || !slices.Equal(asked, []string{"10.0.0.12:7443"}) {
			t.Errorf("%q: %v, asked %q", up, err, asked)
		}
	}

	m := newMachine(t, d, "ABC123")
	m.begun = errors.New("the cluster exists")
	sleep, slept := m.Sleep, 0
	m.Sleep = func(ctx context.Context, d time.Duration) error {
		if len(m.ran) > 0 && m.begun != nil {
			t.Errorf("ran %q", m.ran)
		}
		if slept++; slept == 3 {
			m.begun = nil // the user has reset the other control plane
		}
		return sleep(ctx, d)
	}
	if err := m.Start(t.Context()); err != nil || len(m.ran) == 0 || m.ran[0] != "init" || !strings.Contains(m.out.String(), "the cluster exists; trying again") {
		t.Errorf("%v, ran %q\n%s", err, m.ran, m.out.String())
	}

	m = newMachine(t, d, "ABC123")
	m.begun = errors.New("the cluster exists")
	if err := m.Start(t.Context()); fault.ExitCode(err) != fault.Preflight || slices.Contains(m.ran, "init") {
		t.Errorf("until the seed expired: %v, ran %q", err, m.ran)
	}

	m = newMachine(t, d, "ABC123")
	m.begun = errors.New("the cluster exists")
	testhost.Write(t, filepath.Join(m.root, "etc/kubernetes/kubelet.conf"), "x", 0o600)
	if err := m.Host.begun(t.Context(), d.seed); err != nil {
		t.Errorf("a node whose init goes on: %v", err)
	}
}

// A host whose network card appears late finds its row; one without such a card is refused after a while.
func TestLateCard(t *testing.T) {
	d := newDrive(t)
	d.seed.Cluster.Hosts[1].Match = &spec.Match{MAC: "52:54:00:00:00:01"}
	d.sign(t, filepath.Join(filepath.Dir(d.key), "k.key"))
	for _, after := range []time.Duration{10 * time.Second, 29 * time.Second, time.Hour} {
		m := newMachine(t, d, "other")
		began := m.now
		m.Machine = func() (s seed.Machine) {
			if m.now.Sub(began) >= after {
				s.MACs = []string{"52:54:00:00:00:01"}
			}
			return s
		}
		before := testhost.Tree(t, m.root)
		err := m.Start(t.Context())
		if late := after == time.Hour; late != (fault.ExitCode(err) == fault.Preflight) || late != maps.Equal(before, testhost.Tree(t, m.root)) {
			t.Errorf("after %s: %v", after, err)
		}
		if !strings.Contains(m.out.String(), "waiting for a network card that is in the seed; this host has serial none, MAC addresses none") {
			t.Errorf("after %s:\n%s", after, m.out.String())
		}
	}
}

// No secret of a seed that has ended is left on a host that was not done, wherever it was; the record has the reason. An end that was interrupted
// is finished at the next boot.
func TestSecretsOfAnExpiredSeed(t *testing.T) {
	d := newDrive(t)
	late := func(m *machine) { m.now = created.Add(2 * time.Hour) }
	stays := func(at string) func(m *machine) {
		return func(m *machine) {
			m.fail = func(what string) error {
				if what == at {
					return errors.New("it stays broken")
				}
				return nil
			}
		}
	}
	for name, c := range map[string]struct {
		cut    string // the command at which the power is cut first
		change func(m *machine)
		reason string
	}{
		"no address":                {"", func(m *machine) { m.Addresses = func() []string { return nil } }, "waiting for the address 10.0.0.21"},
		"no first control plane":    {"", stays("report"), "it stays broken"},
		"a command fails":           {"", stays("registry"), "it stays broken"},
		"off until it had expired":  {"join", func(m *machine) { late(m); stays("join")(m) }, "it stays broken"},
		"cut with files of secrets": {"registry", func(m *machine) { late(m); stays("registry")(m) }, "it stays broken"},
		"in another machine":        {"join", func(m *machine) { late(m); m.Machine = func() seed.Machine { return seed.Machine{Serial: "ABC123"} } }, "is in the row of cp-1 now"},
		"in no row any more":        {"join", func(m *machine) { late(m); m.Machine = func() seed.Machine { return seed.Machine{} } }, "in no row"},
		"a damaged copy": {"join", func(m *machine) {
			late(m)
			testhost.Write(m.t, filepath.Join(m.root, copyFile), d.seed.Token, 0o600)
		}, "checking"},
		"a refused token": {"", func(m *machine) {
			m.fail = func(what string) error {
				if what == "report" {
					return fmt.Errorf("%w: unauthorized", errOver)
				}
				return nil
			}
		}, "no token for this host"},
		"next to another driver": {"join", func(m *machine) {
			_, _, release, err := host.LockForDriver(m.root, "me", false)
			if err != nil {
				t.Fatal(err)
			}
			m.t.Cleanup(release)
		}, "waiting for another command"},
	} {
		count := 0
		for cut := -1; cut < count; cut++ { // of the changes of the end
			m := newMachine(t, d, "w1")
			if c.cut != "" {
				m.begin(t, c.cut)
				m.Drive = ""
			}
			c.change(m)
			inner, ending := m.fail, 0
			ctx, off := context.WithCancel(t.Context())
			m.fail = func(what string) error {
				if strings.Contains(what, "/var/lib/airlift") && !m.now.Before(created.Add(time.Hour)) || strings.Contains(name, "token") && m.refused() {
					if ending++; cut >= 0 && ending > cut {
						off()
						return errors.New("power cut")
					}
				}
				return inner(what)
			}
			err := m.Start(ctx)
			if cut < 0 {
				count = ending
			} else {
				m.fail, m.Drive = inner, ""
				err = m.Start(t.Context())
			}
			r, readErr := seed.ReadRecord(m.root)
			if fault.ExitCode(err) != fault.Preflight || fault.Hint(err) == "" || readErr != nil || r == nil || r.State != seed.Expired || !strings.Contains(r.Reason, c.reason) {
				t.Errorf("%s, cut %d: %v; %+v, %v", name, cut, err, r, readErr)
			}
			for file, text := range m.files() {
				for _, secret := range []string{d.seed.Token, d.seed.CertificateKey, "dTpw", "s3-secret"} {
					if strings.Contains(text, secret) {
						t.Errorf("%s, cut %d: %s has a secret", name, cut, file)
					}
				}
			}
			if _, err := os.Stat(filepath.Join(m.root, Installer)); err == nil || !slices.Contains(m.units.Done, "disable "+seed.Unit) {
				t.Errorf("%s, cut %d: the unit would start the copy again: %q", name, cut, m.units.Done)
			}
			m.Drive = ""
			if p, err := m.DryRun(t.Context()); err != nil || len(p.Steps) > 0 || !strings.Contains(p.Over, c.reason) {
				t.Errorf("%s: a dry run: %+v, %v", name, p, err)
			}
		}
		t.Logf("%s: %d moments", name, count)
	}
}

// refused reports whether the cluster has refused the token for the last time.
func (m *machine) refused() bool { return len(m.claims) >= refusals }

// giveUp runs the seed with a clock at which certificates have expired.
func (m *machine) giveUp() {
	m.t.Helper()
	m.now = created.AddDate(50, 0, 0)
	m.fail = func(what string) error {
		if what == "join" {
			return errors.New("certificate has expired")
		}
		return nil
	}
	if err := m.Start(m.t.Context()); fault.ExitCode(err) != fault.Preflight {
		m.t.Fatal(err)
	}
}

// After a clock that was wrong, the drive begins again.
func TestExpiredByAWrongClock(t *testing.T) {
	d := newDrive(t)
	m := newMachine(t, d, "w1")
	m.begin(t, "join")
	m.giveUp()
	if err := m.Start(t.Context()); fault.ExitCode(err) != fault.Preflight || !strings.Contains(fmt.Sprint(err), "expired") {
		t.Errorf("with the drive and the wrong clock: %v", err)
	}
	m.now, m.fail = created.Add(time.Minute), func(string) error { return nil }
	if err := m.Start(t.Context()); err != nil {
		t.Error(err)
	}
	if r, err := seed.ReadRecord(m.root); err != nil || r.State != seed.Done || r.Reason != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

// A host that gave up and became a node by another command is refused like any other node, also after the clock was corrected.
func TestGivenUpIsANode(t *testing.T) {
	d := newDrive(t)
	for name, bySeed := range map[string]bool{"of another command": false, "of a command of the seed": true} {
		m := newMachine(t, d, "w1")
		m.begin(t, "join")
		becomes := func() {
			testhost.Write(t, filepath.Join(m.root, "/etc/kubernetes/kubelet.conf"), "apiVersion: v1\nkind: Config\n", 0o600)
		}
		if bySeed {
			becomes()
		}
		m.giveUp()
		becomes()
		m.now, m.fail, m.ran = created.Add(time.Minute), func(string) error { return nil }, nil
		before := m.files()
		_, dry := m.DryRun(t.Context())
		err := m.Start(t.Context())
		if bySeed && (err != nil || dry != nil) {
			t.Errorf("%s: %v, %v", name, err, dry)
		}
		if !bySeed && (fault.ExitCode(err) != fault.Preflight || fault.ExitCode(dry) != fault.Preflight || !strings.Contains(fmt.Sprint(err), "already") || len(m.ran) > 0 || !maps.Equal(before, m.files())) {
			t.Errorf("%s: %v, %v, ran %q", name, err, dry, m.ran)
		}
	}
}

// A power cut while the drive is copied leaves no secret without a record: the copy of the installer takes long.
func TestCutWhileCopying(t *testing.T) {
	d := newDrive(t)
	m := newMachine(t, d, "w1")
	m.fail = func(what string) error {
		if what == Installer {
			return errors.New("power cut")
		}
		return nil
	}
	if err := m.Start(t.Context()); err == nil {
		t.Fatal("it copied")
	}
	for file, text := range m.files() {
		if strings.Contains(text, d.seed.Token) {
			t.Errorf("%s has the token", file)
		}
	}
}

// begin runs a host until the power is cut before a command.
func (m *machine) begin(t *testing.T, verb string) {
	t.Helper()
	ctx, off := context.WithCancel(t.Context())
	m.fail = func(what string) error {
		if what == verb {
			off()
		}
		return ctx.Err()
	}
	if err := m.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	m.fail = func(string) error { return nil }
}

func TestDryRunAndEnd(t *testing.T) {
	d := newDrive(t)
	m := newMachine(t, d, "ABC123")
	before := testhost.Tree(t, m.root)
	p, err := m.DryRun(t.Context())
	if err != nil || p.Host != "cp-1" || len(p.Steps) != 3 || !strings.HasPrefix(p.Steps[0], "install init ") || !maps.Equal(before, testhost.Tree(t, m.root)) {
		t.Errorf("%+v, %v", p, err)
	}
	m.Drive = ""
	if p, err := m.DryRun(t.Context()); fault.ExitCode(err) != fault.Usage || !strings.Contains(fmt.Sprint(err), "has taken no seed") {
		t.Errorf("without a drive: %+v, %v", p, err)
	}
	m.Drive, m.now = d.dir, created.Add(-time.Hour)
	if p, err := m.DryRun(t.Context()); fault.ExitCode(err) != fault.Preflight || !m.now.Equal(created.Add(-time.Hour)) {
		t.Errorf("it waited for its clock: %+v, %v", p, err)
	}
	m.now = created
	m.begin(t, "registry")
	m.Drive = ""
	if p, err := m.DryRun(t.Context()); err != nil || len(p.Steps) != 2 || p.Over != "" {
		t.Errorf("after init, without a drive: %+v, %v", p, err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", d.dir} {
		m.Drive, before = dir, testhost.Tree(t, m.root)
		if p, err := m.DryRun(t.Context()); err != nil || p.Over != "this host is done" || p.Host != "cp-1" || len(p.Steps) > 0 || !maps.Equal(before, testhost.Tree(t, m.root)) {
			t.Errorf("a host that is done, with the drive %q: %+v, %v", dir, p, err)
		}
	}
	m.Drive = newDrive(t).dir
	if p, err := m.DryRun(t.Context()); fault.ExitCode(err) == 0 {
		t.Errorf("another seed: %+v", p)
	}
	if err := m.Host.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(m.root, seed.CopyDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the copy is left: %v", err)
	}
}

func TestMachine(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"/sys/class/dmi/id/product_serial":            "To Be Filled By O.E.M.\n",
		"/sys/firmware/devicetree/base/serial-number": "10000000abcdef\x00",
		"/proc/cmdline": "quiet airlift.label=rack-3 ro\n",
		seed.LabelFile:  "rack-3\n",
	} {
		testhost.Write(t, filepath.Join(root, name), text, 0o600)
	}
	card := net.HardwareAddr{0x52, 0x54, 0, 0xab, 0xcd, 0xef}
	own, permanent := net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}, net.HardwareAddr{0x52, 0x54, 0, 0, 0, 2}
	link := func(a netlink.LinkAttrs) netlink.Link { return &netlink.Device{LinkAttrs: a} }
	m := ReadMachine(root, []netlink.Link{
		link(netlink.LinkAttrs{Name: "lo", Flags: net.FlagLoopback, HardwareAddr: make(net.HardwareAddr, 6)}), link(netlink.LinkAttrs{Name: "eth0", HardwareAddr: card, PermHWAddr: card}),
		link(netlink.LinkAttrs{Name: "bond0", HardwareAddr: card}), link(netlink.LinkAttrs{Name: "eth1", HardwareAddr: card, Slave: &netlink.BondSlave{PermHardwareAddr: own}}),
		link(netlink.LinkAttrs{Name: "eth2", HardwareAddr: card, PermHWAddr: permanent}), link(netlink.LinkAttrs{Name: "ib0", HardwareAddr: make(net.HardwareAddr, 20)}), link(netlink.LinkAttrs{Name: "tun0"}),
	})
	if m.Serial != "10000000abcdef" || !slices.Equal(m.MACs, []string{card.String(), own.String(), permanent.String()}) || !slices.Equal(m.Labels, []string{"rack-3"}) {
		t.Errorf("%+v", m)
	}
	if m := ReadMachine(t.TempDir(), nil); m.Serial != "" || m.MACs != nil || m.Labels != nil {
		t.Errorf("an empty machine: %+v", m)
	}
}

// What a command prints is on the console, and its last error is the error.
func TestLastError(t *testing.T) {
	l := &lastError{}
	_, _ = io.WriteString(l, "progress\nerror: first\nerror: sec")
	_, _ = io.WriteString(l, "ond\nhint: none\n"+strings.Repeat("x", 3*maxLine)+"\n")
	if l.text != "second" {
		t.Errorf("%q", l.text)
	}
	for text, want := range map[string]string{"a\x1b[31m\nb": "a [31m b", strings.Repeat("ä", 300): strings.Repeat("ä", maxMessage-1) + "…"} {
		if got := clean(text); got != want {
			t.Errorf("%q", got)
		}
	}
}

// TestRefusedToken: an API server that has just started may refuse the token; one that goes on does not know it any more.
func TestRefusedToken(t *testing.T) {
	s := &seed.Seed{Expires: time.Now().Add(time.Hour)}
	over := fmt.Errorf("%w: unauthorized", errOver)
	for name, one := range map[string]struct {
		answers []error
		gives   bool // up
	}{
		"started":           {[]error{over, over, over, over, nil}, false},
		"refused in turns":  {[]error{over, over, over, io.EOF, over, over, over, over, nil}, false},
		"the token is gone": {[]error{over, over, over, over, over, nil}, true},
	} {
		b := &Host{Console: io.Discard, Now: time.Now, Sleep: func(context.Context, time.Duration) error { return nil }}
		calls := 0
		err := b.retry(t.Context(), s, func() error { calls++; return one.answers[calls-1] })
		if gave := errors.Is(err, errOver); gave != one.gives || !gave && err != nil {
			t.Errorf("%s: after %d answers: %v", name, calls, err)
		}
	}
}
