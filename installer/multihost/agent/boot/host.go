package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"airlift/bundle"
	"airlift/bundle/signature"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/seed"
	"airlift/installer/multihost/spec"
	"airlift/installer/node"
	"airlift/internal/fault"
)

// Files of the copy of a drive.
const (
	copyFile      = seed.CopyDir + "/" + seed.File
	signatureFile = copyFile + ".minisig"
	// Installer is the copy of the file that was next to the seed.
	Installer = seed.CopyDir + "/" + seed.Installer
)

// A Host is this host while it runs a seed.
type Host struct {
	Open    func() (h *host.Host, unlock func(), err error) // for changes
	Look    func() (*host.Host, error)                      // without the lock
	Root    string
	Console io.Writer
	Key     string // a file with a public key
	Drive   string // a directory; "" for the copy
	// Run runs a command of the installer, with the copy of the file.
	Run func(ctx context.Context, args []string, stdin []byte) error
	// Site is the cluster.
	Site      Site
	Machine   func() seed.Machine
	Addresses func() []string
	Now       func() time.Time
	Sleep     func(ctx context.Context, d time.Duration) error

	said    map[string]time.Time // lines, and when they were printed
	release func()               // the lock that keeps drivers away
}

// New returns the host at root.
func New(root string, console io.Writer, open func() (*host.Host, func(), error)) *Host {
	look := func() (*host.Host, error) { return host.Open(root) }
	return &Host{Open: open, Look: look, Root: root, Console: console, Site: &site{root: root}, Machine: func() seed.Machine {
		links, _ := netlink.LinkList() // none yet: it is asked again
		return ReadMachine(root, links)
	},
		Addresses: addresses, Now: time.Now, Sleep: sleep}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func addresses() (list []string) {
	all, _ := net.InterfaceAddrs() // none yet: it is asked again
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok {
			list = append(list, ip.IP.String())
		}
	}
	return list
}

// serials are the files in which the kernel has the serial number of a machine.
var serials = []string{"/sys/class/dmi/id/product_serial", "/sys/firmware/devicetree/base/serial-number"}

// labelArgument is the kernel's argument with the label of a machine.
const labelArgument = "airlift.label="

// ReadMachine reads what identifies the machine at root, which has links. The kernel lists them, because a container may see /sys of
// its host. A port of a bond or a team has the address of that; the kernel also lists its own: of bonds since Linux 3.14, of all since 5.6.
func ReadMachine(root string, links []netlink.Link) (m seed.Machine) {
	read := func(name string) string {
		data, _ := os.ReadFile(filepath.Join(root, name)) // a machine need not have it
		return strings.TrimSpace(strings.Trim(string(data), "\x00"))
	}
	for _, file := range serials {
		if text := read(file); m.Serial == "" && !spec.NoSerial(text) {
			m.Serial = text
		}
	}
	for _, link := range links {
		a := link.Attrs()
		addresses := []net.HardwareAddr{a.HardwareAddr, a.PermHWAddr}
		if port, ok := a.Slave.(*netlink.BondSlave); ok {
			addresses = append(addresses, port.PermHardwareAddr)
		}
		for _, address := range addresses {
			mac := address.String()
			if len(address) == 6 && a.Flags&net.FlagLoopback == 0 && mac != "00:00:00:00:00:00" && !slices.Contains(m.MACs, mac) {
				m.MACs = append(m.MACs, mac)
			}
		}
	}
	labels := []string{read(seed.LabelFile)}
	for word := range strings.FieldsSeq(read("/proc/cmdline")) {
		if label, found := strings.CutPrefix(word, labelArgument); found {
			labels = append(labels, label)
		}
	}
	for _, label := range labels {
		if label != "" && !slices.Contains(m.Labels, label) {
			m.Labels = append(m.Labels, label)
		}
	}
	return m
}

// say prints a line. It repeats a line once a minute.
func (b *Host) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if at, known := b.said[line]; known && b.Now().Sub(at) < time.Minute {
		return
	}
	if b.said == nil || len(b.said) > 1000 {
		b.said = map[string]time.Time{}
	}
	b.said[line] = b.Now()
	fmt.Fprintf(b.Console, "airlift seed: %s\n", line)
}

func writeRecord(h *host.Host, r seed.Record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		_, err = h.WriteFile(seed.RecordFile, append(data, '\n'), 0o600)
	}
	return err
}

// change opens the host for one change. Another installer may run.
func (b *Host) change(do func(h *host.Host) error) error {
	h, unlock, err := b.Open()
	if err != nil {
		return err
	}
	defer unlock()
	return do(h)
}

// readSeed reads and checks a seed in a directory.
func (b *Host) readSeed(file string) (s *seed.Seed, data, signed []byte, err error) {
	key, err := signature.ReadPublicKey(b.Key)
	if err != nil {
		return nil, nil, nil, err
	}
	read := func(name string) []byte {
		f, openErr := os.Open(name)
		if openErr != nil {
			err = errors.Join(err, openErr)
			return nil
		}
		defer f.Close()
		text, readErr := io.ReadAll(io.LimitReader(f, seed.MaxSize+1))
		err = errors.Join(err, readErr)
		return text
	}
	data, signed = read(file), read(file+".minisig")
	if err != nil {
		return nil, nil, nil, fault.New(fault.Bundle, "reading the seed: %w", err).Hint("a drive has " + seed.File + ", its signature " + seed.File + ".minisig and " + seed.Installer)
	}
	s, err = seed.Open(data, signed, key)
	return s, data, signed, err
}

