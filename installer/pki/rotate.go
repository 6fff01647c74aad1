package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// rotated is a CA that is being rotated.
type rotated struct {
	Certificate
	former, next authority
	present      []*x509.Certificate // in its file on the host
}

// DistributeCAs returns the files with which this control plane trusts the former and the next
// CAs, and signs with the former. NewCAs must have made the pairs.
func DistributeCAs(cfg *config.Config, host fs.FS, now time.Time) (Result, error) {
	return rotateTo(cfg, host, now, func(r rotated) (authority, []*x509.Certificate, error) {
		return r.former, []*x509.Certificate{r.former.cert, r.next.cert}, r.signsWithFormer(now)
	})
}

// SwitchCAs returns the files with which this control plane trusts both CAs, and signs with the
// next. Reissuable then names the certificates that the new CA must sign. A host that does not
// trust the new CA yet is an error.
func SwitchCAs(cfg *config.Config, host fs.FS, now time.Time) (Result, error) {
	return rotateTo(cfg, host, now, func(r rotated) (authority, []*x509.Certificate, error) {
		if !slices.ContainsFunc(r.present, r.next.cert.Equal) {
			return authority{}, nil, fault.New(fault.Failure, "%s does not contain the new CA", r.certPath(cfg)).
				Hint("distribute the new CAs first: ./install certs rotate-ca distribute")
		}
		return r.next, []*x509.Certificate{r.next.cert, r.former.cert}, nil
	})
}

// FinishCAs returns the files with which this control plane trusts the new CAs alone. A
// certificate on this host that no new CA has signed is an error, which lists all of them.
func FinishCAs(cfg *config.Config, host fs.FS, now time.Time) (Result, error) {
	left, err := Reissuable(cfg, host, now)
	if err != nil {
		return Result{}, err
	}
	return rotateTo(cfg, host, now, func(r rotated) (authority, []*x509.Certificate, error) {
		switch {
		case len(r.present) == 0 || !r.present[0].Equal(r.next.cert):
			return authority{}, nil, fault.New(fault.Failure, "%s does not begin with the new CA", r.certPath(cfg)).
				Hint("sign with the new CA first: ./install certs rotate-ca issue")
		case len(left) > 0:
			return authority{}, nil, fault.New(fault.Failure, "the new CAs have not signed %v", left).
				Hint("sign with the new CA first: ./install certs rotate-ca issue")
		}
		return r.next, []*x509.Certificate{r.next.cert}, nil
	})
}

// CancelCAs returns the files with which this control plane trusts the old CAs alone again. A
// host that signs with the new CA is an error: its certificates would not be valid any more.
func CancelCAs(cfg *config.Config, host fs.FS, now time.Time) (Result, error) {
	return rotateTo(cfg, host, now, func(r rotated) (authority, []*x509.Certificate, error) {
		if len(r.present) > 0 && r.present[0].Equal(r.next.cert) {
			return authority{}, nil, fault.New(fault.Failure, "the rotation cannot be cancelled any more: %s begins with the new CA", r.certPath(cfg)).
				Hint("continue the rotation: ./install certs rotate-ca issue, and then finish")
		}
		return r.former, []*x509.Certificate{r.former.cert}, r.signsWithFormer(now)
	})
}

// signsWithFormer is an error if the former CA is not valid. The stages in which the new CA signs
// also work after it has expired: they replace it.
func (r rotated) signsWithFormer(now time.Time) error {
	if err := current(r.former.cert, now); err != nil {
		return unusable(r.former.path, err)
	}
	return nil
}

