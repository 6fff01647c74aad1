package registry_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"airlift/builder/fetch"
	"airlift/builder/registry"
	"airlift/scripts/fixtures/fakesites"
)

// A hostileSite is a registry and its token service, at registry.example.com and
// auth.example.com, and every other host. It redirects as the test wants, and records which
// secrets each host got.
type hostileSite struct {
	registry http.Handler
	scheme   string // of the credentials: "Basic" or "Bearer"
	tokenTo  string // where the token service redirects
	to       string // where the registry redirects
	status   int
	push     bool // redirects uploads

	mu  sync.Mutex
	got map[string]string // secrets by scheme, host and port
}

const (
	password = "password-of-alice"
	identity = "identity-of-alice"
	bearer   = "bearer-of-alice"
)

func (s *hostileSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	origin := "https://" + r.Host
	if r.TLS == nil {
		origin = "http://" + r.Host
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	_, basic, _ := r.BasicAuth()
	s.mu.Lock()
	if r.TLS == nil {
		s.got[origin] += "a request "
	}
	for _, secret := range []string{password, identity, bearer} {
		if basic == secret || strings.Contains(r.Header.Get("Authorization"), secret) || strings.Contains(string(body), secret) {
			s.got[origin] += secret + " "
		}
	}
	s.mu.Unlock()
	switch {
	case origin == "https://auth.example.com" && r.URL.Path == "/token" && s.tokenTo != "":
		http.Redirect(w, r, s.tokenTo+"/token", s.status)
	case r.URL.Path == "/token":
		io.WriteString(w, `{"token":"`+bearer+`"}`)
	case origin == "https://registry.example.com" && r.Header.Get("Authorization") == "":
		w.Header().Set("WWW-Authenticate", s.scheme+` realm="https://auth.example.com/token",service="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	case origin == "https://registry.example.com" && s.to != "" && (strings.Contains(r.URL.Path, "/blobs/sha256:") || strings.Contains(r.URL.Path, "/manifests/")) && r.Method != http.MethodPut && !s.push:
		http.Redirect(w, r, s.to+r.URL.Path, s.status)
	case s.push && s.to != "":
		s.registry.ServeHTTP(moved{w, s.to}, r)
	default:
		s.registry.ServeHTTP(w, r)
	}
}

// moved gives an upload an address at another host.
type moved struct {
	http.ResponseWriter
	to string
}

func (m moved) WriteHeader(code int) {
	if at := m.Header().Get("Location"); code == http.StatusAccepted && strings.HasPrefix(at, "/") {
		m.Header().Set("Location", m.to+at)
	}
	m.ResponseWriter.WriteHeader(code)
}

// start serves the site, and returns a client that finds every host there.
func (s *hostileSite) start(t *testing.T) *registry.Client {
	quiet := log.New(io.Discard, "", 0)
	s.registry = ggcr.New(ggcr.Logger(quiet))
	s.got = map[string]string{}
	secure, plain := httptest.NewUnstartedServer(s), httptest.NewServer(s)
	secure.Config.ErrorLog = quiet
	secure.StartTLS()
	t.Cleanup(secure.Close)
	t.Cleanup(plain.Close)
	tr := secure.Client().Transport.(*http.Transport).Clone()
	tr.TLSClientConfig.InsecureSkipVerify = true
	tr.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		to := secure.Listener.Addr().String()
		if strings.HasSuffix(address, ":80") {
			to = plain.Listener.Addr().String()
		}
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}
	mirrors, err := fetch.NewMirrors(tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := fetch.OpenCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	direct := httptest.NewServer(s.registry)
	defer direct.Close()
	ref, err := name.NewTag(strings.TrimPrefix(direct.URL, "http://") + "/team/app:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, fakesites.Image(t, "amd64", "app")); err != nil {
		t.Fatal(err)
	}
	return registry.New(fetch.New(cache, mirrors), mirrors, "amd64")
}

// Whatever a registry or its token service answers, no secret goes to another scheme, host or
// port, also not in the body of a request that is sent again, and nothing goes over plain http.
func TestSecretsStayWithTheirHosts(t *testing.T) {
	auth := func(user, secret string) string {
		return base64.StdEncoding.EncodeToString([]byte(user + ":" + secret))
	}
	for _, scheme := range []string{"Basic", "Bearer"} {
		for _, account := range []string{
			fmt.Sprintf(`{"auth":%q}`, auth("alice", password)),
			fmt.Sprintf(`{"auth":%q,"identitytoken":%q}`, auth("00000000-0000-0000-0000-000000000000", ""), identity),
		} {
			if scheme == "Basic" && strings.Contains(account, "identity") {
				continue // only for a token service
			}
			for _, host := range []string{"https://registry.example.com:8443", "https://cdn.registry.example.com", "https://auth.example.com:8443", "https://sub.auth.example.com", "https://attacker.example", "http://attacker.example", "http://registry.example.com", "http://auth.example.com"} {
				for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
					for _, s := range []*hostileSite{{tokenTo: host}, {to: host}, {to: host, push: true}} {
						s.scheme, s.status = scheme, status
						c := s.start(t)
						c.AuthFile = authFile(t, `{"auths":{"registry.example.com":%s}}`, account)
						what := fmt.Sprintf("%s, %.6q, %s, %d, token service: %t, push: %t", scheme, account, host, status, s.tokenTo != "", s.push)
						if s.push {
							s.pushTo(t, c)
						} else if img, err := c.Resolve(t.Context(), registry.Wanted{Name: "app", Reference: "registry.example.com/team/app:1"}); err == nil {
							_ = c.Pull(t.Context(), img, 0, nil)
						}
						for origin, secrets := range s.got {
							if origin != "https://registry.example.com" && origin != "https://auth.example.com" {
								t.Errorf("%s: %s got %s", what, origin, secrets)
							}
						}
						if len(s.got) == 0 {
							t.Errorf("%s: no secret was sent at all", what)
						}
					}
				}
			}
		}
	}
}

func (s *hostileSite) pushTo(t *testing.T, c *registry.Client) {
	r, err := c.Repository(t.Context(), "registry.example.com/team/other")
	if err != nil {
		return
	}
	content := []byte("a layer")
	_ = r.PushBlob(t.Context(), registry.Blob{Digest: hashOf(content).String(), Size: int64(len(content)),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }}, func(int64) {})
}
