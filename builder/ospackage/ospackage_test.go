package ospackage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"

	"airlift/scripts/fixtures/distro"
	"airlift/scripts/fixtures/rig"
	_ "airlift/scripts/fixtures/seed"
)

func readFile(t testing.TB, file string) (*Package, []byte, error) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Read(bytes.NewReader(data))
	return p, data, err
}

func TestDeb(t *testing.T) {
	p, data, err := readFile(t, distro.Deb(t, t.TempDir(), distro.Package{Name: "chrony", Version: "1:4.3-2+deb12u1", Arch: "amd64",
		Fields: "Source: chrony-src (4.3-2)\nPre-Depends: init (>= 1)\nDepends: adduser,\n libc6 (>= 2.36) | libc7 (>> 3), time-daemon:any\nConflicts: time-daemon, ntp (<< 1)\nBreaks: old (<= 2)\nProvides: time-daemon (= 1), x\nMulti-Arch: foreign"}))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(p.String(), "|", p.Arch, "|", p.Source, "|", p.SourceVersion, "|", p.Signature, "|", p.requires, "|", p.preRequires, "|", p.conflicts, "|", p.provides, "|", p.multiArch)
	if want := "chrony 1:4.3-2+deb12u1|amd64|chrony-src|4.3-2||[init (>= 1) adduser libc6 (>= 2.36) | libc7 (> 3) time-daemon:any]|[init (>= 1)]|[time-daemon ntp (< 1) old (<= 2)]|[time-daemon (= 1) x]|foreign"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if !p.Fits("amd64") || p.Fits("arm64") {
		t.Error("architectures")
	}
	for n := range len(data) { // cut off anywhere
		if _, err := Read(bytes.NewReader(data[:n])); err == nil {
			t.Fatalf("%d of %d bytes are read", n, len(data))
		}
	}
}

// Real dpkg-deb compresses in all of its ways.
func TestCompressions(t *testing.T) {
	rig.Tool(t, "dpkg-deb")
	for _, compression := range []string{"none", "gzip", "xz", "zstd"} {
		dir := t.TempDir()
		control := filepath.Join(dir, "tree/DEBIAN/control")
		if err := os.MkdirAll(filepath.Dir(control), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(control, []byte("Package: tool\nVersion: 1.0-1\nArchitecture: all\nMaintainer: A <a@example.com>\nDescription: a test\n with lines\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "renamed.bin")
		if out, err := exec.Command("dpkg-deb", "-Z"+compression, "--root-owner-group", "--build", filepath.Join(dir, "tree"), file).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if p, _, err := readFile(t, file); err != nil || p.String() != "tool 1.0-1" || p.Arch != "all" {
			t.Errorf("%s: %v, %v", compression, p, err)
		}
	}
}

func TestRPM(t *testing.T) {
	p, data, err := readFile(t, distro.RPM(t, t.TempDir(), distro.Package{Name: "iscsi", Version: "6.2-3.el9", Fields: "Epoch: 2\nRequires: /bin/sh, libfoo.so.1()(64bit), y >= 2\nConflicts: q < 3\nObsoletes: oldx < 1\nProvides: virt = 4"}))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(p.String(), "|", p.Arch, "|", p.Source, "|", p.SourceVersion, "|", p.requires, "|", p.conflicts, "|", p.obsoletes)
	if want := "iscsi 2:6.2-3.el9|noarch|iscsi|6.2-3.el9|[/bin/sh libfoo.so.1()(64bit) y (>= 2)]|[q (< 3)]|[oldx (< 1)]"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if _, ok := p.files["/usr/share/iscsi/version"]; !ok || !strings.Contains(fmt.Sprint(p.provides), "virt (= 4)") {
		t.Errorf("%v %v", p.files, p.provides)
	}
	for n := range len(data) {
		if _, err := Read(bytes.NewReader(data[:n])); err == nil {
			t.Fatalf("%d of %d bytes are read", n, len(data))
		}
	}
}

// A hostile header does not make the build use more memory than a small multiple of its size, whatever is in its index.
func TestHostileHeaders(t *testing.T) {
	lead := rpmMagic + strings.Repeat("\x00", 92)
	signatures := "\x8e\xad\xe8\x01" + strings.Repeat("\x00", 12)
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 1<<20).Draw(t, "size")
		var index bytes.Buffer
		entries := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) entry {
			return entry{
				rapid.SampledFrom([]uint32{tagName, tagSourceRPM, tagProvideName, tagProvideFlags, tagRequireName, tagBaseNames, tagDirNames, tagDirIndexes, tagFileModes, tagFileDigests}).Draw(t, "tag"),
				rapid.SampledFrom([]uint32{3, 4, 5, 6, 7, 8, 9}).Draw(t, "kind"), rapid.SampledFrom([]uint32{0, 0, 0, 1, uint32(size / 2), uint32(size)}).Draw(t, "offset"),
				rapid.SampledFrom([]uint32{0, 1, 1000, maxValues, maxValues + 1, 1<<32 - 1}).Draw(t, "count"),
			}
		}), 1, 40).Draw(t, "entries")
		for _, e := range entries {
			_ = binary.Write(&index, binary.BigEndian, e)
		}
		head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte("\x8e\xad\xe8\x01\x00\x00\x00\x00"), uint32(len(entries))), uint32(size))
		file := slices.Concat([]byte(lead+signatures), head, index.Bytes(), make([]byte, size))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = Read(bytes.NewReader(file))
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 256*uint64(size)+1<<20 {
			t.Fatalf("a header of %d bytes used %d", size, used)
		}
	})
	// Whatever its size, a value has no more parts than the largest packages.
	header := slices.Concat([]byte(lead+signatures+"\x8e\xad\xe8\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x20\x00\x00"), []byte("\x00\x00\x03\xe8\x00\x00\x00\x08\x00\x00\x00\x00\x00\x10\x00\x01"), make([]byte, 2<<20))
	if _, err := Read(bytes.NewReader(header)); err == nil || !strings.Contains(err.Error(), "1048577 parts") {
		t.Errorf("%v", err)
	}
}

