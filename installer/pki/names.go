package pki

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
)

// ServingNames returns the DNS names and IP addresses of a certificate.
func ServingNames(certificate []byte) (names []string, err error) {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return nil, errors.New("it is no certificate")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	names = slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return names, nil
}
