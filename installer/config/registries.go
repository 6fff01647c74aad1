package config

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"airlift/internal/documents/pemfile"
	"airlift/internal/fault"
)

// A Registry is how containerd on this host reaches one registry.
type Registry struct {
	// Host is the registry's name in image names, with its port if it has one,
	// or DefaultRegistry.
	Host string
	// Mirrors are asked in this order, before the registry itself.
	Mirrors []RegistryMirror
	// RegistryAccess is for the registry itself.
	RegistryAccess
}

// DefaultRegistry is containerd's name for all registries without a configuration of
// their own.
const DefaultRegistry = "_default"

// A RegistryMirror has the same images as a registry.
type RegistryMirror struct {
	URL *url.URL
	RegistryAccess
}

// RegistryAccess has the configuration with which containerd connects to a host.
type RegistryAccess struct {
	CA            []byte // PEM certificates, trusted in addition to the system's
	Authorization string // a secret: the value of the HTTP header
}

// RegistryFlags are the flags of init and join for registries.
type RegistryFlags struct {
	Mirrors []string // HOST=URL
	CAs     []string // FILE or HOST=FILE
	Auth    string   // a file in the format of docker's config.json
}

// Read returns the registries that the flags configure, sorted by their names, and
// warnings about them. CAs and credentials belong to a host, whether it is a registry
// or a mirror. Errors are usage errors.
func (f RegistryFlags) Read() (list []Registry, warnings []string, err error) {
	mirrors, err := f.readMirrors()
	if err != nil {
		return nil, nil, err
	}
	isMirror := map[string]bool{}
	for _, urls := range mirrors {
		for _, u := range urls {
			isMirror[u.Host] = true
		}
	}
	// hostName returns the name of a registry or of a mirror, which may have no dot.
	hostName := func(name string) (string, error) {
		name = strings.ToLower(name)
		if isMirror[name] {
			return name, nil
		}
		return registryHost(name)
	}
	cas, err := f.readCAs(hostName)
	if err != nil {
		return nil, nil, err
	}
	var credentials map[string]string
	if f.Auth != "" {
		if credentials, warnings, err = readRegistryAuth(f.Auth, hostName); err != nil {
			return nil, nil, err
		}
	}
	access := func(host string) RegistryAccess {
		a := RegistryAccess{CA: cas[host], Authorization: credentials[host]}
		if host != DefaultRegistry {
			a.CA = slices.Concat(a.CA, cas[DefaultRegistry])
		}
		return a
	}
	hosts := slices.Concat(slices.Collect(maps.Keys(mirrors)), slices.Collect(maps.Keys(cas)), slices.Collect(maps.Keys(credentials)))
	slices.Sort(hosts)
	for _, host := range slices.Compact(hosts) {
		if _, err := registryHost(host); err != nil {
			continue // the name of a mirror, which no image can have
		}
		r := Registry{Host: host, RegistryAccess: access(host)}
		urls := mirrors[host]
		if urls == nil && !isMirror[host] {
			// containerd uses the default only for registries that have no
			// configuration at all.
			urls = mirrors[DefaultRegistry]
		}
		for _, u := range urls {
			m := RegistryMirror{u, access(u.Host)}
			if u.Scheme == "http" {
				m.CA = nil // containerd would try https
			}
			r.Mirrors = append(r.Mirrors, m)
		}
		list = append(list, r)
	}
	for _, url := range plainURLs(list) {
		warnings = append(warnings, "the credentials for the mirror "+url+" are sent without encryption; use https if the mirror supports it")
	}
	return list, warnings, nil
}

const mirrorHint = "use --registry-mirror HOST=URL, for example docker.io=https://mirror.example:5000, or " + DefaultRegistry + "=URL for all registries"

func (f RegistryFlags) readMirrors() (map[string][]*url.URL, error) {
	mirrors := map[string][]*url.URL{}
	for _, value := range f.Mirrors {
		bad := func(format string, args ...any) error {
			return fault.New(fault.Usage, "--registry-mirror "+format, args...).Hint(mirrorHint)
		}
		host, raw, ok := strings.Cut(value, "=")
		if !ok {
			return nil, bad("%q has no = between host and URL", value)
		}
		host, err := registryHost(host)
		if err != nil {
			return nil, bad("HOST=URL: %w", err)
		}
		if strings.Contains(raw, "@") { // the message has no URL, because it contains a secret
			return nil, fault.New(fault.Usage, "--registry-mirror %s: the URL contains a user name or a password, and every process on this host could read it", host).
				Hint("put them into a file in the format of docker's config.json: --registry-auth FILE")
		}
		u, err := MirrorURL(raw)
		if err != nil {
			return nil, bad("%s: the URL %q %w", host, raw, err)
		}
		same := func(other *url.URL) bool { return *other == *u }
		if !slices.ContainsFunc(mirrors[host], same) {
			mirrors[host] = append(mirrors[host], u)
		}
	}
	return mirrors, nil
}

