package builder_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"airlift/builder/sbom"
	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
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
	f, err := bundle.Open(r.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for n, path := range r.SBOMs {
		inside, err := sbom.Embedded(t.Context(), f, o.SBOM[n])
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, inside) || len(b) == 0 {
			t.Errorf("%s is not the list in the bundle: %v", path, err)
		}
	}
	// The list from the cache is that from the file, and its entries are the last.
	c, err := sbom.Read(t.Context(), f, nil)
	if err == nil {
		err = c.Compare(t.Context(), f)
	}
	if err != nil {
		t.Error(err)
	}
	for n, e := range r.Manifest.Entries {
		if last := n >= len(r.Manifest.Entries)-2; strings.HasPrefix(e.Name, bundle.SBOMDir) != last {
			t.Errorf("entry %d of %d is %s", n+1, len(r.Manifest.Entries), e.Name)
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
	if _, err := runOne(context.Background(), o); fault.ExitCode(err) != fault.Usage || len(u.Requests()) > 0 {
		t.Errorf("%d requests, err = %v", len(u.Requests()), err)
	}
}
