package fetch

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"airlift/internal/documents/pemfile"
	"airlift/internal/fault"
)

// Trust has the CAs to trust, next to the system's, and the client certificates to present.
type Trust struct {
	all      [][]byte            // PEM, for all hosts
	of       map[string][][]byte // PEM, by host
	hostDirs []string            // directories with one directory for each host
}

const caHint = "use --registry-ca FILE, --registry-ca HOST=FILE for one host, or --registry-ca DIR with files DIR/HOST/ca.crt, as in docker's certs.d"

// NewTrust reads the values of --registry-ca: FILE, HOST=FILE, or a directory in the form
// of docker's certs.d. The directories of docker and podman count too. It also checks the variables with
// proxies, which the transport uses.
func NewTrust(values []string) (*Trust, error) {
	if err := checkProxies(); err != nil {
		return nil, err
	}
	t := &Trust{of: map[string][][]byte{}, hostDirs: []string{"/etc/docker/certs.d", "/etc/containers/certs.d"}}
	if dir, err := os.UserConfigDir(); err == nil {
		t.hostDirs = append(t.hostDirs, filepath.Join(dir, "containers", "certs.d"))
	}
	for _, value := range values {
		host, file := "", value
		// The name of a host contains no slash. The path of a file may contain =.
		if before, after, ok := strings.Cut(value, "="); ok && !strings.Contains(before, "/") {
			if host, file = strings.ToLower(before), after; host == "" {
				return nil, fault.New(fault.Usage, "--registry-ca %q: the host is empty", value).Hint(caHint)
			}
		}
		if i, err := os.Stat(file); err == nil && i.IsDir() && host == "" {
			t.hostDirs = append(t.hostDirs, file)
			continue
		}
		certificates, err := readCA(file)
		if err != nil {
			return nil, fault.Wrap(fmt.Errorf("--registry-ca: %w", err), fault.Usage, pemfile.HintOf(err, file, caHint))
		}
		if host == "" {
			t.all = append(t.all, certificates)
		} else {
			t.of[host] = append(t.of[host], certificates)
		}
	}
	return t, nil
}

func readCA(file string) ([]byte, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := pemfile.Check(b, pemfile.Certificate); err != nil {
		return nil, fmt.Errorf("%q: %w", file, err)
	}
	return b, nil
}

func readPair(certificate, key string) (tls.Certificate, error) {
	for _, f := range []struct {
		name string
		kind pemfile.Kind
	}{{certificate, pemfile.Certificate}, {key, pemfile.PrivateKey}} {
		content, err := os.ReadFile(f.name)
		if err == nil {
			err = pemfile.Check(content, f.kind)
		}
		if err != nil {
			return tls.Certificate{}, fault.Wrap(fmt.Errorf("reading %s: %w", f.name, err), fault.Failure, pemfile.HintOf(err, f.name, ""))
		}
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return pair, fmt.Errorf("reading %s and its key: %w", certificate, err)
	}
	return pair, nil
}

// config returns the TLS configuration for a host, with its port if it has one. It is nil
// if the host does not need its own.
func (t *Trust) config(host string) (*tls.Config, error) {
	pems := append([][]byte{}, t.all...)
	pems = append(pems, t.of[host]...)
	var own []tls.Certificate
	for _, dir := range t.hostDirs {
		more, pairs, err := readHostDir(filepath.Join(dir, host))
		if err != nil {
			return nil, fault.Wrap(err, fault.Failure, cmp.Or(fault.Hint(err), "each certificate NAME.cert needs its key NAME.key; CA certificates are in files NAME.crt"))
		}
		pems, own = append(pems, more...), append(own, pairs...)
	}
	if len(pems) == 0 && len(own) == 0 {
		return nil, nil
	}
	c := &tls.Config{Certificates: own}
	if len(pems) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		for _, b := range pems {
			pool.AppendCertsFromPEM(b)
		}
		c.RootCAs = pool
	}
	return c, nil
}

// readHostDir reads a directory as docker does: CA certificates in *.crt, certificates of
// clients in *.cert and their keys in *.key.
func readHostDir(dir string) (cas [][]byte, own []tls.Certificate, err error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		switch filepath.Ext(path) {
		case ".crt":
			ca, err := readCA(path)
			if err != nil {
				return nil, nil, fault.Wrap(err, fault.Failure, pemfile.HintOf(err, path, ""))
			}
			cas = append(cas, ca)
		case ".cert":
			pair, err := readPair(path, strings.TrimSuffix(path, ".cert")+".key")
			if err != nil {
				return nil, nil, err
			}
			own = append(own, pair)
		}
	}
	return cas, own, nil
}

// Transport returns a transport that uses t.
func (t *Trust) Transport() http.RoundTripper {
	return &trusting{trust: t, usual: Transport(), hosts: map[string]http.RoundTripper{}}
}

// A trusting transport has a transport for each host with its own certificates, because a
// transport has one TLS configuration.
type trusting struct {
	trust *Trust
	usual *http.Transport

	mu    sync.Mutex
	hosts map[string]http.RoundTripper
}

func (t *trusting) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" {
		return t.usual.RoundTrip(req)
	}
	host, err := t.host(strings.ToLower(req.URL.Host))
	if err != nil {
		return nil, Final(err)
	}
	return host.RoundTrip(req)
}

func (t *trusting) host(host string) (http.RoundTripper, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rt, ok := t.hosts[host]; ok {
		return rt, nil
	}
	config, err := t.trust.config(host)
	if err != nil {
		return nil, err
	}
	var rt http.RoundTripper = t.usual
	if config != nil {
		own := Transport()
		own.TLSClientConfig = config
		rt = own
	}
	t.hosts[host] = rt
	return rt, nil
}
