package sbom

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"airlift/internal/fault"
)

// A list in the file is returned as it is, and compared with the contents.
func TestEmbedded(t *testing.T) {
	layer := tarOf(t, tarFile{name: "lib/apk/db/installed", content: "P:musl\nV:1.2.5-r0\nA:x86_64\n"})
	other := tarOf(t, tarFile{name: "lib/apk/db/installed", content: "P:busybox\nV:1.37-r1\nA:x86_64\n"})
	created := time.Unix(1700000000, 0).UTC()
	list := func(f Format, layer []byte) []byte {
		b, err := read(t, bundleOf(t, []byte("kubelet"), layer)).Encode(f, created)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	whole := map[Format][]byte{SPDX: list(SPDX, layer), CycloneDX: list(CycloneDX, layer)}
	f := bundleWith(t, whole, []byte("kubelet"), layer)
	for format, want := range whole {
		if got, err := Embedded(t.Context(), f, format); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v; want %d", format, len(got), err, len(want))
		}
		if at, err := CreatedIn(format, want); err != nil || !at.Equal(created) {
			t.Errorf("%s: %v, %v", format, at, err)
		}
	}
	if err := read(t, f).Compare(t.Context(), f); err != nil {
		t.Error(err)
	}

	for name, c := range map[string]struct {
		lists map[Format][]byte
		want  string
	}{
		"none":           {nil, "contains no SBOM"},
		"other contents": {map[Format][]byte{SPDX: list(SPDX, other)}, `sbom/bundle.spdx.json`},
		"a package more": {map[Format][]byte{CycloneDX: list(CycloneDX, other)}, `lists 2 items, for example "busybox 1.37-r1"`},
		"a fact":         {map[Format][]byte{SPDX: bytes.Replace(whole[SPDX], []byte("mode: 0600"), []byte("mode: 0666"), 1)}, "different fields"},
		"no JSON":        {map[Format][]byte{SPDX: []byte("{")}, "cannot be read"},
		"no time":        {map[Format][]byte{SPDX: []byte("{}")}, "cannot be read"},
	} {
		f := bundleWith(t, c.lists, []byte("kubelet"), layer)
		err := read(t, f).Compare(t.Context(), f)
		if fault.ExitCode(err) != fault.Bundle || !strings.Contains(err.Error(), c.want) || fault.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b, err := Embedded(t.Context(), bundleOf(t, nil), SPDX); b != nil || err != nil {
		t.Errorf("a file without a list: %q, %v", b, err)
	}
}
