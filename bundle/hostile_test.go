package bundle

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"airlift/bundle/head"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
)

var update = flag.Bool("update", false, "rewrite testdata/v1.bundle")

func TestEveryTruncationIsNamed(t *testing.T) {
	path := newSample().write(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	stubEnd, payload, end := 200, 200+head.HeaderSize, len(whole)
	trailerAt := end - head.TrailerSize
	for _, c := range []struct {
		size int
		want string
	}{
		{0, "not a bundle"},
		{1, "not a bundle"},
		{63, "not a bundle"},     // within the ELF header
		{119, "incomplete copy"}, // within the table of program headers
		{120, "it has 120 bytes, but its launcher alone has 200"},
		{stubEnd - 1, "its launcher alone has 200"},
		{stubEnd, "an executable without a payload"},
		{stubEnd + 1, "incomplete copy: it ends 1 bytes after its launcher"},
		{payload - 1, "it ends 63 bytes after its launcher"},
		{payload, fmt.Sprintf("it has %d of %d bytes; %d are missing", payload, end, end-payload)},
		{payload + 1, fmt.Sprintf("%d are missing", end-payload-1)},
		{end / 2, fmt.Sprintf("%d are missing", end-end/2)},
		{trailerAt - 1, fmt.Sprintf("%d are missing", head.TrailerSize+1)},
		{trailerAt, fmt.Sprintf("%d are missing", head.TrailerSize)},
		{trailerAt + 1, fmt.Sprintf("%d are missing", head.TrailerSize-1)},
		{end - head.FootSize, fmt.Sprintf("%d are missing", head.FootSize)},
		{end - 1, "1 are missing"},
	} {
		wantFault(t, check(t, whole[:c.size]), c.want)
	}
	// Every other truncated length is also an error.
	for size := 0; size < end; size += 97 {
		if err := check(t, whole[:size]); fault.ExitCode(err) != fault.Bundle {
			t.Errorf("%d of %d bytes: %v", size, end, err)
		}
	}
	for _, more := range []int{1, 512, head.TrailerSize, 4096} {
		wantFault(t, check(t, append(bytes.Clone(whole), make([]byte, more)...)), "data was appended")
	}
	// The middle is missing, both ends are complete.
	wantFault(t, check(t, append(bytes.Clone(whole[:payload+100]), whole[payload+200:]...)), "but its trailer expects")
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	path := newSample().write(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := openFile(t, path)
	payload := int(f.PayloadOffset())
	digests := payload + int(f.PayloadSize())
	trailerAt := len(whole) - head.TrailerSize

	damaged, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer damaged.Close()
	set := func(at int, b byte) {
		if _, err := damaged.WriteAt([]byte{b}, int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	flip := func(at int, bit byte) error {
		set(at, whole[at]^1<<bit)
		defer set(at, whole[at])
		return checkFile(t, path)
	}
	region := func(name string, from, to, step, bits int, want ...string) {
		rnd := rand.New(rand.NewPCG(3, 4))
		for at := from; at < to; at += step {
			for range bits {
				bit := byte(rnd.IntN(8))
				err := flip(at, bit)
				if fault.ExitCode(err) != fault.Bundle {
					t.Fatalf("%s: bit %d of byte %d (+%d) flipped: %v", name, bit, at, at-from, err)
				}
				ok := false
				for _, w := range want {
					ok = ok || strings.Contains(err.Error(), w)
				}
				if !ok {
					t.Errorf("%s: byte +%d, bit %d: %v", name, at-from, bit, err)
				}
			}
		}
	}
	region("launcher", 0, payload-head.HeaderSize, 1, 1, "the launcher (first 200 bytes)")
	region("header", payload-head.HeaderSize, payload, 1, 1, "its header (64 bytes at offset 200)")
	region("trailer", trailerAt, len(whole)-head.FootSize, 1, 1, "its trailer (last 232 bytes) does not match its checksum")
	// Damage in the foot also affects the version and the magic.
	region("foot", len(whole)-head.FootSize, len(whole), 1, 1, "its trailer (last 232 bytes) does not match", "format version", "are not a trailer")
	region("digests", digests, trailerAt, 1, 8, "the digests of its payload (40 bytes at offset")
	region("payload", payload, digests, 29, 1, "of the file do not match their sha256")
	t.Run("every byte of the payload", func(t *testing.T) {
		rig.Needs(t, "half a minute")
		region("payload", payload, digests, 1, 1, "of the file do not match their sha256")
	})
}

func TestFlippedBitNamesTheEntry(t *testing.T) {
	s := large()
	before, err := os.ReadFile(s.write(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range s.content {
		if len(content) < 2*head.PieceSize {
			continue // smaller than its pieces
		}
		path := filepath.Join(t.TempDir(), "install")
		if err := os.WriteFile(path, before, 0o755); err != nil {
			t.Fatal(err)
		}
		flipContent(t, path, content)
		err := checkFile(t, path)
		wantFault(t, err, fmt.Sprintf("entry %q: bytes ", name))
		var from, to int
		_, text, _ := strings.Cut(err.Error(), ": bytes ")
		if _, scanErr := fmt.Sscanf(text, "%d to %d of the file do not match", &from, &to); scanErr != nil {
			t.Errorf("%v: %v", err, scanErr)
			continue
		}
		after, _ := os.ReadFile(path)
		for at := range before {
			if before[at] != after[at] && (at < from || at > to || to-from >= head.PieceSize) {
				t.Errorf("byte %d was flipped: %v", at, err)
			}
		}
	}
}

func TestOtherFormatVersionsAreRefused(t *testing.T) {
	original, err := os.ReadFile(newSample().write(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []byte{0, 2, 4, 7} {
		want := fmt.Sprintf("has format version %d; this release reads version %d", version, FormatVersion)
		whole := bytes.Clone(original)
		foot := whole[len(whole)-head.FootSize:]
		foot[4] = version
		err := check(t, whole)
		wantFault(t, err, want)
		if !strings.Contains(fault.Hint(err), "build the file again") {
			t.Errorf("version %d: the hint is %q", version, fault.Hint(err))
		}
		// A truncated copy has only the header.
		h := bytes.Clone(whole[200 : 200+head.HeaderSize])
		h[16] = version
		sum := sha256.Sum256(h[:32])
		copy(h[32:], sum[:])
		copy(whole[200:], h)
		wantFault(t, check(t, whole[:len(whole)-1]), want)
	}
}

func TestOtherFilesAreNotBundles(t *testing.T) {
	wantFault(t, check(t, []byte("hello\n")), "is not a bundle")
	wantFault(t, check(t, make([]byte, 5000)), "is not a bundle")
	wantFault(t, check(t, append(stub(), make([]byte, 5000)...)), "the data after the executable is not a payload")
	wantFault(t, check(t, append(stub(), 1)), "the data after the executable is not a payload")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(self)
	wantFault(t, err, "is an executable without a payload")
	_, err = Open(t.TempDir())
	wantFault(t, err, "is not a regular file")
	_, err = Open(filepath.Join(t.TempDir(), "absent"))
	wantFault(t, err, "no such file")
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v is not os.ErrNotExist", err)
	}
}

// forge returns a file with the given parts and manifest, and with a correct header and
// trailer.
func forge(manifest []byte, parts ...[]byte) []byte {
	payload := bytes.Join(parts, nil)
	var d head.Digester
	d.Write(payload)
	digests, sum := d.Encode()
	t := head.Trailer{
		PayloadOffset:   uint64(len(stub())) + head.HeaderSize,
		PayloadSize:     uint64(len(payload)),
		HeadSize:        uint64(len(parts[0])),
		BinariesSize:    uint64(len(parts[1])),
		ManifestSize:    uint64(len(manifest)),
		InstallerSize:   uint64(len(executables().Installer)),
		LauncherSHA256:  sha256.Sum256(stub()),
		DigestsSHA256:   sum,
		ManifestSHA256:  sha256.Sum256(manifest),
		InstallerSHA256: sha256.Sum256(executables().Installer),
	}
	b := append(stub(), head.Header{FileSize: t.FileSize()}.Encode()...)
	b = append(append(b, payload...), digests...)
	return append(b, t.Encode()...)
}

func compress(b []byte, options ...zstd.EOption) []byte {
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, options...)
	if err != nil {
		panic(err)
	}
	w.Write(b[:len(b)/2])
	w.Flush() // otherwise the window of a small input would shrink to its size
	w.Write(b[len(b)/2:])
	w.Close()
	return out.Bytes()
}

func TestForgedTrailers(t *testing.T) {
	s := newSample()
	manifest, _ := s.manifest.Encode()
	good := forge(manifest, compress([]byte("x")), compress([]byte("y")), compress([]byte("z")))
	at := len(good) - head.TrailerSize
	for name, c := range map[string]struct {
		change func(*head.Trailer)
		want   string
	}{
		"offset 0":           {func(t *head.Trailer) { t.PayloadOffset = 0 }, "but its trailer expects 0"},
		"offset beyond":      {func(t *head.Trailer) { t.PayloadOffset += 1000 }, "but its trailer expects"},
		"offset overflows":   {func(t *head.Trailer) { t.PayloadOffset = 1<<64 - 1 }, "but its trailer expects 0"},
		"size overflows":     {func(t *head.Trailer) { t.PayloadSize = 1<<64 - 1 }, "but its trailer expects 0"},
		"offset in launcher": {func(t *head.Trailer) { t.PayloadOffset -= 10; t.PayloadSize += 10 }, "its header"},
		"no head":            {func(t *head.Trailer) { t.HeadSize = 0 }, "have 0 and"},
		"no images":          {func(t *head.Trailer) { t.BinariesSize = t.PayloadSize - t.HeadSize }, "the first two parts of the payload have"},
		"large head":         {func(t *head.Trailer) { t.HeadSize = t.PayloadSize }, "the first two parts of the payload have"},
		"head overflows":     {func(t *head.Trailer) { t.HeadSize = 1<<64 - 1 }, "the first two parts of the payload have"},
		"binaries overflow":  {func(t *head.Trailer) { t.BinariesSize = 1<<64 - 1 }, "the first two parts of the payload have"},
		"sum overflows":      {func(t *head.Trailer) { t.HeadSize = 2; t.BinariesSize = 1<<64 - 1 }, "the first two parts of the payload have"},
		"huge installer":     {func(t *head.Trailer) { t.InstallerSize = 1 << 41 }, "its installer has 2199023255552 bytes"},
		"huge manifest":      {func(t *head.Trailer) { t.ManifestSize = 1 << 40 }, "its manifest has 1099511627776 bytes"},
	} {
		tr, err := head.DecodeTrailer(good[at:])
		if err != nil {
			t.Fatal(err)
		}
		c.change(&tr)
		t.Run(name, func(t *testing.T) {
			wantFault(t, check(t, append(bytes.Clone(good[:at]), tr.Encode()...)), c.want)
		})
	}
}

// withManifest returns a correct file with this manifest and without entries.
func withManifest(manifest []byte) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	w.WriteHeader(tarHeader(ManifestName, int64(len(manifest))))
	w.Write(manifest)
	w.WriteHeader(tarHeader(InstallerName, int64(len(executables().Installer))))
	w.Write(executables().Installer)
	w.Flush()
	return forge(manifest, compress(b.Bytes()), nil, compress(make([]byte, tarEnd)))
}

// siteFile returns a change that adds a file, with content of its own if it names no entry.
func siteFile(f SiteFile) func(*Manifest) {
	return func(m *Manifest) {
		hex := strings.Repeat("cd", 32)
		if f.Entry == "" {
			f.Entry = FileName(hex)
		}
		m.Entries = append(m.Entries, Entry{f.Entry, 1, hex})
		m.Files = append(m.Files, f)
	}
}

func TestForgedManifests(t *testing.T) {
	hex := strings.Repeat("ab", 32)
	for name, c := range map[string]struct {
		change func(m *Manifest)
		want   string
	}{
		"version 0":            {func(m *Manifest) { m.FormatVersion = 0 }, "formatVersion is 0"},
		"version 2":            {func(m *Manifest) { m.FormatVersion = 2 }, "formatVersion is 2"},
		"no platform":          {func(m *Manifest) { m.Platform = "" }, `platform ""`},
		"other system":         {func(m *Manifest) { m.Platform = "windows/amd64" }, `platform "windows/amd64"`},
		"loose version":        {func(m *Manifest) { m.KubernetesVersion = "v1.29" }, `kubernetesVersion "v1.29"`},
		"version with newline": {func(m *Manifest) { m.KubernetesVersion = "v1.29.15\n" }, "kubernetesVersion"},
		"no network":           {func(m *Manifest) { m.CNI = "" }, "cni"},
		"loose nearest":        {func(m *Manifest) { m.NearestKnown = "v1.28" }, `nearestKnown "v1.28"`},
		"nearest is the same":  {func(m *Manifest) { m.NearestKnown = m.KubernetesVersion }, `nearestKnown "v1.29.15"`},

		"control characters in a signer": {func(m *Manifest) { m.Components[0].SignedBy = "a\x1b[2J" }, "signedBy"},
		"long signer":                    {func(m *Manifest) { m.Images[0].SignedBy = strings.Repeat("a", 4097) }, "signedBy"},
		"everyNode of a user's image": {func(m *Manifest) { m.Images[0].Name, m.Images[0].EveryNode = m.Images[0].Reference, true },
			"everyNode is only for images of a control plane"},

		"manifest without entry": {func(m *Manifest) { m.Manifests = []SiteManifest{{Name: "app"}} }, `entry "manifests/app.yaml" does not exist`},
		"manifest by a path":     {func(m *Manifest) { m.Manifests = []SiteManifest{{Name: "../app"}} }, `manifest name "../app"`},
		"unclaimed manifest": {func(m *Manifest) {
			m.Entries = append(m.Entries, Entry{"manifests/app.yaml", 1, hex})
		}, `nothing in the bundle uses the entry "manifests/app.yaml"`},
		"huge manifest": {func(m *Manifest) {
			m.Manifests = []SiteManifest{{Name: "app"}}
			m.Entries = append(m.Entries, Entry{"manifests/app.yaml", MaxManifest + 1, hex})
		}, "16777217 bytes are more"},
		"manifest twice": {func(m *Manifest) {
			m.Manifests = []SiteManifest{{Name: "app"}, {Name: "app"}}
			m.Entries = append(m.Entries, Entry{"manifests/app.yaml", 1, hex})
		}, `manifest "app" is listed twice`},
		"loose namespace":   {func(m *Manifest) { m.Manifests = []SiteManifest{{Name: "app", Namespace: "a/b"}} }, `namespace "a/b"`},
		"default namespace": {func(m *Manifest) { m.Manifests = []SiteManifest{{Name: "app", Namespace: "default"}} }, `namespace "default" is the default`},
		"relative file":     {siteFile(SiteFile{"etc/motd", "0644", "", ""}), `file "etc/motd" is not a clean absolute path`},
		"climbing file":     {siteFile(SiteFile{"/etc/../motd", "0644", "", ""}), `file "/etc/../motd" is not a clean absolute path`},
		"setuid file":       {siteFile(SiteFile{"/etc/motd", "4755", "", ""}), `mode "4755"`},
		"file of some":      {siteFile(SiteFile{"/etc/motd", "0644", "some", ""}), `nodes "some"`},
		"file without entry": {func(m *Manifest) {
			m.Files = []SiteFile{{"/etc/motd", "0644", "", "files/" + hex}}
		}, "entry \"files/" + hex + "\" does not exist"},
		"file that is a binary": {func(m *Manifest) {
			m.Files = []SiteFile{{"/etc/motd", "0644", "", m.Entries[0].Name}}
		}, "does not exist in files/"},
		"files by another name": {siteFile(SiteFile{"/etc/motd", "0644", "", "files/motd"}), "not named by a sha256"},
		"unit without file":     {func(m *Manifest) { m.Units = []SiteUnit{{Name: "x.service"}} }, `unit "x.service": no file "/etc/systemd/system/x.service"`},
		"unit by a path":        {func(m *Manifest) { m.Units = []SiteUnit{{Name: "../x.service"}} }, "is not a systemd unit's name"},
		"sbom without entry":    {func(m *Manifest) { m.SBOMs = []SBOM{{"a", "sbom/a"}} }, `sbom "a": entry "sbom/a" does not exist in sbom/`},
		"sbom that is a binary": {func(m *Manifest) { m.SBOMs = []SBOM{{"a", m.Entries[0].Name}} }, "does not exist in sbom/"},
		"unclaimed sbom": {func(m *Manifest) {
			m.Entries = append(m.Entries, Entry{"sbom/a", 1, hex})
		}, `nothing in the bundle uses the entry "sbom/a"`},
		"sbom of two formats": {func(m *Manifest) {
			m.Entries = append(m.Entries, Entry{"sbom/a", 1, hex})
			m.SBOMs = []SBOM{{"a", "sbom/a"}, {"b", "sbom/a"}}
		}, `sbom "b": entry "sbom/a" belongs to two formats`},
		"sboms out of order": {func(m *Manifest) {
			m.Entries = append(m.Entries, Entry{"sbom/a", 1, hex}, Entry{"sbom/b", 1, hex})
			m.SBOMs = []SBOM{{"b", "sbom/a"}, {"a", "sbom/b"}}
		}, `sbom "a" is listed twice or out of order`},
		"huge sbom": {func(m *Manifest) {
			m.Entries = append(m.Entries, Entry{"sbom/a", 1 << 30, hex})
			m.SBOMs = []SBOM{{"a", "sbom/a"}}
		}, "more than the 268435456 allowed"},
		"sbom of a format with spaces": {func(m *Manifest) { m.SBOMs = []SBOM{{"a b", "sbom/a"}} }, `sbom format "a b"`},

		"absolute name":     {func(m *Manifest) { m.Entries[0].Name = "/bin/runc" }, "is not directly in"},
		"climbing name":     {func(m *Manifest) { m.Entries[0].Name = "bin/../runc" }, "is not directly in"},
		"dots":              {func(m *Manifest) { m.Entries[0].Name = "bin/.." }, "not a plain file name"},
		"hidden":            {func(m *Manifest) { m.Entries[0].Name = "bin/.runc" }, "not a plain file name"},
		"option":            {func(m *Manifest) { m.Entries[0].Name = "bin/-rf" }, "not a plain file name"},
		"deeper":            {func(m *Manifest) { m.Entries[0].Name = "bin/a/runc" }, "is not directly in"},
		"no name":           {func(m *Manifest) { m.Entries[0].Name = "" }, "is not directly in"},
		"directory":         {func(m *Manifest) { m.Entries[0].Name = "bin/" }, "not a plain file name"},
		"backslash":         {func(m *Manifest) { m.Entries[0].Name = `bin/a\b` }, "not a plain file name"},
		"NUL":               {func(m *Manifest) { m.Entries[0].Name = "bin/a\x00b" }, "not a plain file name"},
		"long name":         {func(m *Manifest) { m.Entries[0].Name = "bin/" + strings.Repeat("a", 252) }, "not a plain file name"},
		"the manifest":      {func(m *Manifest) { m.Entries[0].Name = "manifest.json" }, "is not directly in"},
		"entry twice":       {func(m *Manifest) { m.Entries[1].Name = m.Entries[0].Name }, "listed twice"},
		"negative size":     {func(m *Manifest) { m.Entries[0].Size = -1 }, "size -1"},
		"huge size":         {func(m *Manifest) { m.Entries[0].Size = 1 << 41 }, "size 2199023255552"},
		"short digest":      {func(m *Manifest) { m.Entries[0].SHA256 = "ab" }, "64 lower-case hex digits"},
		"upper-case digest": {func(m *Manifest) { m.Entries[0].SHA256 = strings.ToUpper(hex) }, "64 lower-case hex digits"},
		"blob by another name": {func(m *Manifest) {
			m.Entries[3].SHA256 = hex
		}, "differs from the name"},
		"blob without digest": {func(m *Manifest) { m.Entries[3].Name = BlobDir + "base" }, "not named by a sha256"},
		"unclaimed binary": {func(m *Manifest) {
			m.Entries = append([]Entry{{"bin/x", 1, hex}}, m.Entries...)
		}, `nothing in the bundle uses the entry "bin/x"`},
		"unclaimed blob": {func(m *Manifest) {
			m.Entries = append(m.Entries, Entry{BlobDir + hex, 1, hex})
		}, "nothing in the bundle uses the entry"},

		"component twice":         {func(m *Manifest) { m.Components[1].Name = m.Components[0].Name }, "twice or out of order"},
		"components out of order": {func(m *Manifest) { c := m.Components; c[0], c[1] = c[1], c[0] }, "twice or out of order"},
		"component without entry": {func(m *Manifest) { m.Components[0].Entries = []string{"bin/none"} }, `entry "bin/none" does not exist`},
		"component with blob":     {func(m *Manifest) { m.Components[0].Entries = []string{m.Entries[3].Name} }, "is not in bin"},
		"entry claimed twice":     {func(m *Manifest) { m.Components[0].Entries = []string{"bin/runc"} }, "belongs to two components"},
		"component no version":    {func(m *Manifest) { m.Components[0].Version = "" }, "version is empty"},
		"terminal escape":         {func(m *Manifest) { m.Components[0].URL = "https://x/\x1b[2J" }, "not printable ASCII"},
		"long url":                {func(m *Manifest) { m.Components[0].URL = strings.Repeat("x", 5000) }, "5000 bytes long"},
		"checksum of other kind":  {func(m *Manifest) { m.Components[0].Checksum = "md5:1234" }, "checksum"},

		"image twice":           {func(m *Manifest) { m.Images[1].Name = m.Images[0].Name }, "is listed twice"},
		"reference twice":       {func(m *Manifest) { m.Images[1].Reference = m.Images[0].Reference }, "is listed twice"},
		"image without blob":    {func(m *Manifest) { m.Images[0].Config.Digest = "sha256:" + hex }, "config: entry"},
		"image with bad blob":   {func(m *Manifest) { m.Images[0].Config.Digest = "sha256:../../x" }, "config:"},
		"blob of other size":    {func(m *Manifest) { m.Images[0].Manifest.Size++ }, "manifest: size is"},
		"layer missing":         {func(m *Manifest) { m.Images[1].Layers[1].DiffID = "sha256:" + hex }, "layer 2: entry"},
		"layer of other size":   {func(m *Manifest) { m.Images[1].Layers[1].Size++ }, "layer 2: size is"},
		"no media type":         {func(m *Manifest) { m.Images[0].Target.MediaType = "" }, "media type is empty"},
		"one blob, two types":   {func(m *Manifest) { m.Images[1].Target.MediaType += "x" }, "two media types"},
		"indexes of a manifest": {func(m *Manifest) { m.Images[1].Indexes = []Descriptor{m.Images[0].Target} }, "with indexes between them"},
		"index without blob": {func(m *Manifest) {
			m.Images[0].Indexes = []Descriptor{{MediaType: "a", Digest: "sha256:" + hex, Size: 1}}
		}, "index: entry"},
		"large index": {func(m *Manifest) {
			m.Images[0].Indexes = []Descriptor{{MediaType: "a", Digest: m.Images[0].Target.Digest, Size: MaxDocument + 1}}
		}, "index: 4194305 bytes are more than"},
		"another digest in the reference": {func(m *Manifest) {
			m.Images[0].Reference = "registry.example/a@sha256:" + hex
		}, "has another digest than the target"},
		"a huge config":        {func(m *Manifest) { m.Images[0].Config.Size = 5 << 20 }, "more than the 4194304 allowed"},
		"control in reference": {func(m *Manifest) { m.Images[0].Reference = "x\r" }, "not printable ASCII"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newSample().manifest
			c.change(m)
			if _, err := m.Encode(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Encode: %v, want %q", err, c.want)
			}
			wantFault(t, check(t, withManifest(m.canonical())), c.want)
		})
	}
}

// JSON that parsers may read differently is not accepted as a manifest.
func TestManifestHasOneForm(t *testing.T) {
	good, err := newSample().manifest.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if m, err := DecodeManifest(good); err != nil || m.Entries[1].Name != "bin/kubelet" {
		t.Fatal(m, err)
	}
	replace := func(old, new string) []byte {
		if !bytes.Contains(good, []byte(old)) {
			t.Fatalf("the manifest has no %s", old)
		}
		return bytes.Replace(good, []byte(old), []byte(new), 1)
	}
	for name, c := range map[string]struct {
		json []byte
		want string
	}{
		"empty":            {nil, "truncated"},
		"cut short":        {good[:len(good)/2], "truncated"},
		"not JSON":         {[]byte("hello"), "invalid character"},
		"null":             {[]byte("null\n"), "formatVersion is 0"},
		"a list":           {[]byte("[]\n"), "cannot unmarshal"},
		"unknown field":    {replace(`  "platform"`, `  "evil": 1, "platform"`), "unknown field"},
		"duplicate key":    {replace(`  "cni": "flannel",`, `  "cni": "none", "cni": "flannel",`), "canonical"},
		"other case":       {replace(`"cni"`, `"CNI"`), "canonical"},
		"no newline":       {good[:len(good)-1], "canonical"},
		"more behind":      {append(bytes.Clone(good), '\n'), "canonical"},
		"second value":     {append(bytes.Clone(good), good...), "canonical"},
		"other space":      {replace("  ", "\t"), "canonical"},
		"other order":      {replace("\"platform\": \"linux/amd64\",\n  \"kubernetesVersion\": \"v1.29.15\"", "\"kubernetesVersion\": \"v1.29.15\",\n  \"platform\": \"linux/amd64\""), "canonical"},
		"false everyNode":  {replace(`      "target"`, "      \"everyNode\": false,\n      \"target\""), "canonical"},
		"empty nearest":    {replace("  \"cni\"", "  \"nearestKnown\": \"\",\n  \"cni\""), "canonical"},
		"escaped letters":  {replace(`"flannel"`, `"fl\u0061nnel"`), "canonical"},
		"float size":       {replace(`"size": 9000`, `"size": 9e3`), "cannot unmarshal"},
		"null list":        {replace("\"entries\": [\n        \"bin/kubelet\"\n      ]", `"entries": null`), "nothing in the bundle uses the entry"},
		"overflowing size": {replace(`"size": 9000`, `"size": 99999999999999999999`), "cannot unmarshal"},
		"deeply nested":    {bytes.Repeat([]byte("["), 1<<20), "exceeded max depth"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeManifest(c.json)
			wantFault(t, err, c.want)
		})
	}
	compact := new(bytes.Buffer)
	if err := json.Compact(compact, good); err != nil {
		t.Fatal(err)
	}
	_, err = DecodeManifest(compact.Bytes())
	wantFault(t, err, "canonical")
}

// Matching digests do not mean that the documents of an image match.
func TestInconsistentImages(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *Manifest)
		want   string
	}{
		"index of another": {func(m *Manifest) {
			m.Images[0].Manifest, m.Images[0].Config, m.Images[0].Layers = m.Images[1].Manifest, m.Images[1].Config, m.Images[1].Layers
		}, "does not list manifest"},
		"index that the target does not list": {func(m *Manifest) {
			m.Images[0].Indexes = []Descriptor{m.Images[1].Manifest}
		}, "does not list manifest"},
		"other config": {func(m *Manifest) { m.Images[1].Config = m.Images[0].Config }, "has config"},
		"other layers": {func(m *Manifest) { m.Images[1].Layers = m.Images[1].Layers[:1] }, "lists other layers"},
		"layers reversed": {func(m *Manifest) {
			l := m.Images[1].Layers
			m.Images[1].Layers = []Layer{l[1], l[0]}
		}, "lists other layers"},
		"other platform": {func(m *Manifest) { m.Platform = "linux/arm64" }, "is for linux/amd64, not linux/arm64"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSample()
			c.change(s.manifest)
			// A third image uses the entries that the change leaves unused.
			o := newSample().manifest
			for n, i := range o.Images {
				i.Name, i.Reference = fmt.Sprint("keep", n), fmt.Sprint("keep:", n)
				s.manifest.Images = append(s.manifest.Images, i)
			}
			wantFault(t, checkFile(t, s.write(t)), c.want)
		})
	}
}

func TestELFEnd(t *testing.T) {
	self, err := os.Executable() // linked by Go: the table of sections is at the front
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	i, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if end, ok := head.ELFEnd(f); !ok || end != i.Size() {
		t.Errorf("%s ends at %d, %v; its size is %d", self, end, ok, i.Size())
	}
	for at := range 200 {
		for bit := range 8 {
			b := stub()
			b[at] ^= 1 << bit
			if end, ok := head.ELFEnd(bytes.NewReader(b)); ok && end < 0 {
				t.Errorf("bit %d of byte %d flipped: ends at %d", bit, at, end)
			}
		}
	}
}
