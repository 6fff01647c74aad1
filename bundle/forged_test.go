package bundle

import (
	"archive/tar"
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"airlift/bundle/head"
)

// A forgedFile is one file of a forged tar.
type forgedFile struct {
	tar.Header
	content []byte
}

// forgedFiles are the files of the sample's payload and its manifest.
func forgedFiles(t *testing.T) (fs []forgedFile, manifest []byte) {
	t.Helper()
	s := newSample()
	manifest, err := s.manifest.Encode()
	if err != nil {
		t.Fatal(err)
	}
	installer := executables().Installer
	fs = []forgedFile{
		{*tarHeader(ManifestName, int64(len(manifest))), manifest},
		{*tarHeader(InstallerName, int64(len(installer))), installer},
	}
	for _, e := range s.manifest.Entries {
		fs = append(fs, forgedFile{*tarHeader(e.Name, e.Size), s.content[e.Name]})
	}
	return fs, manifest
}

// The indexes at which the parts begin in forgedFiles.
const (
	binariesAt = 2
	blobsAt    = 5
)

// pack returns a section of a tar; last adds the tar's end.
func pack(t *testing.T, fs []forgedFile, last bool) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range fs {
		if err := w.WriteHeader(&f.Header); err != nil {
			t.Fatal(err)
		}
		w.Write(f.content)
	}
	end := w.Flush
	if last {
		end = w.Close
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// packed returns the three sections of the tar of fs, divided correctly.
func packed(t *testing.T, fs []forgedFile) [][]byte {
	t.Helper()
	return [][]byte{pack(t, fs[:binariesAt], false), pack(t, fs[binariesAt:blobsAt], false), pack(t, fs[blobsAt:], true)}
}

func TestForgedPayloads(t *testing.T) {
	_, manifest := forgedFiles(t)
	fresh := func() []forgedFile { fs, _ := forgedFiles(t); return fs }
	whole := packed(t, fresh())
	honest := [][]byte{compress(whole[0]), compress(whole[1]), compress(whole[2])}
	if err := check(t, forge(manifest, honest...)); err != nil {
		t.Fatal("the honest forgery:", err)
	}
	installer := executables().Installer

	// with returns the correct payload with one part replaced.
	with := func(n int, part []byte) [][]byte {
		parts := slices.Clone(honest)
		parts[n] = part
		return parts
	}
	first := func(change func(fs []forgedFile) []forgedFile) [][]byte {
		return with(0, compress(pack(t, change(fresh()[:binariesAt:binariesAt]), false)))
	}
	middle := func(change func(fs []forgedFile) []forgedFile) [][]byte {
		return with(1, compress(pack(t, change(fresh()[binariesAt:blobsAt:blobsAt]), false)))
	}
	images := func(change func(fs []forgedFile) []forgedFile) [][]byte {
		return with(2, compress(pack(t, change(fresh()[blobsAt:]), true)))
	}
	// zeros is a frame that decompresses to more than any entry of the sample.
	zeros := compress(make([]byte, 1<<24))
	skippable := append([]byte{0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0}, "hide"...)

	for _, c := range []struct {
		name  string
		parts [][]byte
		want  string
	}{
		{"not zstd", with(0, []byte("plain text, not compressed")), `its payload's part "head"`},
		{"binaries are not zstd", with(1, []byte("plain text, not compressed")), `its payload's part "binaries"`},
		{"a byte of images", with(2, []byte{0x28}), `its payload's part "images": unexpected EOF`},
		{"no manifest", first(func(fs []forgedFile) []forgedFile { return fs[1:] }), `entry "manifest.json": the tar has "install" at its position`},
		{"no installer", first(func(fs []forgedFile) []forgedFile { return fs[:1] }), `entry "install": the payload's part "head" ends before it`},
		{"other installer", first(func(fs []forgedFile) []forgedFile {
			fs[1].content = append([]byte("x"), installer[1:]...)
			return fs
		}), `entry "install": its sha256`},
		{"shorter installer", first(func(fs []forgedFile) []forgedFile {
			fs[1].content = fs[1].content[1:]
			fs[1].Size--
			return fs
		}), `entry "install": it has 3000 bytes, expected 3001`},
		{"other manifest", first(func(fs []forgedFile) []forgedFile {
			fs[0].content = bytes.Replace(manifest, []byte("v1.29.15"), []byte("v1.29.14"), 1)
			return fs
		}), `entry "manifest.json": its sha256`},
		{"shorter manifest", first(func(fs []forgedFile) []forgedFile {
			fs[0].content = manifest[1:]
			fs[0].Size--
			return fs
		}), `entry "manifest.json": it has`},
		{"a binary in the head", first(func(fs []forgedFile) []forgedFile { return append(fs, fresh()[2]) }), `its payload's part "head" continues after its last entry`},
		{"a tar's end in the head", with(0, compress(pack(t, fresh()[:binariesAt], true))), `its payload's part "head" continues after its last entry`},
		{"a tar's end in the binaries", with(1, compress(pack(t, fresh()[binariesAt:blobsAt], true))), `its payload's part "binaries" continues after its last entry`},

		{"a binary less", middle(func(fs []forgedFile) []forgedFile { return fs[:2] }), `entry "cni/bridge": the payload's part "binaries" ends before it`},
		{"a binary more", middle(func(fs []forgedFile) []forgedFile { return append(fs, forgedFile{*tarHeader("bin/more", 0), nil}) }), `its payload's part "binaries" continues after its last entry`},
		{"a binary twice", middle(func(fs []forgedFile) []forgedFile { return append(fs[:1], fs...) }), `entry "bin/kubelet": the tar has "bin/runc" at its position`},
		{"a blob among binaries", middle(func(fs []forgedFile) []forgedFile { return append(fs, fresh()[blobsAt]) }), `its payload's part "binaries" continues after its last entry`},
		{"a binary among blobs", images(func(fs []forgedFile) []forgedFile { return append(fresh()[2:3], fs...) }), `the tar has "bin/runc" at its position`},
		{"other order", middle(func(fs []forgedFile) []forgedFile { fs[0], fs[1] = fs[1], fs[0]; return fs }), `entry "bin/runc": the tar has "bin/kubelet" at its position`},
		{"a climbing name", middle(func(fs []forgedFile) []forgedFile { fs[0].Name = "../bin/runc"; return fs }), `the tar has "../bin/runc" at its position`},
		{"a directory", middle(func(fs []forgedFile) []forgedFile {
			fs[0] = forgedFile{tar.Header{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o755}, nil}
			return fs
		}), `entry "bin/runc": it is not a regular file but of tar type '5'`},
		{"a symlink", middle(func(fs []forgedFile) []forgedFile {
			fs[0] = forgedFile{tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/runc", Linkname: "/etc/passwd"}, nil}
			return fs
		}), "tar type '2'"},
		{"a device", middle(func(fs []forgedFile) []forgedFile {
			fs[0] = forgedFile{tar.Header{Typeflag: tar.TypeChar, Name: "bin/runc", Devmajor: 1}, nil}
			return fs
		}), "tar type '3'"},
		{"a PAX record", middle(func(fs []forgedFile) []forgedFile {
			fs[0].PAXRecords = map[string]string{"AIRLIFT.x": "y"}
			return fs
		}), `entry "bin/runc": the tar does not follow the manifest`},
		{"a GNU long name", middle(func(fs []forgedFile) []forgedFile {
			fs[0].Name = strings.Repeat("x", 300)
			fs[0].Format = tar.FormatGNU
			return fs
		}), `entry "bin/runc": the tar does not follow`},
		{"a shorter entry", middle(func(fs []forgedFile) []forgedFile {
			fs[1].content = fs[1].content[1:]
			fs[1].Size--
			return fs
		}), `entry "bin/kubelet": it has 20000 bytes, expected 20001`},
		{"cut within an entry", with(1, compress(whole[1][:20_000])), `entry "bin/kubelet": unexpected EOF`},
		{"cut within a padding", with(0, compress(whole[0][:len(whole[0])-1])), `the end of its payload's part "head": unexpected EOF`},

		{"a blob less", images(func(fs []forgedFile) []forgedFile { return fs[:len(fs)-1] }), "the tar does not follow the manifest"},
		{"a blob more", images(func(fs []forgedFile) []forgedFile {
			return append(fs, forgedFile{*tarHeader(BlobName(strings.Repeat("ab", 32)), 0), nil})
		}), "entries that the manifest does not list"},
		{"no end", with(2, compress(whole[2][:len(whole[2])-tarEnd])), "the end of the tar is missing"},
		{"half an end", with(2, compress(whole[2][:len(whole[2])-head.TarBlock])), "its payload"},
		{"an end cut short", with(2, compress(whole[2][:len(whole[2])-1])), "its payload"},

		{"megabytes in the head", with(0, zeros), `entry "manifest.json"`},
		{"megabytes in the binaries", with(1, zeros), `entry "bin/runc"`},
		{"megabytes in the images", with(2, zeros), `entry "blobs/sha256/`},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantFault(t, check(t, forge(manifest, c.parts...)), c.want)
		})
	}

	// Errors that are possible in each part.
	for n, name := range []string{HeadPart, BinariesPart, ImagesPart} {
		plain, frame := whole[n], honest[n]
		behind := `its payload's part "` + name + `" continues after its last entry`
		for _, c := range []struct {
			what string
			part []byte
			want string
		}{
			{"a block more", compress(append(bytes.Clone(plain), make([]byte, head.TarBlock)...)), behind},
			{"a byte more", compress(append(bytes.Clone(plain), 0)), behind},
			{"megabytes more", compress(append(bytes.Clone(plain), make([]byte, 1<<24)...)), behind},
			{"two frames", append(compress(plain[:700]), compress(plain[700:])...), errBehindFrame.Error()},
			{"an empty frame behind", append(bytes.Clone(frame), compress(nil)...), errBehindFrame.Error()},
			{"a skippable frame behind", append(bytes.Clone(frame), skippable...), errBehindFrame.Error()},
			{"a skippable frame before", append(bytes.Clone(skippable), frame...), "does not begin with a zstd frame"},
			{"garbage behind", append(bytes.Clone(frame), "garbage, and more of it"...), errBehindFrame.Error()},
			{"a little garbage", append(bytes.Clone(frame), 'x'), errBehindFrame.Error()},
			{"zeros behind", append(bytes.Clone(frame), 0, 0, 0, 0), errBehindFrame.Error()},
			{"cut short", frame[:len(frame)-1], "is damaged"},
			{"the checksum cut off", frame[:len(frame)-4], "is damaged"},
			{"too large a window", compress(plain, zstd.WithWindowSize(256<<20)), "window size exceeded"},
		} {
			t.Run(name+", "+c.what, func(t *testing.T) {
				wantFault(t, check(t, forge(manifest, with(n, c.part)...)), c.want)
			})
		}
	}
}

