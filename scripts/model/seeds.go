package model

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"airlift/bundle/signature"
	"airlift/installer/host"
	"airlift/installer/multihost/agent/boot"
	"airlift/installer/multihost/seed"
	"airlift/internal/fault"
)

// Commands of a site whose hosts boot from a drive with a seed. Their unit goes on while other commands run.
const (
	// seedBoots boots the host with the drive. At its first boot it gets its user data.
	seedBoots = "boots with a seed"
	// seedGiven gives the host its user data again before that, as for a new machine.
	seedGiven = "boots with a seed, and has its user data again"
	// seedRun is typed by a user, with the drive.
	seedRun = "seed run DIRECTORY"
	seedEnd = "seed end"
	// seedClaims is a host with the token that reports other hosts as done, and hosts that do not exist.
	seedClaims = "reports all hosts of the seed as done"
	// seedDone boots all hosts, and waits until nothing of the seed runs any more.
	seedDone = "all hosts boot with a seed, and it ends"
)

// seedTTL is how long a seed is valid.
const seedTTL = 12 * time.Hour

// A seedDrive is the drive of a site.
type seedDrive struct {
	dir, key string
	file     int // the number of the bundle file
	seed     *seed.Seed
	// mixed is set after a command that is not the seed's: the user may have changed what it makes.
	mixed    bool
	restored bool // etcd has data from before, which may have the token
}

// writeDrive writes a drive for the cluster.yaml of the site.
func (s *Site) writeDrive(file int) error {
	if s.yaml == nil {
		s.yaml = s.newYAML()
	}
	c, err := s.describe()
	if err != nil {
		return err
	}
	b := s.bundles[file]
	installer, err := os.ReadFile(b.File.Path())
	if err != nil {
		return err
	}
	d := &seedDrive{dir: filepath.Join(filepath.Dir(s.hosts[0].Root), "seed"), file: file}
	d.key = filepath.Join(d.dir, "key.pub")
	d.seed, err = seed.New(c, seed.Bundle{ID: b.File.ID(), Version: b.Manifest.KubernetesVersion, Arch: "amd64", SHA256: fmt.Sprintf("%x", sha256.Sum256(installer)), Size: int64(len(installer))}, time.Now(), seedTTL)
	if err != nil {
		return err
	}
	text, err := d.seed.Encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	secret := filepath.Join(d.dir, "key")
	if _, err := signature.WriteKeyPair(secret, d.key, ""); err != nil {
		return err
	}
	key, err := signature.ReadSecretKey(secret, nil)
	if err != nil {
		return err
	}
	s.drive = d
	return errors.Join(os.WriteFile(filepath.Join(d.dir, seed.Installer), installer, 0o700), os.WriteFile(filepath.Join(d.dir, seed.File), text, 0o600),
		os.WriteFile(filepath.Join(d.dir, seed.File+".minisig"), d.seed.Sign(text, key), 0o600))
}

// serial is the serial number of a host in cluster.yaml.
func serial(number int) string { return fmt.Sprintf("7XK2M%d", number) }

// rowOf returns the name of a host in the seed, "" if it is in no row.
func (s *Site) rowOf(h *Host) string {
	found, err := s.drive.seed.Find(seed.Machine{Serial: serial(slices.Index(s.hosts, h) + 1)})
	if err != nil {
		return ""
	}
	return found.Name
}

// leads reports whether a host is the first control plane of the seed. Before there is one, it is the one of cluster.yaml.
func (s *Site) leads(h *Host) bool {
	if s.drive == nil {
		return h == s.hosts[0]
	}
	return s.rowOf(h) == s.drive.seed.First().Name
}

// record returns how far a host is, nil if it has no seed.
func (h *Host) record() *seed.Record {
	r, _ := seed.ReadRecord(h.Root)
	return r
}

// seeding reports whether another host is becoming the first control plane.
func (s *Site) seeding(h *Host) bool {
	return s.drive != nil && slices.ContainsFunc(s.hosts, func(o *Host) bool {
		r := o.record()
		return o != h && r != nil && r.First && r.State == seed.Running
	})
}

// mayBoot reports whether the user gives a host the drive: a second cluster with the same endpoint is none of the user's wishes.
func (s *Site) mayBoot(h *Host) bool {
	if s.drive == nil && h.claims != "" {
		return false
	}
	return !s.leads(h) || h.exists(kubeletConf) || h.record() != nil || s.other(h) == nil
}

