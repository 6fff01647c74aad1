package config

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"airlift/images/authfile"
	"airlift/internal/fault"
)

// dockerConfig is the part of docker's config.json that has credentials.
type dockerConfig struct {
	Auths       map[string]dockerAuth `json:"auths"`
	CredsStore  string                `json:"credsStore"`
	CredHelpers map[string]string     `json:"credHelpers"`
}

type dockerAuth struct {
	Auth          string `json:"auth"` // base64 of USER:PASSWORD
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

const authHint = `write for each registry or mirror: {"auths": {"HOST": {"username": "USER", "password": "PASSWORD"}}}`

// readRegistryAuth returns the values of the header Authorization, by the name of the
// host that they are for. Its errors contain no secrets.
func readRegistryAuth(file string, hostName func(string) (string, error)) (headers map[string]string, warnings []string, err error) {
	bad := func(format string, args ...any) (map[string]string, []string, error) {
		return nil, nil, fault.New(fault.Usage, "--registry-auth: reading %q: %w", file, fmt.Errorf(format, args...)).Hint(authHint)
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, nil, fault.New(fault.Usage, "--registry-auth: %w", err).Hint("name a file in the format of docker's config.json")
	}
	if info.Mode().Perm()&0o077 != 0 {
		warnings = append(warnings, fmt.Sprintf("other users of this host may read the credentials in %s: chmod 600 %s", file, file))
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return bad("%w", err)
	}
	if data, err = authfile.Check(data); err != nil {
		return bad("%w", err)
	}
	var c dockerConfig
	if err := json.Unmarshal(data, &c); err != nil {
		return bad("%w", err)
	}
	headers = map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(c.Auths)) {
		host, err := authHost(key, hostName)
		if err != nil {
			return bad("%w", err)
		}
		user, password, err := c.Auths[key].credentials()
		if err != nil {
			return bad("the credentials for %q: %w", key, err)
		}
		header := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
		if other, ok := headers[host]; ok && other != header {
			return bad("it has two credentials for %s", host)
		}
		headers[host] = header
	}
	if len(headers) == 0 {
		if c.CredsStore != "" || len(c.CredHelpers) > 0 {
			return bad("it has no credentials, but refers to a credential helper, which this host does not have")
		}
		return bad("it has no credentials")
	}
	return headers, warnings, nil
}

// authHost returns the host of a key in docker's config.json: "registry.example:5000",
// "https://registry.example" or "https://index.docker.io/v1/".
func authHost(key string, hostName func(string) (string, error)) (string, error) {
	host := strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	host, path, _ := strings.Cut(host, "/")
	if path = strings.Trim(path, "/"); path != "" && path != "v1" && path != "v2" {
		return "", fmt.Errorf("the credentials for %q are for a part of a registry: containerd has one credential for each host", key)
	}
	if host == DefaultRegistry {
		return "", errors.New("credentials for all registries would be sent to any registry that an image names")
	}
	return hostName(host)
}

// credentials returns the user name and the password.
func (a dockerAuth) credentials() (user, password string, err error) {
	user, password = a.Username, a.Password
	if a.Auth != "" {
		data, err := base64.StdEncoding.DecodeString(a.Auth)
		if err != nil {
			return "", "", errors.New("auth is not base64")
		}
		var ok bool
		if user, password, ok = strings.Cut(strings.TrimRight(string(data), "\x00"), ":"); !ok {
			return "", "", errors.New("auth is not base64 of USER:PASSWORD")
		}
	}
	switch {
	case user != "" && password != "":
		return user, password, nil
	case a.IdentityToken != "" || a.RegistryToken != "":
		return "", "", errors.New("a token; containerd's registry configuration needs a user name and a password")
	}
	return "", "", errors.New("no user name or no password; they may be in a credential helper, which this host does not have")
}
