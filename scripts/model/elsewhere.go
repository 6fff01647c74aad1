package model

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"filippo.io/age"

	"airlift/installer/backup"
	"airlift/installer/backup/target"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/snapshot"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/sftphost"
)

// Commands with backups on another machine.
const (
	backupsTimer     = "etcd snapshot URL --every 6h"
	backupsElsewhere = "etcd snapshot OTHER-URL --every 6h"
	backupsOff       = "etcd snapshot --every off"
	backupsRun       = "the timer of backups runs"
	backupOnce       = "etcd snapshot URL"
	backupRestore    = "etcd restore URL"
	// hostLost replaces the last control plane by a new machine.
	hostLost = "the host is lost"

	targetWorks  = "the target of backups works"
	targetDown   = "the target of backups is down"
	targetSilent = "the target of backups does not answer"
	targetFull   = "the target of backups is full"
	targetWrong  = "the target of backups returns other bytes"
	targetCuts   = "the target of backups ends each connection early"
)

// targetStates are the states of the target.
var targetStates = []string{targetWorks, targetDown, targetSilent, targetFull, targetWrong, targetCuts}

// keptElsewhere is the --keep of the timers.
const keptElsewhere = 2

// targetAddress is where the target of backups is.
const targetAddress = "10.0.0.50:22"

// strangers are files of others at the target.
var strangers = []string{".airlift-part", "notes.txt", "airlift-backup-0123456789ab-20300101T000000Z-host1-0123456789abcdef-1.tar.age"}

// A vault is the machine with the backups: a real server of SFTP in the network of the world.
type vault struct {
	server *sftphost.Host
	dir    string // has the directories of both targets
	key    *age.X25519Identity
	state  string

	mu       sync.Mutex                   // guards the rest: commands may run on several hosts
	runs     map[string]int               // runs of timers that have not ended, by the host
	stored   map[string]int               // backups that the target got, by the host
	files    map[string]string            // the sums of the files at the target after the last command
	once     map[string]bool              // files of single sends
	waiting  map[string]map[string]string // the sums of the backups that wait, by the host
	lastCA   string                       // the hash of the CA in the last backup at the first target
	clusters map[string]string            // the number of the cluster with a CA, by its hash
}

// backupName matches the name of a backup at the target.
var backupName = regexp.MustCompile(`^airlift-backup-([0-9a-f]{12})-([0-9TZ]+)-(.+)-([0-9a-f]{16})-([0-9]+)\.tar\.age$`)

// A sentBackup is what the name of a backup has.
type sentBackup struct {
	ca, time, node, cluster string
	revision                int64
}

func readBackup(path string) (b sentBackup, ok bool) {
	m := backupName.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return b, false
	}
	revision, _ := strconv.ParseInt(m[5], 10, 64)
	return sentBackup{m[1], m[2], m[3], m[4], revision}, true
}

// vaultOf returns the machine with the backups, which has files of others.
func (s *Site) vaultOf() (*vault, error) {
	if s.vault != nil {
		return s.vault, nil
	}
	server, err := sftphost.New()
	if err != nil {
		return nil, err
	}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, err
	}
	v := &vault{server: server, dir: filepath.Join(filepath.Dir(s.hosts[0].Root), "vault"), key: key, runs: map[string]int{}, stored: map[string]int{},
		once: map[string]bool{}, clusters: map[string]string{}, waiting: map[string]map[string]string{}}
	for _, dir := range []string{"one", "other"} {
		if err := os.MkdirAll(filepath.Join(v.dir, dir), 0o700); err != nil {
			return nil, err
		}
		for _, name := range strangers {
			if err := os.WriteFile(filepath.Join(v.dir, dir, name), []byte(userText), 0o600); err != nil {
				return nil, err
			}
		}
	}
	if err := os.WriteFile(v.config(), []byte(server.Config()), 0o600); err != nil {
		return nil, err
	}
	v.files = filesBelow(v.dir)
	s.vault = v
	v.turn(s, targetWorks)
	return v, nil
}

// config is the file of --target-config.
func (v *vault) config() string { return filepath.Join(filepath.Dir(v.dir), "target.yaml") }

// url returns the URL of the directory one or other.
func (v *vault) url(dir string) string { return "sftp://backup@10.0.0.50" + filepath.Join(v.dir, dir) }