// provision gives a host its user data, as cloud-init does at the first boot.
func (s *Site) provision(h *Host) error {
	key, err := signature.ReadPublicKey(s.drive.key)
	if err != nil {
		return err
	}
	files, err := seed.Boot{Key: key, Start: seed.Start{First: 1, Last: 1, SHA256: strings.Repeat("0", 64)}}.Files()
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := h.put(f.Path, f.Text, os.FileMode(f.Mode)); err != nil {
			return err
		}
	}
	for name, sum := range h.files() {
		if ofSeed(name) { // until the host takes the seed, reset leaves it
			s.before[h.Name][name] = sum
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.provisioned, h.unit(seed.Unit).enabled = true, true
	return nil
}

// ofSeed reports whether a file is in the user data of a seed.
func ofSeed(name string) bool {
	return slices.Contains([]string{seed.Directory, seed.KeyFile, seed.ScriptFile, seed.UnitFile}, name)
}

// A seedUnit is the unit of the seed while it runs, or a command that a user has typed.
type seedUnit struct {
	site   *Site
	host   *Host
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	out    lockedText
	err    error // how it has ended

	// Guarded by the lock of the world:
	runs        []*run // its process, and the command that it runs
	crashAt     int    // the change before which the host loses its power; 0 for none
	crashBefore string
	full        bool // instead, the disk is full
	changes     int
	disturbed   bool
	crashed     bool
}

// A lockedText is what a unit prints.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// startSeed starts the unit. The caller holds w.mu.
func (h *Host) startSeed() {
	u := &seedUnit{site: h.site, host: h, done: make(chan struct{}), crashAt: h.nextCut.Crash, crashBefore: h.nextCut.Before, full: h.nextCut.Full}
	u.ctx, u.cancel = context.WithCancel(h.world.ctx)
	h.seed, h.nextCut = u, Command{}
	h.world.done.Go(func() {
		u.err = u.again(u.script)
		h.world.mu.Lock()
		if h.seed == u {
			h.unit(seed.Unit).active = false
		}
		h.world.mu.Unlock()
		close(u.done)
	})
}

// stopSeed stops the unit, and waits for its end.
func (h *Host) stopSeed() {
	h.world.mu.Lock()
	u := h.seed
	h.world.mu.Unlock()
	if u != nil {
		u.cancel()
		<-u.done
	}
}

// seedRuns reports whether the unit runs.
func (h *Host) seedRuns() bool {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	return h.seed != nil && !h.seed.over()
}

// over reports whether it has ended.
func (u *seedUnit) over() bool {
	select {
	case <-u.done:
		return true
	default:
		return false
	}
}

// again starts what the unit runs again after a failure, as systemd does.
func (u *seedUnit) again(do func() error) error {
	for {
		err := do()
		code := fault.ExitCode(err)
		if err == nil || u.ctx.Err() != nil || code == fault.Usage || code == fault.Preflight || code == fault.Bundle {
			return err
		}
		if err := u.sleep(u.ctx, 15*time.Second); err != nil {
			return err
		}
	}
}

// sleep waits, and does nothing during a jump of the clocks.
func (u *seedUnit) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	w := u.host.world
	w.mu.Lock()
	jump := w.jumping
	w.mu.Unlock()
	if jump != nil {
		<-jump
	}
	return nil
}

// script does what the script of a host does: it continues from the copy, or takes the drive.
func (u *seedUnit) script() error {
	if u.host.exists(boot.Installer) && u.host.exists(seed.RecordFile) {
		return u.run("")
	}
	return u.run(u.site.drive.dir)
}

// run is `seed run`.
func (u *seedUnit) run(drive string) error {
	b, end, err := u.boot()
	if err != nil {
		return err
	}
	defer end()
	b.Drive = drive
	first := u.site.leads(u.host)
	err = b.Start(b.ctx)
	if r := u.host.record(); err == nil && first && r != nil && r.State == seed.Ended && time.Now().Before(r.Expires) {
		u.site.allReady(r)
	}
	return err
}

// A seedHost is a host that runs a command of the seed.
type seedHost struct {
	*boot.Host
	ctx context.Context
}

