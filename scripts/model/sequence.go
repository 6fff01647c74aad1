package model

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"airlift/installer/config"
	"airlift/installer/flow/reconfigure"
	"airlift/installer/host/ledger"
	"airlift/installer/payload"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/installer/serving"
	"airlift/internal/fault"
)

// A Command is a command on a host, and what happens meanwhile.
type Command struct {
	Name string // "init", "reset", …
	Host int    // from 1
	File int    // the number of the bundle file
	// Target is the other host that the command is about, from 1; 0 if there is none.
	Target int
	// Crash is the change before which the host loses its power; 0 for none.
	Crash int
	// Before is the change before which the host loses its power, by its name.
	Before string
	// Days is how far the clocks jump before the command.
	Days int
	// Left is set if an interrupted command does not run again: the next command finds what it left.
	Left bool
	// Slow is set if a new etcd needs ten minutes until it is healthy.
	Slow bool
	// Full is set if the disk of the host is full from the change Crash on.
	Full bool
	// Shown is set if a dry run precedes the command.
	Shown bool
	// Again is set if the command runs once more when it has succeeded.
	Again bool
	// Meanwhile are commands that begin while it runs, also on other hosts.
	Meanwhile []Command
	// Delay is how many seconds later such a command begins.
	Delay int
	// Text is what editVariables and keepVariables write. It is not printed.
	Text string
}

func (c Command) String() string {
	text := fmt.Sprintf("host%d: ./%s %s", c.Host, Versions[c.File].Kubernetes, c.Name)
	if c.Target > 0 {
		text += fmt.Sprintf(" host%d", c.Target)
	}
	if c.Days != 0 {
		text += fmt.Sprintf(", %d days later", c.Days)
	}
	if c.Slow {
		text += ", etcd starts slowly"
	}
	if c.Full && c.Crash > 0 && applies(c.Name) {
		text += fmt.Sprintf(", the driver dies at change %d", c.Crash)
	} else if c.Full && c.Crash > 0 {
		text += fmt.Sprintf(", the disk is full from change %d on", c.Crash)
	} else if c.Crash > 0 {
		text += fmt.Sprintf(", crash at change %d", c.Crash)
	}
	if c.Before != "" {
		text += ", crash before " + c.Before
	}
	if c.Left {
		text += ", and left"
	}
	if c.Shown {
		text += ", after a dry run"
	}
	if c.Again {
		text += ", and again"
	}
	for _, other := range c.Meanwhile {
		text += fmt.Sprintf("; %ds later %s", other.Delay, other)
	}
	return text
}

// A Sequence is what happens at the site, one command after the other.
type Sequence []Command

func (s Sequence) String() string {
	var lines []string
	for _, c := range s {
		lines = append(lines, c.String())
	}
	return strings.Join(lines, "\n")
}

// hosts returns how many hosts a sequence needs.
func (s Sequence) hosts() (n int) {
	for _, c := range s {
		n = max(n, c.Host, c.Target, Sequence(c.Meanwhile).hosts())
	}
	return n
}

// A Site runs sequences.
type Site struct {
	*World
	bundles        []*payload.Bundle
	more           []*payload.Bundle // with the site's own images and manifests, for each of bundles
	report         strings.Builder   // what the commands printed
	before         map[string]map[string]string
	backups        []string
	clusters       int     // that were created
	current, saved string  // the number of the cluster that runs, and of the one in the backup
	taken          string  // the number of the cluster in the backup that the last restore took
	worked         []*Host // other control planes that worked before the command
	made           bool    // a cluster was created, and its data must stay
	yaml           *clusterYAML
	keys           map[string]string
	packaged       bool       // the files have packages of the distribution
	balanced       bool       // the files have the load balancer
	drive          *seedDrive // nil if no command has used it
	vault          *vault     // the target of backups; nil if no command has used it
	lastChanges    int        // of the last command
	Runs           int        // commands that ran
	Crashes        int
	Compared       int // how often a node was compared with the stored configuration
}

// NewSite creates a site below dir.
func NewSite(dir string, hosts int, bundles, more []*payload.Bundle) (*Site, error) {
	w, err := NewWorld(dir, hosts)
	if err != nil {
		return nil, err
	}
	s := &Site{World: w, bundles: bundles, more: more, before: map[string]map[string]string{}, keys: map[string]string{}}
	for _, h := range w.hosts {
		h.site = s
		s.before[h.Name] = h.files()
	}
	return s, nil
}

// Run runs a sequence, and returns what must not happen.
func (s *Site) Run(list Sequence) error {
	for _, c := range list {
		if err := s.run(c); err != nil {
			return fmt.Errorf("%s: %w\n\n%s\n%s", c, err, s.report.String(), strings.Join(s.log, "\n"))
		}
	}
	return nil
}

