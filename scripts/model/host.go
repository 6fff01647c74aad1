package model

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"airlift/installer/config"
	"airlift/installer/flow/reconfigure"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	hostsystemd "airlift/installer/host/systemd"
	"airlift/installer/node"
	"airlift/installer/serving"
	"airlift/internal/dialer"
)

// A Host is a machine: a directory, and what runs on it.
type Host struct {
	world *World
	Name  string
	IP    string
	Root  string // the directory

	units map[string]*unit
	store *imageStore

	pods        map[string]*pod // by component, what the CRI has
	nextID      int
	endKubelet  func()
	kubeletMade string            // version of the kubelet that runs
	endRuntime  func()            // stops containerd
	current     *run              // the command that runs; nil if there is none
	restarting  map[string]bool   // components that the current command has stopped
	slow        bool              // a new etcd starts slowly
	slowed      bool              // by the last command
	upgradesTo  string            // the version of the last upgrade
	former      map[string]string // the files from before it
	unchanged   map[string]string // the configuration from before the last reconfiguration
	followed    int               // the number that its node followed before that
	wrongClock  bool              // the clock was set back: the audit policy gets an older time than the containers have
	failures    map[string]bool
	reported    string             // what the kubelet has reported, and what the cluster has of it
	waiting     map[string]waiting // pods that the kubelet starts later, by component
	eager       bool               // the kubelet does not wait
	lost        time.Time          // until when the API server does not start
	edited      bool               // by hand
	newPolicy   bool               // an audit policy that was edited by hand, which the API server reads when it starts
	editedFlags bool               // of the kubelet, which the configuration of the cluster does not give
	keptEdits   bool               // once
	registered  uint64             // the cluster in which the kubelet has registered since it started
	interrupted string             // the last command, "" if it was not interrupted
	claims      string             // another host's address that the kubelet reports as its own
	timer       chan struct{}      // has room for what a timer has started
	off         bool               // it has no power
	silent      time.Time          // since when the kubelet does not run; zero if it does
	foreign     bool               // another tool made the node
	asAdopted   map[string]string  // the files that it had when it was adopted
	userPod     string             // the manifest of a static pod of the user
	port        *kubeletPort       // nil if the kubelet does not run
	moved       bool               // its node has another address than the cluster knows
	verified    bool               // its last API server verified kubelets
	half        bool               // a command that begins or ends its membership did not end
	site        *Site
	provisioned bool              // it has had its user data
	seed        *seedUnit         // the unit of the seed that runs, or has run; nil if none has
	nextCut     Command           // what disturbs the unit when it starts
	driven      int               // commands of a driver that change it now
	approver    *serving.Approver // of the unit with the invocation approverOf
	approverOf  byte
	judged      time.Time // when it judged the requests in refused
	refused     string
	speaker     *speaker  // the pod of the load balancer that runs; nil if none does
	boots       time.Time // until when the host boots after a power cut
	alone       time.Time // until when its load balancer reaches no API server
}

// cgroups is a file system of cgroups that the model mounts.
const cgroups = "/var/lib/cgroups"

// userText is the content of the files of the user.
const userText = "the user's\n"

