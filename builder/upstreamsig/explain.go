package upstreamsig

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/fulcio/certificate"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
)

// The reasons why a signature proves nothing. Errors of this package wrap one of them.
var (
	ErrNone        = errors.New("there is no signature")
	ErrForm        = errors.New("the signature is malformed")
	ErrContent     = errors.New("the signature is for other content")
	ErrSignature   = errors.New("the signature is not valid")
	ErrIdentity    = errors.New("another account signed")
	ErrIssuer      = errors.New("another service confirmed the account")
	ErrCertificate = errors.New("the certificate is not from the trusted root")
	ErrExpired     = errors.New("the certificate was not valid when the signature was made")
	ErrLog         = errors.New("the transparency log does not confirm the signature")
)

// errKey reports a signature with a key: no certificate names the account.
var errKey = fmt.Errorf("%w: the image is signed with a key and not with a certificate", ErrIdentity)

// explain finds the reason of an error of the library. The library alone decides whether a
// signature is valid; its messages name internals, and it stops at the first problem.
func (v *Verifier) explain(b *bundle.Bundle, signed []byte, who Identity, cause error) error {
	content, err := b.VerificationContent()
	if err == nil && content.PublicKey() != nil {
		return errKey
	}
	if err != nil || content.Certificate() == nil {
		return fmt.Errorf("%w: it has no certificate", ErrForm)
	}
	cert := content.Certificate()
	if err := explainContent(b, cert, signed); err != nil {
		return err
	}
	if err := v.explainCertificate(b, cert); err != nil {
		return err
	}
	if _, err := verify.VerifyTlogEntry(b, v.root, 1, true); err != nil {
		return fmt.Errorf("%w: %w", ErrLog, err)
	}
	summary, err := certificate.SummarizeCertificate(cert)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForm, err)
	}
	if summary.SubjectAlternativeName != who.Name {
		return fmt.Errorf("%w: %.200q, expected %q", ErrIdentity, summary.SubjectAlternativeName, who.Name)
	}
	if summary.Issuer != who.Issuer {
		return fmt.Errorf("%w: %.200q, expected %q", ErrIssuer, summary.Issuer, who.Issuer)
	}
	return fmt.Errorf("%w: %w", ErrCertificate, cause)
}

// explainContent compares the signature with what was signed, and both with the log.
func explainContent(b *bundle.Bundle, cert *x509.Certificate, signed []byte) error {
	content, err := b.SignatureContent()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForm, err)
	}
	if e := content.EnvelopeContent(); e != nil {
		return explainStatement(e, signed)
	}
	if matches(cert, content.Signature(), signed) == nil {
		return nil
	}
	entries, err := b.TlogEntries()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLog, err)
	}
	for _, e := range entries {
		if logged, _, ok := e.GetHashedRekordDigest(); ok && !bytes.Equal(logged, signed) {
			return fmt.Errorf("%w: sha256 is %x, but the signed content has %x", ErrContent, signed, logged)
		}
		if !bytes.Equal(e.Signature(), content.Signature()) {
			return fmt.Errorf("%w: the transparency log has another one for this certificate", ErrSignature)
		}
	}
	return fmt.Errorf("%w: it does not match sha256 %x", ErrContent, signed)
}

// explainStatement compares the image that a signed statement names.
func explainStatement(e verify.EnvelopeContent, signed []byte) error {
	s, err := e.Statement()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForm, err)
	}
	for _, subject := range s.GetSubject() {
		if subject.GetDigest()["sha256"] == hex.EncodeToString(signed) {
			return nil
		}
	}
	return fmt.Errorf("%w: it does not name sha256 %x", ErrContent, signed)
}

// matches compares a signature with the sha256 of the content. Fulcio's certificates for
// cosign have ECDSA keys; with others, the library alone decides.
func matches(cert *x509.Certificate, signature, signed []byte) error {
	key, ok := cert.PublicKey.(*ecdsa.PublicKey)
	if ok && !ecdsa.VerifyASN1(key, signed, signature) {
		return fmt.Errorf("%w, or was changed: it does not match sha256 %s", ErrContent, hex.EncodeToString(signed))
	}
	return nil
}

// explainCertificate checks the certificate at the time of each log entry.
func (v *Verifier) explainCertificate(b *bundle.Bundle, cert *x509.Certificate) error {
	if !v.issued(cert) {
		return fmt.Errorf("%w: its issuer is %.100q", ErrCertificate, cert.Issuer.String())
	}
	entries, err := b.TlogEntries()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLog, err)
	}
	for _, e := range entries {
		at := e.IntegratedTime()
		if at.IsZero() {
			continue
		}
		if _, err := verify.VerifyLeafCertificate(at, cert, v.root); err != nil {
			return fmt.Errorf("%w: it is valid from %s to %s, and the transparency log has the signature at %s",
				ErrExpired, utc(cert.NotBefore), utc(cert.NotAfter), utc(at))
		}
	}
	return nil
}

// issued reports whether a CA of the trusted root signed the certificate, at any time.
func (v *Verifier) issued(cert *x509.Certificate) bool {
	for _, ca := range v.root.FulcioCertificateAuthorities() {
		if ca, ok := ca.(*root.FulcioCertificateAuthority); ok {
			for _, issuer := range append([]*x509.Certificate{ca.Root}, ca.Intermediates...) {
				if cert.CheckSignatureFrom(issuer) == nil {
					return true
				}
			}
		}
	}
	return false
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }
