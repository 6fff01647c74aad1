// Package siteregistry runs the registry of a site for tests: the reference implementation,
// github.com/distribution/distribution, with TLS by a private CA and, if wanted, a token
// service as ghcr.io and Docker Hub have it.
package siteregistry

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"airlift/scripts/rig"
)

// Accounts of the registry. Everybody may pull from public/….
const (
	User     = "me"
	Password = "pass word:1"
)

// Options choose what the registry does.
type Options struct {
	// Auth is "", "basic" or "token".
	Auth string
	// Plain is without TLS.
	Plain bool
}

// A Registry is a running registry.
type Registry struct {
	// Host is its name with the port: "localhost:41234".
	Host string
	// CA is the path of the CA's certificate.
	CA string
	// Tokens is the token service, for Options.Auth "token".
	Tokens *Tokens

	t    testing.TB
	ca   *authority
	log  *log
	root string
}

// A log is the output of the registry, with a line for each request.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Log returns the output of the registry.
func (r *Registry) Log() string { return r.log.String() }

// Start starts a registry, which is stopped at the end of the test.
func Start(t testing.TB, o Options) *Registry {
	t.Helper()
	binary := rig.Component(t, "v1.37.1", "registry")
	dir := t.TempDir()
	r := &Registry{t: t, ca: newAuthority(t), log: &log{}, root: filepath.Join(dir, "storage"), CA: filepath.Join(dir, "ca.pem")}
	write(t, r.CA, r.ca.pem())
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	r.ca.issue(t, cert, key)
	port := freePort(t)
	r.Host = fmt.Sprintf("localhost:%d", port)

	config := fmt.Sprintf("version: 0.1\nlog:\n  accesslog:\n    disabled: false\nstorage:\n  filesystem:\n    rootdirectory: %s\nhttp:\n  addr: 127.0.0.1:%d\n  secret: x\n", r.root, port)
	if !o.Plain {
		config += fmt.Sprintf("  tls:\n    certificate: %s\n    key: %s\n", cert, key)
	}
	switch o.Auth {
	case "basic":
		passwords := filepath.Join(dir, "htpasswd")
		write(t, passwords, []byte(User+":"+hash(t)+"\n"))
		config += fmt.Sprintf("auth:\n  htpasswd:\n    realm: site\n    path: %s\n", passwords)
	case "token":
		r.Tokens = startTokens(t, r.ca, r.Host)
		config += fmt.Sprintf("auth:\n  token:\n    realm: %s\n    service: %s\n    issuer: %s\n    rootcertbundle: %s\n", r.Tokens.Realm, r.Host, issuer, r.CA)
	}
	write(t, filepath.Join(dir, "config.yml"), []byte(config))
	c := exec.Command(binary, "serve", filepath.Join(dir, "config.yml"))
	c.Stdout, c.Stderr = r.log, r.log
	c.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	for range 600 {
		if conn, err := net.Dial("tcp", r.Host); err == nil {
			conn.Close()
			return r
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("the registry does not listen:\n%s", r.Log())
	return nil
}

func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Push stores an image or an index in a repository: "public/app:1".
func (r *Registry) Push(repository string, what any) {
	r.t.Helper()
	ref, err := name.ParseReference(r.Host + "/" + repository)
	if err != nil {
		r.t.Fatal(err)
	}
	o := []remote.Option{remote.WithAuth(&authn.Basic{Username: User, Password: Password}),
		remote.WithTransport(&http.Transport{TLSClientConfig: &tls.Config{RootCAs: r.ca.pool()}})}
	switch w := what.(type) {
	case v1.Image:
		err = remote.Write(ref, w, o...)
	case v1.ImageIndex:
		err = remote.WriteIndex(ref, w, o...)
	}
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.Log())
	}
	if r.Tokens != nil {
		r.Tokens.Forget()
	}
}
