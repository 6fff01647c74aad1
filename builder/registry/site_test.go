package registry_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"airlift/builder/fetch"
	"airlift/builder/registry"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
	"airlift/scripts/fixtures/siteregistry"
)

// A site is a client of a real registry.
type site struct {
	*siteregistry.Registry
	rig *rig
	// The values of --registry-ca, --mirror and --registry-auth.
	cas, mirrors []string
	auth         string
}

// startSite starts a registry. The files of this machine's user have no effect.
func startSite(t *testing.T, o siteregistry.Options) *site {
	t.Helper()
	r := siteregistry.Start(t, o)
	empty := t.TempDir()
	for _, name := range []string{"DOCKER_CONFIG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"} {
		t.Setenv(name, empty)
	}
	t.Setenv("REGISTRY_AUTH_FILE", "")
	return &site{Registry: r, rig: newSiteRig(t), cas: []string{r.CA}}
}

func newSiteRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	cache, err := fetch.OpenCache(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{cache: cache, dir: dir, t: t}
}

func (s *site) client() *registry.Client {
	s.rig.t.Helper()
	trust, err := fetch.NewTrust(s.cas)
	if err != nil {
		s.rig.t.Fatal(err)
	}
	var list []fetch.Mirror
	for _, text := range s.mirrors {
		m, err := fetch.ParseMirror(text)
		if err != nil {
			s.rig.t.Fatal(err)
		}
		list = append(list, m)
	}
	mirrors, err := fetch.NewMirrors(trust.Transport(), list)
	if err != nil {
		s.rig.t.Fatal(err)
	}
	c := registry.New(fetch.New(s.rig.cache, mirrors), mirrors, "amd64")
	c.AuthFile = s.auth
	return c
}

// pull pulls an image to an empty cache.
func (s *site) pull(repository string) error {
	s.rig = newSiteRig(s.rig.t)
	_, err := s.rig.pull(s.client(), s.Host+"/"+repository)
	return err
}

func authFile(t *testing.T, format string, args ...any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var basic = base64.StdEncoding.EncodeToString([]byte(siteregistry.User + ":" + siteregistry.Password))

func TestPrivateCA(t *testing.T) {
	s := startSite(t, siteregistry.Options{})
	s.Push("public/app:1", fakesites.Image(t, "amd64", "app"))
	dir := t.TempDir()
	ca, err := os.ReadFile(s.CA)
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, s.Host), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, s.Host, "ca.crt"), ca, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{s.CA, s.Host + "=" + s.CA, dir} {
		s.cas = []string{value}
		if err := s.pull("public/app:1"); err != nil {
			t.Errorf("%s: %v", value, err)
		}
	}
	for _, cas := range [][]string{nil, {"registry.example=" + s.CA}, {"localhost=" + s.CA}} {
		s.cas = cas
		err := s.pull("public/app:1")
		if err == nil || !strings.Contains(err.Error(), "unknown authority") || !strings.Contains(fault.Hint(err), "--registry-ca "+s.Host+"=FILE") {
			t.Errorf("%v: err = %v, hint = %q", cas, err, fault.Hint(err))
		}
	}
}

// A name that looks like one of this machine or of a private network is no request for
// plain http.
func TestPlainHTTPOnlyOnRequest(t *testing.T) {
	s := startSite(t, siteregistry.Options{Plain: true})
	err := s.pull("public/app:1")
	if err == nil || !strings.Contains(fault.Hint(err), "--mirror "+s.Host+"=http://"+s.Host) {
		t.Errorf("err = %v, hint = %q", err, fault.Hint(err))
	}
	if log := s.Log(); strings.Contains(log, "/v2/") {
		t.Errorf("the registry got a request:\n%s", log)
	}
	pushPlain(t, s.Host+"/public/app:1")
	s.mirrors = []string{s.Host + "=http://" + s.Host}
	if err := s.pull("public/app:1"); err != nil {
		t.Error(err)
	}
}

func TestBasicAuthentication(t *testing.T) {
	s := startSite(t, siteregistry.Options{Auth: "basic"})
	s.Push("team/app:1", fakesites.Image(t, "amd64", "app"))
	if err := s.pull("team/app:1"); err == nil || !strings.Contains(fault.Hint(err), "docker login "+s.Host) {
		t.Errorf("err = %v, hint = %q", err, fault.Hint(err))
	}
	s.auth = authFile(t, `{"auths":{%q:{"auth":%q}}}`, s.Host, basic)
	if err := s.pull("team/app:1"); err != nil {
		t.Error(err)
	}
}

