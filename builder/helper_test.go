package builder_test

import (
	"net/http"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"airlift/scripts/fixtures/fakesites"
)

func indexOf(t *testing.T, arches ...string) map[string]v1.Image {
	t.Helper()
	m := map[string]v1.Image{}
	for _, a := range arches {
		m[a] = fakesites.Image(t, a, "user image")
	}
	return m
}

// noCrictl answers that there is no crictl.
func noCrictl(w http.ResponseWriter, r *http.Request, target string) bool {
	if !strings.Contains(target, "cri-tools") {
		return false
	}
	http.NotFound(w, r)
	return true
}