// boot returns the host for a command of the seed.
func (u *seedUnit) boot() (b seedHost, end func(), err error) {
	h := u.host
	r, err := h.process(0)
	if err != nil {
		return b, nil, err
	}
	r.seed, r.installer = u, h.world.installer(Versions[u.site.drive.file].Kubernetes)
	h.world.mu.Lock()
	u.runs = []*run{r}
	h.world.mu.Unlock()
	stop := context.AfterFunc(u.ctx, r.cancel)
	end = func() { stop(); r.end() }
	b = seedHost{boot.New(r.root, &u.out, func() (*host.Host, func(), error) { return r.open("seed") }), r.ctx}
	b.Look = func() (*host.Host, error) {
		opened, err := host.Open(r.root)
		if err == nil {
			r.use(opened)
		}
		return opened, err
	}
	b.Key = filepath.Join(h.Root, seed.KeyFile)
	b.Run = u.command
	b.Machine = func() seed.Machine { return seed.Machine{Serial: serial(slices.Index(u.site.hosts, h) + 1)} }
	b.Addresses = func() []string { return []string{"127.0.0.1", h.IP} }
	b.Sleep = u.sleep
	return b, end, nil
}

// command runs a command of the installer.
func (u *seedUnit) command(ctx context.Context, args []string, stdin []byte) error {
	h := u.host
	r, err := h.begin(0)
	if err != nil {
		return err
	}
	defer r.end()
	r.seed, r.installer, r.removes = u, h.world.installer(Versions[u.site.drive.file].Kubernetes), h.Name
	h.world.mu.Lock()
	u.runs = append(u.runs[:1], r)
	h.world.note("--- %s: the seed runs %s", h.Name, strings.Join(args, " "))
	if u.crashed {
		r.dead = true
	}
	if h.driven > 0 {
		h.world.violateLocked("the seed runs %s on %s while a driver changes it", args[0], h.Name)
	}
	h.world.mu.Unlock()
	defer context.AfterFunc(ctx, r.cancel)()
	checkVault, checkPackages := u.site.beginVault(r, args[0]), u.site.beginPackages(r, args[0])
	text, err := u.site.installed(r, u.site.bundles[u.site.drive.file], args, stdin, &u.out)
	if e := errorsOf(checkVault(text, err), checkPackages(err)); e != nil {
		u.site.violate("%v", e)
	}
	Reached.count(seedBoots+": "+strings.Join(args[:min(2, len(args))], " "), "", text, r.disturbed, err)
	fmt.Fprintf(&u.out, "--- %s: ./install %s: %v (%d changes)\nhint: %s\n%s", h.Name, strings.Join(args, " "), err, r.changes, fault.Hint(err), text)
	if settles(args[0]) && r.changes > 0 {
		h.world.mu.Lock()
		h.half = err != nil || r.disturbed
		h.world.mu.Unlock()
	}
	return err
}

// fills reports whether the disk is full. The caller holds w.mu.
func (u *seedUnit) fills() bool { return u.full && u.crashAt > 0 && u.changes >= u.crashAt }

// cut is called before each change. It reports whether the host loses its power. The caller holds w.mu.
func (u *seedUnit) cut(what string) bool {
	u.changes++
	if u.fills() {
		u.disturbed = true
	}
	return !u.full && (u.changes == u.crashAt || u.crashBefore != "" && what == u.crashBefore)
}

// lose ends it with the power of its host. The caller holds w.mu.
func (u *seedUnit) lose() {
	if u.crashed || u.over() {
		return
	}
	u.crashed, u.disturbed = true, true
	u.cancel()
	for _, r := range u.runs {
		if !r.dead {
			r.die()
		}
	}
}

// reboot starts the units of hosts that have lost their power.
func (s *Site) reboot() {
	for _, h := range s.hosts {
		s.mu.Lock()
		starts := h.seed != nil && h.seed.crashed && h.unit(seed.Unit).enabled && !h.unit(seed.Unit).active && !h.off
		s.mu.Unlock()
		if starts && h.unitFile(seed.Unit) != "" {
			_ = h.start(seed.Unit)
		}
	}
}

