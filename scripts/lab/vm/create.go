package vm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"airlift/internal/fault"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// packages are on every machine in addition to its kernel and the packages of the lab's hosts.
var packages = []string{"initramfs-tools", "qemu-guest-agent", "udev"}

// diskSize is the size of a machine's disk in bytes. Its file is sparse.
const diskSize = "10G"

// bundleFile is the path of the bundle on a machine, on the read-only disk.
const bundleFile = "/media/usb/install"

// lockThread binds the goroutine to its thread for the rest of its life.
func lockThread() { runtime.LockOSThread() }

// Options describe machines.
type Options struct {
	Dir      string // an empty directory for disks and logs
	Machines int    // called vm1, vm2, …
	Bundle   string // the bundle file
	Arch     string // "amd64" or "arm64"
	// SSH runs Debian's sshd on every machine, as on the hosts of a lab.
	SSH bool
	// ExtraPackages are Debian packages on every machine.
	ExtraPackages []string
	Log           func(format string, args ...any)
}

// Create creates machines, which are switched off. Their network works until ctx ends.
func Create(ctx context.Context, o Options) ([]*Machine, error) {
	if os.Geteuid() != 0 {
		return nil, fault.New(fault.Preflight, "root file systems need root").Hint("run it as root")
	}
	hardware, ok := hardwares[o.Arch]
	if !ok {
		return nil, fault.New(fault.Usage, "unknown architecture %q", o.Arch).Hint("use amd64 or arm64")
	}
	if _, err := exec.LookPath(hardware.qemu); err != nil {
		return nil, fault.New(fault.Preflight, "emulated machines need QEMU: %w", err).Hint("apt-get install --no-install-recommends " + hardware.debian)
	}
	extra := append([]string{"linux-image-cloud-" + o.Arch}, packages...)
	var login lab.SSHKey
	if o.SSH {
		extra = append(extra, lab.SSHPackages...)
		var err error
		if login, err = lab.NewSSHKey("emulated machines"); err != nil {
			return nil, err
		}
	}
	tarball, err := lab.Rootfs(ctx, "", o.Arch, append(extra, o.ExtraPackages...), o.Log)
	if err != nil {
		return nil, err
	}
	usb := filepath.Join(o.Dir, "usb.img")
	if err := makeUSB(ctx, usb, o.Bundle); err != nil {
		return nil, fmt.Errorf("making the read-only disk with the bundle: %w", err)
	}
	cables, err := connect(ctx, o.Machines)
	if err != nil {
		return nil, fmt.Errorf("making the network of the machines: %w", err)
	}
	var all []*Machine
	for i, cable := range cables {
		m := &Machine{
			Name:     fmt.Sprintf("vm%d", i+1),
			Addr:     netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 122, byte(11 + i)}), 24),
			dir:      filepath.Join(o.Dir, fmt.Sprintf("vm%d", i+1)),
			hardware: hardware, usb: usb, cable: cable,
		}
		if err := m.makeDisk(ctx, tarball, login); err != nil {
			return nil, fmt.Errorf("making the disk of %s: %w", m.Name, err)
		}
		all = append(all, m)
	}
	return all, nil
}

// makeUSB creates a file system with the bundle.
func makeUSB(ctx context.Context, image, bundle string) error {
	info, err := os.Stat(bundle)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(image), "usb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := run(ctx, "cp", "--reflink=auto", bundle, filepath.Join(dir, "install")); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Join(dir, "install"), 0o755); err != nil {
		return err
	}
	return run(ctx, "mkfs.ext4", "-q", "-m", "0", "-d", dir, image, fmt.Sprintf("%dM", info.Size()>>20*11/10+32))
}

// makeDisk creates the machine's disk, and copies its kernel out.
func (m *Machine) makeDisk(ctx context.Context, tarball string, login lab.SSHKey) error {
	root := m.file("root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if err := run(ctx, "tar", "--numeric-owner", "--xattrs", "--zstd", "-C", root, "-xf", tarball); err != nil {
		return err
	}
	for _, name := range []string{"vmlinuz", "initrd.img"} {
		found, err := filepath.Glob(filepath.Join(root, "boot", name+"-*"))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("looking for one %s: %v (%v)", name, found, err)
		}
		if err := run(ctx, "cp", found[0], m.file(name)); err != nil {
			return err
		}
	}
	if err := m.configure(root); err != nil {
		return err
	}
	if login != nil {
		if err := login.Install(ctx, root); err != nil {
			return err
		}
	}
	return run(ctx, "mkfs.ext4", "-q", "-m", "0", "-L", "root", "-d", root, m.file("disk.img"), diskSize)
}

// configure writes the configuration that Debian's installer would write.
func (m *Machine) configure(root string) error {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	for path, content := range map[string]string{
		"etc/hostname":    m.Name + "\n",
		"etc/hosts":       "127.0.0.1 localhost\n127.0.1.1 " + m.Name + "\n::1 localhost ip6-localhost\n",
		"etc/machine-id":  hex.EncodeToString(id) + "\n",
		"etc/resolv.conf": "",
		"etc/fstab":       "LABEL=root / ext4 errors=remount-ro 0 1\n/dev/disk/by-id/virtio-bundle /media/usb ext4 ro,nofail 0 0\n",
		// Only the cable: networkd must leave the interfaces of pods alone.
		"etc/systemd/network/10-cable.network": "[Match]\nMACAddress=" + m.cable.mac.String() + "\n\n[Network]\nAddress=" + m.Addr.String() + "\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "media/usb"), 0o755); err != nil {
		return err
	}
	// As on the lab's hosts: an operator types the same there.
	if err := os.Symlink(bundleFile, filepath.Join(root, site.Installer)); err != nil {
		return err
	}
	const units = "etc/systemd/system"
	for link, target := range map[string]string{
		"multi-user.target.wants/systemd-networkd.service": "/lib/systemd/system/systemd-networkd.service",
		// There is no network to download from, and nobody logs in.
		"apt-daily.timer": "/dev/null", "apt-daily-upgrade.timer": "/dev/null",
		"serial-getty@" + m.hardware.console + ".service": "/dev/null", "getty@tty1.service": "/dev/null",
	} {
		link = filepath.Join(root, units, link)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(target, link); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running %s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
