package kubeletcheck

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	certutil "k8s.io/client-go/util/cert"
	cliflag "k8s.io/component-base/cli/flag"

	"airlift/installer/config"
	"airlift/internal/documents/pemfile"
)

// read reads a file that an option names, and reports if that fails. A relative path in
// the configuration file is relative to that file's directory; one in a flag is
// relative to the kubelet's working directory, which is / under systemd. The result is
// nil if the file cannot be checked: there is no root file system, or the file will be
// written later.
func (v value) read(option, fix string) []byte {
	v.option = option
	given, _ := v.check.value(option).(string)
	dir := config.KubeletDir
	if v.check.from[option] != "" || path.IsAbs(given) {
		dir = "/"
	}
	name := path.Join(dir, given)
	if given == "" || v.check.Root == nil || slices.Contains(v.check.WillExist, name) {
		return nil
	}
	data, err := fs.ReadFile(v.check.Root, name[1:])
	v.badIf(err != nil, fix, ": %s: %v", given, errors.Unwrap(err)) // without fs.PathError's path
	return data
}

func isTLSVersion(s string) bool {
	_, err := cliflag.TLSVersion(s)
	return err == nil
}

// beCertificates is for a file of CA certificates.
func beCertificates(v value) {
	fix := "put the certificate authority there, in PEM, or change " + v.option + " in " + v.check.where(v.option)
	if data := v.read(v.option, fix); data != nil {
		_, err := certutil.ParseCertsPEM(data)
		if why := pemfile.Check(data, pemfile.Certificate); err != nil && why != nil {
			err = why
		}
		v.badIf(err != nil, pemfile.HintOf(err, fmt.Sprint(v.is), fix), ": %s: %v", v.is, err)
	}
}

// fitKey is for the certificate of the kubelet's server.
func fitKey(v value) {
	const fix = "put the certificate and its key there, in PEM, or set neither: the kubelet then creates its own"
	cert, key := v.read("tlsCertFile", fix), v.read("tlsPrivateKeyFile", fix)
	if cert != nil && key != nil {
		for _, f := range []struct {
			name    string
			content []byte
			kind    pemfile.Kind
		}{{v.check.config.TLSCertFile, cert, pemfile.Certificate}, {v.check.config.TLSPrivateKeyFile, key, pemfile.PrivateKey}} {
			if err := pemfile.Check(f.content, f.kind); err != nil {
				v.badIf(true, pemfile.HintOf(err, f.name, fix), ": %s: %v", f.name, err)
				return
			}
		}
		_, err := tls.X509KeyPair(cert, key)
		v.badIf(err != nil, fix, " %s and %s %s are not a pair: %v",
			v.check.config.TLSCertFile, v.check.named("tlsPrivateKeyFile"), v.check.config.TLSPrivateKeyFile, err)
	}
}

// beSuites checks the names of the cipher suites, and that HTTP/2 works with them:
// otherwise Go's server does not start.
func beSuites(v value) {
	http2 := []string{ // RFC 7540, section 9.2.2
		"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
	}
	suites := v.check.config.TLSCipherSuites
	_, err := cliflag.TLSCipherSuites(suites)
	for _, name := range suites {
		v.badIf(!slices.Contains(cliflag.TLSCipherPossibleValues(), name),
			"use names of "+strings.Join(cliflag.PreferredTLSCipherNames(), ", "), ": %q is not a cipher suite", name)
		v.ignoredIf(slices.Contains(cliflag.InsecureTLSCipherNames(), name), "remove it", ": %s is insecure", name)
	}
	tls13 := v.check.config.TLSMinVersion == "VersionTLS13"
	v.ignoredIf(tls13 && len(suites) > 0, "remove tlsCipherSuites",
		" has no effect with %s VersionTLS13: the suites of TLS 1.3 cannot be chosen", v.check.named("tlsMinVersion"))
	inHTTP2 := func(name string) bool { return slices.Contains(http2, name) }
	v.badIf(!tls13 && err == nil && len(suites) > 0 && !slices.ContainsFunc(suites, inHTTP2),
		"add "+strings.Join(http2, " or ")+", or set tlsMinVersion: VersionTLS13 without tlsCipherSuites",
		" has none of the suites that HTTP/2 needs, and the kubelet's server will not start")
}
