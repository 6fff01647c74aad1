package pki

import (
	"crypto"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// While the CAs are rotated, both pairs of each CA are kept below these directories of the
// certificates directory. The controller manager signs with a pair there: it does not sign with
// a file of two certificates (pkg/controller/certificates/signer/ca_provider.go).
const (
	RotationDir = "rotation"
	FormerCAs   = RotationDir + "/former"
	NextCAs     = RotationDir + "/next"
)

// NewCAs returns the pairs that a rotation needs below FormerCAs and NextCAs: copies of the
// present CAs, and new CAs with the same names and kinds of keys. received are the new CAs of
// another control plane, as NextCAFiles returns them; without any, new ones are created.
// Existing pairs are kept. An external CA, and one that has expired, are errors.
func NewCAs(cfg *config.Config, host fs.FS, now time.Time, received map[string][]byte) (Result, error) {
	if err := checkClock(now); err != nil {
		return Result{}, err
	}
	var result Result
	var p problems
	for _, c := range authorities(cfg) {
		former, err := formerCA(cfg, host, c, now, &result)
		if err == nil {
			err = nextCA(cfg, host, c, former, now, received, &result)
		}
		p.add(err)
	}
	return p.unless(result)
}

// authorities are the CAs that this cluster's control planes have.
func authorities(cfg *config.Config) (list []Certificate) {
	for _, c := range fixed(cfg) {
		if c.CA == "" {
			list = append(list, c)
		}
	}
	return list
}

// formerCA returns the pair below FormerCAs, and adds it to the result if it does not exist.
func formerCA(cfg *config.Config, host fs.FS, c Certificate, now time.Time, result *Result) (authority, error) {
	at := within(FormerCAs, c)
	former, err := loadAuthority(cfg, host, at, now)
	if err != nil || former.cert != nil && former.key != nil {
		return former, err
	}
	if former, err = rotatable(cfg, host, c, now); err != nil {
		return former, err
	}
	return former, addPair(cfg, at, former, result)
}

// nextCA adds the pair below NextCAs to the result if it does not exist.
func nextCA(cfg *config.Config, host fs.FS, c Certificate, former authority, now time.Time, received map[string][]byte, result *Result) error {
	at := within(NextCAs, c)
	next, err := loadAuthority(cfg, host, at, now)
	if err != nil || next.cert != nil && next.key != nil {
		return err
	}
	if received != nil {
		return receive(cfg, at, c, received, result)
	}
	if next.key, err = existingKey(host, at.keyPath(cfg)); err != nil {
		return err
	}
	if next.key == nil {
		if next.key, err = newKey(algorithmOf(former.cert.PublicKey)); err != nil {
			return fmt.Errorf("creating the new CA %s: %w", c.Name, err)
		}
	}
	at.CommonName = former.cert.Subject.CommonName
	if next, err = newAuthority(cfg, at, next.key, now); err != nil {
		return fmt.Errorf("creating the new CA %s: %w", c.Name, err)
	}
	return addPair(cfg, at, next, result)
}

// rotatable loads a CA of which the previous pair has not been copied yet.
func rotatable(cfg *config.Config, host fs.FS, c Certificate, now time.Time) (authority, error) {
	a, err := loadAuthority(cfg, host, c, now)
	switch {
	case err != nil:
		return a, err
	case a.cert == nil:
		return a, noAuthority(c.certPath(cfg), cfg)
	case a.external():
		return a, fault.New(fault.Failure, "the CA %s cannot be rotated here: its key is not on this host, it is managed externally", a.path).
			Hint("rotate it where its key is; then replace the certificates on each node")
	case len(a.issuers) > 0:
		return a, fault.New(fault.Failure, "the CA %s cannot be rotated here: its file has %d certificates, and must have one", a.path, 1+len(a.issuers)).
			Hint("rotate an intermediate CA where its issuer's key is; after a manual rotation, remove the old certificate from the file")
	}
	return a, nil
}

// existingKey returns the key that an interrupted run left without its certificate, if any.
func existingKey(host fs.FS, file string) (crypto.Signer, error) {
	data, err := read(host, file)
	if err != nil || data == nil {
		return nil, err
	}
	key, err := parseKey(data)
	if err != nil {
		return nil, unusable(file, err)
	}
	return key, nil
}

// addPair adds a pair to the result. The key is first: an interrupted run must leave no
// certificate without its key, which would look like an external CA.
func addPair(cfg *config.Config, c Certificate, a authority, result *Result) error {
	keyPEM, err := encodeKey(a.key)
	if err != nil {
		return fmt.Errorf("writing %s: %w", c.keyPath(cfg), err)
	}
	result.Files = append(result.Files,
		File{Path: c.keyPath(cfg), Data: keyPEM, Mode: keyMode},
		File{Path: c.certPath(cfg), Data: encodePEM(certType, a.cert.Raw), Mode: certMode})
	return nil
}

// receive adds the pair of another control plane to the result.
func receive(cfg *config.Config, at, c Certificate, received map[string][]byte, result *Result) error {
	certPEM, keyPEM := received[secretKey(c.Base+".crt")], received[secretKey(c.Base+".key")]
	certs, err := ParseCertificates(certPEM)
	if err != nil {
		return fmt.Errorf("reading the new CA %s: %w", c.Name, err)
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return fmt.Errorf("reading the key of the new CA %s: %w", c.Name, err)
	}
	if !matches(certs[0].PublicKey, key) {
		return fmt.Errorf("reading the new CA %s: its key does not match", c.Name)
	}
	return addPair(cfg, at, authority{cert: certs[0], key: key}, result)
}

// NextCAFiles returns the pairs below NextCAs for other control planes, by names that are
// valid as keys of a Secret: "ca.crt", "etcd-ca.key".
func NextCAFiles(cfg *config.Config, host fs.FS) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, c := range authorities(cfg) {
		at := within(NextCAs, c)
		for name, file := range map[string]string{c.Base + ".crt": at.certPath(cfg), c.Base + ".key": at.keyPath(cfg)} {
			data, err := read(host, file)
			if err == nil && data == nil {
				err = noRotation(file)
			}
			if err != nil {
				return nil, err
			}
			files[secretKey(name)] = data
		}
	}
	return files, nil
}