// turn gives the target another state.
func (v *vault) turn(s *Site, state string) {
	s.mu.Lock()
	l := s.listeners[targetAddress]
	s.mu.Unlock()
	if l != nil {
		l.Close()
	}
	v.state = state
	v.server.Fill(state == targetFull)
	v.server.ReturnWrong(state == targetWrong)
	v.server.CutAfter(map[string]int64{targetCuts: 9000}[state])
	if state == targetDown {
		return
	}
	s.mu.Lock()
	l = s.listen(targetAddress)
	s.mu.Unlock()
	s.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if state != targetSilent {
				s.done.Go(func() { v.server.Serve(c) })
			}
		}
	})
}

// A cable is the connection of a command to the target: before each packet, the host may lose its power.
type cable struct {
	net.Conn
	run *run
}

func (c cable) Write(p []byte) (int, error) {
	if err := c.run.effect("a packet to the target"); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// backupElsewhere runs a command with backups on another machine.
func (s *Site) backupElsewhere(r *run, c Command) (string, error) {
	v, err := s.vaultOf()
	if err != nil {
		return "", err
	}
	dir := "one"
	if c.Name == backupsElsewhere {
		dir = "other"
	}
	recipients, lines, err := backup.Recipients([]string{v.key.Recipient().String()}, nil)
	if err != nil {
		return "", err
	}
	if c.Name == backupsRun {
		return r.runBackupTimer()
	}
	a, err := target.ParseURL(v.url(dir))
	if err != nil {
		return "", err
	}
	to := snapshot.Destination{Address: a, Config: v.config()}
	switch c.Name {
	case backupsOff:
		return r.changing("etcd snapshot --every", "", func(h *host.Host, console *workflow.Console) error {
			return snapshot.RemoveTimer(r.ctx, h, console)
		})
	case backupOnce: // an interrupted reset does not matter to it
		return r.sending("etcd snapshot", recipients, func(b *snapshot.Backup) error { return b.SendOnce(r.ctx, to) })
	}
	return r.sending("etcd snapshot --every", recipients, func(b *snapshot.Backup) error {
		return b.Schedule(r.ctx, snapshot.Schedule{Elsewhere: &to, Every: 6 * time.Hour, Keep: keptElsewhere, Recipients: lines})
	})
}

// sending runs a command that locks the host itself, not while it sends a backup, as its cobra command does.
func (r *run) sending(command string, recipients []age.Recipient, do func(b *snapshot.Backup) error) (string, error) {
	h, err := host.Open(r.root)
	if err != nil {
		return "", err
	}
	r.use(h)
	var out bytes.Buffer
	b := snapshot.New(h, &workflow.Console{Out: &out, Results: io.Discard})
	b.Recipients, b.Open = recipients, func() (*host.Host, func(), error) { return r.open(command) }
	began := ledger.Run{Command: command, Began: time.Now().UTC().Truncate(time.Millisecond)}
	err = do(b)
	if h, unlock, oerr := b.Open(); oerr == nil {
		defer unlock()
		if h.Records().Used() {
			h.Records().BeginRun(began)
			h.Records().EndRun(time.Now(), int(fault.ExitCode(err)), fmt.Sprint(err))
		}
	}
	return out.String(), err
}

const backupUnit = "airlift-backup"

// timerCommand matches what the unit of the timer runs.
var timerCommand = regexp.MustCompile(`(?m)^ExecStart=\S+ etcd snapshot "([^"]+)" --scheduled --keep ([0-9]+) --target-config (\S+) --recipients-file (\S+)$`)

// runBackupTimer runs what the unit of the timer has.
func (r *run) runBackupTimer() (string, error) {
	unit := r.host.read("etc/systemd/system/" + backupUnit + ".service")
	m := timerCommand.FindStringSubmatch(unit)
	if m == nil {
		return "", fmt.Errorf("the timer of backups runs %q", unit)
	}
	a, err := target.ParseURL(m[1])
	if err != nil {
		return "", err
	}
	recipients, _, err := backup.Recipients(nil, []string{filepath.Join(r.root, m[4])})
	if err != nil {
		return "", err
	}
	keep, err := strconv.Atoi(m[2])
	if err != nil {
		return "", err
	}
	return r.sending("etcd snapshot --scheduled", recipients, func(b *snapshot.Backup) error {
		return b.SaveElsewhere(r.ctx, snapshot.Destination{Address: a, Config: filepath.Join(r.root, m[3])}, keep)
	})
}

// restoreElsewhere restores the cluster of the last backup that was reported as stored.
func (s *Site) restoreElsewhere(r *run, b *payload.Bundle) (out string, err error) {
	v, err := s.vaultOf()
	if err != nil {
		return "", err
	}
	var hashes []string
	if v.lastCA != "" {
		hashes = []string{v.lastCA}
	}
	h, err := host.Open(r.root)
	if err != nil {
		return "", err
	}
	r.use(h)
	f, err := snapshot.OpenElsewhere(r.ctx, h, v.url("one"), v.config(), hashes, []age.Identity{v.key})
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := f.CheckCA(hashes); err != nil {
		return "", err
	}
	s.taken = v.clusters[f.CACertHash()]
	newest := v.newestOf(f.CACertHash())
	if out, err = r.restoreFile(b, f); err == nil && f.Manifest.Snapshot.Revision < newest {
		s.violate("the restore takes %s, and the target has a backup of revision %d", f.Path, newest)
	}
	return out, err
}

// newestOf returns the highest revision at the first target of the cluster with a CA.
func (v *vault) newestOf(hash string) (revision int64) {
	list, _ := os.ReadDir(filepath.Join(v.dir, "one"))
	for _, f := range list {
		if b, ok := readBackup(f.Name()); ok && strings.HasPrefix(strings.TrimPrefix(hash, "sha256:"), b.ca) {
			revision = max(revision, b.revision)
		}
	}
	return revision
}

// scheduled reports whether a command does what the timer of backups does.
func scheduled(command string) bool {
	return command == backupsTimer || command == backupsElsewhere || command == backupsRun
}

// waitingOf returns the sums of the backups that wait on a host.
func (h *Host) waitingOf() map[string]string {
	list := filesBelow(filepath.Join(h.Root, host.WaitingBackups))
	maps.DeleteFunc(list, func(name, _ string) bool { _, ok := readBackup(name); return !ok })
	return list
}

// beginVault notes that a command begins, and returns the function that returns what must not happen to backups: see
// docs/architecture.md.
func (s *Site) beginVault(r *run, command string) (check func(out string, err error) error) {
	v, h := s.vault, r.host
	if v == nil {
		return func(string, error) error { return nil }
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if scheduled(command) {
		v.runs[h.Name]++
	}
	before := v.stored[h.Name]
	return func(out string, err error) error {
		v.mu.Lock()
		defer v.mu.Unlock()
		e := errorsOf(v.checkTarget(s.ctx, command, s.current), v.checkWaiting(h, command))
		if scheduled(command) {
			v.runs[h.Name]--
		}
		if e == nil && err == nil && (scheduled(command) || command == backupOnce) && v.stored[h.Name] == before {
			e = fmt.Errorf("%s has succeeded, and the target has no new backup", command)
		}
		return errorsOf(e, v.showsTruth(r, command, err), findPassword(r, command, out, err))
	}
}

// checkTarget fails if a command has changed or removed a file at the target that it must not, or has stored one that cannot be restored.
func (v *vault) checkTarget(ctx context.Context, command, cluster string) error {
	is := filesBelow(v.dir)
	left := map[string]int{} // backups of timers, by the target, the host and etcd's cluster
	in := func(name string, b sentBackup) string {
		return filepath.Dir(name) + " " + b.node + " " + b.ca + " " + b.cluster
	}
	for name := range is {
		if b, ok := readBackup(name); ok && !v.once[name] {
			left[in(name, b)]++
		}
	}
	for name, sum := range v.files {
		b, ok := readBackup(name)
		switch {
		case is[name] == sum || strings.HasPrefix(filepath.Base(name), ".airlift-") && filepath.Base(name) != strangers[0]:
		case is[name] != "":
			return fmt.Errorf("%s has changed the file %s of the target", command, name)
		case !ok || v.runs[b.node] == 0 || v.once[name] || slices.Contains(strangers, filepath.Base(name)):
			return fmt.Errorf("%s has removed the file %s of the target", command, name)
		case left[in(name, b)] < keptElsewhere:
			return fmt.Errorf("%s has removed the backup %s of the target, and leaves %d", command, name, left[in(name, b)])
		}
	}
	for name := range is {
		b, ok := readBackup(name)
		if !ok || v.files[name] != "" {
			continue
		}
		f, err := snapshot.Open(ctx, filepath.Join(v.dir, name), []age.Identity{v.key})
		if err != nil {
			return fmt.Errorf("%s has stored a backup at the target that cannot be read: %w", command, err)
		}
		if v.clusters[f.CACertHash()] == "" {
			v.clusters[f.CACertHash()] = cluster
		}
		if strings.HasPrefix(name, "/one/") {
			v.lastCA = f.CACertHash()
		}
		f.Close()
		v.stored[b.node]++
		v.once[name] = command == backupOnce
	}
	v.files = is
	return nil
}

// checkWaiting fails if a command has removed a backup that waits. A run of the timer may, if the target has it or a newer one of the same cluster, or if three
// newer ones wait.
func (v *vault) checkWaiting(h *Host, command string) error {
	waits := h.waitingOf()
	was := v.waiting[h.Name]
	v.waiting[h.Name] = waits
	for name, sum := range was {
		if waits[name] == sum {
			continue
		}
		b, _ := readBackup(name)
		newer := 0
		for other := range waits {
			if o, _ := readBackup(other); o.time > b.time {
				newer++
			}
		}
		made := slices.ContainsFunc(slices.Collect(maps.Keys(v.files)), func(at string) bool {
			o, ok := readBackup(at)
			return ok && o.ca == b.ca && o.node == b.node && o.cluster == b.cluster && o.time >= b.time
		})
		if waits[name] != "" || v.runs[h.Name] == 0 || newer < 3 && !made {
			return fmt.Errorf("%s has removed or changed the backup %s, which waits on %s", command, name, h.Name)
		}
	}
	return nil
}

// errorsOf returns the first error.
func errorsOf(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// showsTruth fails if the status of a host reports other backups than there are.
func (v *vault) showsTruth(r *run, command string, failed error) error {
	h, err := host.Open(r.host.Root)
	if err != nil || r.disturbed {
		return nil
	}
	record, err := node.LastBackup(h)
	if err != nil {
		return err
	}
	d, err := node.Departed(h, record)
	if err != nil || d == nil {
		return err
	}
	in := "/" + filepath.Base(d.Target) + "/"
	if d.Left != nil && v.files[in+d.Name] == "" {
		return fmt.Errorf("the status of %s reports the backup %s, and the target does not have it", r.host.Name, d.Name)
	}
	if waits := len(v.waiting[r.host.Name]); d.Waiting > waits || scheduled(command) && failed == nil && d.Waiting > 0 {
		return fmt.Errorf("the status of %s reports %d backups that wait, and %d do", r.host.Name, d.Waiting, waits)
	}
	if scheduled(command) && failed == nil && (d.Left == nil || record.Error != "") {
		return fmt.Errorf("the status of %s does not report the backup of %s: its error is %q", r.host.Name, command, record.Error)
	}
	return nil
}

// findPassword fails if the password of the target is anywhere but in the file of the timer.
func findPassword(r *run, command, out string, failed error) error {
	password := []byte(sftphost.Password)
	if strings.Contains(out+fmt.Sprint(failed), sftphost.Password) {
		return fmt.Errorf("the password of the target is in the output of %s", command)
	}
	var found error
	_ = filepath.WalkDir(r.host.Root, func(name string, d fs.DirEntry, err error) error {
		inside := strings.TrimPrefix(name, r.host.Root)
		if err != nil || !d.Type().IsRegular() || inside == target.ConfigPath {
			return nil
		}
		if data, err := os.ReadFile(name); err == nil && bytes.Contains(data, password) {
			found = fmt.Errorf("after %s, the password of the target is in %s of %s", command, inside, r.host.Name)
		}
		return nil
	})
	if command == backupsOff && failed == nil && !r.disturbed && r.host.exists(target.ConfigPath) {
		found = fmt.Errorf("%s has left %s", command, target.ConfigPath)
	}
	return found
}

// lose replaces a host by a new machine with its name and address.
func (s *Site) lose(h *Host, number int) error {
	for _, name := range []string{"kubelet.service", "containerd.service"} {
		_ = h.stop(name)
	}
	h.kill(func(*pod) bool { return true }, false)
	defer h.holdTimer()()
	h.endSpeaker()
	s.mu.Lock()
	*h = Host{world: h.world, Name: h.Name, IP: h.IP, Root: h.Root, nextID: h.nextID, current: h.current, timer: h.timer,
		units: map[string]*unit{}, store: newImageStore(), pods: map[string]*pod{}, waiting: map[string]waiting{}, restarting: map[string]bool{}}
	delete(s.keys, h.Name)
	s.made = s.made && len(s.keys) > 0
	s.mu.Unlock()
	list, err := os.ReadDir(h.Root)
	if err != nil {
		return err
	}
	for _, f := range list {
		if err := os.RemoveAll(filepath.Join(h.Root, f.Name())); err != nil {
			return err
		}
	}
	if err := h.prepare(number); err != nil {
		return err
	}
	s.before[h.Name] = h.files()
	s.backups = slices.DeleteFunc(s.backups, func(file string) bool { return strings.HasPrefix(file, h.Root+"/") })
	if v := s.vault; v != nil {
		delete(v.waiting, h.Name)
	}
	return nil
}
