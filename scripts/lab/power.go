package lab

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

//go:embed host.sh
var hostScript []byte

// Boot powers the host on and waits until systemd has started everything.
func (h *Host) Boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if h.leader() != 0 {
		return fmt.Errorf("booting %s: it is running", h.Name)
	}
	supervisor, err := h.powerOn()
	if err != nil {
		return fmt.Errorf("booting %s: %w", h.Name, err)
	}
	if err := h.waitBooted(ctx, supervisor, 0); err != nil {
		return fmt.Errorf("booting %s: %w", h.Name, err)
	}
	return nil
}

// powerOn starts the script that runs the host. The channel gets the script's error if it ends
// while this process runs.
func (h *Host) powerOn() (<-chan error, error) {
	cgroups, err := makeCgroups(h.qualified())
	if err != nil {
		return nil, err
	}
	script, env := h.disk()+".sh", h.disk()+".env"
	if err := os.WriteFile(script, hostScript, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(env, h.environment(cgroups), 0o600); err != nil {
		return nil, err
	}
	console, err := os.OpenFile(h.ConsoleLog(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer console.Close()
	cmd := exec.Command("/bin/sh", script, env)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C must not stop the hosts
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return ended, nil
}

// environment is host.sh's input, as shell assignments.
func (h *Host) environment(cgroups []string) []byte {
	var nics []string
	for _, n := range h.nics {
		nics = append(nics, n.MAC+"="+n.Address.String()+"="+n.Bridge)
	}
	var b bytes.Buffer
	for _, v := range [][2]string{
		{"NAME", h.Name},
		{"MACHINE", h.qualified()},
		{"NETNS", h.qualified()},
		{"SWITCH", qualified(h.lab, switchPart)},
		{"ROOT", h.disk()},
		{"COUNTERS", h.countersFile()},
		{"CGROUPS", strings.Join(cgroups, " ")},
		{"NICS", strings.Join(nics, " ")},
		{"NSPAWN_FLAGS", strings.Join(h.flags, " ")},
	} {
		fmt.Fprintf(&b, "%s='%s'\n", v[0], v[1])
	}
	return b.Bytes()
}

// waitBooted waits until the host runs with another process 1 than before and systemd has no
// more jobs.
func (h *Host) waitBooted(ctx context.Context, supervisor <-chan error, before int) error {
	last := "no process yet"
	err := poll(ctx, "systemd", func() (bool, error) {
		select {
		case err := <-supervisor:
			return false, fmt.Errorf("host ended: %v%s", err, h.consoleTail())
		default:
		}
		leader := h.leader()
		if leader == 0 || leader == before {
			return false, nil
		}
		// The exit status has no more information, and it fails before D-Bus runs.
		state, _ := h.Output(ctx, "systemctl", "is-system-running")
		if state = strings.TrimSpace(state); state != "" {
			last = state
		}
		return state == "running" || state == "degraded", nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (last seen: %s)%s", err, last, h.consoleTail())
	}
	return err
}

func (h *Host) consoleTail() string {
	text, _ := os.ReadFile(h.ConsoleLog())
	return lastLines(string(text), 8)
}

// Reboot restarts the host and waits until systemd has started everything again. Only the disk
// remains; interfaces, routes, nftables rules, /run and all processes are new.
func (h *Host) Reboot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	before := h.leader()
	asked := h.ask(ctx, "reboot")
	if err := h.waitBooted(ctx, nil, before); err != nil {
		return fmt.Errorf("rebooting %s: %w", h.Name, errors.Join(err, asked))
	}
	return nil
}

// PowerOff shuts the host down in an orderly way. Boot starts it again.
func (h *Host) PowerOff(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	asked := h.ask(ctx, "poweroff")
	if err := h.waitOff(ctx); err != nil {
		return fmt.Errorf("powering off %s: %w", h.Name, errors.Join(err, asked))
	}
	return nil
}

// ask requests a shutdown with systemctl. Its error may be harmless: the shutdown can end
// systemctl before it gets its answer.
func (h *Host) ask(ctx context.Context, verb string) error {
	_, err := h.Output(ctx, "systemctl", verb)
	return err
}

// PowerCut stops the host at once, like unplugging it. Boot starts it again.
func (h *Host) PowerCut(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if pid := h.leader(); pid != 0 {
		// Otherwise the kernel would close the connections of the killed processes, and answer for the host.
		if err := h.setPorts(ctx, "nomaster"); err != nil {
			return fmt.Errorf("cutting power of %s: %w", h.Name, err)
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			return fmt.Errorf("cutting power of %s: %w", h.Name, err)
		}
	}
	return h.waitOff(ctx)
}

// waitOff waits until the host's processes and the script that runs it ended.
func (h *Host) waitOff(ctx context.Context) error {
	return poll(ctx, h.Name+" to end", func() (bool, error) {
		return len(h.processes()) == 0, nil
	})
}