// run runs a command. If it crashed, or the disk was full, it runs again.
func (s *Site) run(c Command) error {
	if c.Days > 0 {
		s.jump(time.Duration(c.Days) * 24 * time.Hour)
	}
	switch {
	case slices.Contains(yamlEdits, c.Name):
		s.editYAML(c)
		return nil
	case applies(c.Name):
		return s.runApply(c)
	}
	h := s.hosts[c.Host-1]
	if !s.mayRun(h, c) {
		return nil
	}
	s.remember(h, c)
	change, unchanged, follows, record, had := h.changeOf(), h.configuration(), s.follows(h), h.reconfigured(), s.storesName()
	s.worked = s.working(h)
	if c.Name == nodeRemove {
		s.worked = slices.DeleteFunc(s.worked, func(o *Host) bool { return o == s.hosts[c.Target-1] })
	}
	h.slow, h.slowed = c.Slow, false
	var shown, before map[string]string
	var plan *reconfigure.Plan
	var plannable map[string]string
	if strings.HasPrefix(c.Name, "reconfigure") && c.Name != reconfigureUndo && len(c.Meanwhile) == 0 {
		var err error
		if plan, err = s.plan(h, c); err != nil {
			return err
		}
		plannable = h.plannable()
	}
	if c.Shown {
		var err error
		if shown, err = s.dryRun(h, c); err != nil {
			return err
		}
		before = h.files()
	}
	if c.Name == keepEdits || c.Name == keepVariables {
		time.Sleep(time.Minute) // the kubelet restarts what was edited
	}
	hardened := h.isHardened()
	running := h.containers()
	meanwhile := s.meanwhile(c)
	restarts := h.restartsRuntime(c)
	disturbed, err := s.once(h, c)
	if restarts() && !disturbed && err == nil {
		return errors.New("it restarts containerd, whose configuration it did not write")
	}
	if c.Name == keepEdits && !maps.Equal(running, h.containers()) {
		return fmt.Errorf("it restarts containers: %v, before %v", h.containers(), running)
	}
	h.slow = false
	changed := func() {
		if is := h.changeOf(); is != "" && is != change {
			h.unchanged, h.followed = unchanged, follows
		}
	}
	changed()
	if e := meanwhile(); e != nil {
		return e
	}
	if c.Name == reconfigureBroken && err != nil && !disturbed && change == "" && h.changeOf() == "" { // else it also undoes what an earlier run began
		if e := h.checkConfiguration(unchanged); e != nil {
			return e
		}
	}
	if e := s.keeps(h); e != nil {
		return e
	}
	if disturbed {
		s.Crashes++
		if !c.Left || c.Name != seedBoots {
			s.reboot()
		}
	}
	if disturbed && (c.Left || strings.HasSuffix(c.Name, ", interrupted")) {
		return s.keeps(h)
	}
	if disturbed {
		time.Sleep(time.Minute) // the host boots, and its components start
		c.Crash, c.Before = 0, ""
		running, restarts = h.containers(), h.restartsRuntime(c)
		_, err = s.once(h, c)
		if restarts() && err == nil {
			return errors.New("the second run restarts containerd, whose configuration no run wrote")
		}
		if c.Name == keepEdits && !maps.Equal(running, h.containers()) {
			return fmt.Errorf("the second run restarts containers: %v, before %v", h.containers(), running)
		}
		changed()
		if err != nil && settlesEdits(c.Name) {
			return fmt.Errorf("it was interrupted, and cannot be repeated: %w", err)
		}
	} else if h.slowed && err != nil {
		time.Sleep(slowStart)
		if _, err = s.once(h, c); err != nil && strings.HasPrefix(c.Name, "upgrade") {
			return fmt.Errorf("a second run fails, although etcd is healthy by now: %w", err)
		}
	}
	if errors.Is(err, errWayBack) {
		return err
	}
	if documents[c.Name] != "" && err == nil && hardened && !h.isHardened() {
		return errors.New("a document has taken the profile away")
	}
	if plan != nil && err == nil && !disturbed && !h.slowed {
		if err := asPlanned(plan, plannable, h.plannable()); err != nil {
			return err
		}
	}
	if shown != nil && len(c.Meanwhile) == 0 && err == nil && !disturbed && !h.slowed {
		if err := asShown(c.Name, shown, before, h.files()); err != nil {
			return err
		}
	}
	if err != nil {
		if e := checkError(err); e != nil {
			return e
		}
	} else if now := h.configuration()[apiServerCert]; c.Name == renewAll && now == unchanged[apiServerCert] {
		return errors.New("the certificate of the API server is not renewed")
	} else if writesPods.MatchString(c.Name) && len(c.Meanwhile) == 0 {
		if err := h.runsManifests(); err != nil {
			return err
		}
	}
	if err == nil && c.Name == reconfigureUndo {
		if e := s.followsAfterUndo(h, record, had); e != nil {
			return e
		}
	}
	if e := s.checkSeeds(c, err); e != nil {
		return e
	}
	if e := s.check(h, c, err); e != nil || err != nil {
		return e
	}
	if settlesEdits(c.Name) {
		h.editedFlags = h.editedFlags && c.Name != keepEdits
		h.edited, h.keptEdits = h.editedFlags, h.keptEdits || c.Name == keepEdits
	} else if c.Name == reconfigureUndo && h.keptEdits {
		h.edited = true // the edits are on the host, and the configuration does not have them any more
	}
	if len(c.Meanwhile) == 0 {
		if err := s.checkDrift(h, c); err != nil {
			return err
		}
	}
	if !c.Again {
		return nil
	}
	return s.again(h, c)
}

