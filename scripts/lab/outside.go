package lab

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"airlift/fault"
)

// Root is a path on this machine to the host's root directory, with the host's mounts. It is
// valid until the host reboots.
func (h *Host) Root() (string, error) {
	leader := h.leader()
	if leader == 0 {
		return "", fault.New(fault.Failure, "its console is in "+h.ConsoleLog(), "%s of lab %s is not running", h.Name, h.lab)
	}
	return "/proc/" + strconv.Itoa(leader) + "/root", nil
}

// Dial connects to a numeric address from the host's network, without a process on the host.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		// The thread is never unlocked, so it ends with this goroutine and no other goroutine
		// runs in the host's network.
		runtime.LockOSThread()
		conn, err := h.dial(ctx, network, address)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

func (h *Host) dial(ctx context.Context, network, address string) (net.Conn, error) {
	namespace, err := os.Open(filepath.Join("/run/netns", h.qualified()))
	if err != nil {
		return nil, fmt.Errorf("entering the network of %s: %w", h.Name, err)
	}
	defer namespace.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("entering the network of %s: %w", h.Name, err)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}
