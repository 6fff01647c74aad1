package fetch

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"airlift/internal/fault"
)

var proxyNames = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"}

func withoutProxies(t *testing.T) {
	for _, name := range proxyNames {
		t.Setenv(name, "")
	}
}

// A variable is used as it is written, or it is an error that names the variable and has no part of the value.
func TestProxyVariables(t *testing.T) {
	for value, ok := range map[string]bool{
		"http://proxy:3128": true, "http://proxy:3128/": true, "proxy:3128": true, "proxy": true, "10.0.0.1:3128": true,
		"https://proxy": true, "socks5://proxy:1080": true, "socks5h://user:secret@proxy:1080": true, "HTTP://proxy:3128": true,
		"http://user:sec%25ret@proxy:3128": true, "user:secret@proxy:3128": true, "http://[fd00::1]:3128": true,
		`http://dom\user:secret%ss@proxy:3128`: false, "http://user:secret#ss@proxy:3128": false, "http://user:secret%zz@proxy": false,
		"http://user:secret/ss@proxy:3128": false, "http://user:123/secret@proxy:3128": false, "http://user:secret?x@proxy:3128": false,
		"ftp://user:secret@proxy": false, "http://": false, "http:/proxy:3128": false, "://proxy": false, "http://user:secret@": false,
		"http://proxy:port": false, "http://secret proxy": false, "http://http://proxy:3128": false, "http://user:secret@proxy:3128#": false,
	} {
		for _, name := range proxyNames[:4] {
			withoutProxies(t)
			t.Setenv(name, value)
			_, err := NewTrust(nil)
			if ok != (err == nil) {
				t.Errorf("%s=%s: %v", name, value, err)
			}
			if err == nil {
				continue
			}
			if text := err.Error() + fault.Hint(err); !strings.Contains(text, name) || strings.Contains(text, "secret") || fault.ExitCode(err) != fault.Usage {
				t.Errorf("%s=%s: %s", name, value, text)
			}
		}
	}
	for value, ok := range map[string]bool{
		"10.0.0.0/8, .example,registry.example:5000,fd00::/8,*": true, "*.example": true,
		"10.0.0.0/33": false, "10.0.0/8": false, "http://registry.example": false,
	} {
		withoutProxies(t)
		t.Setenv("no_proxy", value)
		if _, err := NewTrust(nil); ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "no_proxy") {
			t.Errorf("no_proxy=%s: %v", value, err)
		}
	}
}

// Each variable has its effect, in both cases, and NO_PROXY also takes networks.
func TestProxyIsChosen(t *testing.T) {
	for _, c := range []struct{ name, value, none, to, want string }{
		{"HTTPS_PROXY", "proxy:3128", "", "https://dl.k8s.io", "http://proxy:3128"},
		{"https_proxy", "https://proxy", "", "https://dl.k8s.io", "https://proxy"},
		{"HTTP_PROXY", "http://proxy", "", "http://mirror.example", "http://proxy"},
		{"http_proxy", "socks5://proxy", "", "http://mirror.example", "socks5://proxy"},
		{"HTTPS_PROXY", "proxy", "", "http://mirror.example", ""},
		{"HTTPS_PROXY", "proxy", "10.0.0.0/8", "https://10.1.2.3:5000", ""},
		{"HTTPS_PROXY", "proxy", "10.0.0.0/8", "https://11.1.2.3:5000", "http://proxy"},
		{"HTTPS_PROXY", "proxy", ".example", "https://registry.example", ""},
	} {
		withoutProxies(t)
		t.Setenv(c.name, c.value)
		t.Setenv("NO_PROXY", c.none)
		req, err := http.NewRequest(http.MethodGet, c.to, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		u, err := Transport().Proxy(req)
		if u != nil {
			got = u.String()
		}
		if err != nil || got != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

// A proxy that wants a login is asked once. The error names it, without the password, and the hint its variable.
func TestRefusalOfAProxy(t *testing.T) {
	for _, c := range []struct {
		scheme, name string
		code, asked  int
		want, hint   string
	}{
		{"https", "HTTPS_PROXY", http.StatusProxyAuthRequired, 1, "returned 407 Proxy Authentication Required", "set HTTPS_PROXY to http://USER:PASSWORD@HOST:PORT"},
		{"https", "https_proxy", http.StatusProxyAuthRequired, 1, "returned 407 Proxy Authentication Required", "set https_proxy to"},
		{"http", "http_proxy", http.StatusProxyAuthRequired, 1, "a proxy returned 407 Proxy Authentication Required", "set http_proxy to"},
		{"https", "HTTPS_PROXY", http.StatusForbidden, 1, "returned 403 Forbidden", "allow access to dl.example in the proxy of HTTPS_PROXY"},
		{"https", "HTTPS_PROXY", http.StatusBadGateway, 5, "returned 502 Bad Gateway", "in the proxy of HTTPS_PROXY"},
	} {
		asked := 0
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			w.WriteHeader(c.code)
		}))
		withoutProxies(t)
		at, err := url.Parse(proxy.URL)
		if err != nil {
			t.Fatal(err)
		}
		at.User = url.UserPassword("user", "secret")
		t.Setenv(c.name, at.String())
		trust, err := NewTrust(nil)
		if err != nil {
			t.Fatal(err)
		}
		mirrors, err := NewMirrors(trust.Transport(), nil)
		if err != nil {
			t.Fatal(err)
		}
		cl := newClient(t)
		cl = New(cl.Cache, mirrors)
		cl.RetryWait, cl.maxWait = time.Millisecond, 5*time.Millisecond
		_, _, err = cl.Text(t.Context(), c.scheme+"://dl.example/file")
		proxy.Close()
		if err == nil || asked != c.asked || !strings.Contains(err.Error(), c.want) || !strings.Contains(fault.Hint(err), c.hint) || strings.Contains(err.Error()+fault.Hint(err), "secret") {
			t.Errorf("%+v: asked %d times: %v\n%s", c, asked, err, fault.Hint(err))
		}
	}
	// Nobody answers at the proxy's address.
	withoutProxies(t)
	t.Setenv("HTTPS_PROXY", "http://user:secret@127.0.0.1:1")
	mirrors, err := NewMirrors(Transport(), nil)
	if err != nil {
		t.Fatal(err)
	}
	cl := newClient(t)
	cl = New(cl.Cache, mirrors)
	cl.RetryWait, cl.maxWait = time.Millisecond, 5*time.Millisecond
	if _, _, err = cl.Text(t.Context(), "https://dl.example/file"); err == nil || !strings.Contains(fault.Hint(err), "check the proxy in HTTPS_PROXY") || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v\n%s", err, fault.Hint(err))
	}
}

// A host that a redirect leads to is named, because it answered.
func TestHostThatAnswered(t *testing.T) {
	there := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	here := serve(t, func(_ int, w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, there.URL, http.StatusFound) })
	_, _, err := newClient(t).Text(t.Context(), here.URL)
	var status *StatusError
	if !errors.As(err, &status) || "http://"+status.Host != there.URL || !strings.Contains(err.Error(), "(from "+status.Host+")") {
		t.Errorf("%v", err)
	}
}
