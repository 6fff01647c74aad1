package testcluster

import (
	"context"
	"strings"
	"testing"
	"time"

	"airlift/installer/config"
)

// Within returns a context with a timeout for one test.
func Within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Must returns a value, or ends the test: Must(f())(t).
func Must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// LastSeen returns the error of a wait that cannot succeed. A slow host gets more
// time until the wait has seen a state.
func LastSeen(wait func(timeout time.Duration) error) (err error) {
	for timeout := time.Second / 2; timeout < time.Minute; timeout *= 2 {
		if err = wait(timeout); err == nil || !strings.Contains(err.Error(), "last seen: nothing") {
			break
		}
	}
	return err
}

// Eventually repeats a check until it succeeds, for at most ten seconds.
func Eventually(t *testing.T, check func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !check(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen Within ten seconds")
		}
	}
}

// JoinToken returns a token that lives for an hour.
func JoinToken(token string) config.BootstrapToken {
	return config.BootstrapToken{
		Token: token, TTL: time.Hour, Usages: []string{"signing", "authentication"},
		Groups: []string{"system:bootstrappers:kubeadm:default-node-token"},
	}
}

// Error returns only the error of a function that also returns a value.
func Error[T any](_ T, err error) error { return err }
