package fakesigstore

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// BundleType is the type of a Bundle.
const BundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"

// SignType is the type of the statement of a signature by cosign.
const SignType = "https://sigstore.dev/cosign/sign/v1"

// Bundle signs a statement of a type about the image with this digest, in the form of cosign 3.
func (s *Sigstore) Bundle(digest, statementType string, a Account) []byte {
	s.t.Helper()
	payload := s.json(map[string]any{"_type": "https://in-toto.io/Statement/v1", "predicateType": statementType, "predicate": map[string]any{},
		"subject": []any{map[string]any{"name": "image", "digest": map[string]any{"sha256": strings.TrimPrefix(digest, "sha256:")}}}})
	const payloadType = "application/vnd.in-toto+json"
	// The signed bytes of DSSE.
	sum := sha256.Sum256(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload))
	key := s.key()
	sig, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
	if err != nil {
		s.t.Fatal(err)
	}
	der := s.certificate(key, a)
	envelope := map[string]any{"payload": payload, "payloadType": payloadType, "signatures": []any{map[string]any{"sig": sig}}}
	hash := func(b []byte) map[string]any {
		sum := sha256.Sum256(b)
		return map[string]any{"algorithm": "sha256", "value": hex.EncodeToString(sum[:])}
	}
	body := s.json(map[string]any{"apiVersion": "0.0.1", "kind": "dsse", "spec": map[string]any{
		"envelopeHash": hash(s.json(envelope)), "payloadHash": hash(payload),
		"signatures": []any{map[string]any{"signature": base64.StdEncoding.EncodeToString(sig),
			"verifier": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}}}})
	signed := s.enter(Signed{}, body, a)
	leaf, checkpoint := s.tree(body)
	return s.json(map[string]any{
		"mediaType": BundleType,
		"verificationMaterial": map[string]any{
			"certificate": map[string]any{"rawBytes": der},
			"tlogEntries": []any{map[string]any{
				"logIndex": strconv.Itoa(logIndex), "logId": map[string]any{"keyId": logID(s.t, s.logKey)},
				"kindVersion": map[string]any{"kind": "dsse", "version": "0.0.1"}, "integratedTime": strconv.FormatInt(signed.time, 10),
				"inclusionPromise": map[string]any{"signedEntryTimestamp": signed.promise},
				"inclusionProof": map[string]any{"logIndex": "0", "treeSize": "1", "rootHash": leaf, "hashes": []any{},
					"checkpoint": map[string]any{"envelope": checkpoint}},
				"canonicalizedBody": body,
			}},
		},
		"dsseEnvelope": envelope,
	})
}

// WithKey returns a bundle as of a signature with a key pair: it has no certificate.
func (s *Sigstore) WithKey(bundle []byte) []byte {
	s.t.Helper()
	var b map[string]any
	if err := json.Unmarshal(bundle, &b); err != nil {
		s.t.Fatal(err)
	}
	material := b["verificationMaterial"].(map[string]any)
	delete(material, "certificate")
	material["publicKey"] = map[string]any{"hint": "a key"}
	return s.json(b)
}

// Referrer returns the artifact with a bundle about an image or index.
func (s *Sigstore) Referrer(of v1.Descriptor, bundle []byte) v1.Image {
	s.t.Helper()
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), BundleType)
	img, err := mutate.AppendLayers(img, static.NewLayer(bundle, BundleType))
	if err != nil {
		s.t.Fatal(err)
	}
	return mutate.Subject(img, of).(v1.Image)
}
