package bundle

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"airlift/bundle/head"
	"airlift/scripts/fixtures/rig"
)

// Binaries and blobs may alternate; then they are in one part.
func TestInTurns(t *testing.T) {
	s := newSample()
	e := s.manifest.Entries
	e[0], e[len(e)-1] = e[len(e)-1], e[0]
	path := s.write(t)
	f := openFile(t, path)
	var names []string
	for _, p := range f.Parts() {
		names = append(names, p.Name)
	}
	if !slices.Equal(names, []string{HeadPart, ImagesPart}) {
		t.Errorf("parts %q", names)
	}
	if got := f.part(ImagesPart).Entries(s.manifest); !slices.Equal(got, e) {
		t.Errorf("%d entries in one part, want %d", len(got), len(e))
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := check(t, whole); err != nil {
		t.Error(err)
	}
	var all []string
	for _, e := range e {
		all = append(all, e.Name)
	}
	for _, wanted := range [][]string{all, all[:1], all[len(all)-1:]} {
		if err := wantEntries(t, s, wanting(t, f, wanted...), wanted...); err != io.EOF {
			t.Errorf("after the last of %q: %v", wanted, err)
		}
	}
	t.Run("tar reads it", func(t *testing.T) {
		rig.Tool(t, "zstd")
		list := sh(t, t.TempDir(), "tail -c +%d %s | tar --zstd -tf -", f.PayloadOffset()+1, path)
		if want := strings.Join(append([]string{ManifestName, InstallerName}, all...), "\n"); strings.TrimSpace(list) != want {
			t.Errorf("tar lists\n%s\nwant\n%s", list, want)
		}
	})

	// A trailer that divides it anyway is an error, and so is a trailer without the part
	// binaries if the manifest lists the binaries first.
	wantFault(t, check(t, cutAt(t, whole, 100)), `part "binaries" has 100 bytes, but its manifest lists 0 entries for it`)
	ordered, err := os.ReadFile(newSample().write(t))
	if err != nil {
		t.Fatal(err)
	}
	wantFault(t, check(t, cutAt(t, ordered, 0)), `part "binaries" has 0 bytes, but its manifest lists 3 entries for it`)
}

// cutAt returns a file whose trailer has this size for the part binaries.
func cutAt(t *testing.T, whole []byte, binaries uint64) []byte {
	t.Helper()
	at := len(whole) - head.TrailerSize
	tr, err := head.DecodeTrailer(whole[at:])
	if err != nil {
		t.Fatal(err)
	}
	tr.BinariesSize = binaries
	return append(bytes.Clone(whole[:at]), tr.Encode()...)
}
