package fakesigstore

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"math/big"
	"time"
)

var (
	oidIssuer   = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}
	oidIssuerV2 = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8}
	oidSCTs     = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 4, 2}
)

// certificate issues a certificate with Fulcio's extensions, valid for ten minutes.
func (s *Sigstore) certificate(key *ecdsa.PrivateKey, a Account) []byte {
	s.t.Helper()
	v2, err := asn1.MarshalWithParams(a.Issuer, "utf8")
	if err != nil {
		s.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:   big.NewInt(time.Now().UnixNano()),
		EmailAddresses: []string{a.Name},
		NotBefore:      s.start,
		NotAfter:       s.start.Add(10 * time.Minute),
		KeyUsage:       x509.KeyUsageDigitalSignature,
		ExtKeyUsage:    []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		ExtraExtensions: []pkix.Extension{
			{Id: oidIssuer, Value: []byte(a.Issuer)},
			{Id: oidIssuerV2, Value: v2},
		},
	}
	der := s.issue(template, key)
	if s.WithoutCTLogEntry {
		return der
	}
	// The log signs the certificate without the extension that has the log's signature.
	before, err := x509.ParseCertificate(der)
	if err != nil {
		s.t.Fatal(err)
	}
	template.ExtraExtensions = append(template.ExtraExtensions, pkix.Extension{Id: oidSCTs, Value: s.certificateTimestamps(before.RawTBSCertificate)})
	return s.issue(template, key)
}

func (s *Sigstore) issue(template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	s.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, s.issuer, key.Public(), s.issuerKey)
	if err != nil {
		s.t.Fatal(err)
	}
	return der
}

// certificateTimestamps is the list with one signed certificate timestamp (RFC 6962, 3.2 and
// 3.3).
func (s *Sigstore) certificateTimestamps(tbs []byte) []byte {
	s.t.Helper()
	issuer := sha256.Sum256(s.issuer.RawSubjectPublicKeyInfo)
	at := binary.BigEndian.AppendUint64(nil, uint64(s.start.UnixMilli()))
	noExtensions := []byte{0, 0}
	signed := bytes.Join([][]byte{{0, 0}, at, {0, 1}, issuer[:],
		{byte(len(tbs) >> 16), byte(len(tbs) >> 8), byte(len(tbs))}, tbs, noExtensions}, nil)
	sum := sha256.Sum256(signed)
	sig, err := ecdsa.SignASN1(rand.Reader, s.ctKey, sum[:])
	if err != nil {
		s.t.Fatal(err)
	}
	const sha256Algorithm, ecdsaAlgorithm = 4, 3
	sct := bytes.Join([][]byte{{0}, logID(s.t, s.ctKey), at, noExtensions, {sha256Algorithm, ecdsaAlgorithm}, sized(sig)}, nil)
	value, err := asn1.Marshal(sized(sized(sct)))
	if err != nil {
		s.t.Fatal(err)
	}
	return value
}

// sized adds the length in two bytes.
func sized(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) }
