package repair_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/bundle/repair"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testbundle"
)

// An original is a bundle whose payload does not compress, and the places in it.
type original struct {
	path                           string
	content                        []byte
	payload, digests, trailer, end int // offsets
}

func newOriginal(t *testing.T, seed uint64) original {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	contents := map[string][]byte{}
	m := &bundle.Manifest{FormatVersion: bundle.FormatVersion, Platform: "linux/amd64", KubernetesVersion: "v1.29.15", CNI: "none"}
	add := func(name string, size int) string {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		sum := fmt.Sprintf("%x", sha256.Sum256(b))
		if name == "" {
			name = bundle.FileDir + sum
		}
		contents[name] = b
		m.Entries = append(m.Entries, bundle.Entry{Name: name, Size: int64(size), SHA256: sum})
		return name
	}
	add("bin/runc", 700_000)
	add("bin/kubelet", 900_000)
	m.Components = []bundle.Component{{Name: "all", Version: "v1", URL: "https://example.com/all", Checksum: "sha256:" + strings.Repeat("0", 64),
		Entries: []string{"bin/runc", "bin/kubelet"}}}
	m.Files = []bundle.SiteFile{{Path: "/srv/data", Mode: "0644", Entry: add("", 1_200_000)}}
	o := original{path: filepath.Join(t.TempDir(), "install")}
	executables := bundle.Executables{Launcher: bytes.Repeat([]byte("launcher"), 50_000), Installer: []byte("the installer")}
	testbundle.WriteFile(t, o.path, executables, m, bundle.Fastest, contents)
	var err error
	if o.content, err = os.ReadFile(o.path); err != nil {
		t.Fatal(err)
	}
	f, err := bundle.Open(o.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o.payload, o.end = int(f.PayloadOffset()), len(o.content)
	o.digests, o.trailer = o.payload+int(f.PayloadSize()), o.end-head.TrailerSize
	return o
}

func (o original) pieces() int { return (o.digests - o.payload + head.PieceSize - 1) / head.PieceSize }

// piece is the range of a piece in the file.
func (o original) piece(n int) (first, end int) {
	first = o.payload + n*head.PieceSize
	return first, min(first+head.PieceSize, o.digests)
}

func copyOf(name string, b []byte) repair.Copy {
	return repair.Copy{Name: name, Size: int64(len(b)), ReaderAt: bytes.NewReader(b)}
}

// run repairs a file with the content damaged, and returns its content afterwards.
func run(ctx context.Context, t *testing.T, damaged []byte, copies ...repair.Copy) (after []byte, result *repair.Result, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(path, damaged, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	compared, size := int64(0), int64(0)
	var seen []byte // by the check of the result
	var unread error
	result, err = repair.File(ctx, f, copies, func(_ string, n int64) func(int64) {
		size = n
		return func(n int64) { compared += n }
	}, func(repaired *io.SectionReader, _ bool) error {
		seen, unread = io.ReadAll(repaired)
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, damaged) {
			t.Errorf("the file was written before the check: %v", err)
		}
		return nil
	})
	if err == nil && compared != size {
		t.Errorf("%d of %d bytes were compared", compared, size)
	}
	if err == nil {
		err = result.Err(path)
	}
	after, rerr := os.ReadFile(path)
	if rerr != nil {
		t.Fatal(rerr)
	}
	if err == nil && (unread != nil || !bytes.Equal(seen, after)) {
		t.Errorf("the check saw other bytes than were written: %v", unread)
	}
	return after, result, err
}

// flip changes some bytes in a range.
func flip(random *rand.Rand, b []byte, first, end int) {
	for range 1 + random.IntN(4) {
		b[first+random.IntN(end-first)] ^= byte(1 + random.IntN(255))
	}
}

// TestRandomDamage damages a file and its copy in random places, none of them in both. The
// repaired file has the original's bytes, and only damaged sections are written.
func TestRandomDamage(t *testing.T) {
	o := newOriginal(t, 1)
	for seed := range uint64(80) {
		random := rand.New(rand.NewPCG(seed, 2))
		files := [][]byte{bytes.Clone(o.content), bytes.Clone(o.content)}
		var did []string
		damage := func(what string, n, first, end int) {
			flip(random, files[n], first, end)
			did = append(did, fmt.Sprintf("%s of %d", what, n))
		}
		for n := 1; n < o.pieces(); n++ { // the first has the manifest
			if random.IntN(3) == 0 {
				first, end := o.piece(n)
				damage(fmt.Sprint("piece ", n), random.IntN(2), first, end)
			}
		}
		launcher := o.payload - head.HeaderSize
		for _, s := range []struct {
			what       string
			first, end int
		}{{"launcher", 0, launcher}, {"header", launcher, o.payload}, {"digests", o.digests, o.trailer}, {"trailer", o.trailer, o.end}} {
			if random.IntN(2) == 0 {
				damage(s.what, random.IntN(2), s.first, s.end)
			}
		}
		switch random.IntN(4) {
		case 0:
			files[0] = files[0][:o.end-random.IntN(o.end-o.payload-head.PieceSize)] // an incomplete copy
			did = append(did, fmt.Sprint("truncated to ", len(files[0])))
			files[1] = bytes.Clone(o.content)
		case 1:
			files[0] = append(files[0], "appended"...)
		}
		after, result, err := run(t.Context(), t, files[0], copyOf("copy", files[1]))
		if err != nil {
			t.Fatalf("seed %d, %q: %v", seed, did, err)
		}
		if !bytes.Equal(after, o.content) {
			t.Fatalf("seed %d, %q: the repaired file differs", seed, did)
		}
		for _, r := range result.Rewritten {
			if r.Last < int64(len(files[0])) && bytes.Equal(files[0][r.First:r.Last+1], o.content[r.First:r.Last+1]) {
				t.Errorf("seed %d, %q: %v was rewritten without damage", seed, did, r)
			}
		}
	}
}

// Digests that are damaged in every copy, in different places or in the same, follow from
// the pieces.
func TestDigestsAreDamagedEverywhere(t *testing.T) {
	o := newOriginal(t, 1)
	for name, at := range map[string][2]int{"different": {o.digests + 9, o.digests + 41}, "the same": {o.digests + 9, o.digests + 9},
		"the header of the frame": {o.digests, o.digests + 1}} {
		a, b := bytes.Clone(o.content), bytes.Clone(o.content)
		a[at[0]] ^= 1
		b[at[1]] ^= 2
		first, _ := o.piece(2)
		a[first] ^= 1
		after, _, err := run(t.Context(), t, a, copyOf("copy", b))
		if err != nil || !bytes.Equal(after, o.content) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is damaged in every copy stays damaged and is reported; the rest is repaired, and a
// third copy repairs that too.
func TestLost(t *testing.T) {
	o := newOriginal(t, 1)
	a, b := bytes.Clone(o.content), bytes.Clone(o.content)
	both, _ := o.piece(3)
	one, _ := o.piece(5)
	a[both] ^= 1
	b[both+7] ^= 1
	a[one] ^= 1
	a[0] ^= 1
	b[1] ^= 1
	want := bytes.Clone(o.content)
	want[both] ^= 1
	want[0] ^= 1
	after, result, err := run(t.Context(), t, a, copyOf("copy", b))
	if err == nil || fault.ExitCode(err) != fault.Bundle || fault.Hint(err) == "" || !bytes.Equal(after, want) {
		t.Fatalf("%v", err)
	}
	if len(result.Lost) != 2 || result.Lost[0].What != "launcher" || result.Lost[1].First != int64(both) || result.Bytes() != head.PieceSize {
		t.Errorf("%+v", result)
	}
	after, result, err = run(t.Context(), t, after, copyOf("copy", b), copyOf("third", o.content))
	if err != nil || !bytes.Equal(after, o.content) {
		t.Errorf("%v", err)
	}
	for _, r := range result.Rewritten {
		if r.From != "third" {
			t.Errorf("%v is from %q", r, r.From)
		}
	}
}

// Another bundle is refused, and so is a file that cannot be proved to be the same bundle.
// Nothing is written.
func TestRefusals(t *testing.T) {
	o, other := newOriginal(t, 1), newOriginal(t, 2)
	damaged := bytes.Clone(o.content)
	damaged[o.payload+head.PieceSize] ^= 1
	noEnd := bytes.Clone(damaged[:o.digests])
	noProof := bytes.Clone(noEnd)
	noProof[o.payload+200] ^= 1
	flipped := bytes.Clone(other.content)
	flipped[other.end-1] ^= 1
	for name, c := range map[string]struct {
		file   []byte
		copies [][]byte
		want   string
	}{
		"another bundle":                    {damaged, [][]byte{other.content}, "are different bundles"},
		"another bundle, file without end":  {noEnd, [][]byte{other.content}, "cannot verify that"},
		"copies of two bundles":             {noEnd, [][]byte{o.content, other.content}, "are different bundles"},
		"no proof":                          {noProof, [][]byte{o.content}, "cannot verify that"},
		"no trailer":                        {noEnd, [][]byte{noEnd}, "no copy has an intact trailer"},
		"not a bundle":                      {[]byte("text"), [][]byte{o.content}, "cannot verify that"},
		"an empty file":                     {nil, [][]byte{o.content}, "cannot verify that"},
		"another bundle with a bad trailer": {damaged, [][]byte{flipped}, "is still damaged"},
	} {
		var copies []repair.Copy
		for n, b := range c.copies {
			copies = append(copies, copyOf(fmt.Sprint("copy", n), b))
		}
		after, _, err := run(t.Context(), t, c.file, copies...)
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.ExitCode(err) != fault.Bundle || fault.Hint(err) == "" {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		if !bytes.Equal(after, c.file) {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

func TestNothingToRepair(t *testing.T) {
	o := newOriginal(t, 1)
	after, result, err := run(t.Context(), t, o.content, copyOf("copy", o.content[:100]))
	if err != nil || len(result.Rewritten) != 0 || result.Removed != 0 || !bytes.Equal(after, o.content) {
		t.Errorf("%+v, %v", result, err)
	}
}

// interrupting cancels a context after a number of reads.
type interrupting struct {
	io.ReaderAt
	reads  int
	cancel func()
}

func (i *interrupting) ReadAt(b []byte, at int64) (int, error) {
	if i.reads--; i.reads == 0 {
		i.cancel()
	}
	return i.ReaderAt.ReadAt(b, at)
}

// A repair that is interrupted anywhere leaves every byte as it was or repaired, and the
// next one finishes.
func TestInterrupted(t *testing.T) {
	o := newOriginal(t, 1)
	damaged := bytes.Clone(o.content[:o.digests])
	damaged[3] ^= 1
	for n := 1; n < o.pieces(); n += 2 {
		first, _ := o.piece(n)
		damaged[first+11] ^= 1
	}
	interrupted := 0
	for reads := 1; reads < 30; reads++ {
		ctx, cancel := context.WithCancel(t.Context())
		c := copyOf("copy", o.content)
		c.ReaderAt = &interrupting{c.ReaderAt, reads, cancel}
		after, _, err := run(ctx, t, damaged, c)
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err != nil {
			interrupted++
		}
		for i, b := range after {
			if i < len(damaged) && b != damaged[i] && b != o.content[i] || i >= len(damaged) && b != o.content[i] {
				t.Fatalf("after %d reads: byte %d is neither the old one nor the right one", reads, i)
			}
		}
		if after, _, err = run(t.Context(), t, after, copyOf("copy", o.content)); err != nil || !bytes.Equal(after, o.content) {
			t.Fatalf("after %d reads, the second run: %v", reads, err)
		}
	}
	if interrupted < 5 {
		t.Errorf("only %d runs were interrupted", interrupted)
	}
}

// TestScan compares the report with a comparison of the bytes.
func TestScan(t *testing.T) {
	o := newOriginal(t, 1)
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 3))
		b := bytes.Clone(o.content)
		for range random.IntN(6) {
			flip(random, b, 0, o.digests)
		}
		if random.IntN(3) == 0 {
			flip(random, b, o.digests, o.digests+8) // no digest of a piece
		}
		report, err := repair.Scan(t.Context(), copyOf("file", b), func(int64) {})
		if err != nil {
			t.Fatal(err)
		}
		section := func(at int) string {
			switch {
			case at < o.payload-head.HeaderSize:
				return "launcher"
			case at < o.payload:
				return "header"
			case at < o.digests:
				return fmt.Sprint("piece ", (at-o.payload)/head.PieceSize)
			}
			return "digests"
		}
		want, got := map[string]bool{}, map[string]bool{}
		for i := range b {
			if b[i] != o.content[i] {
				want[section(i)] = true
			}
		}
		var bytesIn int64
		for n, r := range report.Ranges {
			for at := r.First; at <= r.Last; at += head.PieceSize {
				got[section(int(at))] = true
			}
			if n > 0 && r.First <= report.Ranges[n-1].Last {
				t.Errorf("seed %d: %v is not after %v", seed, r, report.Ranges[n-1])
			}
			bytesIn += r.Len()
		}
		if !slices.Equal(sorted(got), sorted(want)) || bytesIn != report.Bytes() || report.DigestsDamaged != want["digests"] {
			t.Errorf("seed %d: %v, want %v", seed, sorted(got), sorted(want))
		}
	}
	for name, b := range map[string][]byte{"truncated": o.content[:o.end-1], "empty": nil, "appended": append(bytes.Clone(o.content), 0)} {
		if _, err := repair.Scan(t.Context(), copyOf("file", b), func(int64) {}); fault.ExitCode(err) != fault.Bundle {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func sorted(m map[string]bool) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
