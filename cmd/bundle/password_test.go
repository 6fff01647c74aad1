package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/scripts/fixtures/fakesites"
)

// The password of the secret key stays in the process: no command that a build starts gets it.
func TestPasswordIsNotInherited(t *testing.T) {
	u := fakesites.New(t, "v1.29.15")
	s := newShell(t)
	t.Setenv(passwordVariable, "secret words")
	if _, errs, code := s.run("keygen", "--no-password"); code != 0 {
		t.Fatal(errs)
	}
	const record = "#!/bin/sh\nenv > \"$0.env\"\nexit 1\n"
	tools := fakesites.Files(t, map[string]string{"zstd": record, "ctr": record, "docker-credential-fake": record, "config.json": `{"credsStore": "fake"}`})
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	t.Setenv("DOCKER_CONFIG", tools)
	t.Setenv("REGISTRY_AUTH_FILE", "")
	none := filepath.Join(fakesites.Files(t, map[string]string{"none.json": "{}"}), "none.json")
	for _, c := range []struct {
		tool string
		args []string
	}{ // the helper first: a later build finds all images in the cache, and asks no registry
		{"docker-credential-fake", nil},
		{"ctr", []string{"--image", "containerd:registry.example/app:1"}},
		{"zstd", []string{"--compression", "best", "--registry-auth", none}},
	} {
		tool, args := c.tool, c.args
		if err := os.Chmod(filepath.Join(tools, tool), 0o755); err != nil {
			t.Fatal(err)
		}
		_, errs, _ := s.run(buildArgs(u, append(args, "--sign-key", "airlift.key")...)...)
		got, err := os.ReadFile(filepath.Join(tools, tool+".env"))
		if err != nil {
			t.Errorf("%s was not started: %v\n%s", tool, err, errs)
		}
		if strings.Contains(string(got), "secret words") {
			t.Errorf("%s inherited the password of the secret key:\n%s", tool, got)
		}
	}
}
