// Package fakesigstore is a certificate authority, a certificate log and a transparency log
// for tests, of the same shape as sigstore's public ones: Fulcio, its CT log and Rekor. Only
// the keys differ, and sigstore's own library reads what it makes.
package fakesigstore

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/sigstore/rekor/pkg/util"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore/pkg/signature"
)

// TB is the part of testing.TB that this package needs. The rig's mirror has its own one.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(func())
	TempDir() string
}

// A Sigstore signs for accounts that tests choose.
type Sigstore struct {
	t TB

	ca, issuer        *x509.Certificate
	issuerKey         *ecdsa.PrivateKey
	ctKey, logKey     *ecdsa.PrivateKey
	mu                sync.Mutex
	entries           map[string][]byte // answers of the log, by the body of the request
	log               *httptest.Server
	start             time.Time
	ValidUntil        time.Time // of the CA, in the trusted root
	WithoutProofs     bool      // the log's answers have no inclusion proofs
	WithoutCTLogEntry bool      // certificates are not in the certificate log
}

// New creates the keys and starts the transparency log.
func New(t TB) *Sigstore {
	t.Helper()
	s := &Sigstore{t: t, entries: map[string][]byte{}, start: time.Now().Add(-90 * time.Second)}
	s.ValidUntil = s.start.Add(time.Hour)
	var rootKey *ecdsa.PrivateKey
	var err error
	if s.ca, rootKey, err = ca.GenerateRootCa(); err != nil {
		t.Fatal(err)
	}
	if s.issuer, s.issuerKey, err = ca.GenerateFulcioIntermediate(s.ca, rootKey); err != nil {
		t.Fatal(err)
	}
	s.ctKey, s.logKey = s.key(), s.key()
	s.log = httptest.NewServer(http.HandlerFunc(s.retrieve))
	t.Cleanup(s.log.Close)
	return s
}

func (s *Sigstore) key() *ecdsa.PrivateKey {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	return key
}

// Mirror is the value of --mirror for the transparency log.
func (s *Sigstore) Mirror() string { return "rekor.sigstore.dev=" + s.log.URL }

// CloseLog stops the transparency log.
func (s *Sigstore) CloseLog() { s.log.Close() }

// TrustedRoot returns the trusted_root.json.
func (s *Sigstore) TrustedRoot() []byte {
	s.t.Helper()
	authority := &root.FulcioCertificateAuthority{Root: s.ca, Intermediates: []*x509.Certificate{s.issuer}, URI: "https://fulcio.invalid",
		ValidityPeriodStart: s.start.Add(-time.Hour), ValidityPeriodEnd: s.ValidUntil}
	of := func(key *ecdsa.PrivateKey, url string) map[string]*root.TransparencyLog {
		id := logID(s.t, key)
		return map[string]*root.TransparencyLog{hex.EncodeToString(id): {BaseURL: url, ID: id, ValidityPeriodStart: s.start.Add(-time.Hour),
			HashFunc: crypto.SHA256, PublicKey: key.Public(), SignatureHashFunc: crypto.SHA256}}
	}
	r, err := root.NewTrustedRoot(root.TrustedRootMediaType01, []root.CertificateAuthority{authority},
		of(s.ctKey, "https://ct.invalid"), nil, of(s.logKey, "https://rekor.invalid"))
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := r.MarshalJSON()
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

// logID is the sha256 of a log's key, its name in entries.
func logID(t TB, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(der)
	return sum[:]
}

// An Account signs.
type Account struct {
	Name, Issuer string
	// Late is how long after the certificate was issued the log got the signature. The
	// certificate is valid for ten minutes.
	Late time.Duration
}

// A Signed is a signature with its certificate and its entry in the transparency log.
type Signed struct {
	Signature   []byte
	Certificate []byte // PEM
	body        string // of the log entry, in base64
	time        int64
	logID       string
	promise     []byte
}

// Sign signs a sha256 and adds the signature to the transparency log.
func (s *Sigstore) Sign(sum [sha256.Size]byte, a Account) Signed {
	s.t.Helper()
	key := s.key()
	sig, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
	if err != nil {
		s.t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.certificate(key, a)})
	body := entryBody(sum[:], sig, cert)
	signed := s.enter(Signed{Signature: sig, Certificate: cert}, body, a)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[string(query(body))] = s.answer(signed, body)
	return signed
}

