package builder

import (
	"os"
	"path/filepath"
	"testing"
)

// Between the two steps there is no provenance, neither of the previous bundle nor of the
// new one.
func TestProvenanceIsReplacedInTwoSteps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "install.provenance.json")
	there := func() string {
		b, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		return string(b)
	}
	if err := os.WriteFile(path, []byte("of the earlier bundle"), 0o644); err != nil {
		t.Fatal(err)
	}
	killed := provenanceFile{path: path}
	if err := killed.prepare(Provenance{BundleSHA256: "one"}); err != nil || there() != "" {
		t.Errorf("there is %q, %v", there(), err)
	}
	killed.discard()
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	whole := provenanceFile{path: path}
	if err := whole.prepare(Provenance{BundleSHA256: "two"}); err != nil {
		t.Fatal(err)
	}
	if err := whole.finish(); err != nil {
		t.Fatal(err)
	}
	whole.discard()
	want, err := Provenance{BundleSHA256: "two"}.encode()
	if err != nil || there() != string(want) {
		t.Errorf("there is %q, %v", there(), err)
	}
}