// rotateTo returns the CAs' files and the kubeconfigs for a state: which pair signs, and which
// certificates are trusted. Files that are so already are kept.
func rotateTo(cfg *config.Config, host fs.FS, now time.Time, state func(rotated) (authority, []*x509.Certificate, error)) (Result, error) {
	cas, err := rotatedCAs(cfg, host, now)
	if err != nil {
		return Result{}, err
	}
	var result Result
	var p problems
	for _, ca := range cas {
		signs, trusted, err := state(ca)
		if err != nil {
			p.add(err)
			continue
		}
		keyPEM, err := encodeKey(signs.key)
		if err != nil {
			return Result{}, fmt.Errorf("writing %s: %w", ca.keyPath(cfg), err)
		}
		bundle := encodeCerts(trusted)
		p.add(addChanged(host, File{Path: ca.certPath(cfg), Data: bundle, Mode: certMode}, &result))
		p.add(addChanged(host, File{Path: ca.keyPath(cfg), Data: keyPEM, Mode: keyMode}, &result))
		if ca.Name == "ca" {
			p.add(trustInKubeconfigs(host, bundle, &result))
		}
	}
	return p.unless(result)
}

// rotatedCAs loads both pairs of each CA, and what its file contains. It does not compare that
// file with its key: a run that was interrupted between the two leaves files that do not match.
func rotatedCAs(cfg *config.Config, host fs.FS, now time.Time) ([]rotated, error) {
	var cas []rotated
	var p problems
	for _, c := range authorities(cfg) {
		r := rotated{Certificate: c}
		former, next := within(FormerCAs, c), within(NextCAs, c)
		var err error
		r.former, err = readAuthority(cfg, host, former)
		p.add(complete(r.former, err, former.certPath(cfg)))
		r.next, err = loadAuthority(cfg, host, next, now)
		p.add(complete(r.next, err, next.certPath(cfg)))
		data, err := read(host, c.certPath(cfg))
		if err == nil && data != nil {
			if r.present, err = ParseCertificates(data); err != nil {
				err = unusable(c.certPath(cfg), err)
			}
		}
		p.add(err)
		cas = append(cas, r)
	}
	return cas, p.err()
}

// complete returns the error of reading a pair at a path, or that a part of it is missing.
func complete(a authority, err error, path string) error {
	if err == nil && (a.cert == nil || a.key == nil) {
		return noRotation(path)
	}
	return err
}

// Reissuable returns the names of RenewableNames, and "kubelet", whose certificates exist on this
// host and are not signed by the new CA.
func Reissuable(cfg *config.Config, host fs.FS, now time.Time) (names []string, err error) {
	cas, err := rotatedCAs(cfg, host, now)
	if err != nil {
		return nil, err
	}
	var p problems
	for _, ca := range cas {
		for _, h := range expiring(cfg) {
			if h.CA != ca.Name {
				continue
			}
			data, err := read(host, h.File)
			if err != nil || data == nil {
				p.add(err)
				continue
			}
			cert, err := h.parse(data)
			if err != nil {
				p.add(err)
				continue
			}
			if cert.CheckSignatureFrom(ca.next.cert) != nil {
				names = append(names, h.Name)
			}
		}
		if ca.Name == "ca" {
			cert, err := kubeletClientCert(host)
			if p.add(err); cert != nil && cert.CheckSignatureFrom(ca.next.cert) != nil {
				names = append(names, "kubelet")
			}
		}
	}
	return names, p.err()
}

// kubeletClientCert returns the kubelet's client certificate; nil on a host without one.
func kubeletClientCert(host fs.FS) (*x509.Certificate, error) {
	k, err := readKubelet(host)
	if err != nil || k.conf == nil {
		return nil, err
	}
	if k.cert == nil {
		return nil, unusable(k.file, errors.New("it has no client certificate"))
	}
	certs, err := ParseCertificates(k.cert)
	if err != nil {
		return nil, unusable(k.file, err)
	}
	return certs[0], nil
}

// ReadByStaticPods returns the paths of the files of package pki that static pods read when they
// start.
func ReadByStaticPods(cfg *config.Config) (files []string) {
	for _, c := range fixed(cfg) {
		files = append(files, c.certPath(cfg), c.keyPath(cfg))
	}
	for _, name := range []string{"controller-manager", "scheduler"} {
		files = append(files, path.Join(config.KubernetesDir, name+".conf"))
	}
	return files
}
