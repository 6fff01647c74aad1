package discovery

import (
	"airlift/internal/fault"
)

// Reason is why a cluster was not found or not trusted.
type Reason string

// The reasons, each with its own hint.
const (
	Malformed          Reason = "malformed"           // malformed token, hash, address or file
	Unreachable        Reason = "unreachable"         // no connection to the address
	NotAPIServer       Reason = "not-api-server"      // another service answers there
	NotReady           Reason = "not-ready"           // an API server without cluster-info
	TokenUnknown       Reason = "token-unknown"       // no signature by that token: expired or unknown
	TokenWrong         Reason = "token-wrong"         // a signature, but not with that secret
	CAMismatch         Reason = "ca-mismatch"         // the cluster's CA is not the pinned one
	ClockSkew          Reason = "clock-skew"          // the clocks of this host and the API server differ
	CertificateInvalid Reason = "certificate-invalid" // the server's certificate does not match address, CA or time
	Tampered           Reason = "tampered"            // two fetches of cluster-info differ
	NoCredentials      Reason = "no-credentials"      // no credentials for the node
)

// Error is every error of Discover except a cancelled context.
type Error struct {
	Reason Reason
	cause  error
}

func (e *Error) Error() string { return e.cause.Error() }
func (e *Error) Unwrap() error { return e.cause }

// refuse returns a DiscoveryError with a hint.
func refuse(reason Reason, hint, format string, args ...any) error {
	code := fault.Failure
	if reason == Malformed || reason == NoCredentials {
		code = fault.Usage
	}
	return &Error{reason, fault.New(code, format, args...).Hint(hint)}
}
