package fetch

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"airlift/internal/fault"
)

func TestParseMirror(t *testing.T) {
	for in, want := range map[string]string{
		"dl.k8s.io=http://10.0.0.5:8080/k8s/": "dl.k8s.io -> http://10.0.0.5:8080/k8s",
		"Registry.k8s.io=https://m.example":   "registry.k8s.io -> https://m.example",
		"r:5000=http://r:5000":                "r:5000 -> http://r:5000",
	} {
		m, err := ParseMirror(in)
		if got := m.Host + " -> " + urlString(m.URL); err != nil || got != want {
			t.Errorf("ParseMirror(%q) = %s, %v", in, got, err)
		}
	}
	for _, in := range []string{
		"", "dl.k8s.io", "=http://x", "dl.k8s.io=", "dl.k8s.io=x.example", "dl.k8s.io=ftp://x",
		"https://dl.k8s.io=https://x", "dl.k8s.io/release=https://x", "dl.k8s.io=https://", "dl.k8s.io=http://u:p@x", "dl.k8s.io=http://x?y=z",
	} {
		_, err := ParseMirror(in)
		if fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), "HOST=URL") {
			t.Errorf("ParseMirror(%q): err = %v", in, err)
		}
	}
}

func urlString(u *url.URL) string {
	if u == nil {
		return ""
	}
	return u.String()
}

func mirrorsOf(t *testing.T, list ...string) *Mirrors {
	t.Helper()
	var mirrors []Mirror
	for _, s := range list {
		m, err := ParseMirror(s)
		if err != nil {
			t.Fatal(err)
		}
		mirrors = append(mirrors, m)
	}
	tr, err := NewMirrors(http.DefaultTransport, mirrors)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// Each request must arrive at the mirror with the mirror's path, and redirects, absolute or
// relative, into the mirror or out of it, must end at their target.
func TestMirrorsRewriteRequestsAndRedirects(t *testing.T) {
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.URL.EscapedPath()+" auth="+r.Header.Get("Authorization"))
		switch r.URL.Path {
		case "/dl/absolute":
			http.Redirect(w, r, "https://cdn.example/file?x=y", http.StatusFound)
		case "/dl/relative":
			w.Header().Set("Location", "/dl/moved")
			w.WriteHeader(http.StatusFound)
		case "/dl/outside":
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusFound)
		default:
			io.WriteString(w, "content")
		}
	}))
	defer server.Close()
	c := &http.Client{Transport: mirrorsOf(t,
		"dl.example="+server.URL+"/dl", "cdn.example="+server.URL+"/cdn",
		"reg.example="+server.URL+"/v2/proxy", "docker.io="+server.URL+"/hub")}

	for _, k := range []struct {
		url  string
		want []string
	}{
		{"https://dl.example/a/b%2Fc", []string{"/dl/a/b%2Fc auth=secret"}},
		{"https://dl.example/absolute", []string{"/dl/absolute auth=secret", "/cdn/file auth="}},
		{"https://dl.example/relative", []string{"/dl/relative auth=secret", "/dl/moved auth=secret"}},
		{"https://dl.example/outside", []string{"/dl/outside auth=secret", "/elsewhere auth="}},
		{"https://reg.example/v2/", []string{"/v2/ auth=secret"}},
		{"https://reg.example/v2/pause/manifests/3.9", []string{"/v2/proxy/pause/manifests/3.9 auth=secret"}},
		{"https://index.docker.io/v2/x", []string{"/hub/v2/x auth=secret"}},
	} {
		seen = nil
		req, err := http.NewRequest(http.MethodGet, k.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "secret")
		resp, err := c.Do(req)
		if err != nil {
			t.Errorf("%s: %v", k.url, err)
			continue
		}
		resp.Body.Close()
		if !slices.Equal(seen, k.want) {
			t.Errorf("%s: the mirror saw %v, want %v", k.url, seen, k.want)
		}
	}
}

func TestMirrorsUnusedAndTwice(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	tr := mirrorsOf(t, "used.example="+server.URL, "unused.example="+server.URL)
	resp, err := (&http.Client{Transport: tr}).Get("https://used.example/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := tr.Unused(); !slices.Equal(got, []string{"unused.example"}) {
		t.Errorf("unused = %v", got)
	}
	m := Mirror{Host: "x", URL: &url.URL{Scheme: "http", Host: "y"}}
	if _, err := NewMirrors(nil, []Mirror{m, m}); fault.ExitCode(err) != fault.Usage {
		t.Errorf("two mirrors for one host: err = %v", err)
	}
}
