package fetch

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"airlift/internal/fault"
)

// https://www.rfc-editor.org/rfc/rfc9110#field.retry-after
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"":                               0,
		"120":                            2 * time.Minute,
		"0":                              0,
		"-1":                             0,
		"1.5":                            0,
		"soon":                           0,
		"99999999999999999":              1 << 30 * time.Second,
		"Fri, 02 Jan 2026 03:05:05 GMT":  time.Minute,
		"Friday, 02-Jan-26 03:05:05 GMT": time.Minute,
		"Fri, 02 Jan 2026 03:03:05 GMT":  0,
	} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}

// A wait that a site asks for replaces the usual one, within limits, and only with the
// statuses that have it.
func TestWait(t *testing.T) {
	c := New(nil, nil)
	c.RetryWait, c.maxWait = time.Second, 15*time.Second
	for _, s := range []struct {
		code  int
		after string
		want  time.Duration
	}{
		{http.StatusTooManyRequests, "60", time.Minute},
		{http.StatusServiceUnavailable, "60", time.Minute},
		{http.StatusServiceUnavailable, "300", 5 * time.Minute},
		{http.StatusServiceUnavailable, "", time.Second},
		{http.StatusInternalServerError, "60", time.Second},
	} {
		got, err := c.wait(&StatusError{"https://example", s.code, "status", "", s.after}, 1)
		if err != nil || got != s.want {
			t.Errorf("%+v: %v, %v", s, got, err)
		}
	}
	_, err := c.wait(&StatusError{"https://example", http.StatusTooManyRequests, "429 Too Many Requests", "", "21600"}, 1)
	if err == nil || !strings.Contains(err.Error(), "429 Too Many Requests; it asks to wait 6h0m0s") || fault.Hint(err) == "" {
		t.Errorf("err = %v", err)
	}
}
