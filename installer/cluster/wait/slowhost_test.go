package wait

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"airlift/internal/fault"
)

// The times below pass at once: synctest has its own clock.

// An API server that a liveness probe restarts needs a minute on a slow host.
func TestStepsSurviveTheRestartOfASlowAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(90 * time.Second)
		err := Retry(t.Context(), func() error {
			if time.Now().Before(back) {
				return syscall.ECONNREFUSED
			}
			return nil
		})
		if err != nil {
			t.Errorf("gave up: %v", err)
		}
	})
}

// No answer of a slow server comes within the first limit.
func TestWaitGivesSlowAnswersMoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := func(ctx context.Context) (bool, string, error) {
			select {
			case <-time.After(12 * time.Second):
				return true, "", nil
			case <-ctx.Done():
				return false, ctx.Err().Error(), nil
			}
		}
		w := For{What: "a slow server", Timeout: time.Minute, Attempt: 2 * time.Second}
		if err := w.Until(t.Context(), nil, answer); err != nil {
			t.Error(err)
		}
	})
}

// A server that accepts a connection and never answers it may answer the next one.
func TestWaitTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		hangsOnce := func(ctx context.Context) (bool, string, error) {
			if tries++; tries == 1 {
				<-ctx.Done()
				return false, "no answer", nil
			}
			return true, "", nil
		}
		began := time.Now()
		w := For{What: "a server", Timeout: time.Hour, Attempt: 2 * time.Second}
		if err := w.Until(t.Context(), nil, hangsOnce); err != nil || time.Since(began) > time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// TestWaitGoesOnWhileSomethingHappens has the states of an API server that started in an emulated
// machine next to other work: its last check took longer than the others together, and the time
// limit had passed a few seconds before it was ready.
func TestWaitGoesOnWhileSomethingHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		start := func(context.Context) (bool, string, error) {
			switch since := time.Since(began); {
			case since < 100*time.Second:
				return false, "connection refused", nil
			case since < 110*time.Second:
				return false, "not ready: etcd, poststarthook/rbac/bootstrap-roles", nil
			case since < 260*time.Second:
				return false, "not ready: poststarthook/rbac/bootstrap-roles", nil
			}
			return true, "", nil
		}
		w := For{What: "the API server", Timeout: 4 * time.Minute}
		if err := w.Until(t.Context(), nil, start); err != nil {
			t.Error(err)
		}
	})
}

func TestWaitEndsWithoutProgress(t *testing.T) {
	for name, c := range map[string]struct {
		state func(n int) string
		want  time.Duration
	}{
		"the same state":              {func(int) string { return "refused" }, time.Minute},
		"only numbers change":         {func(n int) string { return fmt.Sprintf("reset by port %d", n) }, time.Minute},
		"states that were seen":       {func(n int) string { return []string{"refused", "reset"}[n%2] }, time.Minute},
		"new states without an end":   {func(n int) string { return strings.Repeat("x", n) }, progressFactor * time.Minute},
		"a look that does not return": {nil, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, n := time.Now(), 0
				w := For{What: "something", Timeout: time.Minute}
				err := w.Until(t.Context(), nil, func(ctx context.Context) (bool, string, error) {
					n++
					if c.state == nil {
						<-ctx.Done()
						return false, "", nil
					}
					return false, c.state(n), nil
				})
				took := time.Since(began).Round(time.Second)
				if took != c.want || err == nil || !strings.Contains(err.Error(), "gave up after "+took.String()) {
					t.Errorf("after %s, want %s: %v", took, c.want, err)
				}
			})
		})
	}
}

// A check that repeats its request while the API server is away has seen why, also if it does so until the wait ends.
func TestWaitSaysWhatItsOnlyCheckSaw(t *testing.T) {
	for name, fails := range map[string]bool{"as a state": false, "as an error": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := For{What: "something", Timeout: time.Minute}
				err := w.Until(t.Context(), nil, func(ctx context.Context) (bool, string, error) {
					err := Retry(ctx, func() error { return syscall.ECONNREFUSED })
					if fails {
						return false, err.Error(), ctx.Err()
					}
					return false, err.Error(), nil
				})
				if err == nil || !strings.HasSuffix(err.Error(), "gave up after 1m0s; last seen: connection refused") {
					t.Error(err)
				}
			})
		})
	}
}

// Checks leave a slow host most of its time, also if every one of them is woken. On a fast host a
// wake is answered soon.
func TestChecksLeaveTimeToASlowHost(t *testing.T) {
	for _, c := range []struct {
		check       time.Duration // how long one takes
		least, most int           // checks in a minute
	}{
		{10 * time.Millisecond, 1000, 1200},
		{200 * time.Millisecond, 50, 60},
		{time.Second, 12, 12},
		{5 * time.Second, 6, 7},
	} {
		synctest.Test(t, func(t *testing.T) {
			wake := make(chan struct{}, 1)
			began, checks := time.Now(), 0
			err := For{What: "a pod", Timeout: 2 * time.Minute}.Until(t.Context(), wake, func(context.Context) (bool, string, error) {
				checks++
				time.Sleep(c.check)
				select {
				case wake <- struct{}{}: // something has changed meanwhile
				default:
				}
				return time.Since(began) >= time.Minute, "not ready", nil
			})
			if err != nil || checks < c.least || checks > c.most+1 {
				t.Errorf("checks of %v: %d in a minute, want %d to %d (%v)", c.check, checks, c.least, c.most, err)
			}
		})
	}
}

// TestOutageHasAHint: an error after a wait for an API server has a hint, whatever it answers.
func TestOutageHasAHint(t *testing.T) {
	for _, outage := range []error{
		syscall.ECONNREFUSED, &url.Error{Op: "Get", Err: io.EOF}, apierrors.NewServiceUnavailable("no leader"), apierrors.NewTimeoutError("etcd", 1), apierrors.NewInternalError(errors.New("etcd")),
		&url.Error{Op: "Get", URL: "https://10.0.0.1:6443", Err: context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			err := Retry(t.Context(), func() error { return fmt.Errorf("reading it: %w", outage) })
			if !errors.Is(err, outage) || fault.Hint(err) != APIServerHint {
				t.Errorf("%v: hint %q", err, fault.Hint(err))
			}
		})
	}
	refused := apierrors.NewBadRequest("no")
	if err := Retry(t.Context(), func() error { return refused }); err != error(refused) {
		t.Errorf("a refusal became %v", err)
	}
}
