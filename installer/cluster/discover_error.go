package cluster

import (
	"airlift/fault"
)

// Reason says why a cluster was not found or not trusted.
type Reason string

// The reasons, each with its own hint.
const (
	Malformed          Reason = "malformed"           // token, hash, address or file is not what it should be
	Unreachable        Reason = "unreachable"         // no connection to the address
	NotAPIServer       Reason = "not-api-server"      // something else answers there
	NotReady           Reason = "not-ready"           // an API server without cluster-info
	TokenUnknown       Reason = "token-unknown"       // no signature by that token: expired, or never known
	TokenWrong         Reason = "token-wrong"         // a signature, but not with that secret
	CAMismatch         Reason = "ca-mismatch"         // the cluster's CA is not the pinned one
	ClockSkew          Reason = "clock-skew"          // this host and the API server differ about the time
	CertificateInvalid Reason = "certificate-invalid" // the server's certificate does not fit address, CA or time
	Tampered           Reason = "tampered"            // two answers to the same question differ
	NoCredentials      Reason = "no-credentials"      // nothing to authenticate the node with
)

// DiscoveryError is what Discover fails with, except for a cancelled context.
type DiscoveryError struct {
	Reason Reason
	err    error
}

func (e *DiscoveryError) Error() string { return e.err.Error() }
func (e *DiscoveryError) Unwrap() error { return e.err }

// refuse makes a DiscoveryError with a hint.
func refuse(reason Reason, hint, format string, args ...any) error {
	code := fault.Failure
	if reason == Malformed || reason == NoCredentials {
		code = fault.Usage
	}
	return &DiscoveryError{reason, fault.New(code, hint, format, args...)}
}