const apiServerCert = config.CertificatesDir + "/apiserver.crt"

// writesPods are the commands that write manifests of static pods.
var writesPods = regexp.MustCompile(`^(init|join --control-plane|upgrade .*|reconfigure .*|etcd restore|etcd restore URL)$`)

// runsManifests fails if a static pod does not run with its manifest.
func (h *Host) runsManifests() error {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	for component, want := range h.manifests() {
		if component == "user" { // nobody waits for it
			continue
		}
		if p := h.pods[component]; p == nil || p.gone || p.uid != want.uid || p.container == nil || p.container.process == nil {
			return fmt.Errorf("the command has succeeded, and %s does not run with its manifest", component)
		}
	}
	return nil
}

// again runs a command that has succeeded once more: it must not change anything.
func (s *Site) again(h *Host, c Command) error {
	h.fireTimer() // it may find that an API server is back
	before := h.state()
	c.Crash, c.Before, c.Meanwhile = 0, "", nil
	if _, err := s.once(h, c); err != nil {
		if e := checkError(err); e != nil {
			return e
		}
	}
	after := h.state()
	for name := range maps.Clone(before) {
		if after[name] != before[name] {
			return fmt.Errorf("the second run changed %s", name)
		}
		delete(after, name)
	}
	for name := range after {
		return fmt.Errorf("the second run created %s", name)
	}
	return s.check(h, c, nil)
}

// state returns the files and containers of a host, without the records of the runs.
func (h *Host) state() map[string]string {
	list := h.files()
	maps.DeleteFunc(list, func(name, _ string) bool {
		return strings.HasPrefix(name, ledger.StateDir) || strings.HasPrefix(name, render.RegistriesDir) // the timer follows the API servers
	})
	maps.Copy(list, h.containers())
	return list
}

// containers returns the IDs of the containers of a host, by their names.
func (h *Host) containers() map[string]string {
	list := map[string]string{}
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	for component, p := range h.pods {
		if p.container != nil {
			list["container "+component] = p.container.id
		}
	}
	return list
}

// meanwhile begins the commands that run while another one does, and returns a function that waits for their end.
func (s *Site) meanwhile(c Command) (wait func() error) {
	done := make([]error, len(c.Meanwhile))
	var running sync.WaitGroup
	for i, other := range c.Meanwhile {
		h := s.hosts[other.Host-1]
		if !s.mayRun(h, other) {
			continue
		}
		running.Go(func() {
			time.Sleep(time.Duration(other.Delay) * time.Second)
			if !h.busy() {
				s.remember(h, other)
			}
			_, done[i] = s.once(h, other)
		})
	}
	return func() error {
		running.Wait()
		for _, err := range done {
			if err != nil {
				if e := checkError(err); e != nil {
					return e
				}
			}
		}
		return nil
	}
}

// mayRun reports whether the model runs a command: one that the user would not run now is left out.
func (s *Site) mayRun(h *Host, c Command) bool {
	switch c.Name {
	case "edit a manifest", editAPIServer, editComment, editFlag, editFlags, editImage, "the API server is lost", renewAll, restoreEdits, keepEdits, reconfigureWide, reconfigureLittle, reconfigureBroken, reconfigureKey, reconfigureEncrypt:
		return h.controlPlane()
	case secretsEnable, secretsRotate, secretsDisable, harden, soften:
		return h.controlPlane()
	case recordAddress:
		return h.controlPlane() && !s.hosts[c.Target-1].controlPlane() && s.hosts[c.Target-1].claims == ""
	case otherAddress:
		return !h.controlPlane() && h.interrupted == "" && s.yaml == nil
	case userPackage:
		return strings.Trim(h.packages()["lib"], "0123456789") == "" && h.packages()["lib"] != ""
	case userUpgrade:
		return h.packages()["app"] == "1" || h.packages()["app"] == "2"
	case backupsRun:
		return h.unit(backupUnit + ".timer").active
	case hostLost:
		return h.controlPlane() && s.other(h) == nil && s.yaml == nil
	case "init", initEncrypted, initHardened, "etcd restore", "etcd restore, interrupted", backupRestore:
		return s.other(h) == nil && !s.seeding(h)
	case seedBoots, seedGiven, seedRun:
		return s.mayBoot(h)
	case "join", "join --control-plane", "join --control-plane, interrupted":
		return s.other(h) != nil
	case nodeRemove:
		return h.controlPlane() && c.Target != c.Host
	case balancerApply, balancerUndo, balancerRemove, leaseDamaged:
		return h.controlPlane()
	case hostReboots:
		return s.yaml == nil
	case claimAddress:
		return c.Target != c.Host
	case "kubectl delete node":
		return !h.exists(kubeletConf)
	case userPod:
		return h.exists(kubeletConf)
	case otherTool:
		return h.exists(kubeletConf) && h.interrupted == "" && !h.foreign && !h.exists(serving.SettingsPath) && !strings.Contains(h.read(config.KubeletConfigFile), "serverTLSBootstrap: true")
	}
	return true
}

