package render_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	hostsconfig "github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// basicAuth is the header of reader:password.
const basicAuth = "Basic cmVhZGVyOnBhc3N3b3Jk"

// A siteRegistry is a registry with TLS and a password, on loopback.
type siteRegistry struct {
	url    string // of TLS
	ca     []byte
	digest map[string]string // by repository
}

func newSiteRegistry(t *testing.T, repositories ...string) *siteRegistry {
	t.Helper()
	reg := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	push := httptest.NewServer(reg)
	t.Cleanup(push.Close)
	r := &siteRegistry{digest: map[string]string{}}
	for _, repository := range repositories {
		img, err := random.Image(64, 1)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(push.Listener.Addr().String()+"/"+repository+":1", name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, img); err != nil {
			t.Fatal(err)
		}
		digest, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		r.digest[repository] = digest.String()
	}
	pull := http.NewServeMux()
	guarded := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Authorization") != basicAuth {
			w.Header().Set("WWW-Authenticate", `Basic realm="site"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		reg.ServeHTTP(w, q)
	})
	pull.Handle("/v2/", guarded)
	pull.Handle("/below/", http.StripPrefix("/below", guarded))
	tls := httptest.NewUnstartedServer(pull)
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	t.Cleanup(tls.Close)
	r.url, r.ca = tls.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: tls.Certificate().Raw})
	return r
}

// writeRegistry writes the files of a registry below a directory like certs.d.
func writeRegistry(t *testing.T, certs string, r config.Registry) (modes map[string]os.FileMode) {
	t.Helper()
	modes = map[string]os.FileMode{}
	for _, f := range render.RegistryFiles(r, filepath.Join(certs, r.Host)) {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.Path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
		modes[filepath.Base(f.Path)] = f.Mode
	}
	return modes
}

func parse(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// hostsFrom reads the files with containerd's own code.
func hostsFrom(certs string) docker.RegistryHosts {
	return hostsconfig.ConfigureHosts(context.Background(), hostsconfig.HostOptions{HostDir: hostsconfig.HostDirFromRoot(certs)})
}

// TestContainerdPullsThroughAMirror pulls with containerd's code from a registry that
// wants TLS with the site's CA and a password.
func TestContainerdPullsThroughAMirror(t *testing.T) {
	site := newSiteRegistry(t, "team/tiny", "proxy/team/tiny")
	all := config.RegistryAccess{CA: site.ca, Authorization: basicAuth}
	const host = "127.0.0.1:1" // nothing listens there
	for name, c := range map[string]struct {
		mirror     string
		access     config.RegistryAccess
		repository string // "" if the pull fails
	}{
		"a mirror":                    {site.url, all, "team/tiny"},
		"a path before /v2":           {site.url + "/below", all, "team/tiny"},
		"a path that replaces /v2":    {site.url + "/v2/proxy", all, "proxy/team/tiny"},
		"the path /v2":                {site.url + "/v2", all, "team/tiny"},
		"a mirror without its CA":     {site.url, config.RegistryAccess{Authorization: basicAuth}, ""},
		"a mirror without a password": {site.url, config.RegistryAccess{CA: site.ca}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			certs := t.TempDir()
			modes := writeRegistry(t, certs, config.Registry{Host: host, Mirrors: []config.RegistryMirror{{URL: parse(t, c.mirror), RegistryAccess: c.access}}})
			if secret := c.access.Authorization != ""; secret != (modes["hosts.toml"] == 0o600) {
				t.Errorf("modes %v", modes)
			}
			resolver := docker.NewResolver(docker.ResolverOptions{Hosts: hostsFrom(certs)})
			image, desc, err := resolver.Resolve(t.Context(), host+"/team/tiny:1")
			if c.repository == "" {
				if err == nil {
					t.Error("pulled")
				}
				return
			}
			if err != nil || desc.Digest.String() != site.digest[c.repository] {
				t.Fatalf("%v, %v", desc.Digest, err)
			}
			fetcher, err := resolver.Fetcher(t.Context(), image)
			if err != nil {
				t.Fatal(err)
			}
			manifest, err := fetcher.Fetch(t.Context(), desc)
			if err != nil {
				t.Fatal(err)
			}
			defer manifest.Close()
			if data, err := io.ReadAll(manifest); err != nil || int64(len(data)) != desc.Size {
				t.Errorf("%d bytes, %v", len(data), err)
			}
		})
	}
}

// TestContainerdReadsRegistries compares what containerd reads with what was written,
// for a registry and its mirrors, each with an access of its own.
func TestContainerdReadsRegistries(t *testing.T) {
	site := newSiteRegistry(t)
	certs := t.TempDir()
	writeRegistry(t, certs, config.Registry{
		Host: "registry.example:5000", RegistryAccess: config.RegistryAccess{CA: site.ca, Authorization: "Basic own"},
		Mirrors: []config.RegistryMirror{
			{URL: parse(t, "https://z.example/v2/x"), RegistryAccess: config.RegistryAccess{CA: site.ca, Authorization: "Basic z"}},
			{URL: parse(t, "https://[fd00::1]:5000"), RegistryAccess: config.RegistryAccess{CA: site.ca}},
			{URL: parse(t, "http://a.example"), RegistryAccess: config.RegistryAccess{Authorization: "Basic a"}},
		},
	})
	writeRegistry(t, certs, config.Registry{Host: config.DefaultRegistry, RegistryAccess: config.RegistryAccess{CA: site.ca}})
	writeRegistry(t, certs, config.Registry{Host: "docker.io", Mirrors: []config.RegistryMirror{{URL: parse(t, "https://m.example")}}})

	const pull = docker.HostCapabilityPull | docker.HostCapabilityResolve
	type access struct {
		url, authorization string
		ca                 bool
		pullOnly           bool
	}
	for host, want := range map[string][]access{
		"registry.example:5000": {{"https://z.example/v2/x", "Basic z", true, true}, {"https://[fd00::1]:5000/v2", "", true, true},
			{"http://a.example/v2", "Basic a", false, true}, {"https://registry.example:5000/v2", "Basic own", true, false}},
		"docker.io":     {{"https://m.example/v2", "", false, true}, {"https://registry-1.docker.io/v2", "", false, false}},
		"other.example": {{"https://other.example/v2", "", true, false}},
	} {
		hosts, err := hostsFrom(certs)(host)
		if err != nil {
			t.Fatal(err)
		}
		if len(hosts) != len(want) {
			t.Fatalf("%s: %v", host, hosts)
		}
		for i, h := range hosts {
			got := access{h.Scheme + "://" + h.Host + h.Path, h.Header.Get("Authorization"), h.Client.Transport.(*http.Transport).TLSClientConfig.RootCAs != nil, h.Capabilities == pull}
			if got != want[i] {
				t.Errorf("%s: %+v, want %+v", host, got, want[i])
			}
		}
	}
}

// containerd uses the first directory of RegistryDirs that exists.
func TestRegistryDirs(t *testing.T) {
	for _, host := range []string{"docker.io", "registry.example:5000", "[fd00::1]:5000", config.DefaultRegistry} {
		certs := t.TempDir()
		dirs := render.RegistryDirs(host)
		for i := len(dirs) - 1; i >= 0; i-- { // the last first
			dir := filepath.Join(certs, filepath.Base(dirs[i]))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if got, err := hostsconfig.HostDirFromRoot(certs)(host); err != nil || got != dir {
				t.Errorf("%s: %s, %v; want %s", host, got, err, dir)
			}
		}
	}
}

// Only hosts.toml has credentials.
func TestCredentialsAreOnlyInHosts(t *testing.T) {
	files := render.RegistryFiles(config.Registry{Host: "quay.io", RegistryAccess: config.RegistryAccess{CA: []byte("ca"), Authorization: basicAuth}}, "/d")
	if len(files) != 2 || !bytes.Equal(files[0].Data, []byte("ca")) || files[0].Mode != 0o644 {
		t.Errorf("%v", files)
	}
	if hosts := files[1]; hosts.Path != "/d/hosts.toml" || hosts.Mode != 0o600 || !bytes.Contains(hosts.Data, []byte(basicAuth)) {
		t.Errorf("%v", []pki.File{hosts})
	}
}
