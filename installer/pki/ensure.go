package pki

import (
	"crypto"
	"crypto/x509"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"airlift/fault"
	"airlift/installer/config"
)

// Ensure returns the files that are missing for the node to have every
// certificate of the table and the service-account key pair.
//
// A file that exists is never replaced: it is kept when it is valid for cfg at
// the time now, and otherwise the error names it and says what is wrong. A key
// without its certificate, as an interrupted run leaves it, gets one. A CA
// whose key is absent is an external one: then all it signs must exist.
func Ensure(cfg *config.Config, host fs.FS, now time.Time) (Result, error) {
	table, err := Certificates(cfg)
	if err != nil {
		return Result{}, err
	}
	e := ensurer{cfg: cfg, host: host, now: now, authorities: map[string]authority{}}
	for _, c := range table {
		if c.CA == "" {
			err = e.authority(c)
		} else {
			err = e.leaf(c)
		}
		if err != nil {
			return Result{}, err
		}
	}
	if err := e.serviceAccountKey(); err != nil {
		return Result{}, err
	}
	return e.result, nil
}

type ensurer struct {
	cfg         *config.Config
	host        fs.FS
	now         time.Time
	authorities map[string]authority
	result      Result
}

func (e *ensurer) authority(c Certificate) error {
	found, err := loadAuthority(e.cfg, e.host, c, e.now)
	if err != nil {
		return err
	}
	if found.cert != nil {
		e.authorities[c.Name] = found
		e.kept(c.certPath(e.cfg))
		if found.key != nil {
			e.kept(c.keyPath(e.cfg))
		}
		return nil
	}
	key, err := e.key(c)
	if err != nil {
		return err
	}
	made, err := newAuthority(e.cfg, c, key, e.now)
	if err != nil {
		return fmt.Errorf("making the certificate authority %s: %w", c.Name, err)
	}
	e.authorities[c.Name] = made
	e.write(c, made.cert)
	return nil
}

func (e *ensurer) leaf(c Certificate) error {
	certPath, keyPath := c.certPath(e.cfg), c.keyPath(e.cfg)
	certPEM, err := read(e.host, certPath)
	if err != nil {
		return err
	}
	keyPEM, err := read(e.host, keyPath)
	if err != nil {
		return err
	}
	ca := e.authorities[c.CA]
	switch {
	case certPEM == nil:
		if ca.key == nil {
			return missing(certPath, ca)
		}
		key, err := e.key(c)
		if err != nil {
			return err
		}
		cert, err := ca.issue(e.cfg, c, key, e.now)
		if err != nil {
			return fmt.Errorf("making the certificate %s: %w", c.Name, err)
		}
		e.write(c, cert)
		return nil
	case keyPEM == nil:
		return halfPair(certPath, keyPath)
	}
	if err := check(c, certPEM, keyPEM, ca, e.now, certPath, keyPath); err != nil {
		return err
	}
	e.kept(certPath, keyPath)
	return nil
}

// serviceAccountKey is the pair that signs and verifies service-account
// tokens. It is no certificate: it does not expire and nobody signs it.
func (e *ensurer) serviceAccountKey() error {
	sa := Certificate{Name: "sa", Base: "sa"}
	keyPath := sa.keyPath(e.cfg)
	publicPath := path.Join(e.cfg.CertificatesDir, "sa.pub")
	keyPEM, err := read(e.host, keyPath)
	if err != nil {
		return err
	}
	publicPEM, err := read(e.host, publicPath)
	if err != nil {
		return err
	}
	switch {
	case keyPEM == nil && publicPEM != nil:
		return halfPair(publicPath, keyPath)
	case keyPEM == nil:
		key, err := e.key(sa)
		if err != nil {
			return err
		}
		return e.writePublicKey(publicPath, key)
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return unusable(keyPath, err)
	}
	e.kept(keyPath)
	if publicPEM == nil {
		return e.writePublicKey(publicPath, key)
	}
	public, err := parsePublicKey(publicPEM)
	if err != nil {
		return unusable(publicPath, err)
	}
	if !matches(public, key) {
		return unusable(publicPath, fmt.Errorf("it does not belong to the key %s", keyPath))
	}
	e.kept(publicPath)
	return nil
}

func (e *ensurer) writePublicKey(publicPath string, key crypto.Signer) error {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encoding %s: %w", publicPath, err)
	}
	e.result.Files = append(e.result.Files, File{Path: publicPath, Data: encodePEM(publicKeyType, der), Mode: keyMode})
	return nil
}

