package upstreamsig

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/sigstore/sigstore-go/pkg/bundle"
)

// Annotations of cosign's older form: each layer of the image sha256-HEX.sig is a payload,
// with the signature in its annotations.
const (
	annotationSignature   = "dev.cosignproject.cosign/signature"
	annotationCertificate = "dev.sigstore.cosign/certificate"
	annotationBundle      = "dev.sigstore.cosign/bundle"
)

// BundleType begins the artifact type of cosign's newer form: a referrer of the image, whose
// only layer is a bundle.
const BundleType = "application/vnd.dev.sigstore.bundle"

// ParseAnnotated reads a signature in cosign's older form. It returns the material, or the
// signature without a log entry if cosign did not store one.
func ParseAnnotated(payload []byte, annotations map[string]string) (*Material, *Detached, error) {
	sum := sha256.Sum256(payload)
	d := &Detached{signed: sum[:], payload: payload}
	var err error
	if d.signature, err = decode(annotations[annotationSignature]); err != nil || len(d.signature) == 0 {
		return nil, nil, fmt.Errorf("%w: a signature of the image is not base64", ErrForm)
	}
	if annotations[annotationCertificate] == "" {
		return nil, nil, errKey
	}
	if err := d.parseCertificate([]byte(annotations[annotationCertificate])); err != nil {
		return nil, nil, err
	}
	text := annotations[annotationBundle]
	if text == "" {
		return nil, d, nil
	}
	var entry cosignBundle
	if err := json.Unmarshal([]byte(text), &entry); err != nil {
		return nil, nil, fmt.Errorf("%w: reading an entry: %w", ErrLog, err)
	}
	proto, err := entry.proto()
	if err != nil {
		return nil, nil, err
	}
	m, err := d.material(proto)
	return &m, nil, err
}

// A statement is the payload of cosign's older form.
type statement struct {
	Critical struct {
		Identity struct {
			Repository string `json:"docker-reference"`
		} `json:"identity"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
}

// statementType is the type of all signatures of images by cosign.
const statementType = "cosign container image signature"

// signType is the type of a signature in cosign's newer form. An attestation, such as an SBOM, has
// another type and does not sign the image itself.
const signType = "https://sigstore.dev/cosign/sign/v1"

// checkEnvelope returns an error for a bundle with another statement than a signature.
func checkEnvelope(b *bundle.Bundle) error {
	content, err := b.SignatureContent()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForm, err)
	}
	if content.EnvelopeContent() == nil {
		return nil
	}
	s, err := content.EnvelopeContent().Statement()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForm, err)
	}
	if s.GetPredicateType() != signType {
		return fmt.Errorf("%w: a statement about the image has the type %.100q", ErrNone, s.GetPredicateType())
	}
	return nil
}

// checkPayload compares the digest and the repository in a payload with the image's.
func checkPayload(payload []byte, digest string, who Identity) error {
	var s statement
	if err := json.Unmarshal(payload, &s); err != nil {
		return fmt.Errorf("%w: reading the signed statement: %w", ErrForm, err)
	}
	if s.Critical.Type != statementType {
		return fmt.Errorf("%w: the signed statement has the type %.100q", ErrForm, s.Critical.Type)
	}
	if s.Critical.Image.Digest != digest {
		return fmt.Errorf("%w: it names %.100q", ErrContent, s.Critical.Image.Digest)
	}
	if got := s.Critical.Identity.Repository; who.image != "" && normalize(got) != who.image {
		return fmt.Errorf("%w: it names the image %.200q, expected %q", ErrOther, got, who.image)
	}
	return nil
}
