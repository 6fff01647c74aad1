package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// caFile writes a new CA certificate to a file, with a private key that must not be
// copied, and returns the path and the certificate.
func caFile(t *testing.T, name string) (path, certificate string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	path = filepath.Join(t.TempDir(), name)
	text := "the site's CA\n" + certificate + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret")}))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, certificate
}

func authFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// describe is a registry in one line. A CA is shown as its name in cas.
func describe(list []config.Registry, cas map[string]string) string {
	access := func(a config.RegistryAccess) string {
		text := ""
		if a.CA != nil {
			names := string(a.CA)
			for name, certificate := range cas {
				names = strings.ReplaceAll(names, certificate, " "+name)
			}
			text += " ca" + names
		}
		if a.Authorization != "" {
			secret, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(a.Authorization, "Basic "))
			text += " auth " + string(secret)
		}
		return text
	}
	var b strings.Builder
	for _, r := range list {
		fmt.Fprintf(&b, "%s%s\n", r.Host, access(r.RegistryAccess))
		for _, m := range r.Mirrors {
			fmt.Fprintf(&b, "  %s%s\n", m.URL, access(m.RegistryAccess))
		}
	}
	return b.String()
}

func TestRegistryFlags(t *testing.T) {
	site, siteCA := caFile(t, "site=ca.pem") // the path contains =
	other, otherCA := caFile(t, "other.pem")
	cas := map[string]string{"site": siteCA, "other": otherCA}
	auth := authFile(t, `{"auths": {
		"mirror": {"username": "reader", "password": "pass:word"},
		"https://index.docker.io/v1/": {"auth": "`+base64.StdEncoding.EncodeToString([]byte("hub:secret"))+`"}}, "credsStore": "desktop"}`)
	for name, c := range map[string]struct {
		flags config.RegistryFlags
		want  string
	}{
		"nothing": {config.RegistryFlags{}, ""},
		"mirrors in their order": {config.RegistryFlags{Mirrors: []string{"quay.io=https://Mirror.example:443/", "docker.io=http://10.1.2.3:5000/hub", "quay.io=https://b.example", "quay.io=https://mirror.example"}},
			"docker.io\n  http://10.1.2.3:5000/hub\nquay.io\n  https://mirror.example\n  https://b.example\n"},
		"a CA for all": {config.RegistryFlags{Mirrors: []string{"docker.io=https://mirror", "quay.io=http://plain"}, CAs: []string{site}},
			"_default ca site\ndocker.io ca site\n  https://mirror ca site\nquay.io ca site\n  http://plain\n"},
		"CAs for a mirror and a registry": {config.RegistryFlags{Mirrors: []string{"docker.io=https://mirror"}, CAs: []string{"Mirror=" + other, "registry.example:5000=" + site, "registry.example:5000=" + other}},
			"docker.io\n  https://mirror ca other\nregistry.example:5000 ca site other\n"},
		"a CA for all and one for a mirror": {config.RegistryFlags{Mirrors: []string{"docker.io=https://mirror"}, CAs: []string{"mirror=" + other, site}},
			"_default ca site\ndocker.io ca site\n  https://mirror ca other site\n"},
		"credentials": {config.RegistryFlags{Mirrors: []string{"registry.k8s.io=https://mirror"}, Auth: auth},
			"docker.io auth hub:secret\nregistry.k8s.io\n  https://mirror auth reader:pass:word\n"},
		"a mirror of all": {config.RegistryFlags{Mirrors: []string{"_default=https://m.example", "quay.io=https://b.example"}, CAs: []string{"m.example=" + site, "gcr.io=" + other}},
			"_default\n  https://m.example ca site\ngcr.io ca other\n  https://m.example ca site\nm.example ca site\nquay.io\n  https://b.example\n"},
		"Docker Hub's other name": {config.RegistryFlags{Mirrors: []string{"index.docker.io=https://m.example"}}, "docker.io\n  https://m.example\n"},
		"addresses":               {config.RegistryFlags{Mirrors: []string{"[fd00::1]:5000=https://[fd00::2]:5000", "localhost:5000=https://m.example"}}, "[fd00::1]:5000\n  https://[fd00::2]:5000\nlocalhost:5000\n  https://m.example\n"},
	} {
		t.Run(name, func(t *testing.T) {
			list, warnings, err := c.flags.Read()
			if err != nil || len(warnings) != 0 {
				t.Fatalf("%q, %v", warnings, err)
			}
			if got := describe(list, cas); got != c.want {
				t.Errorf("got:\n%swant:\n%s", got, c.want)
			}
		})
	}
}

func TestRegistryFlagsWarn(t *testing.T) {
	auth := authFile(t, `{"auths": {"mirror": {"username": "u", "password": "p"}}}`)
	if err := os.Chmod(auth, 0o644); err != nil {
		t.Fatal(err)
	}
	_, warnings, err := config.RegistryFlags{Mirrors: []string{"docker.io=http://mirror", "quay.io=http://mirror"}, Auth: auth}.Read()
	if err != nil || len(warnings) != 2 || !strings.Contains(warnings[0], "chmod 600 "+auth) || !strings.Contains(warnings[1], "http://mirror are sent without encryption") {
		t.Errorf("%q, %v", warnings, err)
	}
}

