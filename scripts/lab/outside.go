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
		return "", fault.New(fault.Failure, "%s of lab %s is not running", h.Name, h.lab).Hint("its console is in " + h.ConsoleLog())
	}
	return "/proc/" + strconv.Itoa(leader) + "/root", nil
}

// Dial connects to a numeric address from the host's network, without a process on the host.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return inNetwork(h, func() (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, network, address) })
}

// Listen listens at a numeric address in the host's network. This process serves it, not one on
// the host.
func (h *Host) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	return inNetwork(h, func() (net.Listener, error) { return (&net.ListenConfig{}).Listen(ctx, network, address) })
}

// inNetwork opens a socket in the host's network.
func inNetwork[T any](h *Host, open func() (T, error)) (T, error) {
	type result struct {
		socket T
		err    error
	}
	done := make(chan result, 1)
	go func() {
		// The thread is never unlocked, so it ends with this goroutine and no other goroutine
		// runs in the host's network.
		runtime.LockOSThread()
		var r result
		if r.err = h.enterNetwork(); r.err == nil {
			r.socket, r.err = open()
		}
		done <- r
	}()
	r := <-done
	return r.socket, r.err
}

// enterNetwork moves this thread into the host's network.
func (h *Host) enterNetwork() error {
	namespace, err := os.Open(filepath.Join("/run/netns", h.qualified()))
	if err == nil {
		err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
		_ = namespace.Close()
	}
	if err != nil {
		return fmt.Errorf("entering the network of %s: %w", h.Name, err)
	}
	return nil
}
