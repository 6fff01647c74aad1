package pki

import "slices"

// ServingNames returns the DNS names and IP addresses of a certificate.
func ServingNames(certificate []byte) (names []string, err error) {
	certs, err := ParseCertificates(certificate)
	if err != nil {
		return nil, err
	}
	names = slices.Clone(certs[0].DNSNames)
	for _, ip := range certs[0].IPAddresses {
		names = append(names, ip.String())
	}
	return names, nil
}
