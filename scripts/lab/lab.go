// Package lab runs isolated hosts for end-to-end tests: Debian with systemd, in containers
// that share only this machine's kernel. The hosts of a lab are connected by a switch, a
// bridge in a separate network namespace, and by nothing else: they have no default route, no
// DNS, and no connection to this machine's network.
//
// It needs root, a Debian machine, and cgroups of either version.
//
//	l, err := lab.Up(ctx, lab.Options{Name: "demo", Hosts: 2})
//	defer l.Down(context.Background())
//	l.Hosts[0].Exec(ctx, nil, os.Stdout, os.Stderr, "ping", "-c1", l.Hosts[1].Addr.String())
package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"airlift/internal/fault"
)

// stateDir has one directory per lab: its options and its hosts' disks. The path is fixed, so
// that every process finds all labs.
const stateDir = "/var/lib/airlift-lab"

// lockFile is locked while a lab is created or removed. It is not in stateDir, which is removed
// with the last lab.
const lockFile = "/run/lock/airlift-lab"

// bootTimeout limits the time from power-on, or from the request to reboot, until systemd
// runs. Booting takes about two seconds; shutting down a host with many pods takes longer.
const bootTimeout = 3 * time.Minute

// Options describe a lab.
type Options struct {
	Name  string // up to 20 of a-z, 0-9 and inner dashes; labs with different names are isolated from each other
	Hosts int    // called host1, host2, …; 2 if zero

	// Suite is the Debian release of the hosts, "bookworm" if empty. It comes from the mirror
	// that this machine uses.
	Suite string
	// ExtraPackages are Debian packages on every host, in addition to a minimal system
	// with systemd.
	ExtraPackages []string
	// Interfaces is the number of network interfaces per host, each in a separate
	// network; 1 if zero.
	Interfaces int
	// Virtual are addresses that move between hosts: packets to them do not leave.
	Virtual []netip.Addr
	// NoexecTmp mounts /tmp with noexec.
	NoexecTmp bool
	// SSH runs Debian's sshd on every host. Root of each host can log in at the others, as root and as SSHUser.
	SSH bool
	// Disks are additional disks of every host.
	Disks []Disk
	// Kept keeps the lab after the process that starts it. Otherwise, if that
	// process is killed, the next Up removes the lab.
	Kept bool

	// Log gets progress messages, one line each; it may be nil.
	Log func(format string, args ...any) `json:"-"`
}

// Lab is a set of running hosts.
type Lab struct {
	Name  string
	Hosts []*Host

	options Options
	process *os.File // has the lock of the process that started the lab
}

// Dir is the lab's directory on this machine: per host, NAME/ is the disk and
// NAME.console.log the console output.
func (l *Lab) Dir() string { return filepath.Join(stateDir, l.Name) }

func (l *Lab) optionsFile() string { return filepath.Join(l.Dir(), "options.json") }

// Up creates the hosts and waits until systemd on each has finished booting. If it fails or ctx
// is cancelled, it removes everything.
func Up(ctx context.Context, o Options) (*Lab, error) {
	o, err := o.completed()
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, fault.New(fault.Preflight, "hosts need network namespaces, mounts and cgroups").Hint("run it as root")
	}
	tarball, err := Rootfs(ctx, o.Suite, "", o.ExtraPackages, o.Log)
	if err != nil {
		return nil, err
	}
	l := newLab(o)
	if err := l.claim(ctx); err != nil {
		return nil, err
	}
	if err := l.start(ctx, tarball); err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("starting lab %s: %w", o.Name, err), l.Down(cleanup))
	}
	return l, nil
}

