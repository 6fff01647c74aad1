package pki

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"airlift/installer/config"
)

// A Held is a certificate that a control plane holds: when it ends, and who
// can renew it.
type Held struct {
	// Name is kubeadm's name for it: "apiserver", "admin.conf".
	Name string
	// File it is in: a certificate's, or a kubeconfig.
	File string
	// CA is the name of the CA that signs it; "" for a CA.
	CA string
	// NotAfter is when it ends, in UTC.
	NotAfter time.Time
	// External says that the key of the CA is not on this host, so that the
	// certificate cannot be renewed here.
	External bool
	// Missing says that there is no such file.
	Missing bool
}

// Expirations tells of all certificates that a control plane holds, expired or
// not, and of its CAs, each list sorted by name. A file that cannot be read as
// what it should be is an error.
func Expirations(cfg *config.Config, host fs.FS) (certificates, authorities []Held, err error) {
	for _, h := range held(cfg) {
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

// RenewableNames are the names that Renew knows, sorted. The kubelet's
// certificates are not among them: it renews them itself.
func RenewableNames() []string {
	var list []string
	for _, i := range items {
		if i.ca != "" {
			list = append(list, i.name)
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

// RenewableDoc says what a name of RenewableNames stands for.
func RenewableDoc(name string) string { return Doc(strings.TrimSuffix(name, ".conf")) }

// held lists the CAs and all certificates below them, sorted by name.
func held(cfg *config.Config) []Held {
	var list []Held
	for _, c := range fixed(cfg) {
		list = append(list, Held{Name: c.Name, File: c.certPath(cfg), CA: c.CA})
	}
	for _, name := range KubeconfigNames() {
		if name != "kubelet" {
			file := name + ".conf"
			list = append(list, Held{Name: file, File: path.Join(config.KubernetesDir, file), CA: "ca"})
		}
	}
	slices.SortFunc(list, func(a, b Held) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (h *Held) isKubeconfig() bool { return strings.HasSuffix(h.Name, ".conf") }

// look fills in what the files on the host say.
func (h *Held) look(cfg *config.Config, host fs.FS) error {
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
	ca := h.CA
	if ca == "" {
		ca = h.Name
	}
	h.External, err = isExternal(cfg, host, row(ca))
	return err
}

// parse finds the certificate in the file's content.
func (h *Held) parse(data []byte) (*x509.Certificate, error) {
	if h.isKubeconfig() {
		_, u, err := parseKubeconfig(h.File, data)
		if err != nil {
			return nil, err
		}
		if data = u.CertData; data == nil {
			return nil, unusable(h.File, errors.New("its user has no client certificate in it"))
		}
	}
	certs, err := parseCerts(data)
	if err != nil {
		return nil, unusable(h.File, err)
	}
	return certs[0], nil
}

// isExternal says whether a CA's certificate is on the host without its key.
func isExternal(cfg *config.Config, host fs.FS, ca Certificate) (bool, error) {
	certPEM, err := read(host, ca.certPath(cfg))
	if err != nil {
		return false, err
	}
	keyPEM, err := read(host, ca.keyPath(cfg))
	return certPEM != nil && keyPEM == nil, err
}
