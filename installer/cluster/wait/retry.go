package wait

import (
	"context"
	"errors"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"airlift/installer/config"
	"airlift/installer/timeline"
	"airlift/internal/fault"
)

// Outage is how long the API server may be unavailable during a step: on a slow
// host, a failed liveness probe may restart it, and its start takes a minute.
const Outage = config.DefaultControlPlaneTimeout

// APIServerHint is the hint of a request that no API server answered.
const APIServerHint = "see why, on that control plane: ./install status"

// Retry retries do while the API server is unavailable or too busy, but not
// when it refuses the request. do must be safe to repeat.
func Retry(ctx context.Context, do func() error) error {
	end := time.Now().Add(Outage)
	var span *timeline.Span
	defer func() { span.End() }()
	for {
		err := do()
		if err == nil || !IsOutage(err) {
			return err
		}
		if time.Now().After(end) {
			return fault.Wrap(err, fault.Failure, APIServerHint)
		}
		if span == nil {
			span = timeline.Wait(ctx, "the API server to be back")
		}
		span.Saw(err.Error())
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return err
		}
	}
}

// Get gets an object by its name, and retries.
func Get[T any](ctx context.Context, get func(context.Context, string, metav1.GetOptions) (T, error), name string) (found T, err error) {
	err = Retry(ctx, func() error {
		found, err = get(ctx, name, metav1.GetOptions{})
		return err
	})
	return found, err
}

// List lists objects, and retries.
func List[T any](ctx context.Context, list func(context.Context, metav1.ListOptions) (T, error), of metav1.ListOptions) (found T, err error) {
	err = Retry(ctx, func() error {
		found, err = list(ctx, of)
		return err
	})
	return found, err
}

// IsOutage reports whether the API server is unavailable or too busy. It may have done what the request asks for.
func IsOutage(err error) bool {
	return isTooSlow(err) || utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || lacksNamespace(err)
}

// isTooSlow reports a server that took a connection and does not answer in time: it has not ended the handshake in
// net/http's 10 s, or the request in the client's limit. A host that takes no connection is no slow one: it may be gone.
func isTooSlow(err error) bool {
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		return false
	}
	var op *net.OpError
	return !errors.As(err, &op) || op.Op != "dial"
}

// lacksNamespace reports a missing namespace: the API server creates kube-system
// and kube-public a moment after it reports that it is ready.
func lacksNamespace(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	return ok && apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}