// Errors are usage errors with a hint, and never contain a secret.
func TestBadRegistryFlags(t *testing.T) {
	site, _ := caFile(t, "site.pem")
	der := authFile(t, "\x30\x82 no PEM")
	for name, c := range map[string]struct {
		flags config.RegistryFlags
		want  string
	}{
		"no URL":                 {config.RegistryFlags{Mirrors: []string{"docker.io"}}, `"docker.io" has no =`},
		"no registry":            {config.RegistryFlags{Mirrors: []string{"=https://m.example"}}, `"" is not the name of a registry`},
		"a name without a dot":   {config.RegistryFlags{Mirrors: []string{"harbor=https://m.example"}}, `harbor/image is an image of docker.io`},
		"a URL as the registry":  {config.RegistryFlags{Mirrors: []string{"https://docker.io=https://m.example"}}, `"https://docker.io" is not the name`},
		"a repository":           {config.RegistryFlags{Mirrors: []string{"quay.io/team=https://m.example"}}, `"quay.io/team" is not the name`},
		"a port that is a word":  {config.RegistryFlags{Mirrors: []string{"quay.io:https=https://m.example"}}, `"quay.io:https" is not the name`},
		"no scheme":              {config.RegistryFlags{Mirrors: []string{"docker.io=m.example"}}, "does not begin with https://"},
		"another scheme":         {config.RegistryFlags{Mirrors: []string{"docker.io=oci://m.example"}}, "does not begin with https://"},
		"no host":                {config.RegistryFlags{Mirrors: []string{"docker.io=https:///v2"}}, "has no valid host"},
		"a space":                {config.RegistryFlags{Mirrors: []string{"docker.io=https://m example"}}, "invalid character"},
		"a query":                {config.RegistryFlags{Mirrors: []string{"docker.io=https://m.example?ns=x"}}, "has a query"},
		"a password and a space": {config.RegistryFlags{Mirrors: []string{"docker.io=https://reader:hunter2@m example"}}, "every process on this host could read it"},
		"a password":             {config.RegistryFlags{Mirrors: []string{"docker.io=https://reader:hunter2@m.example"}}, "every process on this host could read it"},
		"no CA file":             {config.RegistryFlags{CAs: []string{"/nonexistent/ca.pem"}}, "/nonexistent/ca.pem"},
		"a directory as CA":      {config.RegistryFlags{CAs: []string{"/etc"}}, "/etc"},
		"no PEM":                 {config.RegistryFlags{CAs: []string{der}}, "it contains no PEM certificate"},
		"a CA for no registry":   {config.RegistryFlags{CAs: []string{"harbor=" + site}}, `harbor/image is an image of docker.io`},
		"a CA and an empty name": {config.RegistryFlags{CAs: []string{"=" + site}}, `"" is not the name`},
		"no credentials file":    {config.RegistryFlags{Auth: "/nonexistent/config.json"}, "/nonexistent/config.json"},
		"no JSON":                {config.RegistryFlags{Auth: authFile(t, "reader:hunter2")}, "line 1: it is not JSON"},
		"no credentials":         {config.RegistryFlags{Auth: authFile(t, "{}")}, "it has no credentials"},
		"a credential helper":    {config.RegistryFlags{Auth: authFile(t, `{"auths": {"quay.io": {}}, "credsStore": "desktop"}`)}, "credential helper"},
		"only a helper":          {config.RegistryFlags{Auth: authFile(t, `{"credHelpers": {"quay.io": "desktop"}}`)}, "credential helper"},
		"a token":                {config.RegistryFlags{Auth: authFile(t, `{"auths": {"quay.io": {"identitytoken": "hunter2"}}}`)}, "a token"},
		"no base64":              {config.RegistryFlags{Auth: authFile(t, `{"auths": {"quay.io": {"auth": "reader:hunter2"}}}`)}, "not base64"},
		"no password":            {config.RegistryFlags{Auth: authFile(t, `{"auths": {"quay.io": {"username": "hunter2"}}}`)}, "no password"},
		"a part of a registry":   {config.RegistryFlags{Auth: authFile(t, `{"auths": {"quay.io/team": {"username": "u", "password": "hunter2"}}}`)}, "part of a registry"},
		"two for one":            {config.RegistryFlags{Auth: authFile(t, `{"auths": {"quay.io": {"username": "u", "password": "hunter2"}, "https://quay.io": {"username": "u", "password": "x"}}}`)}, "two credentials for quay.io"},
		"all registries":         {config.RegistryFlags{Auth: authFile(t, `{"auths": {"_default": {"username": "u", "password": "hunter2"}}}`)}, "all registries"},
	} {
		t.Run(name, func(t *testing.T) {
			list, _, err := c.flags.Read()
			if err == nil || list != nil || fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "" {
				t.Fatalf("%v, %v, hint %q", list, err, fault.Hint(err))
			}
			if text := err.Error() + fault.Hint(err); !strings.Contains(text, c.want) || strings.Contains(text, "hunter2") {
				t.Errorf("error: %s", text)
			}
		})
	}
}