// enter adds the log's part to a signature.
func (s *Sigstore) enter(signed Signed, body []byte, a Account) Signed {
	s.t.Helper()
	signed.body = base64.StdEncoding.EncodeToString(body)
	signed.time, signed.logID = s.start.Add(time.Second+a.Late).Unix(), hex.EncodeToString(logID(s.t, s.logKey))
	payload := s.json(map[string]any{"body": signed.body, "integratedTime": signed.time, "logID": signed.logID, "logIndex": logIndex})
	promise := sha256.Sum256(payload)
	var err error
	if signed.promise, err = ecdsa.SignASN1(rand.Reader, s.logKey, promise[:]); err != nil {
		s.t.Fatal(err)
	}
	return signed
}

// logIndex is that of all entries. A real log numbers them.
const logIndex = 28719030

// json encodes with sorted keys and without spaces, as the log signs it.
func (s *Sigstore) json(v any) []byte {
	s.t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

// entryBody is a hashedrekord in Rekor's canonical form.
func entryBody(sum, sig, cert []byte) []byte {
	text := `{"apiVersion":"0.0.1","kind":"hashedrekord","spec":{"data":{"hash":{"algorithm":"sha256","value":"` + hex.EncodeToString(sum) +
		`"}},"signature":{"content":"` + base64.StdEncoding.EncodeToString(sig) +
		`","publicKey":{"content":"` + base64.StdEncoding.EncodeToString(cert) + `"}}}}`
	return []byte(text)
}

// query is the body of the request for an entry.
func query(body []byte) []byte { return []byte(`{"entries":[` + string(body) + `]}`) }

// retrieve answers POST /api/v1/log/entries/retrieve.
func (s *Sigstore) retrieve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/api/v1/log/entries/retrieve" {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || !json.Valid(body) || r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	answer, ok := s.entries[string(body)]
	s.mu.Unlock()
	if !ok {
		answer = []byte("[]")
	}
	w.Header().Set("Content-Type", "application/json")
	io.Copy(w, bytes.NewReader(answer))
}

// answer is the log's answer for an entry, the only one of a tree.
func (s *Sigstore) answer(signed Signed, body []byte) []byte {
	verification := map[string]any{"signedEntryTimestamp": signed.promise}
	if !s.WithoutProofs {
		leaf, checkpoint := s.tree(body)
		verification["inclusionProof"] = map[string]any{"checkpoint": checkpoint, "hashes": []string{}, "logIndex": 0,
			"rootHash": hex.EncodeToString(leaf), "treeSize": 1}
	}
	return s.json([]any{map[string]any{"24296fb24b8ad77a": map[string]any{"body": signed.body, "integratedTime": signed.time,
		"logID": signed.logID, "logIndex": logIndex, "verification": verification}}})
}

// tree returns the root of a log with one entry, and its signed checkpoint.
func (s *Sigstore) tree(body []byte) (rootHash []byte, checkpoint string) {
	s.t.Helper()
	leaf := sha256.Sum256(append([]byte{0}, body...))
	signer, err := signature.LoadECDSASignerVerifier(s.logKey, crypto.SHA256)
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := util.CreateAndSignCheckpoint(context.Background(), "rekor.invalid", 1193050959916656506, 1, leaf[:], signer)
	if err != nil {
		s.t.Fatal(err)
	}
	return leaf[:], string(text)
}

// Annotations are those of cosign for a signature of an image, with the log entry.
func (s *Sigstore) Annotations(signed Signed) map[string]string {
	entry := s.json(map[string]any{"SignedEntryTimestamp": signed.promise,
		"Payload": map[string]any{"body": signed.body, "integratedTime": signed.time, "logIndex": logIndex, "logID": signed.logID}})
	return map[string]string{
		"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(signed.Signature),
		"dev.sigstore.cosign/certificate":    string(signed.Certificate),
		"dev.sigstore.cosign/bundle":         string(entry),
	}
}
