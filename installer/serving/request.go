package serving

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const nodesGroup, nodeUser = "system:nodes", "system:node:"

// A request is a well-formed request of a kubelet for its serving certificate.
type request struct {
	node      string
	names     []string
	addresses []netip.Addr
	created   time.Time
	// credential is the certificate with which the request was made, "" if the API server does not name it.
	credential string
}

// credentialKey is where newer API servers name the credential of a user: "X509SHA256=" and the sum of the certificate.
const credentialKey = "authentication.kubernetes.io/credential-id"

// subjectAltName is the only extension that a kubelet requests.
var subjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

// parse reads a request. Its error is why no kubelet makes such a request.
func parse(csr *certificatesv1.CertificateSigningRequest) (*request, error) {
	if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName {
		return nil, fmt.Errorf("it is for the signer %q", csr.Spec.SignerName)
	}
	node, ok := strings.CutPrefix(csr.Spec.Username, nodeUser)
	if !ok || node == "" || !slices.Contains(csr.Spec.Groups, nodesGroup) {
		return nil, fmt.Errorf("%q is not a node", csr.Spec.Username)
	}
	block, rest := pem.Decode(csr.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, errors.New("it is not one PEM block of a certificate request")
	}
	c, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = c.CheckSignature()
	}
	if err != nil {
		return nil, err
	}
	// Names has each part of the subject, also those that the fields leave out.
	if c.Subject.CommonName != csr.Spec.Username || !slices.Equal(c.Subject.Organization, []string{nodesGroup}) || len(c.Subject.Names) != 2 {
		return nil, fmt.Errorf("its subject is %q, and %s made it", c.Subject.String(), csr.Spec.Username)
	}
	if len(c.EmailAddresses)+len(c.URIs) > 0 {
		return nil, errors.New("it has e-mail addresses or URIs")
	}
	for _, e := range c.Extensions {
		if !e.Id.Equal(subjectAltName) {
			return nil, fmt.Errorf("it has the extension %s", e.Id)
		}
	}
	if err := checkUsages(csr.Spec.Usages); err != nil {
		return nil, err
	}
	r := &request{node: node, names: c.DNSNames, created: csr.CreationTimestamp.Time, credential: strings.Join(csr.Spec.Extra[credentialKey], ",")}
	for _, ip := range c.IPAddresses {
		a, ok := netip.AddrFromSlice(ip)
		if !ok {
			return nil, fmt.Errorf("%v is not an address", ip)
		}
		r.addresses = append(r.addresses, a.Unmap())
	}
	if len(r.names)+len(r.addresses) == 0 {
		return nil, errors.New("it has neither a name nor an address")
	}
	return r, nil
}

// checkUsages accepts what kubelets request: with an RSA key, also key encipherment.
func checkUsages(usages []certificatesv1.KeyUsage) error {
	now := slices.Sorted(slices.Values(usages))
	want := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	rsa := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageServerAuth}
	if !slices.Equal(now, want) && !slices.Equal(now, rsa) {
		return fmt.Errorf("its usages are %q", usages)
	}
	return nil
}