// take copies the drive to this host. The installer, which takes long, is first, so that an interrupted copy has no secrets. The record comes
// last: with it, the unit needs no drive any more.
func (b *Host) take(ctx context.Context, s *seed.Seed, me spec.Host, data, signed []byte) error {
	f, err := bundle.Open(filepath.Join(b.Drive, seed.Installer))
	if err != nil {
		return err
	}
	defer f.Close()
	if f.ID() != s.Bundle.ID || f.Size() != s.Bundle.Size {
		return fault.New(fault.Bundle, "%s is not the file for which the seed was created", f.Path()).Hint("copy the file to the drive with which 'bundle seed' was run, or run it again")
	}
	b.say("this host is %s (%s), %s of cluster %s; copying the drive to %s", me.Name, me.Match, me.Role, s.Cluster.Name, seed.CopyDir)
	return b.change(func(h *host.Host) error {
		if known, err := seed.ReadRecord(b.Root); err != nil {
			return err
		} else if !mayBeNode(known) { // another command may have changed the host
			if err := refuseUsed(b.Root, s); err != nil {
				return err
			}
		}
		if err := claim(h); err != nil {
			return err
		}
		if err := h.MkdirAll(seed.CopyDir, 0o700); err != nil {
			return err
		}
		if _, err := h.InstallBinary(ctx, host.Binary{Path: Installer, SHA256: s.Bundle.SHA256, Size: s.Bundle.Size}, f.Reader()); err != nil {
			return err
		}
		for _, file := range []struct {
			name    string
			content []byte
		}{{signatureFile, signed}, {copyFile, data}} {
			if _, err := h.WriteFile(file.name, file.content, 0o600); err != nil {
				return err
			}
		}
		return writeRecord(h, recordOf(s, me))
	})
}

func recordOf(s *seed.Seed, me spec.Host) seed.Record {
	r := seed.Record{Seed: s.ID, Cluster: s.Cluster.Name, Host: me.Name, Role: me.Role, First: me.Name == s.First().Name, Expires: s.Expires, State: seed.Running}
	for _, h := range s.Cluster.Hosts {
		r.Hosts = append(r.Hosts, seed.Row{Name: h.Name, Role: h.Role})
	}
	return r
}

// claim records in the ledger what the host has for the seed, so that reset removes it: a host that was reset does not become a node again
// at its next boot.
func claim(h *host.Host) error {
	entries := []ledger.Entry{{Kind: ledger.Owned, Name: seed.CopyDir}, {Kind: ledger.Dir, Name: seed.Directory}}
	for _, name := range []string{seed.KeyFile, seed.ScriptFile, seed.UnitFile} {
		sum, err := filesystem.DigestFile(h.Path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was started by hand
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		entries = append(entries, ledger.Entry{Kind: ledger.File, Name: name, SHA256: sum})
		if name == seed.UnitFile {
			entries = append(entries, ledger.Entry{Kind: ledger.Unit, Name: seed.Unit})
		}
	}
	for _, e := range entries {
		if err := h.Records().Record(e); err != nil {
			return err
		}
		if err := h.Records().Settled(e.Kind, e.Name, e.SHA256); err != nil {
			return err
		}
	}
	return nil
}

// prepare writes the files of a command.
func prepare(h *host.Host, s seed.Step) error {
	if s.Dir == "" {
		return nil
	}
	if err := h.Records().Record(ledger.Entry{Kind: ledger.Owned, Name: s.Dir}); err != nil {
		return err
	}
	if err := h.RemoveTree(s.Dir); err != nil {
		return err
	}
	if err := h.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	for name, data := range s.Files {
		if path.Clean(name) != name || !strings.HasPrefix(name, s.Dir+"/") {
			return fault.New(fault.Bundle, "the seed has a file %q outside of %s", name, s.Dir)
		}
		if _, err := h.WriteFile(name, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// removeDropped removes the secrets that an interrupted command has left.
func removeDropped(h *host.Host) error {
	return h.RemoveTree(plan.RegistriesDir)
}

// settle removes the copy with its secrets, and lets the unit do nothing at later boots.
func (b *Host) settle(ctx context.Context, r seed.Record, state string) error {
	return b.change(func(h *host.Host) error {
		if state == seed.Expired && r.State != state {
			r.Node = observed(h) != ""
		}
		r.State = state
		if err := writeRecord(h, r); err != nil {
			return err
		}
		for _, name := range []string{copyFile, signatureFile} {
			if err := h.Remove(name); err != nil {
				return err
			}
		}
		if err := removeDropped(h); err != nil {
			return err
		}
		if node.FileExists(h, seed.UnitFile) {
			if err := h.Systemd().Disable(ctx, seed.Unit); err != nil {
				return err
			}
		}
		return h.Remove(Installer) // until here, the script starts it again after an interruption
	})
}