// seedCommand runs a command of the seed on its host.
func (s *Site) seedCommand(r *run, c Command) (string, error) {
	h := r.host
	if s.drive == nil {
		if err := s.writeDrive(c.File); err != nil {
			return "", err
		}
	}
	switch c.Name {
	case seedClaims:
		s.mu.Lock()
		defer s.mu.Unlock()
		if c := s.api(); c != nil {
			c.update("configmaps/kube-system/airlift-seed", func(o map[string]any) {
				for _, name := range append([]string{"stranger"}, s.drive.names()...) {
					claim, _ := json.Marshal(boot.Claim{State: seed.Done, Time: time.Now()})
					set(o, string(claim), "data", name)
				}
			})
		}
		return "", nil
	case seedRun, seedEnd:
		u := &seedUnit{site: s, host: h, done: make(chan struct{}), crashAt: r.crashAt, crashBefore: r.crashBefore, full: r.full}
		u.ctx, u.cancel = context.WithTimeout(r.ctx, 10*time.Minute) // then Ctrl-C
		defer u.cancel()
		before, node, record := h.files(), h.exists(kubeletConf), h.record()
		do := func() error { return u.run(s.drive.dir) }
		if c.Name == seedEnd {
			do = u.end
		} else if err := s.keyOf(h); err != nil {
			return "", err
		}
		err := do()
		close(u.done)
		r.changes, r.disturbed = u.changes, u.disturbed
		if c.Name == seedRun && err != nil && u.ctx.Err() == nil && !r.disturbed && len(c.Meanwhile) == 0 {
			if e := s.refusedSeed(h, node, record, before); e != nil {
				return u.out.String(), e
			}
		}
		if node && record != nil && record.State == seed.Expired && !record.Node && strings.Contains(u.out.String(), "copying the drive") {
			return u.out.String(), fmt.Errorf("%s is a node since it gave up the seed, and takes it again", h.Name)
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			err = nil
		}
		return u.out.String(), err
	}
	if !h.provisioned || c.Name == seedGiven {
		if err := s.provision(h); err != nil {
			return "", err
		}
	}
	hosts := []*Host{h}
	if c.Name == seedDone { // nothing disturbs it any more, unless the command has a crash
		s.undisturbed()
		hosts = nil
		for _, o := range s.hosts {
			if s.rowOf(o) != "" && s.mayBoot(o) {
				hosts = append(hosts, o)
			}
			if !o.provisioned && s.rowOf(o) != "" {
				if err := s.provision(o); err != nil {
					return "", err
				}
			}
		}
	}
	var out strings.Builder
	before, node, record := h.files(), h.exists(kubeletConf), h.record()
	for _, o := range hosts {
		if o.seedRuns() || !o.unit(seed.Unit).enabled || o.unitFile(seed.Unit) == "" {
			continue
		}
		if o == h {
			o.nextCut = Command{Crash: r.crashAt, Before: r.crashBefore, Full: r.full}
		}
		if err := o.start(seed.Unit); err != nil {
			return "", err
		}
	}
	for range 120 { // ten minutes
		waits := slices.ContainsFunc(hosts, func(o *Host) bool { return o.seedRuns() && (c.Name == seedDone || !o.leadsNow()) })
		if !waits {
			break
		}
		time.Sleep(5 * time.Second)
		if c.Name == seedDone {
			s.reboot()
		}
	}
	var failed error
	for _, o := range hosts {
		if u := o.seed; u != nil {
			fmt.Fprintf(&out, "%s: %s", o.Name, u.out.String())
			if o == h {
				s.mu.Lock()
				r.changes, r.disturbed = u.changes, u.disturbed
				s.mu.Unlock()
			}
			if u.over() && !u.disturbed && failed == nil && u.ctx.Err() == nil { // else it was stopped
				failed = u.err
			}
		}
	}
	if u := h.seed; u != nil && u.full && u.disturbed { // the user makes room
		s.mu.Lock()
		u.full = false
		s.mu.Unlock()
		h.stopSeed()
	}
	if failed != nil && c.Name != seedDone && !r.disturbed && len(c.Meanwhile) == 0 {
		if err := s.refusedSeed(h, node, record, before); err != nil {
			return out.String(), err
		}
	}
	return out.String(), failed
}

// undisturbed ends what disturbs the units of hosts from now on.
func (s *Site) undisturbed() {
	s.mu.Lock()
	for _, h := range s.hosts {
		if h.seed != nil {
			h.seed.crashAt, h.seed.crashBefore = 0, ""
		}
	}
	s.mu.Unlock()
	s.reboot()
}

// keyOf writes the public key that a user takes from the drive, to a host without user data.
func (s *Site) keyOf(h *Host) error {
	if h.exists(seed.KeyFile) {
		return nil
	}
	return s.provision(h)
}

// end is `seed end`.
func (u *seedUnit) end() error {
	b, end, err := u.boot()
	if err != nil {
		return err
	}
	defer end()
	return b.End(b.ctx)
}

