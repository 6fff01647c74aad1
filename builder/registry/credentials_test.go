package registry

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
)

// Files of docker and podman, by the variable that leads to them.
func TestAuthFiles(t *testing.T) {
	entry := func(key, user string) string {
		return fmt.Sprintf(`%q:{"auth":%q}`, key, base64.StdEncoding.EncodeToString([]byte(user+":secret")))
	}
	write := func(dir, name string, entries ...string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(`{"auths":{`+strings.Join(entries, ",")+`}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	docker, run, config := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("DOCKER_CONFIG", docker)
	t.Setenv("XDG_RUNTIME_DIR", run)
	t.Setenv("XDG_CONFIG_HOME", config)
	t.Setenv("REGISTRY_AUTH_FILE", "")
	write(docker, "config.json", entry("registry.example", "docker"), entry("https://index.docker.io/v1/", "hub-docker"), entry("https://url.example/v2/", "url"))
	write(run, "containers/auth.json", entry("registry.example", "not used"), entry("run.example", "run"),
		entry("shared.example/team-a", "a"), entry("shared.example/team-a/deep", "deep"), entry("shared.example/team-b", "b"))
	write(config, "containers/auth.json", entry("config.example:5000", "config"))
	podman := write(t.TempDir(), "auth.json", entry("registry.example", "podman"), entry("docker.io", "hub-podman"), entry("docker.io/me", "hub-me"))
	for _, c := range []struct {
		variable, explicit, host, path, want string
	}{
		{"", "", "registry.example", "app", "docker"},
		{"", "", "index.docker.io", "library/nginx", "hub-docker"},
		{"", "", "url.example", "app", "url"},
		{"", "", "run.example", "app", "run"},
		{"", "", "config.example:5000", "app", "config"},
		{"", "", "config.example", "app", ""},
		{"", "", "shared.example", "team-a/app", "a"},
		{"", "", "shared.example", "team-a/deep/app", "deep"},
		{"", "", "shared.example", "team-b/app", "b"},
		{"", "", "shared.example", "team-c/app", ""},
		{"", "", "shared.example", "team-ab", ""},
		{"", "", "other.example", "app", ""},
		{podman, "", "registry.example", "app", "podman"},
		{podman, "", "index.docker.io", "library/nginx", "hub-podman"},
		{podman, "", "index.docker.io", "me/app", "hub-me"},
		{podman, "", "run.example", "app", ""},
		{"/nonexistent", podman, "registry.example", "app", "podman"},
		{"/nonexistent", "", "registry.example", "app", "error"},
		{"", "/nonexistent", "registry.example", "app", "error"},
	} {
		t.Setenv("REGISTRY_AUTH_FILE", c.variable)
		got := ""
		if auth, err := credentials(account{c.host, c.path}, c.explicit); err != nil {
			got = "error"
		} else if auth != authn.Anonymous {
			a, err := auth.Authorization()
			if err != nil || a.Password != "secret" {
				t.Errorf("%+v: %v, %v", c, a, err)
			}
			got = a.Username
		}
		if got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
