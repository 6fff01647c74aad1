package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math"
	"math/big"
	"net"
	"slices"
	"time"

	"airlift/fault"
	"airlift/installer/config"
)

// backdate makes a new CA valid a little before now, so that a node whose
// clock is a bit behind can join (kubeadm's constants.CertificateBackdate).
// What a CA signs starts when the CA does: the chain shares that tolerance.
const backdate = 5 * time.Minute

// earliest is the release of Kubernetes v1.29.0, the oldest version that is
// installed.
var earliest = time.Date(2023, 12, 13, 0, 0, 0, 0, time.UTC)

// checkClock refuses to date anything by a clock that cannot be right: after a
// host without a battery has been given the time, all of it would have expired.
func checkClock(now time.Time) error {
	if now.Before(earliest) {
		return fault.New(fault.Preflight, "set the clock: date -s '2030-01-31 12:00:00'",
			"this host's clock says %s: certificates made now would have expired long ago", now.UTC().Format(time.RFC3339))
	}
	return nil
}

// authority is a CA; without a key (an external CA) it can only verify.
type authority struct {
	cert *x509.Certificate
	// more are the other certificates in its file, by which it may be known
	// too: where it is an intermediate one, those above it.
	more []*x509.Certificate
	key  crypto.Signer
	path string // of the certificate, for messages
}

func (a authority) external() bool { return a.cert != nil && a.key == nil }

// knows says whether cert is the CA's, or one of those above it.
func (a authority) knows(cert *x509.Certificate) bool {
	return cert.Equal(a.cert) || slices.ContainsFunc(a.more, cert.Equal)
}

// validity is d, or def where the configuration does not say, as that of a
// cluster made with kubeadm v1beta3.
func validity(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// newAuthority makes a CA that signs itself.
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

// issue certifies a key.
func (a authority) issue(cfg *config.Config, c Certificate, key crypto.Signer, now time.Time) (*x509.Certificate, error) {
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: c.CommonName, Organization: c.Organizations},
		DNSNames:  c.DNSNames,
		NotBefore: a.cert.NotBefore,
		NotAfter:  now.Add(validity(cfg.CertificateValidityPeriod, config.CertificateValidity)).UTC(),
		// Key encipherment means nothing to an ECDSA key, but it is
		// kubeadm's profile for both kinds.
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
