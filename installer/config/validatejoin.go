package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
)

func (v *validator) discovery(d *Discovery) {
	const path = "JoinConfiguration.discovery"
	if d.File != "" {
		v.discoveryFile(v.at(path+".file.kubeConfigPath", "--discovery-file"), d.File)
	} else {
		v.discoveryToken(path+".bootstrapToken", d)
	}
	if d.TLSBootstrapToken != d.Token {
		v.token(v.at(path+".tlsBootstrapToken", "--tls-bootstrap-token"), d.TLSBootstrapToken)
	}
}

func (v *validator) discoveryFile(at place, file string) {
	u, err := url.Parse(file)
	switch {
	case err != nil:
		v.addf("%s %q is neither a path nor an https:// URL", at, file)
	case u.Scheme == "":
		// Without a config file the path may be one that Airlift chose.
		if _, err := os.Stat(file); v.origin != nil && errors.Is(err, fs.ErrNotExist) {
			v.addf("%s: the file %q does not exist", at, file)
		}
	case u.Scheme != "https":
		v.addf("%s %q must be a path or begin with https://", at, file)
	}
}

func (v *validator) discoveryToken(path string, d *Discovery) {
	at := v.at(path+".apiServerEndpoint", "the API server's address")
	if d.APIServerEndpoint == "" {
		if v.origin != nil {
			v.addf("%s: %s.apiServerEndpoint is missing: write HOST:6443", v.file, path)
		} else {
			v.addf("the API server's address is missing: ./install join HOST:6443 --token …")
		}
	} else if _, port, err := SplitEndpoint(d.APIServerEndpoint, 0); err != nil {
		v.addf("%s %s", at, err)
	} else if port == 0 {
		v.addf("%s %q has no port: write %s", at, d.APIServerEndpoint, net.JoinHostPort(strings.Trim(d.APIServerEndpoint, "[]"), strconv.Itoa(DefaultBindPort)))
	}
	v.token(v.at(path+".token", "--token"), d.Token)
	if len(d.CACertHashes) == 0 && !d.UnsafeSkipCAVerification {
		v.addf("%s is missing; without it, join cannot verify the cluster's CA (%s skips this check)",
			v.at(path+".caCertHashes", "--discovery-token-ca-cert-hash"),
			v.at(path+".unsafeSkipCAVerification", "--discovery-token-unsafe-skip-ca-verification"))
	}
	for i, h := range d.CACertHashes {
		if !caCertHash.MatchString(h) {
			v.addf("%s %q is not sha256: and 64 hexadecimal digits", v.at(fmt.Sprintf("%s.caCertHashes[%d]", path, i), "--discovery-token-ca-cert-hash"), h)
		}
	}
}

var caCertHash = regexp.MustCompile(`^sha256:[0-9a-fA-F]{64}$`)