func TestTokens(t *testing.T) {
	s := startSite(t, siteregistry.Options{Auth: "token"})
	img := fakesites.Image(t, "amd64", "app")
	s.Push("public/app:1", img)
	s.Push("team/app:1", img)
	for _, field := range []string{"token", "access_token"} {
		s.Tokens.Field(field)
		s.auth = ""
		s.Tokens.Forget()
		if err := s.pull("public/app:1"); err != nil {
			t.Errorf("anonymous: %v", err)
		}
		if got := s.Tokens.Requests(); !slices.Equal(got, []string{"GET account= repository:public/app:pull"}) {
			t.Errorf("token requests: %q", got)
		}
		if err := s.pull("team/app:1"); err == nil || !strings.Contains(fault.Hint(err), "docker login "+s.Host) {
			t.Errorf("anonymous: err = %v, hint = %q", err, fault.Hint(err))
		}
		s.Tokens.Forget()
		s.auth = authFile(t, `{"auths":{%q:{"auth":%q}}}`, s.Host, basic)
		if err := s.pull("team/app:1"); err != nil {
			t.Error(err)
		}
		if got := s.Tokens.Requests(); !slices.Equal(got, []string{"GET account=me repository:team/app:pull"}) {
			t.Errorf("token requests: %q", got)
		}
	}
	s.Tokens.Forget()
	s.auth = authFile(t, `{"auths":{%q:{"auth":%q}}}`, s.Host, base64.StdEncoding.EncodeToString([]byte("me:wrong")))
	err := s.pull("team/app:1")
	if err == nil || !strings.Contains(err.Error(), "incorrect username or password") || !strings.Contains(fault.Hint(err), "docker login "+s.Host) || len(s.Tokens.Requests()) != 1 {
		t.Errorf("wrong password: err = %v, hint = %q, token requests: %q", err, fault.Hint(err), s.Tokens.Requests())
	}
}

// docker login stores an identity token instead of the password if the registry has one.
func TestIdentityToken(t *testing.T) {
	s := startSite(t, siteregistry.Options{Auth: "token"})
	s.Push("team/app:1", fakesites.Image(t, "amd64", "app"))
	s.auth = authFile(t, `{"auths":{%q:{"auth":%q,"identitytoken":%q}}}`, s.Host, base64.StdEncoding.EncodeToString([]byte("00000000-0000-0000-0000-000000000000:")), siteregistry.RefreshToken)
	if err := s.pull("team/app:1"); err != nil {
		t.Error(err)
	}
	if got := s.Tokens.Requests(); !slices.Equal(got, []string{"POST account=me repository:team/app:pull"}) {
		t.Errorf("token requests: %q", got)
	}
}

// A token expires between two requests. The answer with the new one may be longer than the
// content that is being downloaded.
func TestTokenExpiresDuringPull(t *testing.T) {
	s := startSite(t, siteregistry.Options{Auth: "token"})
	s.Push("public/app:1", fakesites.ImageOf(t, "amd64", fakesites.GzipLayer(t, []byte(strings.Repeat("\x00", 1024)))))
	s.Tokens.Lifetime(2 * time.Second)
	s.Tokens.Large(2000)
	c := s.client()
	img, err := c.Resolve(t.Context(), registry.Wanted{Name: "app", Reference: s.Host + "/public/app:1"})
	if err != nil {
		t.Fatal(err)
	}
	before := len(s.Tokens.Requests())
	time.Sleep(3500 * time.Millisecond)
	s.Tokens.Lifetime(0)
	if err := c.Pull(t.Context(), img, 0, nil); err != nil {
		t.Error(err)
	}
	if after := len(s.Tokens.Requests()); after != before+1 {
		t.Errorf("%d tokens before, %d after", before, after)
	}
}

// A token service that refuses to renew a token is asked once.
func TestRefusedRenewalIsNotRepeated(t *testing.T) {
	s := startSite(t, siteregistry.Options{Auth: "token"})
	s.Push("public/app:1", fakesites.Image(t, "amd64", "app"))
	s.Tokens.Lifetime(time.Second)
	c := s.client()
	img, err := c.Resolve(t.Context(), registry.Wanted{Name: "app", Reference: s.Host + "/public/app:1"})
	if err != nil {
		t.Fatal(err)
	}
	s.Tokens.Hook(func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	s.Tokens.Forget()
	time.Sleep(2500 * time.Millisecond)
	if err := c.Pull(t.Context(), img, 0, nil); err == nil || len(s.Tokens.Requests()) != 1 {
		t.Errorf("err = %v, token requests: %q", err, s.Tokens.Requests())
	}
}

// A token service that asks to wait gets its wait; if that is too long, the build ends.
func TestTokenServiceAsksToWait(t *testing.T) {
	s := startSite(t, siteregistry.Options{Auth: "token"})
	s.Push("public/app:1", fakesites.Image(t, "amd64", "app"))
	for status, header := range map[int]func() string{
		http.StatusTooManyRequests:    func() string { return "2" },
		http.StatusServiceUnavailable: func() string { return time.Now().Add(3 * time.Second).UTC().Format(http.TimeFormat) },
	} {
		var mu sync.Mutex
		var at []time.Time
		s.Tokens.Hook(func(w http.ResponseWriter, _ *http.Request, n int) bool {
			mu.Lock()
			defer mu.Unlock()
			if at = append(at, time.Now()); n > 0 {
				return false
			}
			w.Header().Set("Retry-After", header())
			w.WriteHeader(status)
			return true
		})
		if err := s.pull("public/app:1"); err != nil {
			t.Errorf("%d: %v", status, err)
		}
		// A date has whole seconds.
		if len(at) != 2 || at[1].Sub(at[0]) < 1900*time.Millisecond {
			t.Errorf("%d: requests at %v", status, at)
		}
	}
	s.Tokens.Hook(func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		w.Header().Set("Retry-After", "7200")
		http.Error(w, "slow down", http.StatusTooManyRequests)
		return true
	})
	s.Tokens.Forget()
	err := s.pull("public/app:1")
	if err == nil || !strings.Contains(err.Error(), "asks to wait 2h0m0s") || !strings.Contains(fault.Hint(err), "docker login") || len(s.Tokens.Requests()) != 1 {
		t.Errorf("err = %v, hint = %q, %d requests", err, fault.Hint(err), len(s.Tokens.Requests()))
	}
}