// MirrorURL returns the URL of a mirror. The error is what is wrong with it, without its text.
func MirrorURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch wrong := (*url.Error)(nil); {
	case errors.As(err, &wrong):
		return nil, fmt.Errorf("is not a URL: %w", wrong.Err)
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("does not begin with https:// or http://")
	case u.Hostname() == "" || strings.ContainsAny(u.Host, `"'<>\`):
		return nil, errors.New("has no valid host")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, errors.New("has a query or a fragment")
	}
	// The default port is left out, so that the URL's host is a name that
	// users write.
	server := strings.TrimSuffix(strings.ToLower(u.Host), map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
	return &url.URL{Scheme: u.Scheme, Host: server, Path: strings.TrimRight(u.Path, "/")}, nil
}

// plainURLs returns the mirrors that get credentials over http.
func plainURLs(list []Registry) (urls []string) {
	for _, r := range list {
		for _, m := range r.Mirrors {
			if m.URL.Scheme == "http" && m.Authorization != "" && !slices.Contains(urls, m.URL.String()) {
				urls = append(urls, m.URL.String())
			}
		}
	}
	return urls
}

// CheckRegistryHost returns an error unless images can have this name of a registry.
func CheckRegistryHost(host string) error {
	_, err := registryHost(host)
	return err
}

// registryHost returns the name under which containerd looks up the configuration of a registry.
func registryHost(host string) (string, error) {
	if host == DefaultRegistry {
		return host, nil
	}
	const form = "write it as in image names: with a dot or a port, without a scheme or a path"
	lower := strings.ToLower(host)
	named, err := reference.ParseNormalizedNamed(lower + "/image")
	if err != nil || strings.Contains(host, "/") {
		return "", fmt.Errorf("%q is not the name of a registry; %s", host, form)
	}
	domain := reference.Domain(named)
	if domain != lower && lower != "index.docker.io" {
		return "", fmt.Errorf("%q is not the name of a registry, because %s/image is an image of %s; %s", host, host, domain, form)
	}
	return domain, nil
}

// readCAs returns the CA certificates by host name. Certificates for all hosts have the key
// DefaultRegistry.
func (f RegistryFlags) readCAs(hostName func(string) (string, error)) (map[string][]byte, error) {
	const hint = "use --registry-ca FILE, or --registry-ca HOST=FILE for one registry or mirror"
	cas := map[string][]byte{}
	for _, value := range f.CAs {
		host, file, named := CutRegistryCA(value)
		if !named {
			host = DefaultRegistry
		} else if name, err := hostName(host); err != nil {
			return nil, fault.New(fault.Usage, "--registry-ca HOST=FILE: %w", err).Hint(hint)
		} else {
			host = name
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fault.New(fault.Usage, "--registry-ca: %w", err).Hint(hint)
		}
		certificates, err := pemCertificates(data)
		if err != nil {
			return nil, fault.New(fault.Usage, "--registry-ca: reading %q: %w", file, err).
				Hint(pemfile.HintOf(err, file, "give the CA's certificate in PEM"))
		}
		cas[host] = append(cas[host], certificates...)
	}
	return cas, nil
}

// CutRegistryCA returns the parts of HOST=FILE, or of FILE, which has no name of a host.
func CutRegistryCA(value string) (host, file string, named bool) {
	// The name of a host contains no slash. The path of a file may contain =.
	if host, file, ok := strings.Cut(value, "="); ok && !strings.Contains(host, "/") {
		return host, file, true
	}
	return "", value, false
}

// pemCertificates returns the certificates among PEM blocks, and nothing else: the
// result is written where all users can read it.
func pemCertificates(data []byte) (certificates []byte, err error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, err
		}
		certificates = append(certificates, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
	if certificates == nil {
		return nil, pemfile.Explain(data, pemfile.Certificate)
	}
	return certificates, nil
}
