// Package vm runs emulated machines for tests on real kernels: Debian with its own kernel,
// systemd, cgroup v2 and a disk, in QEMU without KVM. They are about ten times slower than
// this machine.
//
// The machines are connected by a switch, to which QEMU sends each frame over the loopback
// interface. They have no other network: no default route and no DNS. Commands run through QEMU's guest
// agent on a serial port. The bundle is on a second, read-only disk, like on a USB drive.
package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// defaultMemory of one machine, in MiB.
const defaultMemory = 3584

// bootTimeout limits the time until systemd runs. It takes about 20 seconds.
const bootTimeout = 10 * time.Minute

// A Machine is one emulated machine. Its disk remains when it is switched off.
type Machine struct {
	Name string       // also its host name
	Addr netip.Prefix // the address of its only interface

	// Append is added to the kernel's command line, Flags to QEMU's.
	Append string
	Flags  []string
	Memory int // MiB; the default if 0

	hardware hardware
	dir      string // disk, kernel, sockets, console log
	usb      string // the image of the read-only disk
	cable    cable
	agent    *agent
	qemu     *exec.Cmd
	off      chan struct{} // closed when QEMU has ended
}

// hardware is the hardware that QEMU emulates for an architecture.
type hardware struct {
	qemu, debian string // QEMU's binary, and its Debian package
	flags        []string
	console      string // the kernel's name of the serial port
}

var hardwares = map[string]hardware{
	// Newer processors are slower to emulate: their vector instructions, and arm64's authentication
	// of pointers. With these two instructions AES-GCM, which SSH and TLS use, is twice as fast.
	"amd64": {"qemu-system-x86_64", "qemu-system-x86", []string{"-machine", "q35", "-cpu", "Nehalem-v1,+aes,+pclmulqdq"}, "ttyS0"},
	"arm64": {"qemu-system-aarch64", "qemu-system-arm", []string{"-machine", "virt", "-cpu", "cortex-a72"}, "ttyAMA0"},
}

// cheap are kernel parameters that leave out what is expensive to emulate. Mitigations of
// processor bugs make a system call ten times slower, also arm64's isolation of page tables, which a
// kernel at a random address has despite mitigations=off. QEMU translates code again at each new
// address, so random addresses make the start of a process four times slower. With no_timer_check, the kernel
// does not panic ("IO-APIC + timer doesn't work") when this machine is too busy for the emulated timer.
const cheap = "mitigations=off kpti=0 nokaslr norandmaps no_timer_check"

func (m *Machine) file(name string) string { return filepath.Join(m.dir, name) }

// ConsoleLog is the file on this machine with the output of the serial console.
func (m *Machine) ConsoleLog() string { return m.file("console.log") }

// PowerOn starts the machine and waits until systemd has started everything.
func (m *Machine) PowerOn(ctx context.Context) error {
	log, err := os.OpenFile(m.file("qemu.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(m.hardware.qemu, append(m.arguments(), m.Flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	m.qemu, m.off = cmd, make(chan struct{})
	if err := startChild(cmd, m.off); err != nil {
		return fmt.Errorf("powering on %s: %w", m.Name, err)
	}
	m.agent = &agent{socket: m.file("agent.sock")}
	return m.WaitBooted(ctx, "")
}

// ProcessorTime is how long the machine has used a processor of this machine since it was powered on, in steps of 10 ms. It is 0 if
// the machine is off.
func (m *Machine) ProcessorTime() time.Duration {
	if m.qemu == nil {
		return 0
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.qemu.Process.Pid)) // empty if QEMU has just ended
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11]) // proc_pid_stat(5): utime and stime, in ticks of USER_HZ, which is 100
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

