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

	"airlift/internal/fault"
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
	return DialFrom(ctx, h.network(), network, address)
}

// DialFrom connects to a numeric address from a network namespace, which is a path on this machine: of
// a pod, for example, it is below the Root of its host.
func DialFrom(ctx context.Context, namespace, network, address string) (net.Conn, error) {
	return inNetwork(namespace, func() (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, network, address) })
}

// Listen listens at a numeric address in the host's network. This process serves it, not one on
// the host.
func (h *Host) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	return inNetwork(h.network(), func() (net.Listener, error) { return (&net.ListenConfig{}).Listen(ctx, network, address) })
}

// network is the host's network namespace, which exists while the host is on.
func (h *Host) network() string { return filepath.Join("/run/netns", h.qualified()) }

// inNetwork runs a function in a network namespace, for example to open a socket.
func inNetwork[T any](namespace string, open func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		// The thread is never unlocked, so it ends with this goroutine and no other goroutine
		// runs in the namespace.
		runtime.LockOSThread()
		var r result
		if r.err = enterNetwork(namespace); r.err == nil {
			r.value, r.err = open()
		}
		done <- r
	}()
	r := <-done
	return r.value, r.err
}

// enterNetwork moves this thread into a network namespace.
func enterNetwork(path string) error {
	namespace, err := os.Open(path)
	if err == nil {
		err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
		_ = namespace.Close()
	}
	if err != nil {
		return fmt.Errorf("entering the network %s: %w", path, err)
	}
	return nil
}
