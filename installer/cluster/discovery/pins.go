package discovery

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certutil "k8s.io/client-go/util/cert"

	"airlift/installer/cluster"
)

// Pins are hashes of the CAs to trust: "sha256:" and the hex sha256 of a
// certificate's public key (its SubjectPublicKeyInfo).
type Pins []string

func pinOf(cert *x509.Certificate) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(cert.RawSubjectPublicKeyInfo))
}

// ParsePins reads the values of --discovery-token-ca-cert-hash.
func ParsePins(hashes []string) (Pins, error) {
	var pins Pins
	for _, hash := range hashes {
		algorithm, value, _ := strings.Cut(strings.ToLower(hash), ":")
		if raw, err := hex.DecodeString(value); algorithm != "sha256" || err != nil || len(raw) != 32 {
			return nil, refuse(Malformed, "copy the hash from the join command: sha256: and 64 hexadecimal digits", "%q is not a CA certificate hash", hash)
		}
		pins = append(pins, "sha256:"+value)
	}
	return pins, nil
}

// Trusted returns the certificates of a CA bundle that match a pin. It fails if
// no certificate matches; a pin that matches no certificate is allowed.
func (p Pins) Trusted(bundle []byte) ([]byte, error) {
	trusted, _, err := p.split(bundle)
	return trusted, err
}

// split also returns the hashes of the certificates that match no pin.
// kubeadm trusts the whole bundle as soon as one certificate matches.
func (p Pins) split(bundle []byte) (trusted []byte, unpinned []string, err error) {
	certs, err := certutil.ParseCertsPEM(bundle)
	if err != nil {
		return nil, nil, err
	}
	var list bytes.Buffer
	for _, cert := range certs {
		pin := pinOf(cert)
		if slices.Contains(p, pin) {
			if err := pem.Encode(&list, &pem.Block{Type: certutil.CertificateBlockType, Bytes: cert.Raw}); err != nil {
				return nil, nil, err
			}
		} else if !slices.Contains(unpinned, pin) {
			unpinned = append(unpinned, pin)
		}
	}
	if list.Len() == 0 {
		return nil, nil, refuse(CAMismatch,
			"check --discovery-token-ca-cert-hash; if it is right, the address belongs to another cluster or to an impostor",
			"the cluster's CA is not the pinned one: expected %s, the cluster has %s", strings.Join(p, " or "), strings.Join(unpinned, " and "))
	}
	return list.Bytes(), unpinned, nil
}

// explainUnpinned adds to the error of an untrusted server certificate which
// CAs of cluster-info were not trusted: one of them may have signed it.
func explainUnpinned(err error, unpinned []string) error {
	refused := (*Error)(nil)
	if len(unpinned) == 0 || !errors.As(err, &refused) || refused.Reason != CertificateInvalid {
		return err
	}
	return refuse(CertificateInvalid,
		"if the cluster is rotating its CA, give --discovery-token-ca-cert-hash once for each CA; a control plane prints them: "+cluster.PrintJoinCommand+"; otherwise an impostor answers at that address",
		"%w; cluster-info also lists CA certificates that no given hash matches: %s", err, strings.Join(unpinned, ", "))
}
