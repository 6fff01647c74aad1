package adoption

import (
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/pki"
)

const (
	// margin is a difference between lifetimes that does not matter.
	margin = 24 * time.Hour
	// soon is when the end of a certificate that nobody renews is reported.
	soon = 90 * 24 * time.Hour
)

var certificateChecks = []func(*view){
	find("CertificatesDir", onPlane, when(func(v *view) bool { return v.config.CertificatesDir != config.CertificatesDir }), "the certificates are in $pki", "certificatesDir in ConfigMap "+kubeadmConfig,
		"they stay there; commands with --cert-dir need it", ""),
	refuse("CertificateFiles", onPlane, func(v *view) [][]string {
		return per(v.authorities(), func(ca pki.Expiration) [][]string { return given(ca.Missing, ca.File) })
	}, "the CA $1 does not exist", "$1", "an upgrade reads it", "restore it, or correct certificatesDir in ConfigMap "+kubeadmConfig),
	find("ExternalCA", onPlane, func(v *view) [][]string {
		return per(v.authorities(), func(ca pki.Expiration) [][]string { return given(ca.External && !ca.Missing, ca.Name, ca.File) })
	}, "the key of the CA $1 is not on this host", "$2", "an upgrade does not renew what it signed, and rotate-ca refuses to replace it", "keep its key where it is, and have it sign: ./install certs generate-csr"),
	refuse("CertificateFiles", onPlane, each(func(v *view) []string {
		return slices.DeleteFunc([]string{path.Join(v.config.CertificatesDir, "sa.key"), path.Join(v.config.CertificatesDir, "sa.pub")}, v.host.exists)
	}), "$1, with which tokens of ServiceAccounts are signed or verified, does not exist", "$1",
		"an upgrade writes its path to the manifests, and the components would not start", "restore it, or copy it from another control plane"),
	refuse("CertificateFiles", onPlane, func(v *view) [][]string {
		return per(v.certificates(), func(c pki.Expiration) [][]string { // only the first control plane of v1.29 and newer has super-admin.conf
			return given(c.Missing && c.Name != path.Base(node.SuperAdminConf), c.File)
		})
	}, "$1 does not exist", "$1", "an upgrade renews it", "create it with the tool that made this node, or restore it"),
	find("CertificateLifetime", onPlane, func(v *view) [][]string {
		var long []string
		usual := pki.ValidityPeriod(v.config)
		for _, c := range v.certificates() {
			if !c.Missing && !c.External && c.NotAfter.Sub(v.Now) > usual+margin {
				long = append(long, fmt.Sprintf("%s ends %s", c.Name, c.NotAfter.Format(time.DateOnly)))
			}
		}
		return single(strings.Join(long, ", "), fmt.Sprint(int(usual.Hours()/24)))
	}, "certificates end later than renewed ones would: $1", "$pki",
		"the upgrade renews the certificates of each component that it replaces, and they then end after $2 days",
		"to keep long lifetimes, set certificateValidityPeriod in ClusterConfiguration (v1.31 and newer); to renew certificates in time, after adopt: ./install certs auto"),
	// A renewal copies the names of the old certificate.
	find("CertificateNames", onPlane, func(v *view) [][]string {
		file := path.Join(v.config.CertificatesDir, "apiserver.crt")
		c := v.host.certificate(file)
		if c == nil {
			return nil
		}
		var missing []string
		for _, name := range v.config.APIServer.CertSANs {
			ip := net.ParseIP(name)
			if !slices.Contains(c.DNSNames, name) && !slices.ContainsFunc(c.IPAddresses, ip.Equal) {
				missing = append(missing, name)
			}
		}
		return single(strings.Join(missing, ", "), file)
	}, "the API server's certificate does not have $1 of the stored certSANs", "$2",
		"a renewal, also by an upgrade, keeps the names that the certificate has", "compare certSANs in ConfigMap kubeadm-config with the certificate"),
	find("ServedCertificate", everywhere, each(func(v *view) []string {
		return slices.DeleteFunc(sorted(v.Served), func(file string) bool {
			c := v.host.certificate(file)
			return c == nil || fmt.Sprintf("%x", c.SerialNumber) == v.Served[file]
		})
	}), "the component does not serve the certificate in $1: it did not restart after a renewal", "$1", "an upgrade restarts it", "restart it before the old certificate ends"),
}

// expirations are the certificates and the CAs of a control plane, unless they cannot be read.
func (v *view) expirations() (certificates, authorities []pki.Expiration) {
	certificates, authorities, err := pki.Expirations(v.config, v.host.files)
	if err != nil {
		v.host.cannotRead(v.config.CertificatesDir, err)
		return nil, nil
	}
	return certificates, authorities
}

func (v *view) certificates() []pki.Expiration { list, _ := v.expirations(); return list }
func (v *view) authorities() []pki.Expiration  { _, list := v.expirations(); return list }
