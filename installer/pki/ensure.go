package pki

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"airlift/installer/config"
	"airlift/internal/documents/pemfile"
	"airlift/internal/fault"
)

// Ensure returns the missing files of the named certificates and of the
// service-account key pair ("sa"); without names, of all. The names are from
// Names; etcd's are ignored with an external etcd.
//
// An existing file is never replaced: it is kept if it is valid for cfg at the
// time now, and otherwise an error. A key without a certificate, which an
// interrupted run leaves, gets one. A CA without its key is an external CA: all
// certificates that it signs must exist, and for the cluster's CA the kubeconfigs
// too. A joining control plane (cfg.ControlPlane) creates no CA and no
// service-account key: it must have the cluster's.
//
// The error lists everything that is wrong.
func Ensure(cfg *config.Config, host fs.FS, now time.Time, names ...string) (Result, error) {
	table, err := Certificates(cfg)
	if err != nil {
		return Result{}, err
	}
	if err := known(names, Names()); err != nil {
		return Result{}, err
	}
	if err := checkClock(now); err != nil {
		return Result{}, err
	}
	e := ensurer{cfg: cfg, host: host, now: now, authorities: map[string]authority{}}
	wanted := func(name string) bool { return len(names) == 0 || slices.Contains(names, name) }
	for _, c := range table {
		switch {
		case !wanted(c.Name):
		case c.CA == "":
			e.add(e.authority(c))
		default:
			e.add(e.signer(c.CA))
			e.add(e.leaf(c))
		}
	}
	if wanted("sa") {
		e.add(e.serviceAccountKey())
	}
	if len(names) == 0 && e.authorities["ca"].external() {
		_, err := Kubeconfigs(cfg, host, now, kubeconfigsOf(cfg)...)
		e.add(err)
	}
	for _, name := range []string{"ca", "front-proxy-ca"} {
		if len(names) == 0 && cfg.UploadCerts && e.authorities[name].external() {
			e.add(fault.New(fault.Usage, "--upload-certs cannot upload %s, which does not exist: with an external CA, a joining control plane could not use the other files", row(name).keyPath(cfg)).
				Hint("run without --upload-certs, and copy the certificates to each control plane yourself"))
		}
	}
	return e.problems.unless(e.result)
}

// known refuses a name that is not in the list.
func known(names, list []string) error {
	for _, name := range names {
		if !slices.Contains(list, name) {
			return fault.New(fault.Usage, "unknown name %q", name).Hint("the known names are " + strings.Join(list, ", "))
		}
	}
	return nil
}

type ensurer struct {
	cfg         *config.Config
	host        fs.FS
	now         time.Time
	authorities map[string]authority // by name; without a certificate if it cannot be used
	result      Result
	problems    problems
}

func (e *ensurer) add(err error) { e.problems.add(err) }

// signer loads, once, a CA that signs a requested certificate.
func (e *ensurer) signer(name string) error {
	if _, done := e.authorities[name]; done {
		return nil
	}
	c := row(name)
	found, err := loadAuthority(e.cfg, e.host, c, e.now)
	e.authorities[name] = found
	if err == nil && found.cert == nil {
		return noAuthority(c.certPath(e.cfg), e.cfg)
	}
	return err
}

func (e *ensurer) authority(c Certificate) error {
	found, err := loadAuthority(e.cfg, e.host, c, e.now)
	e.authorities[c.Name] = found
	switch {
	case err != nil:
		return err
	case found.cert != nil:
		e.kept(c.certPath(e.cfg))
		if found.key != nil {
			e.kept(c.keyPath(e.cfg))
		}
		return nil
	case e.cfg.ControlPlane:
		return noAuthority(c.certPath(e.cfg), e.cfg)
	}
	key, err := e.key(c, authority{})
	if err != nil {
		return err
	}
	made, err := newAuthority(e.cfg, c, key, e.now)
	if err != nil {
		return fmt.Errorf("creating the certificate authority %s: %w", c.Name, err)
	}
	e.authorities[c.Name] = made
	e.write(c, made.cert)
	return nil
}

