package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io/fs"
	"net"
	"path"
	"time"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// Requests returns, for each certificate of a control plane, a new key and a
// certificate signing request for an external CA; and for each kubeconfig, in the
// directory kubeconfigDir, the file with its key but without its certificate, and
// next to it the request as FILE.csr. A kubeconfig contains the CA if ca.crt is on
// the host.
//
// An existing key, request or kubeconfig is an error: it may already have a
// certificate.
func Requests(cfg *config.Config, host fs.FS, kubeconfigDir string) (Result, error) {
	table, err := Certificates(cfg)
	if err != nil {
		return Result{}, err
	}
	r := requester{cfg: cfg, host: host}
	for _, c := range table {
		if c.CA == "" {
			continue
		}
		key, csr, err := r.request(c)
		if err != nil {
			return Result{}, err
		}
		r.write(c.keyPath(cfg), key)
		r.write(path.Join(cfg.CertificatesDir, c.Base+".csr"), csr)
	}
	caPEM, err := read(host, row("ca").certPath(cfg))
	if err != nil {
		return Result{}, err
	}
	all := identities(cfg)
	for _, name := range KubeconfigNames() {
		id := all[name]
		key, csr, err := r.request(id.client)
		if err != nil {
			return Result{}, err
		}
		file := path.Join(kubeconfigDir, id.file)
		server := id.servers[0]
		if name == "kubelet" {
			server = cfg.ServerURL() // as kubeadm's generate-csr does in all versions
		}
		r.write(file, newKubeconfig(server, cfg.ClusterName, caPEM, id.client.CommonName, user{ClientKeyData: key}).encode())
		r.write(file+".csr", csr)
	}
	return r.problems.unless(r.result)
}

type requester struct {
	cfg      *config.Config
	host     fs.FS
	result   Result
	problems problems
}

// write adds a file that must not exist yet.
func (r *requester) write(file string, data []byte) {
	existing, err := read(r.host, file)
	if err == nil && existing != nil {
		err = fault.New(fault.Failure, "%s already exists", file).Hint("move the existing files away, or give other directories with --cert-dir and --kubeconfig-dir")
	}
	r.problems.add(err)
	r.result.Files = append(r.result.Files, File{Path: file, Data: data, Mode: keyMode})
}

// request creates a key and a certificate signing request, both in PEM.
func (r *requester) request(c Certificate) (keyPEM, csrPEM []byte, err error) {
	key, err := newKey(algorithm(r.cfg, authority{}))
	if err != nil {
		return nil, nil, fmt.Errorf("creating the key of %s: %w", c.CommonName, err)
	}
	if keyPEM, err = encodeKey(key); err != nil {
		return nil, nil, fmt.Errorf("creating the key of %s: %w", c.CommonName, err)
	}
	der, err := newRequest(c, key)
	if err != nil {
		return nil, nil, fmt.Errorf("creating the request for %s: %w", c.CommonName, err)
	}
	return keyPEM, encodePEM(requestType, der), nil
}

// newRequest creates a certificate signing request for c. As in kubeadm, the CA
// chooses the usages: a request has no common field for them.
func newRequest(c Certificate, key crypto.Signer) ([]byte, error) {
	template := &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: c.CommonName, Organization: c.Organizations},
		DNSNames: c.DNSNames,
	}
	for _, ip := range c.IPs {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	}
	return x509.CreateCertificateRequest(rand.Reader, template, key)
}

// A User is a person or a service that gets a kubeconfig.
type User struct {
	Name   string
	Groups []string // the certificate's organizations
	// Token, if set, replaces the certificate.
	Token string
	// Validity of the certificate, from now on.
	Validity time.Duration
}

// UserKubeconfig creates a kubeconfig for a user, with a new client certificate or
// with the user's token. The CA must be on the host, with its key unless a token
// is used.
func UserKubeconfig(cfg *config.Config, host fs.FS, now time.Time, u User) ([]byte, error) {
	ca, err := clusterCA(cfg, host, now)
	if err != nil {
		return nil, err
	}
	caPEM := ca.trusted()
	if u.Token != "" {
		return newKubeconfig(cfg.ServerURL(), cfg.ClusterName, caPEM, u.Name, user{Token: u.Token}).encode(), nil
	}
	if ca.external() {
		return nil, fault.New(fault.Failure, "no certificate can be created for %q: the key of the CA %s is not on this host", u.Name, ca.path).
			Hint("have that CA sign a client certificate, or give the user a token with --token")
	}
	limited := *cfg
	limited.CertificateValidityPeriod = u.Validity
	certPEM, keyPEM, err := issuePEM(&limited, ca, Certificate{CommonName: u.Name, Organizations: u.Groups, Usages: clientAuth}, now)
	if err != nil {
		return nil, fmt.Errorf("creating a certificate for %q: %w", u.Name, err)
	}
	return newKubeconfig(cfg.ServerURL(), cfg.ClusterName, caPEM, u.Name, user{ClientCertificateData: certPEM, ClientKeyData: keyPEM}).encode(), nil
}