// Sizes of parts with the right sum, but with wrong frame boundaries.
func TestShiftedParts(t *testing.T) {
	fs, manifest := forgedFiles(t)
	pieces := packed(t, fs)
	payload := [][]byte{compress(pieces[0]), compress(pieces[1]), compress(pieces[2])}
	whole := bytes.Join(payload, nil)
	h, b := len(payload[0]), len(payload[1])
	for _, c := range []struct {
		name           string
		head, binaries int
	}{
		{"a byte too little", h - 1, b},
		{"a byte too much", h + 1, b},
		{"binaries a byte too little", h, b - 1},
		{"binaries a byte too much", h, b + 1},
		{"the head is one byte", 1, h + b - 1},
		{"the head is all but the images' last byte", len(whole) - 1, 0},
		{"the binaries are the head's", h + b, 0},
		{"the binaries are the images'", h, 0},
		{"the images are the binaries'", h, len(whole) - h - 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantFault(t, check(t, forge(manifest, whole[:c.head], whole[c.head:c.head+c.binaries], whole[c.head+c.binaries:])), "is damaged")
		})
	}
	// A manifest without binaries, and a part binaries that unpacks to nothing.
	empty := &Manifest{FormatVersion: FormatVersion, Platform: "linux/amd64", KubernetesVersion: "v1.29.15", CNI: "none"}
	manifest, err := empty.Encode()
	if err != nil {
		t.Fatal(err)
	}
	first := pack(t, []forgedFile{{*tarHeader(ManifestName, int64(len(manifest))), manifest}, fs[1]}, false)
	last := compress(make([]byte, tarEnd))
	if err := check(t, forge(manifest, compress(first), nil, last)); err != nil {
		t.Error("without binaries:", err)
	}
	wantFault(t, check(t, forge(manifest, compress(first), compress([]byte{0}), last)), `its payload's part "binaries" has`)
}