// key returns the key of a certificate that is to be made: the one that is
// there, or a new one, which is put out before the certificate so that a run
// stopped between the two leaves nothing that looks like an external CA's.
func (e *ensurer) key(c Certificate) (crypto.Signer, error) {
	keyPath := c.keyPath(e.cfg)
	existing, err := read(e.host, keyPath)
	if err != nil {
		return nil, err
	}
	if existing != nil {
		key, err := parseKey(existing)
		if err != nil {
			return nil, unusable(keyPath, err)
		}
		e.kept(keyPath)
		return key, nil
	}
	key, err := newKey(e.cfg.EncryptionAlgorithm)
	if err != nil {
		return nil, fmt.Errorf("making %s: %w", keyPath, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, fmt.Errorf("making %s: %w", keyPath, err)
	}
	e.result.Files = append(e.result.Files, File{Path: keyPath, Data: keyPEM, Mode: keyMode})
	return key, nil
}

func (e *ensurer) write(c Certificate, cert *x509.Certificate) {
	e.result.Files = append(e.result.Files, File{Path: c.certPath(e.cfg), Data: encodePEM(certType, cert.Raw), Mode: certMode})
}

func (e *ensurer) kept(paths ...string) { e.result.Kept = append(e.result.Kept, paths...) }

// loadAuthority reads a CA from the host. Its cert is nil when the host has
// none, its key is nil when the CA is an external one.
func loadAuthority(cfg *config.Config, host fs.FS, c Certificate, now time.Time) (authority, error) {
	certPath, keyPath := c.certPath(cfg), c.keyPath(cfg)
	certPEM, err := read(host, certPath)
	if err != nil {
		return authority{}, err
	}
	keyPEM, err := read(host, keyPath)
	if err != nil {
		return authority{}, err
	}
	if certPEM == nil {
		return authority{}, nil
	}
	certs, err := parseCerts(certPEM)
	if err != nil {
		return authority{}, unusable(certPath, err)
	}
	a := authority{cert: certs[0], path: certPath}
	if !a.cert.IsCA {
		return authority{}, unusable(certPath, fmt.Errorf("it is not a certificate authority's"))
	}
	if err := current(a.cert, now); err != nil {
		return authority{}, unusable(certPath, err)
	}
	if keyPEM == nil {
		return a, nil
	}
	if a.key, err = parseKey(keyPEM); err != nil {
		return authority{}, unusable(keyPath, err)
	}
	if !matches(a.cert.PublicKey, a.key) {
		return authority{}, unusable(keyPath, fmt.Errorf("it is not the key of %s", certPath))
	}
	return a, nil
}

// check says whether an existing certificate does what c wants: valid now,
// signed by ca, for its names, addresses and usages, and with its key.
func check(c Certificate, certPEM, keyPEM []byte, ca authority, now time.Time, certPath, keyPath string) error {
	certs, err := parseCerts(certPEM)
	if err != nil {
		return unusable(certPath, err)
	}
	cert := certs[0]
	key, err := parseKey(keyPEM)
	if err != nil {
		return unusable(keyPath, err)
	}
	if !matches(cert.PublicKey, key) {
		return unusable(keyPath, fmt.Errorf("it is not the key of %s", certPath))
	}
	if err := current(cert, now); err != nil {
		return unusable(certPath, err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(ca.cert)
	for _, i := range certs[1:] {
		between.AddCert(i)
	}
	_, err = cert.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return unusable(certPath, fmt.Errorf("it is not signed by %s: %w", ca.path, err))
	}
	for _, name := range c.DNSNames {
		if err := cert.VerifyHostname(name); err != nil {
			return unusable(certPath, fmt.Errorf("it is not valid for the name %q, only for %v and %v", name, cert.DNSNames, cert.IPAddresses))
		}
	}
	for _, ip := range c.IPs {
		if err := cert.VerifyHostname(ip.String()); err != nil {
			return unusable(certPath, fmt.Errorf("it is not valid for the address %s, only for %v and %v", ip, cert.DNSNames, cert.IPAddresses))
		}
	}
	for _, usage := range c.Usages {
		if !slices.Contains(cert.ExtKeyUsage, usage) && !slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageAny) {
			return unusable(certPath, fmt.Errorf("it may not be used for %s", usageNames[usage]))
		}
	}
	return nil
}

var usageNames = map[x509.ExtKeyUsage]string{
	x509.ExtKeyUsageServerAuth: "server authentication",
	x509.ExtKeyUsageClientAuth: "client authentication",
}

func current(cert *x509.Certificate, now time.Time) error {
	const layout = "2006-01-02 15:04:05 MST"
	switch {
	case now.After(cert.NotAfter):
		return fmt.Errorf("it expired at %s and it is now %s", cert.NotAfter.Format(layout), now.UTC().Format(layout))
	case now.Before(cert.NotBefore):
		return fmt.Errorf("it is not valid before %s and it is now %s", cert.NotBefore.Format(layout), now.UTC().Format(layout))
	}
	return nil
}

func unusable(file string, reason error) error {
	return fault.New(fault.Failure, "replace "+file+", or remove it (and what was made with it) to have it made anew; check the clock if the dates look right",
		"%s exists but cannot be used: %w", file, reason)
}

func halfPair(have, lack string) error {
	return fault.New(fault.Failure, "put "+lack+" in place, or remove "+have+" to have both made anew",
		"%s exists but %s does not", have, lack)
}

func missing(file string, ca authority) error {
	return fault.New(fault.Failure, "have it signed by that CA and put it in place, or provide the CA's key",
		"%s does not exist and cannot be made: the CA %s has no key here", file, ca.path)
}