func (e *ensurer) leaf(c Certificate) error {
	ca := e.authorities[c.CA]
	if ca.cert == nil {
		return nil // recorded as a problem already
	}
	certPath, keyPath := c.certPath(e.cfg), c.keyPath(e.cfg)
	certPEM, err := read(e.host, certPath)
	if err != nil {
		return err
	}
	keyPEM, err := read(e.host, keyPath)
	if err != nil {
		return err
	}
	switch {
	case certPEM == nil:
		if ca.external() {
			return missing(certPath, ca)
		}
		key, err := e.key(c, ca)
		if err != nil {
			return err
		}
		cert, err := ca.issue(e.cfg, c, key, e.now)
		if err != nil {
			return fmt.Errorf("creating the certificate %s: %w", c.Name, err)
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

// serviceAccountKey handles the key pair that signs and verifies service-account
// tokens. It is not a certificate: it does not expire and is not signed.
func (e *ensurer) serviceAccountKey() error {
	sa := row("sa")
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
	case keyPEM == nil && e.cfg.ControlPlane:
		return noSharedKey(keyPath)
	case keyPEM == nil:
		key, err := e.key(sa, authority{})
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

// key returns the key of a certificate that will be created: the existing one, or
// a new one. The key is written before the certificate, so that an interrupted
// run leaves no certificate without a key, which would look like an external CA.
func (e *ensurer) key(c Certificate, ca authority) (crypto.Signer, error) {
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
	key, err := newKey(algorithm(e.cfg, ca))
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", keyPath, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", keyPath, err)
	}
	e.result.Files = append(e.result.Files, File{Path: keyPath, Data: keyPEM, Mode: keyMode})
	return key, nil
}

func (e *ensurer) write(c Certificate, cert *x509.Certificate) {
	e.result.Files = append(e.result.Files, File{Path: c.certPath(e.cfg), Data: encodePEM(certType, cert.Raw), Mode: certMode})
}

func (e *ensurer) kept(paths ...string) { e.result.Kept = append(e.result.Kept, paths...) }

// loadAuthority reads a CA from the host. Its cert is nil if the host has none,
// its key is nil if the CA is external.
func loadAuthority(cfg *config.Config, host fs.FS, c Certificate, now time.Time) (authority, error) {
	a, err := readAuthority(cfg, host, c)
	if err != nil || a.cert == nil {
		return a, err
	}
	if err := current(a.cert, now); err != nil {
		return authority{}, unusable(a.path, err)
	}
	return a, nil
}

// readAuthority is loadAuthority for a CA that may have expired.
func readAuthority(cfg *config.Config, host fs.FS, c Certificate) (authority, error) {
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
	certs, err := ParseCertificates(certPEM)
	if err != nil {
		return authority{}, unusable(certPath, err)
	}
	// As in kubeadm, the first certificate signs; the others are its issuers.
	a := authority{cert: certs[0], issuers: certs[1:], path: certPath}
	switch {
	case !a.cert.IsCA:
		return authority{}, unusable(certPath, errors.New("it is not a CA certificate"))
	case a.cert.KeyUsage != 0 && a.cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return authority{}, unusable(certPath, errors.New("its key usage does not allow signing certificates"))
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

// check fails if an existing certificate does not match c: it must be valid now,
// signed by ca, for all names, addresses and usages, and with its key.
func check(c Certificate, certPEM, keyPEM []byte, ca authority, now time.Time, certPath, keyPath string) error {
	certs, err := ParseCertificates(certPEM)
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
			return unusable(certPath, fmt.Errorf("its key usage does not allow %s", usageNames[usage]))
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
	return fault.New(fault.Failure, "%s exists but cannot be used: %w", file, reason).
		Hint(pemfile.HintOf(reason, file, "replace "+file) + "; or move it away, and everything signed with it, so that Airlift creates them again: mv " + file + " " + file + ".old; check the clock if the dates look right")
}

func halfPair(have, missing string) error {
	return fault.New(fault.Failure, "%s exists but %s does not", have, missing).
		Hint("provide " + missing + ", or remove " + have + " so that Airlift creates both again")
}

func missing(file string, ca authority) error {
	return fault.New(fault.Failure, "%s does not exist and cannot be created: the key of the CA %s is not on this host", file, ca.path).
		Hint("have that CA sign it and put it there ('./install certs generate-csr' creates the requests), or provide the CA's key")
}

func noAuthority(file string, cfg *config.Config) error {
	if cfg.ControlPlane {
		return noSharedKey(file)
	}
	return fault.New(fault.Failure, "%s does not exist", file).Hint("run the certs phase first")
}

const sharedHint = "copy the files from another control plane, or join with --certificate-key; to get the key, run there: ./install init phase upload-certs --upload-certs"

func noSharedKey(file string) error {
	return fault.New(fault.Failure, "%s does not exist; all control planes share it", file).Hint(sharedHint)
}

// problems are the errors of a node's files.
type problems []error

func (p *problems) add(err error) {
	if list := (several)(nil); errors.As(err, &list) {
		*p = append(*p, list...)
	} else if err != nil {
		*p = append(*p, err)
	}
}

// err returns nil, or one error for all problems. It has their hint if all have
// the same one.
func (p problems) err() error {
	switch len(p) {
	case 0:
		return nil
	case 1:
		return p[0]
	}
	hint := fault.Hint(p[0])
	for _, err := range p[1:] {
		if fault.Hint(err) != hint {
			hint = "provide the missing files, and replace the files that cannot be used, or move them away; their dates: ./install certs check-expiration"
		}
	}
	return fault.Wrap(several(p), fault.Failure, hint)
}

// unless returns a result, or the problems.
func (p problems) unless(r Result) (Result, error) {
	if err := p.err(); err != nil {
		return Result{}, err
	}
	return r, nil
}

// several errors, printed as a list.
type several []error

func (s several) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of this node's certificates and kubeconfigs are missing or cannot be used:", len(s))
	for _, err := range s {
		fmt.Fprintf(&b, "\n  - %s", err)
	}
	return b.String()
}

func (s several) Unwrap() []error { return s }