// prepare creates what a host has before Airlift: kernel parameters, systemd.
func (h *Host) prepare(number int) error {
	users, groups, ldap := accounts(number)
	if ldap {
		if err := h.put(inLDAP, "", 0o644); err != nil {
			return err
		}
	}
	if err := h.prepareDpkg(); err != nil {
		return err
	}
	if err := h.put("usr/bin/systemd-sysusers", "", 0o755); err != nil { // the process runs the real one
		return err
	}
	for file, text := range map[string]string{
		"proc/sys/net/ipv4/ip_forward":                 "0\n",
		"proc/sys/net/bridge/bridge-nf-call-iptables":  "1\n",
		"proc/sys/net/bridge/bridge-nf-call-ip6tables": "1\n",
		"proc/sys/vm/overcommit_memory":                "0\n",
		"proc/sys/vm/panic_on_oom":                     "0\n",
		"proc/sys/kernel/panic":                        "0\n",
		"proc/sys/kernel/panic_on_oops":                "0\n",
		"proc/sys/kernel/keys/root_maxkeys":            "1000000\n",
		"proc/sys/kernel/keys/root_maxbytes":           "25000000\n",
		"etc/passwd":                                   "root:x:0:0::/root:/bin/sh\n" + users,
		"etc/group":                                    "root:x:0:\n" + groups,
		"etc/shadow":                                   "root:*:20000:0:99999:7:::\n",
		"etc/gshadow":                                  "root:*::\n",
		"etc/hostname":                                 h.Name + "\n",
		"etc/resolv.conf":                              "nameserver 10.0.0.53\n",
		"run/systemd/system/ignore":                    "",
		"proc/1/status":                                "CapInh:\t0000000000000000\nCapPrm:\t000001ffffffffff\nCapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n",
		"proc/self/status":                             "CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n",
		"proc/swaps":                                   "Filename\tType\tSize\tUsed\tPriority\n",
		"proc/sys/net/netfilter/nf_conntrack_max":      "131072\n",
		"etc/machine-id":                               h.Name + "\n",
		"etc/crictl.yaml":                              userText, // a file that Airlift replaces
		"opt/user/data":                                userText,
	} {
		if err := h.put(file, text, 0o644); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(h.Root, "proc/self/ns"), 0o755); err != nil {
		return err
	}
	if err := os.Symlink("pid:[1]", filepath.Join(h.Root, "proc/self/ns/pid")); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(h.Root, "sys/fs"), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(cgroups, filepath.Join(h.Root, "sys/fs/cgroup")); err != nil {
		return err
	}
	for _, dir := range []string{"etc/systemd/system", "usr/local/bin", "usr/local/sbin", "var/lib", "var/log", "opt", "tmp", "lib"} {
		if err := os.MkdirAll(filepath.Join(h.Root, dir), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// put writes a file that a component of the host writes, not Airlift.
func (h *Host) put(file, text string, mode os.FileMode) error {
	at := filepath.Join(h.Root, file)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	return os.WriteFile(at, []byte(text), mode)
}

func (h *Host) read(file string) string {
	data, _ := os.ReadFile(filepath.Join(h.Root, file))
	return string(data)
}

func (h *Host) exists(file string) bool {
	_, err := os.Lstat(filepath.Join(h.Root, file))
	return err == nil
}

// A run is one command on a host, until it ends or crashes.
type run struct {
	host         *Host
	root         string    // a link to the host's directory, which a crash removes
	installer    string    // the file of the running installer
	seed         *seedUnit // that runs it; nil if none does
	login        *login    // of the driver that runs it; nil if nobody else does
	ctx          context.Context
	cancel       context.CancelFunc
	crashAt      int    // the change before which it crashes; 0 for none
	crashBefore  string // its name
	full         bool   // instead of the crash, the disk is full
	changes      int
	disturbed    bool   // it has crashed, or met a full disk
	last         string // the change before which it crashed
	dead         bool
	resets       bool     // it removes the node
	imports      bool     // its writes of images are changes: it does nothing else meanwhile
	dry          bool     // it only shows what it would do
	removes      string   // the node that it takes out of the cluster
	planned      []string // the files and binaries that the plan of an upgrade has
	reconfigures *reconfigure.Plan
	profile      string // of init
}

var errCrashed = errors.New("the machine of the model lost its power")

// effect is called before each change. It returns an error if the command has crashed.
func (r *run) effect(what string) error {
	w := r.host.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.dead {
		return errCrashed
	}
	if strings.HasPrefix(what, "/opt/cni/bin") || strings.HasPrefix(what, "/usr/local/bin") || strings.HasPrefix(what, "/usr/local/sbin") || strings.Contains(what, "/staged/") {
		return nil // in parallel with the steps: not in a fixed order
	}
	r.changes++
	cut := r.seed != nil && r.seed.cut(what)
	if r.seed != nil && r.seed.fills() && strings.HasPrefix(what, "/") {
		return syscall.ENOSPC
	}
	if r.full && r.crashAt > 0 && r.changes >= r.crashAt {
		r.disturbed = true
		if strings.HasPrefix(what, "/") {
			return syscall.ENOSPC
		}
		return nil
	}
	if (r.changes == r.crashAt || what == r.crashBefore || r.login != nil && r.login.driver.disturb() || cut) && !r.full {
		r.disturbed = true
		r.last = what
		w.note("%s: crash before %s (change %d)", r.host.Name, what, r.changes)
		r.die()
		return errCrashed
	}
	return nil
}

// change makes a change of the host. Its files get the time of the model.
func (r *run) change(path string, do func() error) error {
	if err := r.effect(path); err != nil {
		return err
	}
	if path == "/etc/group" {
		if err := r.effect("systemd-sysusers, after the group"); err != nil {
			return errors.Join(err, r.host.createGroup())
		}
	}
	at, existed, claims := filepath.Join(r.host.Root, path), r.host.exists(path), r.host.read(ledger.Path)
	before, _ := os.Lstat(at)
	packages := map[string]string{}
	if path == "/"+dpkgDir {
		packages = r.host.packages()
	}
	if err := do(); err != nil {
		return err
	}
	if path == "/"+dpkgDir {
		if err := r.effect("the end of dpkg"); err != nil {
			return errors.Join(err, r.cutDpkg(packages))
		}
	}
	info, err := os.Lstat(at)
	if err == nil && info.Mode().IsRegular() && (before == nil || !os.SameFile(before, info)) { // else only the ledger was written
		now := time.Now()
		if r.host.wrongClock && path == policyFile {
			now = now.Add(-time.Hour)
		}
		_ = os.Chtimes(at, now, now)
	}
	if target, err := os.Readlink(at); err == nil && filepath.Dir(target) == filepath.Dir(path) {
		// The absolute path would lead to the files of the host whose command began last.
		return errors.Join(os.Remove(at), os.Symlink(filepath.Base(target), at))
	}
	if existed && errors.Is(err, os.ErrNotExist) && !claimed(claims, path) && !(r.host.foreign && r.resets) {
		r.host.world.violate("%s is removed, and the ledger does not claim it", path)
	}
	return nil
}

// claimed reports whether a ledger has a path, or a directory that the path is in.
func claimed(text, path string) bool {
	var document ledger.Document
	if json.Unmarshal([]byte(text), &document) != nil {
		return false
	}
	if path == ledger.StateDir || strings.HasPrefix(path, ledger.StateDir+"/") {
		return true
	}
	return slices.ContainsFunc(document.Entries, func(e ledger.Entry) bool {
		return path == e.Name || strings.HasPrefix(path, e.Name+"/")
	})
}

// die ends the command. The caller holds w.mu.
func (r *run) die() {
	r.dead = true
	r.host.cutSpeaker()
	if r.login != nil {
		r.login.lose()
	}
	if u := r.host.seed; u != nil {
		u.lose()
	}
	if r.seed != nil {
		r.seed.lose()
	}
	_ = os.Remove(r.root)
	r.cancel()
	for c := range r.host.world.conns {
		if c.run == r {
			_ = c.Conn.Close()
		}
	}
}

// begin begins a command on the host.
func (h *Host) begin(crashAt int) (*run, error) {
	r, err := h.process(crashAt)
	if err != nil {
		return nil, err
	}
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	if h.current == nil || h.current.dead {
		h.current, h.restarting = r, map[string]bool{}
	}
	return r, nil
}

// process is begin for what a timer starts.
func (h *Host) process(crashAt int) (*run, error) {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	h.nextID++
	r := &run{host: h, root: h.Root + ".run", crashAt: crashAt, installer: h.world.installer(Versions[0].Kubernetes)}
	// Another command may run on this host, and must not find the links missing.
	if target, _ := os.Readlink(r.root); target != h.Root {
		if err := os.RemoveAll(r.root); err != nil {
			return nil, err
		}
		if err := os.Symlink(h.Root, r.root); err != nil {
			return nil, err
		}
	}
	// kubelet.conf and a link have the absolute path of the kubelet's certificate. Commands on other hosts may run: the model has no
	// permissions, so any certificate is enough for them.
	if _, err := os.Stat(kubeletCert); err != nil || h.exists(kubeletCert) {
		next := "/var/lib/kubelet." + h.Name
		if err := os.Symlink(filepath.Join(r.root, "var/lib/kubelet"), next); err != nil {
			return nil, err
		}
		if err := os.Rename(next, "/var/lib/kubelet"); err != nil {
			return nil, err
		}
	}
	r.ctx, r.cancel = context.WithCancel(dialer.With(h.world.ctx, func(ctx context.Context, network, address string) (net.Conn, error) {
		return h.world.dial(ctx, r, h, network, strings.TrimPrefix(address, r.root))
	}))
	return r, nil
}

// open opens the host for the command, with the lock, as its cobra command does.
func (r *run) open(command string) (*host.Host, func(), error) {
	open := node.OpenToChange
	if slices.Contains([]string{"init", "join", "reset", "disown", "etcd snapshot", "etcd restore"}, command) {
		open = host.OpenLocked
	}
	h, unlock, err := open(r.root)
	if err != nil {
		return nil, nil, err
	}
	r.use(h)
	return h, unlock, nil
}

// use lets the command change the host.
func (r *run) use(h *host.Host) {
	h.ConnectSystemd = func(context.Context) (hostsystemd.Conn, error) {
		if r.dead {
			return nil, errCrashed
		}
		return systemd{r.host, r}, nil
	}
	h.Installer = r.installer
	h.GuardChanges(r.change)
}

// facts are what the detection finds on a host.
func (h *Host) facts() config.Facts {
	return config.Facts{
		Hostname: h.Name, CgroupVersion: 2, CgroupDriver: "systemd", ConntrackWritable: true, ResolvConf: "/etc/resolv.conf", Nameservers: []string{"10.0.0.53"},
		NodeIP: h.IP, Interface: "eth0", MTU: 1500, DefaultRoute: true, NumCPU: 2, MemoryBytes: 4 << 30,
	}
}

// hostPath returns the path in this process for a path in a manifest.
func (h *Host) hostPath(p string) string { return filepath.Join(h.Root, path.Clean(p)) }