// Changed bytes are an error or another package, never a crash.
func TestHostileFiles(t *testing.T) {
	deb, err := os.ReadFile(distro.Deb(t, t.TempDir(), distro.Package{Name: "a", Version: "1", Fields: "Depends: b"}))
	if err != nil {
		t.Fatal(err)
	}
	// Headers of rpm: lead, signatures and header with one text each.
	header := "\x8e\xad\xe8\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x08\x00\x00\x03\xe8\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00\x01name\x00\x00\x00\x00"
	rpm := []byte(rpmMagic + strings.Repeat("\x00", 92) + header + header)
	rapid.Check(t, func(t *rapid.T) {
		data := bytes.Clone(rapid.SampledFrom([][]byte{deb, rpm}).Draw(t, "file"))
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			data[rapid.IntRange(8, len(data)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		_, _ = Read(bytes.NewReader(data))
	})
}

func TestNames(t *testing.T) {
	for _, p := range []distro.Package{{Name: "-i", Version: "1"}, {Name: "../a", Version: "1"}, {Name: "aa", Version: "1 2"}, {Name: "aa", Version: "-1"}, {Name: "Upper", Version: "1"}, {Name: "aa", Version: "1/2"}} {
		bad := Package{Format: Deb, Name: p.Name, Version: p.Version, Arch: "all"}
		if err := bad.check(); err == nil {
			t.Errorf("%q %q is accepted", p.Name, p.Version)
		}
	}
	for _, text := range []string{"no package", "!<arch>\nxxx", "PK\x03\x04", ""} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

// someVersion draws versions that are close to each other.
func someVersion(t *rapid.T, name string) string {
	return rapid.StringMatching(`([01]:)?[0-2]{1,2}([.+~][0-2a]{1,2}){0,2}(-[0-2]{1,2}([.+~]b?[0-2]){0,1})?`).Draw(t, name)
}

// The order of versions is the one of dpkg and of rpm.
func TestVersions(t *testing.T) {
	rig.Tool(t, "dpkg")
	rig.Tool(t, "rpm")
	rapid.Check(t, func(t *rapid.T) {
		a, b := someVersion(t, "a"), someVersion(t, "b")
		got, err := Compare(Deb, a, b)
		if err != nil {
			t.Fatal(err)
		}
		if want := exec.Command("dpkg", "--compare-versions", a, map[int]string{-1: "lt", 0: "eq", 1: "gt"}[sign(got)], b).Run(); want != nil {
			t.Errorf("%s and %s: %d, dpkg disagrees", a, b, got)
		}
		_, x, _ := strings.Cut("0:"+strings.TrimPrefix(strings.TrimPrefix(a, "0:"), "1:"), ":")
		_, y, _ := strings.Cut("0:"+strings.TrimPrefix(strings.TrimPrefix(b, "0:"), "1:"), ":")
		x, _, _ = strings.Cut(x, "-") // vercmp compares one part
		y, _, _ = strings.Cut(y, "-")
		if rapid.Bool().Draw(t, "caret") {
			x = strings.ReplaceAll(x, "+", "^")
		}
		out, err := exec.Command("rpm", "--eval", fmt.Sprintf("%%{lua:print(rpm.vercmp(%q, %q))}", x, y)).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Compare(RPM, x, y); err != nil || fmt.Sprint(sign(got)) != strings.TrimSpace(string(out)) {
			t.Errorf("%s and %s: %d, rpm has %s, %v", x, y, got, out, err)
		}
	})
}

func sign(n int) int { return max(-1, min(1, n)) }

// A signature names its key, in both forms and with both kinds of lengths.
func TestSignature(t *testing.T) {
	// Version 4, with the fingerprint as a hashed and the ID as an unhashed subpacket.
	body := "\x04\x00\x01\x08\x00\x17\x16\x21\x04" + strings.Repeat("\xaa", 12) + "\x01\x23\x45\x67\x89\xab\xcd\xef" + "\x00\x0a\x09\x10\x01\x23\x45\x67\x89\xab\xcd\xef" + "xx"
	for _, packet := range []string{"\xc2" + string(rune(len(body))) + body, "\x88" + string(rune(len(body))) + body} {
		if got := signatureOf([]byte(packet)); got != "key 0123456789ABCDEF" {
			t.Errorf("%q", got)
		}
	}
	if got := signatureOf([]byte("nonsense")); got != "a key whose ID is not known" {
		t.Errorf("%q", got)
	}
	rapid.Check(t, func(t *rapid.T) { _ = signatureOf(rapid.SliceOf(rapid.Byte()).Draw(t, "data")) })
}

// Hints have the names of a list in commands.
func TestHostileList(t *testing.T) {
	if _, err := ParseInstalled([]byte("Package: a; reboot\nStatus: install ok installed\nVersion: 1\n")); err == nil {
		t.Error("a command is the name of a package")
	}
}

// TestEncodingOfList: a list has the same packages in the encodings that editors and PowerShell write.
func TestEncodingOfList(t *testing.T) {
	for name, text := range map[string]string{
		"dpkg": "Package: aa\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\nPackage: bb\nStatus: install ok installed\nArchitecture: all\nVersion: 2\n",
		"rpm":  "aa = 1-1\nbb = 2-1\n/usr/bin/bb\n",
		"-W":   "aa\t1\nbb:amd64\t2\n",
	} {
		want, err := ParseInstalled([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.ReplaceAll(text, "\n", "\r\n")
		units := utf16.Encode([]rune("\ufeff" + lines))
		little, _ := binary.Append(nil, binary.LittleEndian, units)
		big, _ := binary.Append(nil, binary.BigEndian, units)
		for encoding, list := range map[string][]byte{"byte order mark": []byte("\ufeff" + text), "lines of Windows": []byte(lines), "UTF-16LE": little, "UTF-16BE": big} {
			if got, err := ParseInstalled(list); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %s: %+v, %v", name, encoding, got, err)
			}
		}
	}
}
