package siteregistry

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const issuer = "site tokens"

// RefreshToken is the identity token of User.
const RefreshToken = "identity-of-me"

// leeway is how long the registry still accepts a token that has expired.
const leeway = time.Minute

// Tokens is a token service: https://distribution.github.io/distribution/spec/auth/token/
// and …/oauth/.
type Tokens struct {
	Realm string

	ca      *authority
	service string

	mu       sync.Mutex
	requests []string
	// Lifetime is how long the registry accepts a token; 0 means five minutes.
	lifetime time.Duration
	// field is the field of the answer: "token" or "access_token".
	field string
	// large adds bytes to each answer.
	large int
	// hook may answer a request itself.
	hook func(w http.ResponseWriter, r *http.Request, n int) bool
	n    int
}

func startTokens(t testing.TB, ca *authority, service string) *Tokens {
	s := &Tokens{ca: ca, service: service, field: "token"}
	server := httptest.NewUnstartedServer(s)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	ca.issue(t, cert, key)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	s.Realm = strings.Replace(server.URL, "127.0.0.1", "localhost", 1) + "/token"
	return s
}

// Lifetime sets how long the registry accepts new tokens.
func (s *Tokens) Lifetime(d time.Duration) { s.set(func() { s.lifetime = d }) }

// Field sets the field of the token in the answers.
func (s *Tokens) Field(name string) { s.set(func() { s.field = name }) }

// Large adds n bytes to each answer.
func (s *Tokens) Large(n int) { s.set(func() { s.large = n }) }

// Hook sets a function that may answer request n itself, from 0.
func (s *Tokens) Hook(f func(w http.ResponseWriter, r *http.Request, n int) bool) {
	s.set(func() { s.hook, s.n = f, 0 })
}

func (s *Tokens) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Requests lists the requests since the last Forget: method, account and scopes.
func (s *Tokens) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Forget empties the list of requests.
func (s *Tokens) Forget() { s.set(func() { s.requests = nil }) }

func (s *Tokens) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	account, allowed := "", true
	if user, password, ok := r.BasicAuth(); ok {
		account, allowed = user, user == User && password == Password
	}
	if r.Method == http.MethodPost {
		account, allowed = User, r.Form.Get("grant_type") == "refresh_token" && r.Form.Get("refresh_token") == RefreshToken
	}
	scopes := strings.Fields(strings.Join(r.Form["scope"], " "))
	s.mu.Lock()
	s.requests = append(s.requests, strings.Join(append([]string{r.Method, "account=" + account}, scopes...), " "))
	hook, n, lifetime, field, large := s.hook, s.n, s.lifetime, s.field, s.large
	s.n++
	s.mu.Unlock()
	if hook != nil && hook(w, r, n) {
		return
	}
	if r.Form.Get("service") != s.service {
		http.Error(w, "unknown service", http.StatusBadRequest)
		return
	}
	if !allowed {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"errors":[{"code":"UNAUTHORIZED","message":"incorrect username or password"}]}`)
		return
	}
	var access []map[string]any
	for _, scope := range scopes {
		parts := strings.SplitN(scope, ":", 3)
		if len(parts) == 3 && parts[0] == "repository" && (account == User || strings.HasPrefix(parts[1], "public/") && parts[2] == "pull") {
			access = append(access, map[string]any{"type": "repository", "name": parts[1], "actions": strings.Split(parts[2], ",")})
		}
	}
	json.NewEncoder(w).Encode(map[string]any{field: s.sign(account, access, lifetime), "padding": strings.Repeat("x", large)})
}

// sign returns a JSON web token by ES256.
func (s *Tokens) sign(account string, access []map[string]any, lifetime time.Duration) string {
	if lifetime == 0 {
		lifetime = 5 * time.Minute
	}
	now := time.Now()
	encode := func(v any) string {
		b, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := encode(map[string]any{"typ": "JWT", "alg": "ES256", "x5c": []string{base64.StdEncoding.EncodeToString(s.ca.der)}}) + "." +
		encode(map[string]any{"iss": issuer, "sub": account, "aud": s.service, "jti": rand.Text(), "access": access,
			"iat": now.Unix() - 120, "nbf": now.Unix() - 120, "exp": now.Add(lifetime - leeway).Unix()})
	sum := sha256.Sum256([]byte(text))
	x, y, err := ecdsa.Sign(rand.Reader, s.ca.key, sum[:])
	if err != nil {
		return ""
	}
	signature := make([]byte, 64)
	x.FillBytes(signature[:32])
	y.FillBytes(signature[32:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}
