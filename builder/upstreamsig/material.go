package upstreamsig

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
)

// Material is all that is needed to verify one signature: what upstream publishes in several
// files, with the entry of the transparency log.
type Material struct {
	// Payload is the signed statement about an image, in cosign's older form. It is empty if the
	// file itself was signed.
	Payload []byte `json:"payload,omitempty"`
	// Bundle is the signature, the certificate and the entry of the transparency log in
	// sigstore's bundle format.
	Bundle json.RawMessage `json:"bundle"`
}

// bundleType is the version of sigstore's bundle format in which the signed time of a log
// entry is enough. Later versions also need an inclusion proof, which older signatures of
// images do not have.
const bundleType = "application/vnd.dev.sigstore.bundle+json;version=0.1"

// A Detached is a signature without its entry of the transparency log.
type Detached struct {
	signature   []byte
	certificate *x509.Certificate
	pem         []byte
	signed      []byte // sha256 of what was signed
	payload     []byte
}

// ParseFiles reads the contents of FILE.sig and FILE.cert. sum is the sha256 of FILE in hex.
func ParseFiles(sig, cert []byte, sum string) (*Detached, error) {
	signed, err := hex.DecodeString(sum)
	if err != nil {
		return nil, err
	}
	d := &Detached{signed: signed}
	if d.signature, err = decode(string(sig)); err != nil {
		return nil, fmt.Errorf("%w: the signature is not base64", ErrForm)
	}
	// cosign writes the PEM in base64.
	if text, err := decode(string(cert)); err == nil {
		cert = text
	}
	return d, d.parseCertificate(cert)
}

func decode(s string) ([]byte, error) { return base64.StdEncoding.DecodeString(strings.TrimSpace(s)) }

func (d *Detached) parseCertificate(text []byte) (err error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return fmt.Errorf("%w: the certificate is not PEM", ErrForm)
	}
	if d.certificate, err = x509.ParseCertificate(block.Bytes); err != nil {
		return fmt.Errorf("%w: %w", ErrForm, err)
	}
	d.pem = pem.EncodeToMemory(block)
	return nil
}

// Check compares the signature with the file. It does not prove who signed. If the signature does
// not match, a transparency log finds no entry and gives no reason.
func (d *Detached) Check() error { return matches(d.certificate, d.signature, d.signed) }

// material adds an entry of the transparency log.
func (d *Detached) material(entry *protorekor.TransparencyLogEntry) (Material, error) {
	b, err := bundle.NewBundle(&protobundle.Bundle{
		MediaType: bundleType,
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content: &protobundle.VerificationMaterial_X509CertificateChain{X509CertificateChain: &protocommon.X509CertificateChain{
				Certificates: []*protocommon.X509Certificate{{RawBytes: d.certificate.Raw}}}},
			TlogEntries: []*protorekor.TransparencyLogEntry{entry},
		},
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: d.signed},
			Signature:     d.signature,
		}},
	})
	if err != nil {
		return Material{}, fmt.Errorf("%w: %w", ErrForm, err)
	}
	text, err := b.MarshalJSON()
	return Material{Payload: d.payload, Bundle: text}, err
}
