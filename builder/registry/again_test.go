package registry_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"airlift/builder/registry"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// A login that was interrupted is repeated, not remembered.
func TestLoginAfterAnInterruption(t *testing.T) {
	r := newRig(t)
	r.Push(ref, fakesites.Image(t, "amd64", "x"))
	c := r.client("amd64")
	ctx, cancel := context.WithCancel(t.Context())
	r.Answer = func(http.ResponseWriter, *http.Request, string) bool {
		cancel()
		<-ctx.Done()
		return false
	}
	if _, err := c.Resolve(ctx, registry.Wanted{Name: "x", Reference: ref}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.Answer = nil
	if _, err := c.Resolve(t.Context(), registry.Wanted{Name: "x", Reference: ref}); err != nil {
		t.Error(err)
	}
}

// The hint for too many requests names the host that answered, and the name that --mirror takes.
func TestHintForTooManyRequests(t *testing.T) {
	r := newRig(t)
	r.Push(ref, fakesites.Image(t, "amd64", "x"))
	for _, part := range []string{"/manifests/", "/blobs/"} {
		r.Answer = func(w http.ResponseWriter, q *http.Request, target string) bool {
			if q.Method == http.MethodHead || !strings.Contains(target, part) || !strings.HasPrefix(target, "registry.k8s.io/") && part == "/manifests/" {
				return false
			}
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}
		_, err := r.pull(r.client("amd64"), ref)
		host := strings.TrimPrefix(r.URL(), "http://")
		if hint := fault.Hint(err); !strings.Contains(hint, host+" limits requests") || !strings.Contains(hint, "--mirror registry.k8s.io=URL with another URL") {
			t.Errorf("%s: %v\n%s", part, err, hint)
		}
	}
}
