package release_test

import (
	"os/exec"
	"strings"
	"testing"
)

// The installer imports these packages, which must not be able to pull images.
func TestTheInstallersPackagesCannotPull(t *testing.T) {
	for _, c := range []struct {
		pkg       string
		forbidden []string
	}{
		{"airlift/images/release", []string{"net/http"}},
		{"airlift/bundle", []string{"net/http"}},
		{"airlift/internal/fault", []string{"net/http"}},
		// progressbar itself imports net/http, to serve its state.
		{"airlift/internal/progress", []string{"airlift/", "github.com/google/go-containerregistry"}},
	} {
		out, err := exec.Command("go", "list", "-deps", c.pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		for dep := range strings.FieldsSeq(string(out)) {
			for _, f := range c.forbidden {
				if dep != c.pkg && strings.HasPrefix(dep, f) {
					t.Errorf("%s links %s", c.pkg, dep)
				}
			}
		}
	}
}
