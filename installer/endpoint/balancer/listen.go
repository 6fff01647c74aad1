package balancer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"time"

	"airlift/internal/fault"
)

// listen opens the listeners. It leaves out an IPv6 address on a host without IPv6, if there is another one.
func listen(addresses []netip.AddrPort, log *slog.Logger) (listeners []*net.TCPListener, err error) {
	defer func() {
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
		}
	}()
	// A client on the same host does not vanish without an end, so connections need no keep-alive probes.
	config := net.ListenConfig{KeepAlive: -1}
	for _, address := range addresses {
		l, err := config.Listen(context.Background(), "tcp", address.String())
		switch {
		case err == nil:
			listeners = append(listeners, l.(*net.TCPListener))
		case lacksIPv6(address, err) && len(addresses) > 1:
			log.Info("this host has no IPv6", "address", address)
		case errors.Is(err, syscall.EADDRINUSE):
			return listeners, fault.New(fault.Failure, "listening on %s: another process uses this port", address).
				Hint(fmt.Sprintf("find the process: ss -ltnp 'sport = :%d'", address.Port()))
		default:
			return listeners, fmt.Errorf("listening on %s: %w", address, err)
		}
	}
	return listeners, nil
}

func lacksIPv6(address netip.AddrPort, err error) bool {
	return address.Addr().Is6() && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT))
}

// outOfFiles is how long to wait after an accept that failed for want of files or memory.
const outOfFiles = 50 * time.Millisecond

// accept forwards the connections of a listener until ctx ends.
func (b *Balancer) accept(ctx context.Context, l *net.TCPListener) error {
	for {
		client, err := l.AcceptTCP()
		switch {
		case err == nil:
			b.tasks.Go(func() { b.handle(ctx, client) })
		case ctx.Err() != nil:
			return ctx.Err()
		case isTemporary(err):
			sleep(ctx, outOfFiles)
		default:
			return fmt.Errorf("accepting connections on %s: %w", l.Addr(), err)
		}
	}
}

func isTemporary(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