// controlPlane reports whether a host is a control plane, or becomes one.
func (h *Host) controlPlane() bool { return h.exists("etc/kubernetes/manifests/kube-scheduler.yaml") }

// other returns another control plane, nil if there is none.
func (s *Site) other(h *Host) *Host {
	for _, o := range s.hosts {
		if o != h && o.controlPlane() {
			return o
		}
	}
	return nil
}

// works reports whether the control plane of a host works. The caller holds s.mu.
func (h *Host) works() bool {
	a := h.apiServer()
	return a != nil && !time.Now().Before(a.ready) && a.data() != nil
}

// remember keeps what an undo must restore, before the first run of an upgrade to another version.
func (s *Site) remember(h *Host, c Command) {
	to := Versions[c.File].Kubernetes
	if !strings.HasPrefix(c.Name, "upgrade ") || c.Name == "upgrade undo" || h.upgradesTo == to || h.version() == to {
		return
	}
	h.upgradesTo, h.former = to, map[string]string{}
	for name, sum := range h.files() {
		if strings.HasPrefix(name, "/usr/local/bin/") || strings.HasPrefix(name, "/etc/kubernetes/manifests/") || strings.HasPrefix(name, "/opt/cni/bin/") {
			h.former[name] = sum
		}
	}
}

// forgetsLocked no longer expects what a reset has begun to remove: it may be continued, and the data is not needed.
func (s *Site) forgetsLocked(r *run) {
	if r.changes == 0 || !r.resets {
		return
	}
	delete(s.keys, r.host.Name)
	s.made = s.made && len(s.keys) > 0
	r.host.userPod, r.host.upgradesTo, r.host.former = "", "", nil
}

// version returns the version of the installed kubelet.
func (h *Host) version() string { return versionText.FindString(h.read("usr/local/bin/kubelet")) }

