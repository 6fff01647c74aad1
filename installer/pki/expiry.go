package pki

import (
	"cmp"
	"crypto/x509"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"airlift/installer/config"
)

// An Expiration is a certificate of a control plane: when it expires, and who can
// renew it.
type Expiration struct {
	// Name is kubeadm's name for it: "apiserver", "admin.conf".
	Name string
	// File has the certificate: its own file, or a kubeconfig.
	File string
	// CA is the name of the CA that signed it; "" for a CA.
	CA string
	// NotAfter is when it expires, in UTC.
	NotAfter time.Time
	// External is set if the key of the CA is not on this host, so that the
	// certificate cannot be renewed here.
	External bool
	// Missing is set if the file does not exist.
	Missing bool
}

// Expirations lists all certificates of a control plane, expired or not, and its
// CAs, each sorted by name. A malformed file is an error.
func Expirations(cfg *config.Config, host fs.FS) (certificates, authorities []Expiration, err error) {
	for _, h := range expiring(cfg) {
		if err := h.look(cfg, host); err != nil {
			return nil, nil, err
		}
		if h.CA == "" {
			authorities = append(authorities, h)
		} else {
			certificates = append(certificates, h)
		}
	}
	return certificates, authorities, nil
}

// Due reports whether less than a third of a validity period is left. The period cannot be read
// from the certificate, whose validity begins with its CA.
func (h Expiration) Due(now time.Time, period time.Duration) bool {
	return h.NotAfter.Sub(now) < period/3
}

// ValidityPeriod is the validity period of certificates that are renewed now.
func ValidityPeriod(cfg *config.Config) time.Duration {
	return validity(cfg.CertificateValidityPeriod, config.CertificateValidity)
}

// RenewableNames are the names that Renew knows, sorted. The kubelet's
// certificates are not among them: it renews them itself.
func RenewableNames() []string {
	var list []string
	for _, i := range items {
		if i.CA != "" {
			list = append(list, i.Name)
		}
	}
	for _, name := range KubeconfigNames() {
		if name != "kubelet" {
			list = append(list, name+".conf")
		}
	}
	slices.Sort(list)
	return list
}

// RenewableDoc describes a name of RenewableNames.
func RenewableDoc(name string) string { return Doc(strings.TrimSuffix(name, ".conf")) }

// expiring lists the CAs and all certificates that they sign, sorted by name.
func expiring(cfg *config.Config) []Expiration {
	var list []Expiration
	for _, c := range fixed(cfg) {
		list = append(list, Expiration{Name: c.Name, File: c.certPath(cfg), CA: c.CA})
	}
	for _, name := range KubeconfigNames() {
		if name != "kubelet" {
			file := name + ".conf"
			list = append(list, Expiration{Name: file, File: path.Join(config.KubernetesDir, file), CA: "ca"})
		}
	}
	slices.SortFunc(list, func(a, b Expiration) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (h *Expiration) isKubeconfig() bool { return strings.HasSuffix(h.Name, ".conf") }

// look reads the certificate's expiration from the host.
func (h *Expiration) look(cfg *config.Config, host fs.FS) error {
	data, err := read(host, h.File)
	if err != nil {
		return err
	}
	if data == nil {
		h.Missing = true
		return nil
	}
	cert, err := h.parse(data)
	if err != nil {
		return err
	}
	h.NotAfter = cert.NotAfter.UTC()
	h.External, err = isExternal(cfg, host, row(cmp.Or(h.CA, h.Name)))
	return err
}

// parse finds the certificate in the file's content.
func (h *Expiration) parse(data []byte) (*x509.Certificate, error) {
	if h.isKubeconfig() {
		_, u, err := parseKubeconfig(h.File, data)
		if err != nil {
			return nil, err
		}
		if data = u.ClientCertificateData; data == nil {
			return nil, unusable(h.File, errors.New("its user has no embedded client certificate"))
		}
	}
	certs, err := ParseCertificates(data)
	if err != nil {
		return nil, unusable(h.File, err)
	}
	return certs[0], nil
}

// isExternal reports whether the host has a CA's certificate without its key.
func isExternal(cfg *config.Config, host fs.FS, ca Certificate) (bool, error) {
	certPEM, err := read(host, ca.certPath(cfg))
	if err != nil {
		return false, err
	}
	keyPEM, err := read(host, ca.keyPath(cfg))
	return certPEM != nil && keyPEM == nil, err
}