func (o Options) completed() (Options, error) {
	if err := CheckName(o.Name); err != nil {
		return o, err
	}
	if o.Hosts == 0 {
		o.Hosts = 2
	}
	if o.Interfaces == 0 {
		o.Interfaces = 1
	}
	if o.Hosts < 1 || o.Hosts > maxHosts || o.Interfaces < 1 || o.Interfaces > maxInterfaces {
		return o, fault.New(fault.Usage, "%d hosts with %d interfaces are not possible", o.Hosts, o.Interfaces).
			Hint(fmt.Sprintf("a lab has up to %d hosts with up to %d interfaces", maxHosts, maxInterfaces))
	}
	for _, d := range o.Disks {
		if err := d.check(); err != nil {
			return o, err
		}
	}
	if o.SSH {
		o.ExtraPackages = append(slices.Clone(o.ExtraPackages), SSHPackages...)
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	return o, nil
}

// newLab computes a lab from its options, which are all that is stored of it.
func newLab(o Options) *Lab {
	l := &Lab{Name: o.Name, options: o}
	for i := 1; i <= o.Hosts; i++ {
		h := &Host{Name: fmt.Sprintf("host%d", i), lab: o.Name, nics: planNICs(i, o.Interfaces), disks: o.Disks}
		for _, n := range h.nics {
			h.Addrs = append(h.Addrs, n.Address)
		}
		h.Addr = h.Addrs[0].Addr()
		if o.NoexecTmp {
			h.flags = append(h.flags, "--tmpfs=/tmp:mode=1777,nosuid,nodev,noexec")
		}
		l.Hosts = append(l.Hosts, h)
	}
	return l
}

// claim creates the lab's directory, which reserves the name, and writes the options. It comes
// before everything else, so if anything of a lab exists, its directory exists.
func (l *Lab) claim(ctx context.Context) error {
	unlock, err := lock(ctx, lockFile)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return fmt.Errorf("claiming lab name: %w", err)
	}
	if err := removeAbandoned(ctx, l.options.Log); err != nil {
		return err
	}
	if err := os.Mkdir(l.Dir(), 0o700); errors.Is(err, fs.ErrExist) {
		return fault.New(fault.Failure, "lab %q exists already", l.Name).Hint("remove it with labctl down, or choose another name")
	} else if err != nil {
		return fmt.Errorf("claiming lab name: %w", err)
	}
	if err := l.holdProcessLock(); err != nil {
		return err
	}
	options, err := json.Marshal(l.options)
	if err == nil {
		err = os.WriteFile(l.optionsFile(), options, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing lab options: %w", err)
	}
	return borrowSysctls()
}

// Open returns a lab that another process started.
func Open(name string) (*Lab, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	var o Options
	data, err := os.ReadFile((&Lab{Name: name}).optionsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.Usage, "there is no lab %q", name).Hint("list the labs with labctl list, or start one with labctl up")
	}
	if err == nil {
		err = json.Unmarshal(data, &o)
	}
	if err != nil {
		return nil, fmt.Errorf("opening lab %s: %w", name, err)
	}
	return newLab(o), nil
}

// List returns the names of all labs on this machine, running or not.
func List() ([]string, error) {
	entries, err := os.ReadDir(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing labs: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Host returns the host of the given name.
func (l *Lab) Host(name string) (*Host, error) {
	for _, h := range l.Hosts {
		if h.Name == name {
			return h, nil
		}
	}
	return nil, fault.New(fault.Usage, "lab %s has no host %q", l.Name, name).
		Hint(fmt.Sprintf("it has host1 to host%d", len(l.Hosts)))
}

func (l *Lab) start(ctx context.Context, tarball string) error {
	began := time.Now()
	if err := l.makeSwitch(ctx); err != nil {
		return err
	}
	var login SSHKey
	if l.options.SSH {
		var err error
		if login, err = NewSSHKey("lab " + l.Name); err != nil {
			return err
		}
		if err := os.WriteFile(l.sshKeyFile(), login, 0o600); err != nil {
			return fmt.Errorf("writing the lab's SSH key: %w", err)
		}
	}
	hosts, ctx := errgroup.WithContext(ctx)
	for _, h := range l.Hosts {
		hosts.Go(func() error {
			if err := h.install(ctx, tarball); err != nil {
				return fmt.Errorf("installing %s: %w", h.Name, err)
			}
			if login != nil {
				if err := login.Install(ctx, h.disk()); err != nil {
					return fmt.Errorf("installing %s: %w", h.Name, err)
				}
			}
			if err := h.Boot(ctx); err != nil {
				return err
			}
			l.options.Log("%s is up at %s after %.1f s", h.Name, h.Addr, time.Since(began).Seconds())
			return nil
		})
	}
	return hosts.Wait()
}

// makeSwitch creates the namespace of the hosts' network: one bridge per network, and the
// rules that count packets. The bridges have no address, so the switch itself sends nothing.
func (l *Lab) makeSwitch(ctx context.Context) error {
	ns := l.switchNamespace()
	if err := run(ctx, "ip", "netns", "add", ns); err != nil {
		return fmt.Errorf("making switch: %w", err)
	}
	// 1 also covers interfaces that are created later: no link-local addresses here.
	// Written to the file, because a minimal Debian has no sysctl command.
	if err := run(ctx, "ip", "netns", "exec", ns, "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6"); err != nil {
		return fmt.Errorf("making switch: %w", err)
	}
	if err := l.watch(ctx); err != nil {
		return fmt.Errorf("making switch: %w", err)
	}
	for i := range l.options.Interfaces {
		if err := run(ctx, "ip", "-n", ns, "link", "add", bridgeName(i), "up", "type", "bridge", "mcast_snooping", "0"); err != nil {
			return fmt.Errorf("making switch: %w", err)
		}
	}
	return nil
}

func (l *Lab) switchNamespace() string { return qualified(l.Name, switchPart) }

// hostAddrs returns every address of every host, also the addresses that move between hosts.
func (l *Lab) hostAddrs() []netip.Addr {
	all := slices.Clone(l.options.Virtual)
	for _, h := range l.Hosts {
		for _, p := range h.Addrs {
			all = append(all, p.Addr())
		}
	}
	return all
}

// poll calls done every 50 ms until it returns true, fails, or ctx ends; then the error names
// what it waited for.
func poll(ctx context.Context, what string, done func() (bool, error)) error {
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
