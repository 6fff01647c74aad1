package fetch

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
)

// CertificateHint returns the hint for an error about the certificate of host, and "" for other errors. trust is
// the hint for a CA that is not trusted.
func CertificateHint(err error, host, trust string) string {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	var other *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unknown):
		return trust
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "compare this machine's clock (date -u) with the time in the message; if the clock is right, " + host + " needs a new certificate"
	case errors.As(err, &name):
		return "use a name of " + host + " that its certificate has, or give it a certificate with this name"
	case errors.As(err, &other):
		return host + " needs another certificate: openssl s_client -connect HOST:PORT -showcerts prints the one that it has"
	}
	return ""
}