// once runs a command once. disturbed reports whether it crashed, or the disk was full.
func (s *Site) once(h *Host, c Command) (disturbed bool, err error) {
	r, err := h.begin(c.Crash)
	if err != nil {
		return false, err
	}
	r.full, r.crashBefore = c.Full, c.Before
	s.mu.Lock()
	s.Runs++
	s.note("--- %s", c)
	s.mu.Unlock()
	began := time.Now()
	checkVault, checkPackages := s.beginVault(r, c.Name), s.beginPackages(r, c.Name)
	out, err := s.command(r, c)
	r.end()
	if e := errorsOf(checkVault(out, err), checkPackages(err)); e != nil {
		s.violate("%v", e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if key := h.read(config.CertificatesDir + "/ca.key"); strings.HasPrefix(c.Name, "rotate-ca") && key != "" {
		s.keys[h.Name] = key
	}
	if strings.HasPrefix(c.Name, "reset") {
		s.forgetsLocked(r)
	}
	s.lastChanges = r.changes
	Reached.count(c.Name, r.host.interrupted, out, r.disturbed, err)
	r.host.interrupted = ""
	if r.disturbed {
		r.host.interrupted = c.Name
	}
	if settles(c.Name) && r.changes > 0 {
		h.half = err != nil || r.disturbed
		h.moved = h.moved && h.half
	}
	if err := s.copyAccount(h, fault.Hint(err)); err != nil {
		return r.disturbed, err
	}
	fmt.Fprintf(&s.report, "\n=== %s: %v (after %s, %d changes)\nhint: %s\n%s", c, err, time.Since(began), r.changes, fault.Hint(err), out)
	return r.disturbed, err
}

func (s *Site) command(r *run, c Command) (string, error) {
	b := s.bundles[c.File]
	switch c.Name {
	case "init":
		return r.init(b)
	case initEncrypted:
		return r.initEncrypted(b)
	case initHardened:
		return r.initHardened(b)
	case recordAddress:
		return r.recordAddress(s.hosts[c.Target-1])
	case otherAddress:
		return "", r.host.move()
	case secretsEnable, secretsRotate, secretsDisable:
		return r.secrets(b, c.Name)
	case "reset":
		return r.reset(false, false)
	case seedBoots, seedGiven, seedRun, seedEnd, seedClaims, seedDone:
		return s.seedCommand(r, c)
	case "reset --force":
		return r.reset(true, false)
	case resetRemoveNode:
		return r.reset(true, true)
	case otherTool:
		return "", s.loseAirlift(r.host)
	case adoptNode:
		return r.adopt(b)
	case disownNode:
		return r.disown()
	case "join", "join --control-plane", "join --control-plane, interrupted":
		s.mu.Lock()
		if c := s.api(); c != nil {
			c.renewToken()
		}
		s.mu.Unlock()
		return r.join(b, s.other(r.host), c.Name != "join")
	case "the API server is lost":
		r.resets = true // it does not wait for the API server
		r.host.lost = time.Now().Add(lostFor)
		r.host.kill(func(p *pod) bool { return p.component == "kube-apiserver" }, false)
		return "", nil
	case "kubectl delete node":
		s.mu.Lock()
		defer s.mu.Unlock()
		if c := s.api(); c != nil {
			c.remove("nodes/" + r.host.Name)
		}
		return "", nil
	case renewAll:
		return r.renew()
	case "rotate-ca distribute", "rotate-ca issue", "rotate-ca finish", "rotate-ca cancel":
		key := ""
		if c.Name == "rotate-ca distribute" && r.host.controlPlane() {
			key = s.rotationKey()
		}
		return r.rotate(strings.TrimPrefix(c.Name, "rotate-ca "), key)
	case nodeRemove:
		return r.removeNode(s.hosts[c.Target-1].Name)
	case claimAddress:
		claimed := s.hosts[c.Target-1].IP
		s.mu.Lock()
		r.host.claims = claimed
		s.mu.Unlock()
		time.Sleep(2 * kubeletPeriod) // it reports it
		return "", nil
	case endpointApply, endpointNode, endpointUndo:
		return r.changeEndpoint(c.Name)
	case endpointMoves:
		s.moveEndpoint(c.Host - 1)
		return "", nil
	case formerRecords:
		return "", r.host.writeFormerRecords()
	case userPod:
		return "", r.host.addPod()
	case registryEnable:
		return r.enableRegistry(b)
	case registryDisable:
		return r.disableRegistry()
	case registryNode:
		return r.followRegistry()
	case siteImport, siteImportAll:
		return r.importSite(s.more[c.File], c.Name == siteImportAll)
	case siteApply:
		return r.applySite(s.more[c.File])
	case "upgrade apply":
		return r.upgrade(b, false)
	case "upgrade node":
		return r.upgrade(b, true)
	case "upgrade undo":
		return r.undo()
	case reconfigureWide, reconfigureLittle, reconfigureBroken, reconfigureNode, reconfigureKubelet, reconfigureProxy, reconfigureDNSImage, reconfigureKey, reconfigureEncrypt, harden, soften, restoreEdits, restoreEditsNode, keepEdits, keepPolicy, keepVariables, keepFlags:
		return r.reconfigure(b, c)
	case reconfigureImages:
		r.host.store.keepsImages(true)
		return r.reconfigure(b, c)
	case reconfigureFile:
		r.host.wrongClock = true
		return r.reconfigure(b, c)
	case removePolicy:
		r.host.edited = true
		return "", os.Remove(filepath.Join(r.host.Root, policyFile))
	case reconfigureUndo:
		return r.undoReconfigure()
	case "etcd snapshot":
		return r.snapshot()
	case "etcd snapshot, below /var/lib/airlift":
		return r.snapshotTo(filepath.Join(r.root, "var/lib/airlift/cluster.tar"))
	case "etcd snapshot, in etcd's directory":
		return r.snapshotTo(filepath.Join(r.root, "var/lib/etcd/cluster.tar"))
	case backupsTimer, backupsElsewhere, backupsOff, backupOnce, backupsRun:
		return s.backupElsewhere(r, c)
	case backupRestore:
		return s.restoreElsewhere(r, b)
	case packagesInstall:
		return r.installPackages(b)
	case packagesRemove:
		return r.removePackages()
	case userPackage, userUpgrade:
		return "", r.host.installOwn(c.Name)
	case hostLost:
		return "", s.lose(r.host, c.Host)
	case balancerApply, balancerUndo, balancerRemove:
		return r.applyBalancer(b, c.Name)
	case leaseDamaged:
		if err := s.damageLease(r); err != nil {
			s.violate("%v", err)
		}
		return "", nil
	case hostReboots, podKilled, nodeAlone:
		s.disturbNode(r.host, c.Name)
		return "", nil
	case targetWorks, targetDown, targetSilent, targetFull, targetWrong, targetCuts:
		v, err := s.vaultOf()
		if err == nil {
			v.turn(s, c.Name)
		}
		return "", err
	case "etcd restore", "etcd restore, interrupted":
		s.taken = s.saved
		return r.restore(b, filepath.Join(r.drive(), "cluster.tar"))
	case "edit a manifest", editAPIServer, editComment, editFlag, editFlags, editKubelet, editKubeletFlags, editImage, editPolicy, editDropIn, editFixed, editPause:
		return "", r.host.edit(c.Name)
	case editVariables:
		return "", r.host.addVariables(c.Text)
	case showDrift:
		return r.showDrift(b)
	case showPlans:
		return r.showPlans(b)
	case "the way back":
		return s.wayBack(r)
	}
	if slices.Contains(balancerCommands, c.Name) {
		s.useBalancer(c)
		return "", nil
	}
	return "", errors.New("the model has no such command")
}

// commandHints are what a hint has that names a command. "run it" and "the join command" refer to the command
// that failed, with another flag, or on another host.
var commandHints = []string{"./install", "./FILE", "/more-", "mv ", "rm ", "systemctl ", "kubectl ", "journalctl ", "cat ", "getent ", "groupadd ", "run it ", "run the same command", "the join command", "bundle build", "bundle seed", " --"}

// rotationKey returns the key that encrypts the new CAs, as the first control plane printed it.
func (s *Site) rotationKey() string {
	for _, h := range s.hosts {
		if key := h.read(pki.RotationKeyPath(&config.Config{Cluster: config.Cluster{CertificatesDir: config.CertificatesDir}})); key != "" {
			return strings.TrimSpace(key)
		}
	}
	return ""
}

// checkError fails if an error has no hint that is a command. After a usage error, it is the same command with
// another argument.
func checkError(err error) error {
	hint := fault.Hint(err)
	if hint != "" && fault.ExitCode(err) == fault.Usage {
		return nil
	}
	for _, command := range commandHints {
		if strings.Contains(hint, command) {
			return nil
		}
	}
	return fmt.Errorf("the error has no hint that is a command: %w; its hint is %q", err, hint)
}

// check fails if something is not as it must be after a command.
func (s *Site) check(h *Host, c Command, err error) error {
	if err == nil && slices.Contains([]string{"init", "join", "join --control-plane", "etcd restore", backupRestore, "upgrade apply", "upgrade node"}, c.Name) {
		if is := h.read(commandAirlift); is != installerText(h.version()) {
			return fmt.Errorf("the command airlift of a node with %s is %q", h.version(), is)
		}
	}
	if err == nil && s.packaged && slices.Contains([]string{"init", "join", "join --control-plane", packagesInstall}, c.Name) {
		if err := h.hasPackagesOf(s.bundles[c.File]); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
	case c.Name == "init", c.Name == initEncrypted, c.Name == initHardened, c.Name == "join --control-plane", c.Name == renewAll, strings.HasPrefix(c.Name, "rotate-ca"):
		if err := s.running(h, false); err != nil {
			return err
		}
	case c.Name == "join":
		if err := s.joined(h); err != nil {
			return err
		}
	case c.Name == nodeRemove:
		if err := s.left(s.hosts[c.Target-1]); err != nil {
			return err
		}
	case c.Name == endpointApply, c.Name == endpointNode, c.Name == endpointUndo:
		if err := s.reaches(h); err != nil {
			return err
		}
	case c.Name == registryEnable:
		if err := s.usesRegistry(h); err != nil {
			return err
		}
	case c.Name == siteImport, c.Name == siteImportAll, c.Name == siteApply:
		if err := s.hasSite(h, c.Name); err != nil {
			return err
		}
	case c.Name == registryDisable:
		if err := errors.Join(h.usesNoRegistry(), s.leftRegistry()); err != nil {
			return err
		}
	case c.Name == "etcd restore", c.Name == backupRestore, c.Name == "the way back" && h.version() != "":
		if err := s.running(h, c.Name == "etcd restore" || c.Name == backupRestore); err != nil {
			return err
		}
	case c.Name == "upgrade apply", c.Name == "upgrade node":
		if h.controlPlane() {
			if err := s.running(h, false); err != nil {
				return err
			}
		}
		if is, want := h.version(), Versions[c.File].Kubernetes; is != want {
			return fmt.Errorf("after the upgrade, the kubelet is %s, not %s", is, want)
		}
	case c.Name == "upgrade undo":
		if err := s.undone(h); err != nil {
			return err
		}
	case c.Name == reconfigureUndo:
		if err := h.checkConfiguration(h.unchanged); err != nil {
			return err
		}
		if err := s.running(h, false); err != nil {
			return err
		}
		if err := h.runsPolicy(); err != nil {
			return err
		}
	case c.Name == reconfigureBroken:
		return errors.New("the API server runs with a broken audit policy")
	case strings.HasPrefix(c.Name, "reconfigure"):
		if err := s.running(h, false); err != nil {
			return err
		}
		if c.Name == reconfigureImages && !h.store.keepsImages(false) {
			return errors.New("containerd may remove the images of the upgrade before this change, which can still be undone")
		}
		if c.Name == reconfigureWide && h.read(policyFile) != "policy\n" {
			return fmt.Errorf("the audit policy that was given is not written: %q", h.read(policyFile))
		}
		if err := h.runsPolicy(); err != nil {
			return err
		}
		return s.addOnImages()
	case c.Name == backupsTimer, c.Name == backupsElsewhere, c.Name == backupsOff, c.Name == backupOnce: // see beginVault
	case strings.HasPrefix(c.Name, "etcd snapshot"):
		file := filepath.Join(filepath.Dir(h.Root), "drive", "cluster.tar")
		if _, inside, ok := strings.Cut(c.Name, ", "); ok {
			file = filepath.Join(h.Root, strings.Fields(map[string]string{"below /var/lib/airlift": "var/lib/airlift/cluster.tar", "in etcd's directory": "var/lib/etcd/cluster.tar"}[inside])[0])
		}
		s.backups = append(s.backups, file)
		if c.Name == "etcd snapshot" {
			s.saved = s.current
		}
	case strings.HasPrefix(c.Name, "reset") && h.foreign && slices.ContainsFunc(c.Meanwhile, func(m Command) bool { return m.Host == c.Host && m.Name == "upgrade node" }):
		// The node may have been upgraded after the reset.
	case strings.HasPrefix(c.Name, "reset") && h.isAdopted():
		if err := s.asBeforeAdoption(h); err != nil {
			return err
		}
	case strings.HasPrefix(c.Name, "reset") && h.foreign:
		if h.exists(kubeletConf) {
			return errors.New("reset has not removed the node")
		}
	case strings.HasPrefix(c.Name, "reset"):
		if err := s.removed(h); err != nil {
			return err
		}
	case c.Name == disownNode && h.exists(kubeletConf):
		if err := s.notAdopted(h); err != nil {
			return err
		}
	}
	if err == nil {
		if err := errors.Join(s.stillWorking(c), s.reachesKubelets()); err != nil {
			return err
		}
	}
	if err := s.checkBalancer(h); err != nil {
		return err
	}
	return s.keeps(h)
}

// editAPIServer edits the manifest of the API server: the kubelet replaces it soon after.
const editAPIServer = "edit the API server's manifest"

// lostFor is how long an API server does not start that is lost.
const lostFor = 10 * time.Minute

// working returns the other control planes that work.
func (s *Site) working(h *Host) (list []*Host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.hosts {
		if o != h && o.works() {
			list = append(list, o)
		}
	}
	return list
}

// stillWorking fails if a command on one host has broken another one.
func (s *Site) stillWorking(c Command) error {
	for _, o := range s.worked {
		if c.Name == "the way back" && !o.controlPlane() { // it was reset
			continue
		}
		if !s.wait(func() bool { return o.works() }) {
			return fmt.Errorf("the control plane of %s does not work any more", o.Name)
		}
	}
	return nil
}

// wait waits ten minutes until something is true; is has the lock.
func (s *Site) wait(is func() bool) bool {
	for range 120 { // longer than an API server is lost, and the back-off after it
		s.mu.Lock()
		ok := is()
		s.mu.Unlock()
		if ok {
			return true
		}
		time.Sleep(10 * time.Second)
	}
	return false
}

// joined fails if a host is no node of the cluster.
func (s *Site) joined(h *Host) error {
	if !s.wait(func() bool { c := s.api(); return c != nil && c.data["nodes/"+h.Name] != "" }) {
		return fmt.Errorf("the cluster has no node %s", h.Name)
	}
	return nil
}

// undone fails if undo has not restored what the upgrade replaced.
func (s *Site) undone(h *Host) error {
	is := h.files()
	for name, sum := range h.former {
		if is[name] != sum {
			return fmt.Errorf("undo has not restored %s", name)
		}
	}
	h.upgradesTo, h.former = "", nil
	return s.running(h, false)
}

var restoreCommand = regexp.MustCompile(`etcd restore '?([^\s;,']+)`)

// wayBack undoes an upgrade. If that is not possible, it does what the hint says: it restores the backup.
func (s *Site) wayBack(r *run) (string, error) {
	out, err := r.undo()
	if err == nil {
		if e := s.undone(r.host); e != nil {
			return out, e
		}
		return out, nil
	}
	m := restoreCommand.FindStringSubmatch(fault.Hint(err))
	if m == nil || !strings.Contains(err.Error(), "cannot be undone") {
		return out, err
	}
	out += "\n" + fault.Hint(err)
	file := strings.TrimPrefix(m[1], r.host.Root+".run")
	if _, failed := os.Stat(filepath.Join(r.host.Root, file)); failed != nil {
		return out, fmt.Errorf("the way back does not exist: %w", failed)
	}
	made := s.made
	step := func(h *Host, name string, do func(*run) (string, error)) error {
		next, err := h.begin(0)
		if err == nil {
			var more string
			more, err = do(next)
			next.end()
			out += "\n--- " + name + "\n" + more
		}
		if err != nil {
			return fault.Wrap(fmt.Errorf("the way back fails: %s: %w", name, err), fault.Failure, "model: "+fault.Hint(err))
		}
		return nil
	}
	for _, h := range s.hosts {
		if !h.controlPlane() && h != r.host {
			continue
		}
		if err := step(h, "reset of "+h.Name, func(r *run) (string, error) { return r.reset(true, true) }); err != nil {
			return out, errors.Join(errWayBack, err)
		}
		delete(s.keys, h.Name)
		h.upgradesTo, h.former = "", nil
	}
	for i := range s.bundles {
		err = step(r.host, "etcd restore", func(r *run) (string, error) { return r.restore(s.bundles[i], filepath.Join(r.root, file)) })
		if err == nil {
			break
		}
	}
	if err != nil {
		return out, errors.Join(errWayBack, err)
	}
	s.made = made
	return out, nil
}

// errWayBack is the error of a way back that does not work: it has no hint, so a sequence ends with it.
var errWayBack = errors.New("the last good copy of the data cannot be restored")

// running fails if a control plane does not work. restored is set after a restore: then the data is from
// the backup.
func (s *Site) running(h *Host, restored bool) error {
	if !h.controlPlane() {
		return s.joined(h)
	}
	s.wait(h.works) // components start again after a crash
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.works() {
		return errors.New("the API server is not ready")
	}
	c := h.apiServer().data()
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		if p := h.pods[name]; p == nil || p.container == nil || p.container.process == nil {
			return fmt.Errorf("%s does not run", name)
		}
	}
	if c.data[userObject] == "" {
		if s.made || restored {
			return errors.New("the data of the cluster is lost")
		}
		s.clusters++
		s.current = fmt.Sprint(s.clusters)
		c.store(userObject, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "user", "namespace": "default"}, "data": map[string]any{"cluster": s.current}})
	}
	if is := text(c.object(userObject), "data", "cluster"); restored && s.taken != "" && is != s.taken {
		return fmt.Errorf("the restored data is not from the backup: it is of cluster %s, not of %s", is, s.taken)
	}
	s.current = text(c.object(userObject), "data", "cluster")
	s.made = true
	s.keys[h.Name] = h.read("etc/kubernetes/pki/ca.key")
	return s.keepsLocked(h)
}

