package adoption

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/pki"
)

// certificateFiles reports certificates with other lifetimes, directories and CAs, and refuses missing ones.
func certificateFiles(v *view) {
	if !v.plane || v.config == nil {
		return
	}
	dir := v.config.CertificatesDir
	if dir != config.CertificatesDir {
		v.find("CertificatesDir", "the certificates are in "+dir, "certificatesDir in ConfigMap "+kubeadmConfig, "they stay there; commands with --cert-dir need it", "")
	}
	certs, authorities, err := pki.Expirations(v.config, v.host.files)
	if err != nil {
		v.host.cannotRead(dir, err)
		return
	}
	for _, ca := range authorities {
		switch {
		case ca.Missing:
			v.refuse("CertificateFiles", "the CA "+ca.File+" does not exist", ca.File, "an upgrade reads it", "restore it, or correct certificatesDir in ConfigMap "+kubeadmConfig)
		case ca.External:
			v.find("ExternalCA", "the key of the CA "+ca.Name+" is not on this host", ca.File, "an upgrade does not renew what it signed, and rotate-ca refuses to replace it", "keep its key where it is, and have it sign: ./install certs generate-csr")
		}
	}
	for _, name := range []string{"sa.key", "sa.pub"} {
		if file := path.Join(dir, name); !v.host.exists(file) {
			v.refuse("CertificateFiles", file+", with which tokens of ServiceAccounts are signed or verified, does not exist", file, "an upgrade writes its path to the manifests, and the components would not start", "restore it, or copy it from another control plane")
		}
	}
	usual := pki.ValidityPeriod(v.config)
	var long []string
	for _, c := range certs {
		switch {
		case c.Missing && c.Name == path.Base(node.SuperAdminConf): // only the first control plane of v1.29 and newer has it
		case c.Missing:
			v.refuse("CertificateFiles", c.File+" does not exist", c.File, "an upgrade renews it", "create it with the tool that made this node, or restore it")
		case !c.External && c.NotAfter.Sub(v.Now) > usual+margin:
			long = append(long, fmt.Sprintf("%s ends %s", c.Name, c.NotAfter.Format(time.DateOnly)))
		}
	}
	if len(long) > 0 {
		v.find("CertificateLifetime", "certificates end later than renewed ones would: "+strings.Join(long, ", "), dir,
			fmt.Sprintf("the upgrade renews the certificates of each component that it replaces, and they then end after %d days", int(usual.Hours()/24)),
			"to keep long lifetimes, set certificateValidityPeriod in ClusterConfiguration (v1.31 and newer); to renew certificates in time, after adopt: ./install certs auto")
	}
}

// margin is a difference between lifetimes that does not matter.
const margin = 24 * time.Hour

// certificateNames compares the names in the API server's certificate with the stored ones: a renewal copies the names of
// the old certificate.
func certificateNames(v *view) {
	if !v.plane || v.config == nil {
		return
	}
	file := path.Join(v.config.CertificatesDir, "apiserver.crt")
	c := v.host.certificate(file)
	if c == nil {
		return
	}
	var missing []string
	for _, name := range v.config.APIServer.CertSANs {
		found := slices.Contains(c.DNSNames, name)
		if ip, err := netip.ParseAddr(name); err == nil {
			for _, is := range c.IPAddresses {
				addr, _ := netip.AddrFromSlice(is)
				found = found || addr.Unmap() == ip.Unmap()
			}
		}
		if !found {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		v.find("CertificateNames", "the API server's certificate does not have "+strings.Join(missing, ", ")+" of the stored certSANs", file,
			"a renewal, also by an upgrade, keeps the names that the certificate has", "compare certSANs in ConfigMap kubeadm-config with the certificate")
	}
}

// servedCertificates reports components that still serve a certificate that was renewed.
func servedCertificates(v *view) {
	for _, file := range sorted(v.Served) {
		if c := v.host.certificate(file); c != nil && fmt.Sprintf("%x", c.SerialNumber) != v.Served[file] {
			v.find("ServedCertificate", "the component does not serve the certificate in "+file+": it did not restart after a renewal", file, "an upgrade restarts it", "restart it before the old certificate ends")
		}
	}
}

// soon is when the end of a certificate that nobody renews is reported.
const soon = 90 * 24 * time.Hour
