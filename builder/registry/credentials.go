package registry

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/config/types"
	"github.com/google/go-containerregistry/pkg/authn"

	"airlift/images/authfile"
	"airlift/internal/fault"
)

// An account identifies credentials: the repository of a registry, or of its mirror.
type account struct{ host, path string }

// hubHosts are the names of Docker Hub in the files of docker, podman and other tools.
var hubHosts = []string{"docker.io", "index.docker.io", "registry-1.docker.io"}

// hubKey is docker's own key for Docker Hub.
const hubKey = "https://index.docker.io/v1/"

// hosts lists the keys that the registry may have in a file of credentials.
func (a account) hosts() []string {
	if slices.Contains(hubHosts, a.host) {
		return append([]string{hubKey}, hubHosts...)
	}
	return []string{a.host}
}

// keys lists the keys that the account may have, the most specific first. Podman's files may
// have credentials for a part of a registry: "registry.example/team".
func (a account) keys() (keys []string) {
	for path := a.path; path != ""; path = path[:max(0, strings.LastIndexByte(path, '/'))] {
		for _, host := range a.hosts() {
			if host != hubKey {
				keys = append(keys, host+"/"+path)
			}
		}
	}
	return append(keys, a.hosts()...)
}

// authFiles lists the files with credentials. Only an explicit one must exist, and then the
// others are not read, as in podman.
func authFiles(explicit string) (files []string, must bool) {
	if explicit != "" {
		return []string{explicit}, true
	}
	if file := os.Getenv("REGISTRY_AUTH_FILE"); file != "" {
		return []string{file}, true
	}
	docker := os.Getenv("DOCKER_CONFIG")
	if home, err := os.UserHomeDir(); err == nil && docker == "" {
		docker = filepath.Join(home, ".docker")
	}
	if docker != "" {
		files = append(files, filepath.Join(docker, config.ConfigFileName))
	}
	run := os.Getenv("XDG_RUNTIME_DIR")
	if run == "" {
		run = fmt.Sprintf("/run/containers/%d", os.Getuid())
	} else {
		run = filepath.Join(run, "containers")
	}
	files = append(files, filepath.Join(run, "auth.json"))
	if dir, err := os.UserConfigDir(); err == nil { // $XDG_CONFIG_HOME or ~/.config
		files = append(files, filepath.Join(dir, "containers", "auth.json"))
	}
	return files, false
}

// credentials returns the credentials for an account from the first file that has any.
func credentials(a account, explicit string) (authn.Authenticator, error) {
	files, must := authFiles(explicit)
	for _, file := range files {
		f, err := readAuthFile(file)
		if errors.Is(err, fs.ErrNotExist) && !must {
			continue
		}
		if err != nil {
			return nil, fault.Wrap(fmt.Errorf("reading credentials: %w", err), fault.Failure,
				"log in again with docker login or podman login, or choose another file with --registry-auth or REGISTRY_AUTH_FILE")
		}
		found, err := lookUp(f, a)
		if err != nil {
			return nil, fault.Wrap(fmt.Errorf("reading the credentials for %s with the helper that %s names: %w", a.host, file, err), fault.Failure,
				"install the helper, remove credsStore or credHelpers from the file, or choose another file with --registry-auth")
		}
		if found != (types.AuthConfig{}) {
			return authn.FromConfig(authn.AuthConfig{Username: found.Username, Password: found.Password, Auth: found.Auth,
				IdentityToken: found.IdentityToken, RegistryToken: found.RegistryToken}), nil
		}
	}
	return authn.Anonymous, nil
}

func readAuthFile(path string) (*configfile.ConfigFile, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if content, err = authfile.Check(content); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c, err := config.LoadFromReader(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// lookUp does not use the file's own search for host names, which would choose any of
// several accounts at one registry.
func lookUp(f *configfile.ConfigFile, a account) (types.AuthConfig, error) {
	for _, key := range a.keys() {
		_, helper := f.CredentialHelpers[key]
		if helper || f.CredentialsStore != "" && slices.Contains(a.hosts(), key) {
			found, err := f.GetAuthConfig(key)
			if found.ServerAddress = ""; err != nil || found != (types.AuthConfig{}) {
				return found, err
			}
		}
		for _, name := range slices.Sorted(maps.Keys(f.AuthConfigs)) {
			if bare(name) != bare(key) {
				continue
			}
			found := f.AuthConfigs[name]
			if found.ServerAddress = ""; found != (types.AuthConfig{}) {
				return found, nil
			}
		}
	}
	return types.AuthConfig{}, nil
}

// bare returns a key without the scheme and the version of the API, which docker's files may
// have: "registry.example" for "https://registry.example/v2/".
func bare(key string) string {
	rest, url := strings.CutPrefix(key, "https://")
	if !url {
		rest, url = strings.CutPrefix(key, "http://")
	}
	if url {
		rest = strings.TrimSuffix(rest, "/")
		rest = strings.TrimSuffix(strings.TrimSuffix(rest, "/v1"), "/v2")
	}
	return rest
}