// userObject is an object of the user, which must stay.
const userObject = "configmaps/default/user"

// keeps fails if something of the user is lost.
func (s *Site) keeps(h *Host) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keepsLocked(h)
}

func (s *Site) keepsLocked(h *Host) error {
	if s.violation != nil {
		return s.violation
	}
	if h.read("opt/user/data") != userText {
		return errors.New("a file of the user is lost: /opt/user/data")
	}
	if !h.foreign && h.read("etc/crictl.yaml") != userText && h.read("var/lib/airlift/originals/etc/crictl.yaml") != userText {
		return errors.New("a file of the user is lost: /etc/crictl.yaml")
	}
	if h.userPod != "" && h.read(userManifest) != h.userPod {
		return errors.New("the static pod of the user is lost")
	}
	if err := s.readsAll(); err != nil {
		return err
	}
	if key := s.keys[h.Name]; key != "" && h.read("etc/kubernetes/pki/ca.key") != key {
		return errors.New("the key of the CA is lost")
	}
	for _, file := range s.backups {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("a backup is lost: %w", err)
		}
	}
	if c := s.api(); c != nil && s.made && c.data[userObject] == "" {
		return errors.New("the data of the cluster is lost")
	}
	return nil
}

// savedSuffix is in the names of the copies of files that were edited.
const savedSuffix = ".airlift-saved"

