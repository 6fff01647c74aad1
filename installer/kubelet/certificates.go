package kubelet

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	cliflag "k8s.io/component-base/cli/flag"

	"airlift/installer/config"
)

// read reads a file that a field names, and reports if that fails. A relative path in
// the configuration file is relative to that file's directory; one in a flag is
// relative to the kubelet's working directory, which is / under systemd. data is nil if
// the file cannot be checked: there is no root file system, or the file will be written
// later.
func (v value) read(option, fix string) []byte {
	v.option = option
	given, _ := v.value(option).(string)
	dir := config.KubeletDir
	if v.from[option] != "" || path.IsAbs(given) {
		dir = "/"
	}
	name := path.Join(dir, given)
	if v.Root == nil || slices.Contains(v.WillExist, name) {
		return nil
	}
	data, err := fs.ReadFile(v.Root, strings.TrimPrefix(name, "/"))
	if err == nil {
		return data
	}
	why := err.Error()
	var p *fs.PathError
	if errors.Is(err, fs.ErrNotExist) {
		why = "the file does not exist"
	} else if errors.As(err, &p) {
		why = p.Err.Error()
	}
	v.bad(fix, ": %s: %s", given, why)
	return nil
}

// beCertificates is for a file of CA certificates.
func beCertificates(v value) {
	fix := "put the certificate authority there, in PEM, or change " + v.option + " in " + v.where(v.option)
	name := v.config.Authentication.X509.ClientCAFile
	if name == "" {
		return
	}
	data := v.read(v.option, fix)
	if data == nil {
		return
	}
	count := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		count++
		_, err := x509.ParseCertificate(block.Bytes)
		v.badIf(err != nil, fix, ": %s: certificate %d cannot be read: %v", name, count, err)
	}
	v.badIf(count == 0, fix, ": %s contains no PEM certificate", name)
}

// fitKey is for the certificate of the kubelet's server.
func fitKey(v value) {
	const fix = "put the certificate and its key there, in PEM, or set neither: the kubelet then creates its own"
	cert, key := v.config.TLSCertFile, v.config.TLSPrivateKeyFile
	if cert == "" || key == "" {
		return
	}
	certPEM, keyPEM := v.read("tlsCertFile", fix), v.read("tlsPrivateKeyFile", fix)
	if certPEM == nil || keyPEM == nil {
		return
	}
	_, err := tls.X509KeyPair(certPEM, keyPEM)
	v.badIf(err != nil, fix, " %s and %s %s are not a pair: %v", cert, v.named("tlsPrivateKeyFile"), key, err)
}

// beSuites checks the names of the cipher suites, and that HTTP/2 works with them:
// otherwise Go's server does not start.
func beSuites(v value) {
	http2 := []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"} // RFC 7540, section 9.2.2
	suites, known := v.config.TLSCipherSuites, cliflag.TLSCipherPossibleValues()
	unknown := false
	for _, name := range suites {
		unknown = unknown || !slices.Contains(known, name)
		v.badIf(!slices.Contains(known, name), "use names of "+strings.Join(cliflag.PreferredTLSCipherNames(), ", "), ": %q is not a cipher suite", name)
		v.ignoredIf(slices.Contains(cliflag.InsecureTLSCipherNames(), name), "remove it", ": %s is insecure", name)
	}
	tls13 := v.config.TLSMinVersion == "VersionTLS13"
	v.ignoredIf(tls13 && len(suites) > 0, "remove tlsCipherSuites", " has no effect with %s VersionTLS13: the suites of TLS 1.3 cannot be chosen", v.named("tlsMinVersion"))
	v.badIf(!tls13 && !unknown && len(suites) > 0 && !slices.ContainsFunc(suites, func(name string) bool { return slices.Contains(http2, name) }),
		"add "+strings.Join(http2, " or ")+", or set tlsMinVersion: VersionTLS13 without tlsCipherSuites", " has none of the suites that HTTP/2 needs, and the kubelet's server will not start")
}
