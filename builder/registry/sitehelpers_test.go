package registry_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"airlift/scripts/fixtures/fakesites"
	machine "airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/siteregistry"
)

func pushPlain(t *testing.T, reference string) {
	t.Helper()
	ref, err := name.ParseReference(reference, name.Insecure)
	if err == nil {
		err = remote.Write(ref, fakesites.Image(t, "amd64", "app"))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func skopeoLogin(t *testing.T, host, certs string) {
	t.Helper()
	skopeo := machine.Tool(t, "skopeo")
	c := exec.Command(skopeo, "login", "--cert-dir", certs, "--username", siteregistry.User, "--password", siteregistry.Password, host)
	// With these, skopeo writes docker's file.
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "DOCKER_CONFIG=") || strings.HasPrefix(v, "REGISTRY_AUTH_FILE=")
	})
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
