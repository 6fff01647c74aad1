package kubelet

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"airlift/installer/config"
)

// read reads a file that a field names. A relative path in the configuration file
// is relative to that file's directory; one in a flag is relative to the kubelet's
// working directory, which is / under systemd. known is false if the file cannot
// be checked: there is no root file system, or the file will be written later.
func (c *check) read(field, name string) (data []byte, known bool, err error) {
	if !path.IsAbs(name) {
		dir := config.KubeletDir
		if c.from[field] != "" {
			dir = "/"
		}
		name = path.Join(dir, name)
	}
	name = path.Clean(name)
	if c.Root == nil || slices.Contains(c.WillExist, name) {
		return nil, false, nil
	}
	data, err = fs.ReadFile(c.Root, strings.TrimPrefix(name, "/"))
	return data, true, err
}

// reason returns why a file cannot be read.
func reason(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "the file does not exist"
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// clientCA checks the CA certificates for clients of the kubelet.
func (c *check) clientCA() {
	const field = "authentication.x509.clientCAFile"
	name := c.config.Authentication.X509.ClientCAFile
	if name == "" {
		return
	}
	data, known, err := c.read(field, name)
	if !known {
		return
	}
	fix := fmt.Sprintf("put the certificate authority there, in PEM, or change %s in %s", field, c.where(field))
	if err != nil {
		c.fail(ClientCA, fix, "%s: %s: %s", c.named(field), name, reason(err))
		return
	}
	count := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		count++
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			c.fail(ClientCA, fix, "%s: %s: certificate %d cannot be read: %v", c.named(field), name, count, err)
		}
	}
	if count == 0 {
		c.fail(ClientCA, fix, "%s: %s contains no PEM certificate", c.named(field), name)
	}
}

// tlsVersions are the values of tlsMinVersion.
var tlsVersions = []string{"VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"}

// suiteAliases are Kubernetes' additional names for cipher suites of Go
// (component-base/cli/flag, ciphersuites_flag.go).
var suiteAliases = map[string]string{
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
	"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305":   "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
}

// tls checks the kubelet's server.
func (c *check) tls() {
	k := &c.config
	minVersion := k.TLSMinVersion
	if minVersion != "" && !slices.Contains(tlsVersions, minVersion) {
		c.fail(TLS, fmt.Sprintf("use one of %s", strings.Join(tlsVersions, ", ")), "%s: %q is not a TLS version", c.named("tlsMinVersion"), minVersion)
	}
	c.suites()
	cert, key := k.TLSCertFile, k.TLSPrivateKeyFile
	switch {
	case cert == "" && key == "":
		return
	case key == "":
		c.fail(TLS, "set tlsPrivateKeyFile too, or neither: the kubelet then creates its own", "%s is set without tlsPrivateKeyFile", c.named("tlsCertFile"))
		return
	case cert == "":
		c.fail(TLS, "set tlsCertFile too, or neither: the kubelet then creates its own", "%s is set without tlsCertFile", c.named("tlsPrivateKeyFile"))
		return
	}
	certPEM, certKnown, certErr := c.read("tlsCertFile", cert)
	keyPEM, keyKnown, keyErr := c.read("tlsPrivateKeyFile", key)
	const fix = "put the certificate and its key there, in PEM, or set neither: the kubelet then creates its own"
	if certErr != nil {
		c.fail(TLS, fix, "%s: %s: %s", c.named("tlsCertFile"), cert, reason(certErr))
	}
	if keyErr != nil {
		c.fail(TLS, fix, "%s: %s: %s", c.named("tlsPrivateKeyFile"), key, reason(keyErr))
	}
	if certErr == nil && keyErr == nil && certKnown && keyKnown {
		if _, err := tls.X509KeyPair(certPEM, keyPEM); err != nil {
			c.fail(TLS, fix, "%s %s and %s %s are not a pair: %s", c.named("tlsCertFile"), cert, c.named("tlsPrivateKeyFile"), key, strings.TrimPrefix(err.Error(), "tls: "))
		}
	}
}

// suites checks the names of the cipher suites, and that HTTP/2 works with them:
// otherwise Go's server does not start.
func (c *check) suites() {
	names := c.config.TLSCipherSuites
	if len(names) == 0 {
		return
	}
	at := c.named("tlsCipherSuites")
	secure, insecure := make(map[string]uint16), make(map[string]uint16)
	for _, s := range tls.CipherSuites() {
		secure[s.Name] = s.ID
	}
	for _, s := range tls.InsecureCipherSuites() {
		insecure[s.Name] = s.ID
	}
	var ids []uint16
	unknown := false
	for _, name := range names {
		known := name
		if alias := suiteAliases[name]; alias != "" {
			known = alias
		}
		if id, ok := secure[known]; ok {
			ids = append(ids, id)
		} else if id, ok := insecure[known]; ok {
			ids = append(ids, id)
			c.warn(TLS, "remove it", "%s: %s is insecure", at, name)
		} else {
			unknown = true
			c.fail(TLS, fmt.Sprintf("use names of %s", strings.Join(sortedKeys(secure), ", ")), "%s: %q is not a cipher suite", at, name)
		}
	}
	if c.config.TLSMinVersion == "VersionTLS13" {
		c.warn(TLS, "remove tlsCipherSuites", "%s has no effect with %s VersionTLS13: the suites of TLS 1.3 cannot be chosen", at, c.named("tlsMinVersion"))
		return
	}
	// RFC 7540, section 9.2.2; net/http refuses to serve without one.
	if !unknown && !slices.Contains(ids, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) && !slices.Contains(ids, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256) {
		c.fail(TLS, "add TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, or set tlsMinVersion: VersionTLS13 without tlsCipherSuites", "%s has none of the suites that HTTP/2 needs, and the kubelet's server will not start", at)
	}
}