func secretKey(name string) string { return strings.ReplaceAll(name, "/", "-") }

// RotationKeyPath is the file with the key that encrypts the new CAs on the way to other control planes.
func RotationKeyPath(cfg *config.Config) string {
	return path.Join(cfg.CertificatesDir, RotationDir, "key")
}

// RotationCAs returns the certificates of the old and of the new CA with this name. Both are
// nil if no rotation has begun on this host.
func RotationCAs(cfg *config.Config, host fs.FS, name string) (former, next []byte, err error) {
	if former, err = rotationCA(host, within(FormerCAs, row(name)).certPath(cfg)); err != nil {
		return nil, nil, err
	}
	next, err = rotationCA(host, within(NextCAs, row(name)).certPath(cfg))
	return former, next, err
}

// rotationCA reads a certificate of a rotation; nil if it does not exist.
func rotationCA(host fs.FS, file string) ([]byte, error) {
	data, err := read(host, file)
	if err != nil || data == nil {
		return nil, err
	}
	if _, err := ParseCertificates(data); err != nil {
		return nil, fault.New(fault.Failure, "reading %s: the file is damaged: %w", file, err).Hint("copy it from another control plane that is in the same stage of the rotation, or from a backup of this directory")
	}
	return data, nil
}

// RotationFiles returns the paths of all files of a rotation on a control plane.
func RotationFiles(cfg *config.Config) (files []string) {
	files = append(files, RotationKeyPath(cfg))
	for _, dir := range []string{FormerCAs, NextCAs} {
		for _, c := range authorities(cfg) {
			at := within(dir, c)
			files = append(files, at.certPath(cfg), at.keyPath(cfg))
		}
	}
	return files
}

// within is a CA whose certificate and key are in a subdirectory of the certificates directory.
func within(dir string, c Certificate) Certificate {
	c.Base = path.Join(dir, c.Base)
	return c
}

func noRotation(file string) error {
	return fault.New(fault.Failure, "%s does not exist: no rotation of the CAs has begun on this host", file).Hint("start with './install certs rotate-ca distribute' on this control plane")
}