// leadsNow reports whether a host is the first control plane, and waits for the others.
func (h *Host) leadsNow() bool {
	return h.record() != nil && strings.Contains(h.seed.out.String(), "hosts are done; waiting for")
}

// names are the names of the hosts in the seed.
func (d *seedDrive) names() (list []string) {
	for _, h := range d.seed.Cluster.Hosts {
		list = append(list, h.Name)
	}
	return list
}

// refusedSeed fails if a seed that a host has refused has changed it.
func (s *Site) refusedSeed(h *Host, node bool, had *seed.Record, before map[string]string) error {
	is := h.record()
	if had == nil && is != nil || had != nil && !node { // it took the seed, and gave up
		return nil
	}
	var changed []string
	for _, name := range differing(before, h.files()) {
		if !strings.HasPrefix(name, "/var/lib/kubelet") && !strings.HasPrefix(name, "/var/lib/airlift/seed") {
			changed = append(changed, name)
		}
	}
	if len(changed) > 0 {
		return fmt.Errorf("%s refuses the seed, and has changed %v", h.Name, changed)
	}
	return nil
}

// allReady fails if the first control plane ends the seed before each host has a node: what hosts report is only a claim.
func (s *Site) allReady(r *seed.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.api()
	if c == nil {
		return
	}
	for _, row := range r.Hosts {
		if c.data["nodes/"+row.Name] == "" {
			s.violateLocked("the seed has ended before %s is a node: the reports of the hosts are believed", row.Name)
		}
	}
}

// checkSeeds fails if a host or the cluster has something of a seed that has ended there, or if it is not what the seed makes.
func (s *Site) checkSeeds(c Command, err error) error {
	d := s.drive
	if d == nil {
		return nil
	}
	switch {
	case c.Name == seedBoots || c.Name == seedRun && err == nil, c.Name == seedDone:
	default:
		d.mixed = true
	}
	d.restored = d.restored || strings.Contains(c.Name, "restore") || c.Name == "the way back"
	for _, h := range s.hosts {
		r := h.record()
		if r != nil {
			for name := range s.before[h.Name] { // from here on, reset removes them
				if ofSeed(name) {
					delete(s.before[h.Name], name)
				}
			}
		}
		s.mu.Lock()
		runs := h.seed != nil && !h.seed.over()
		cut := h.seed != nil && h.seed.disturbed
		s.mu.Unlock()
		if runs || cut || r == nil || r.State == seed.Running {
			continue
		}
		if err := d.secretsOn(h); err != nil {
			return err
		}
		if err := s.hasToken(); r.State == seed.Ended && !d.restored && err != nil {
			return err
		}
	}
	if c.Name == seedDone && err == nil && !d.mixed {
		d.mixed = true
		for _, h := range s.hosts {
			if r := h.record(); s.rowOf(h) != "" && (r == nil || r.State != seed.Done && r.State != seed.Ended) {
				return fmt.Errorf("all hosts have the seed, and %s is not done: %+v", h.Name, r)
			}
		}
		return s.applied(Command{Name: clusterApply, Host: 1, File: d.file})
	}
	return nil
}

// secretsOn fails if a host has a secret of the seed.
func (d *seedDrive) secretsOn(h *Host) error {
	_, secret, _ := strings.Cut(d.seed.Token, ".")
	return filepath.WalkDir(h.Root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.HasPrefix(path, h.Root+"/var/lib/etcd/") { // etcd has the token until the cluster ends it
			return nil
		}
		data, _ := os.ReadFile(path)
		for _, one := range []string{secret, d.seed.CertificateKey, toBase64(secret)} {
			if strings.Contains(string(data), one) {
				return fmt.Errorf("the seed has ended on %s, and %s has a secret of it", h.Name, strings.TrimPrefix(path, h.Root))
			}
		}
		return nil
	})
}

// hasToken fails if the cluster has something that the seed needs.
func (s *Site) hasToken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.api()
	id, _, _ := strings.Cut(s.drive.seed.Token, ".")
	for _, key := range []string{"secrets/kube-system/bootstrap-token-" + id, "roles/kube-system/airlift-seed", "rolebindings/kube-system/airlift-seed"} {
		if c != nil && c.data[key] != "" {
			return fmt.Errorf("the seed has ended, and the cluster has %s", key)
		}
	}
	return nil
}
