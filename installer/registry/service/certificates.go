package service

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"sync"
	"time"
)

// A certificates returns the TLS configuration of the server: the certificate of the API server, and the cluster's CA. It
// reads the files again when they changed, so that a renewal or a rotation needs no restart.
type certificates struct {
	dir string
	log *slog.Logger

	mu     sync.Mutex
	read   []version // of the files that config has
	config *tls.Config
}

// A version of a file. A file that is replaced gets another one.
type version struct {
	modified time.Time
	info     fs.FileInfo
}

func (v version) same(o version) bool {
	return v.modified.Equal(o.modified) && os.SameFile(v.info, o.info)
}

func (c *certificates) path(name string) string { return path.Join(c.dir, name) }

func (c *certificates) versions() (list []version, err error) {
	for _, name := range []string{"apiserver.crt", "apiserver.key", "ca.crt"} {
		info, err := os.Stat(c.path(name))
		if err != nil {
			return nil, err
		}
		list = append(list, version{info.ModTime(), info})
	}
	return list, nil
}

// get returns the configuration for a new connection. While files cannot be used, as between the two of a new pair, it
// returns the last one that could.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := c.versions()
	if err == nil && slices.EqualFunc(now, c.read, version.same) {
		return c.config, nil
	}
	var config *tls.Config
	if err == nil {
		config, err = c.load()
	}
	switch {
	case err == nil:
		c.config, c.read = config, now
	case c.config == nil:
		return nil, err
	default:
		c.log.Warn("the certificate of the API server cannot be read, the former one is used", "error", err)
	}
	return c.config, nil
}

// load reads the files. A joining host has only the hash of the CA's key, so the CA follows the certificate in the chain.
func (c *certificates) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.path("apiserver.crt"), c.path("apiserver.key"))
	if err != nil {
		return nil, err
	}
	authorities, err := os.ReadFile(c.path("ca.crt"))
	if err != nil {
		return nil, err
	}
	pool, err := appendAuthorities(&pair, authorities)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", c.path("ca.crt"), err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientCAs:    pool,
		ClientAuth:   tls.VerifyClientCertIfGiven,
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"http/1.1"},
		// A resumed session would have been verified with the CAs of its first connection.
		SessionTicketsDisabled: true,
	}, nil
}

// appendAuthorities adds the certificates of a PEM file to a chain, except for certificates that it has, and returns a pool of
// them.
func appendAuthorities(pair *tls.Certificate, file []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	found := false
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		found = true
		pool.AddCert(cert)
		if !slices.ContainsFunc(pair.Certificate, func(der []byte) bool { return slices.Equal(der, cert.Raw) }) {
			pair.Certificate = append(pair.Certificate, cert.Raw)
		}
	}
	if !found {
		return nil, errors.New("it has no certificate")
	}
	return pool, nil
}
