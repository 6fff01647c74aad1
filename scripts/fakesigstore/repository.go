package fakesigstore

import (
	"crypto"
	"crypto/ed25519"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/theupdateframework/go-tuf/v2/metadata"
)

// A Repository is a TUF repository with a trusted root, such as tuf-repo-cdn.sigstore.dev.
type Repository struct {
	// Anchor is the first root metadata. It has expired; the second, which it leads to, has
	// not.
	Anchor []byte

	t        testing.TB
	key      ed25519.PrivateKey // of all roles
	version  int64
	server   *httptest.Server
	mu       sync.Mutex
	files    map[string][]byte
	requests int
}

// NewRepository starts a repository with a trusted root.
func NewRepository(t testing.TB, trustedRoot []byte, expires time.Time) *Repository {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &Repository{t: t, key: key, files: map[string][]byte{}}
	r.Anchor = r.root(1, time.Now().Add(-time.Hour))
	r.files["2.root.json"] = r.root(2, time.Now().Add(time.Hour))
	r.Publish(trustedRoot, expires)
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests++
		content, ok := r.files[req.URL.Path[1:]]
		if !ok {
			http.NotFound(w, req)
			return
		}
		w.Write(content)
	}))
	t.Cleanup(r.server.Close)
	return r
}

// Mirror is the value of --mirror for the repository.
func (r *Repository) Mirror() string { return "tuf-repo-cdn.sigstore.dev=" + r.server.URL }

// Close stops the server.
func (r *Repository) Close() { r.server.Close() }

// Requests returns the number of requests until now.
func (r *Repository) Requests() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// Publish replaces the trusted root. The repository's timestamp expires at a time.
func (r *Repository) Publish(trustedRoot []byte, expires time.Time) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	const name = "trusted_root.json"
	later := time.Now().Add(time.Hour)
	info, err := metadata.TargetFile().FromBytes(name, trustedRoot, "sha256")
	if err != nil {
		r.t.Fatal(err)
	}
	targets := metadata.Targets(later)
	targets.Signed.Version, targets.Signed.Targets[name] = r.version, info
	snapshot := metadata.Snapshot(later)
	snapshot.Signed.Version, snapshot.Signed.Meta["targets.json"] = r.version, metadata.MetaFile(r.version)
	timestamp := metadata.Timestamp(expires)
	timestamp.Signed.Version, timestamp.Signed.Meta["snapshot.json"] = r.version, metadata.MetaFile(r.version)
	r.files[path.Join("targets", fmt.Sprintf("%s.%s", info.Hashes["sha256"].String(), name))] = trustedRoot
	r.files[fmt.Sprintf("%d.targets.json", r.version)] = signed(r, targets)
	r.files[fmt.Sprintf("%d.snapshot.json", r.version)] = signed(r, snapshot)
	r.files["timestamp.json"] = signed(r, timestamp)
}

// root returns root metadata with the key for all roles.
func (r *Repository) root(version int64, expires time.Time) []byte {
	r.t.Helper()
	root := metadata.Root(expires)
	root.Signed.Version = version
	key, err := metadata.KeyFromPublicKey(r.key.Public())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, role := range metadata.TOP_LEVEL_ROLE_NAMES {
		if err := root.Signed.AddKey(key, role); err != nil {
			r.t.Fatal(err)
		}
	}
	return signed(r, root)
}

func signed[T metadata.Roles](r *Repository, m *metadata.Metadata[T]) []byte {
	r.t.Helper()
	signer, err := signature.LoadSigner(r.key, crypto.Hash(0))
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := m.Sign(signer); err != nil {
		r.t.Fatal(err)
	}
	text, err := m.ToBytes(false)
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}
