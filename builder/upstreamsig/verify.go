package upstreamsig

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
)

// A Verifier verifies signatures with a trusted root.
type Verifier struct {
	root *root.TrustedRoot
	lib  *verify.Verifier
}

// NewVerifier reads a trusted root: sigstore's trusted_root.json.
func NewVerifier(trustedRoot []byte) (*Verifier, error) {
	r, err := root.NewTrustedRootFromJSON(trustedRoot)
	if err != nil {
		return nil, fmt.Errorf("reading the trusted root: %w", err)
	}
	if len(r.FulcioCertificateAuthorities()) == 0 || len(r.RekorLogs()) == 0 || len(r.CTLogs()) == 0 {
		return nil, errors.New("reading the trusted root: it needs a certificate authority, a transparency log and a certificate log")
	}
	lib, err := verify.NewVerifier(r,
		verify.WithTransparencyLog(1),
		// The time of the log, or of a timestamp authority: newer logs have no own time.
		verify.WithObserverTimestamps(1),
		verify.WithSignedCertificateTimestamps(1))
	if err != nil {
		return nil, err
	}
	return &Verifier{r, lib}, nil
}

// Any returns the first signature that proves that who signed the file or image with this digest,
// "sha256:HEX". Images may have signatures of several accounts.
func (v *Verifier) Any(list []Material, digest string, who Identity) (Material, error) {
	reason := ErrNone
	for _, m := range list {
		err := v.verify(m, digest, who)
		if err == nil {
			return m, nil
		}
		// Report a signature of another account only if there is no other reason.
		if errors.Is(reason, ErrNone) || errors.Is(reason, ErrIdentity) && !errors.Is(err, ErrNone) {
			reason = err
		}
	}
	return Material{}, reason
}

func (v *Verifier) verify(m Material, digest string, who Identity) error {
	signed, err := hex.DecodeString(strings.TrimPrefix(digest, "sha256:"))
	if err != nil {
		return err
	}
	if len(m.Payload) > 0 {
		sum := sha256.Sum256(m.Payload)
		signed = sum[:]
	}
	var b bundle.Bundle
	if err := b.UnmarshalJSON(m.Bundle); err != nil {
		return fmt.Errorf("%w: %w", ErrForm, err)
	}
	if err := checkEnvelope(&b); err != nil {
		return err
	}
	id, err := verify.NewShortCertificateIdentity(who.Issuer, "", who.Name, "")
	if err != nil {
		return err
	}
	_, err = v.lib.Verify(&b, verify.NewPolicy(verify.WithArtifactDigest("sha256", signed), verify.WithCertificateIdentity(id)))
	if err != nil {
		return v.explain(&b, signed, who, err)
	}
	if len(m.Payload) > 0 {
		return checkPayload(m.Payload, digest, who)
	}
	return nil
}