// A mirror that keeps a registry's repositories in a project knows them by other names.
func TestScopeOfMirroredRepository(t *testing.T) {
	s := startSite(t, siteregistry.Options{Auth: "token"})
	s.Push("public/k8s/team/app:1", fakesites.Image(t, "amd64", "app"))
	s.mirrors = []string{"registry.k8s.io=https://" + s.Host + "/v2/public/k8s"}
	if _, err := s.rig.pull(s.client(), "registry.k8s.io/team/app:1"); err != nil {
		t.Error(err)
	}
	if got := s.Tokens.Requests(); !slices.Equal(got, []string{"GET account= repository:public/k8s/team/app:pull"}) {
		t.Errorf("token requests: %q", got)
	}
}

// Credential helpers are the commands docker-credential-NAME.
func TestCredentialHelpers(t *testing.T) {
	s := startSite(t, siteregistry.Options{Auth: "token"})
	s.Push("team/app:1", fakesites.Image(t, "amd64", "app"))
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	helper := func(name, user, secret string) {
		script := fmt.Sprintf("#!/bin/sh\nread host\n[ \"$1\" = get ] || exit 1\nif [ \"$host\" != %q ]; then echo 'credentials not found in native keychain'; exit 1; fi\necho '{\"ServerURL\":\"'$host'\",\"Username\":\"%s\",\"Secret\":\"%s\"}'\n", s.Host, user, secret)
		if err := os.WriteFile(filepath.Join(bin, "docker-credential-"+name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	helper("password", siteregistry.User, siteregistry.Password)
	helper("identity", "<token>", siteregistry.RefreshToken)
	for text, method := range map[string]string{
		`{"credHelpers":{"HOST":"password"}}`:                                                   "GET",
		`{"credHelpers":{"HOST":"identity"},"credsStore":"password"}`:                           "POST",
		`{"credsStore":"password","auths":{"HOST":{}}}`:                                         "GET",
		`{"credHelpers":{"registry.example":"none"},"auths":{"HOST":{"auth":"` + basic + `"}}}`: "GET",
	} {
		s.auth = authFile(t, "%s", strings.ReplaceAll(text, "HOST", s.Host))
		s.Tokens.Forget()
		if err := s.pull("team/app:1"); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got := s.Tokens.Requests(); !slices.Equal(got, []string{method + " account=me repository:team/app:pull"}) {
			t.Errorf("%s: token requests: %q", text, got)
		}
	}
	s.auth = authFile(t, `{"credHelpers":{%q:"none"}}`, s.Host)
	if err := s.pull("team/app:1"); err == nil || !strings.Contains(err.Error(), "docker-credential-none") || !strings.Contains(fault.Hint(err), "install the helper") {
		t.Errorf("err = %v, hint = %q", err, fault.Hint(err))
	}
}

// The login of skopeo and podman.
func TestSkopeoLogin(t *testing.T) {
	s := startSite(t, siteregistry.Options{Auth: "token"})
	s.Push("team/app:1", fakesites.Image(t, "amd64", "app"))
	runtimeDir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", runtimeDir)
	certs := filepath.Join(t.TempDir(), "certs")
	ca, err := os.ReadFile(s.CA)
	if err == nil {
		err = os.MkdirAll(certs, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(certs, "ca.crt"), ca, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	skopeoLogin(t, s.Host, certs)
	if _, err := os.Stat(filepath.Join(runtimeDir, "containers", "auth.json")); err != nil {
		t.Fatal(err)
	}
	if err := s.pull("team/app:1"); err != nil {
		t.Error(err)
	}
}
