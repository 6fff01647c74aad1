package pki

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math"
	"math/big"
	"net"
	"slices"
	"time"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// backdate is how long before now a new CA becomes valid, so that a node whose
// clock is a little slow can join (kubeadm's constants.CertificateBackdate). The
// CA's certificates become valid at the same time as the CA.
const backdate = 5 * time.Minute

// checkClock refuses to sign with a clock that cannot be right, such as the clock of a host without
// a battery. After the clock is set, all certificates would have expired.
func checkClock(now time.Time) error {
	if now.Before(config.OldestRelease) {
		return fault.New(fault.Preflight, "this host's clock shows %s: certificates created now would have expired long ago", now.UTC().Format(time.RFC3339)).
			Hint("set the clock: date -s '2030-01-31 12:00:00'")
	}
	return nil
}

// authority is a CA; without a key (an external CA) it can only verify.
type authority struct {
	cert *x509.Certificate
	// issuers are the other certificates in the file of an intermediate CA.
	issuers []*x509.Certificate
	key     crypto.Signer
	path    string // of the certificate, for messages
}

func (a authority) external() bool { return a.cert != nil && a.key == nil }

// knows reports whether cert is the certificate of the CA or of an issuer.
func (a authority) knows(cert *x509.Certificate) bool {
	return cert.Equal(a.cert) || slices.ContainsFunc(a.issuers, cert.Equal)
}

// trusted returns the CAs that a kubeconfig trusts: the CA and, during a rotation, the other CA of
// the rotation, which has the same name. Issuers of an intermediate CA are not part of it, as in
// kubeadm.
func (a authority) trusted() []byte {
	certs := []*x509.Certificate{a.cert}
	for _, c := range a.issuers {
		if bytes.Equal(c.RawSubject, a.cert.RawSubject) {
			certs = append(certs, c)
		}
	}
	return encodeCerts(certs)
}

// validity is d, or def if the configuration has none, as with kubeadm's v1beta3.
func validity(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// newAuthority creates a self-signed CA.
func newAuthority(cfg *config.Config, c Certificate, key crypto.Signer, now time.Time) (authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: c.CommonName},
		DNSNames:              []string{c.CommonName},
		NotBefore:             now.Add(-backdate).UTC(),
		NotAfter:              now.Add(validity(cfg.CACertificateValidityPeriod, config.CACertificateValidity)).UTC(),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	cert, err := sign(template, template, key.Public(), key)
	return authority{cert: cert, key: key, path: c.certPath(cfg)}, err
}

// issue signs a certificate for a key.
func (a authority) issue(cfg *config.Config, c Certificate, key crypto.Signer, now time.Time) (*x509.Certificate, error) {
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: c.CommonName, Organization: c.Organizations},
		DNSNames:  c.DNSNames,
		NotBefore: a.cert.NotBefore,
		NotAfter:  now.Add(validity(cfg.CertificateValidityPeriod, config.CertificateValidity)).UTC(),
		// Key encipherment has no meaning for an ECDSA key, but kubeadm's
		// profile has it for both algorithms.
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:           c.Usages,
		BasicConstraintsValid: true,
	}
	for _, ip := range c.IPs {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	}
	return sign(template, a.cert, key.Public(), a.key)
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	// A positive number of up to 63 bits, as all of Kubernetes uses.
	serial, err := rand.Int(rand.Reader, big.NewInt(math.MaxInt64-1))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}