func (m *Machine) arguments() []string {
	return append(slices.Clone(m.hardware.flags),
		"-name", m.Name, "-nodefaults", "-no-user-config", "-display", "none",
		"-accel", "tcg,thread=multi", "-smp", "2", "-m", fmt.Sprint(cmp.Or(m.Memory, defaultMemory)),
		"-kernel", m.file("vmlinuz"), "-initrd", m.file("initrd.img"),
		"-append", strings.TrimSpace("root=LABEL=root rw console="+m.hardware.console+" net.ifnames=1 "+cheap+" "+m.Append),
		"-chardev", "file,id=console,append=on,path="+m.ConsoleLog(), "-serial", "chardev:console",
		// The page cache of this machine survives the end of QEMU, the emulated machine's page
		// cache does not. So it may ignore flushes, and a power cut still loses what was not
		// flushed.
		"-drive", "file="+m.file("disk.img")+",format=raw,if=none,id=disk,cache=unsafe,discard=unmap",
		"-device", "virtio-blk-pci,drive=disk",
		"-drive", "file="+m.usb+",format=raw,if=none,id=usb,readonly=on",
		"-device", "virtio-blk-pci,drive=usb,serial=bundle",
		"-netdev", fmt.Sprintf("socket,id=cable,udp=%s,localaddr=%s", m.cable.network, m.cable.machine),
		// Without romfile, QEMU wants the network boot image of another Debian package.
		"-device", "virtio-net-pci,netdev=cable,romfile=,mac="+m.cable.mac.String(),
		"-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng",
		"-chardev", "socket,id=agent,server=on,wait=off,path="+m.file("agent.sock"),
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
	)
}

// startChild starts a process that ends with this one, and closes ended when it has ended.
func startChild(cmd *exec.Cmd, ended chan struct{}) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The kernel sends the signal when the thread ends that started the process. The
		// goroutine never unlocks the thread, so the thread ends with the goroutine.
		lockThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // a killed process
			close(ended)
		}
	}()
	return <-started
}

// PowerCut stops the machine at once, like unplugging it.
func (m *Machine) PowerCut() error {
	if m.qemu == nil {
		return nil
	}
	err := m.qemu.Process.Kill()
	<-m.off
	m.agent.close()
	m.qemu = nil
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Reboot restarts the machine with systemctl, and waits until systemd has started everything
// again.
func (m *Machine) Reboot(ctx context.Context) error {
	before, err := m.bootID(ctx)
	if err != nil {
		return err
	}
	// The machine may go down before it answers.
	_, _ = m.agent.start([]string{"systemctl", "reboot"}, nil)
	return m.WaitBooted(ctx, before)
}

func (m *Machine) bootID(ctx context.Context) (string, error) {
	return m.Output(ctx, "cat", "/proc/sys/kernel/random/boot_id")
}

// WaitBooted waits until the machine runs with another boot ID than before and systemd has no
// more jobs.
func (m *Machine) WaitBooted(ctx context.Context, before string) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	last := "no answer"
	for {
		attempt, cancel := context.WithTimeout(ctx, 30*time.Second)
		id, err := m.bootID(attempt)
		if err == nil && id != before {
			// The exit status has no more information.
			out, _ := m.Output(attempt, "systemctl", "is-system-running")
			if last = strings.TrimSpace(out); last == "running" || last == "degraded" {
				cancel()
				return nil
			}
		}
		cancel()
		select {
		case <-m.off:
			return fmt.Errorf("booting %s: QEMU ended: %s%s", m.Name, tail(m.file("qemu.log")), tail(m.ConsoleLog()))
		case <-ctx.Done():
			return fmt.Errorf("booting %s: %w; last seen: %s%s", m.Name, ctx.Err(), last, tail(m.ConsoleLog()))
		case <-time.After(time.Second):
		}
	}
}

// tail returns the last lines of a file.
func tail(path string) string {
	text, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "\n" + strings.Join(lines[max(0, len(lines)-12):], "\n")
}

// PowerOnAll starts machines at the same time.
func PowerOnAll(ctx context.Context, machines ...*Machine) error {
	return each(machines, func(m *Machine) error { return m.PowerOn(ctx) })
}

// RebootAll restarts machines at the same time.
func RebootAll(ctx context.Context, machines ...*Machine) error {
	return each(machines, func(m *Machine) error { return m.Reboot(ctx) })
}

func each(machines []*Machine, do func(*Machine) error) error {
	errs := make([]error, len(machines))
	var all sync.WaitGroup
	for i, m := range machines {
		all.Go(func() { errs[i] = do(m) })
	}
	all.Wait()
	return errors.Join(errs...)
}
