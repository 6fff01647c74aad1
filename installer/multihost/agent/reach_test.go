package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"airlift/internal/dialer"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/seed"
)

// TestCheckReach: an endpoint that does not answer in time is an error if an API server answers, with the cause; an endpoint
// that answers in time is not, and neither is a cluster of which nothing answers: join says why.
func TestCheckReach(t *testing.T) {
	const endpoint, limit = "10.0.0.100:6443", time.Minute
	servers := []string{"10.0.0.11:6443", "10.0.0.12:6443"}
	random := rand.New(rand.NewPCG(seed.Value(t), 0))
	causes := map[string]error{"no host answers": syscall.EHOSTUNREACH, "connection refused": syscall.ECONNREFUSED, "no answer in time": nil, "no such host": &net.DNSError{Err: "no such host"}}
	for range 300 {
		after := time.Duration(random.Int64N(int64(2 * limit))) // the endpoint answers from then on
		up := servers[:random.IntN(len(servers)+1)]
		want, cause := "", error(nil)
		for want, cause = range causes {
			break // any
		}
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ctx := dialer.With(t.Context(), func(ctx context.Context, _, address string) (net.Conn, error) {
				if slices.Contains(up, address) || address == endpoint && time.Since(began) >= after {
					a, _ := net.Pipe()
					return a, nil
				}
				if cause == nil {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return nil, &net.OpError{Op: "dial", Err: cause}
			})
			err := CheckReach(ctx, endpoint, servers, limit)
			took := time.Since(began)
			if latest := limit + reachPause + 3*reachAttempt; took > latest {
				t.Errorf("took %s", took)
			}
			switch {
			case after < limit || len(up) == 0:
				if err != nil {
					t.Errorf("the endpoint answers after %s, %d API servers answer: %v", after, len(up), err)
				}
			case after > limit+reachPause+reachAttempt:
				if err == nil || !strings.Contains(err.Error(), up[0]) || !strings.Contains(err.Error(), endpoint) || !strings.Contains(err.Error(), want) || fault.Hint(err) == "" {
					t.Errorf("%v, want the addresses and %q", err, want)
				}
			}
		})
	}
	for _, own := range []string{servers[0], "127.0.0.1:7443"} { // the only control plane is its own endpoint; a balancer runs only on nodes
		if err := CheckReach(t.Context(), own, servers, 0); err != nil {
			t.Errorf("%s: %v", own, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	if err := CheckReach(ctx, endpoint, servers, limit); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Error(err)
	}
}
