package cluster

import (
	"context"
	"net/http"
	"time"
)

type requestLogKey struct{}

// WithRequestLog returns a context that passes log one line for each request to
// an API server: the method, the URL, the answer's status or the error, and the
// time until then.
func WithRequestLog(ctx context.Context, log func(format string, args ...any)) context.Context {
	return context.WithValue(ctx, requestLogKey{}, log)
}

// Logged is a transport that reports each request to the log in its context.
type Logged struct{ http.RoundTripper }

// WrappedRoundTripper lets client-go cancel a request at its time limit. Without
// it, client-go prints a warning for each.
func (l Logged) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

func (l Logged) RoundTrip(r *http.Request) (*http.Response, error) {
	log, ok := r.Context().Value(requestLogKey{}).(func(string, ...any))
	if !ok {
		return l.RoundTripper.RoundTrip(r)
	}
	start := time.Now()
	resp, err := l.RoundTripper.RoundTrip(r)
	took := time.Since(start).Round(time.Millisecond)
	if err != nil {
		log("%s %s: %v, after %s", r.Method, r.URL, err, took)
	} else {
		log("%s %s: %s, after %s", r.Method, r.URL, resp.Status, took)
	}
	return resp, err
}