// removed fails if reset left something.
func (s *Site) removed(h *Host) error {
	is, was := h.files(), s.before[h.Name]
	var left []string
	for name := range is {
		if strings.Contains(name, savedSuffix) || name == "/"+userManifest { // an edited file, or one of the user, which stays with its directories
			for ; name != "/"; name = filepath.Dir(name) {
				delete(is, name)
			}
		}
	}
	for name, sum := range is {
		if was[name] != sum {
			left = append(left, name)
		}
	}
	for name := range was {
		if !h.exists(name) {
			left = append(left, "lost: "+name)
		}
	}
	if len(left) > 0 {
		slices.Sort(left)
		return fmt.Errorf("reset left or changed: %s", strings.Join(left, ", "))
	}
	return s.keeps(h)
}

// files returns the sums of all files of a host, without the files that stay after reset.
func (h *Host) files() map[string]string { return filesBelow(h.Root) }

func filesBelow(root string) map[string]string {
	list := map[string]string{}
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root)
		switch {
		case err != nil || name == "":
		case strings.HasPrefix(name, "/"+dpkgDir) || name == "/var/log/dpkg.log" || strings.HasPrefix(name, "/usr/share"): // of packages, see beginPackages
		case strings.HasPrefix(name, "/proc/") || strings.HasPrefix(name, "/var/lib/airlift-backups") || name == "/run/airlift.lock" || name == "/run/airlift-send.lock" || name == "/run/airlift-cluster.lock":
		case name == "/etc/.pwd.lock" || strings.HasPrefix(name, "/etc/") && strings.HasSuffix(name, "-"): // of the tools for accounts
		case d.IsDir():
			list[name] = "directory"
		case d.Type()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			list[name] = "link to " + target
		default:
			data, _ := os.ReadFile(path)
			list[name] = fmt.Sprintf("%x", sha256.Sum256(data))
		}
		return nil
	})
	return list
}
