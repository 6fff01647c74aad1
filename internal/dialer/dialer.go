// Package dialer connects to network addresses. A context may have another network than this machine's.
package dialer

import (
	"context"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
)

// A Func connects to an address, as the DialContext of net.Dialer does.
type Func func(ctx context.Context, network, address string) (net.Conn, error)

type key struct{}

// With returns a context whose connections dial opens.
func With(ctx context.Context, dial Func) context.Context { return context.WithValue(ctx, key{}, dial) }

// Dial connects to an address.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if dial, ok := ctx.Value(key{}).(Func); ok {
		return dial(ctx, network, address)
	}
	// Linux sends a SYN after 0, 1, 3 and 7 s. The limit is shorter than the limits of requests, so that a host that is gone is not
	// treated as one that is slow. KeepAlive is the value of net/http's default transport.
	return (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext(ctx, network, address)
}

// Options returns the options of a gRPC client whose connections a context opens. Without a network of the
// context there are none: gRPC connects by itself.
func Options(ctx context.Context) []grpc.DialOption {
	dial, ok := ctx.Value(key{}).(Func)
	if !ok {
		return nil
	}
	return []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		if socket, local := strings.CutPrefix(address, "unix://"); local {
			return dial(ctx, "unix", socket)
		}
		return dial(ctx, "tcp", address)
	})}
}
