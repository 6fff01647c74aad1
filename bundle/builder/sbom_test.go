package builder_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"airlift/bundle/builder"
	"airlift/bundle/sbom"
	"airlift/fault"
	"airlift/scripts/fakesites"
)

// A list of the software next to a bundle always belongs to it.
func TestSBOMNeverListsAnotherBundle(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	o := options(t, u)
	o.SBOM = []sbom.Format{sbom.SPDX, sbom.CycloneDX}
	r := run(t, o)
	if len(r.SBOMs) != 2 {
		t.Fatalf("lists: %q", r.SBOMs)
	}
	for _, path := range r.SBOMs {
		if b, err := os.ReadFile(path); err != nil || !strings.Contains(string(b), r.SHA256) {
			t.Errorf("%s does not have the sha256 of the bundle: %v", path, err)
		}
	}
	// Another bundle without lists removes both.
	o.SBOM, o.CNI = nil, "none"
	run(t, o)
	for _, path := range r.SBOMs {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	// A list that cannot be replaced is found before the downloads.
	o.Output, o.SBOM = o.Output+"-2", []sbom.Format{sbom.SPDX}
	if err := os.Mkdir(sbom.SPDX.Path(o.Output), 0o755); err != nil {
		t.Fatal(err)
	}
	u.Forget()
	if _, err := builder.Run(context.Background(), o); fault.ExitCode(err) != fault.Usage || len(u.Requests()) > 0 {
		t.Errorf("%d requests, err = %v", len(u.Requests()), err)
	}
}
