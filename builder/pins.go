package builder

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"airlift/images/release"
	"airlift/internal/documents/textfile"
	"airlift/internal/fault"
)

// A Pin is a sha256 that the user knows from another source. It replaces the published
// checksum.
type Pin struct {
	// Name is the name of a component ("kubelet", "pause"), the name of a published
	// file ("runc.amd64") or the end of its path ("linux/amd64/kubelet"), or an
	// image's reference.
	Name   string
	SHA256 string // lower-case hex
	// File is the path of the list with this pin. A list may also have checksums of
	// other files.
	File string
}

var pinArgument = regexp.MustCompile(`^(.+)=(?:sha256:)?([0-9a-fA-F]{64})$`)

// sumLines are the forms of a line with a checksum and a name. Get-FileHash prints the path of the
// machine where it ran.
var sumLines = []struct {
	form      *regexp.Regexp
	sum, name int // groups
}{
	{regexp.MustCompile(`^\\?([0-9a-fA-F]{64}) [ *](.+)$`), 1, 2},                         // sha256sum
	{regexp.MustCompile(`^SHA256 \((.+)\) = ([0-9a-fA-F]{64})$`), 2, 1},                   // BSD
	{regexp.MustCompile(`^SHA256\s+([0-9a-fA-F]{64})\s+(?:.*[\\/])?(\S.*)$`), 1, 2},       // Get-FileHash
	{regexp.MustCompile(`^"SHA256","([0-9a-fA-F]{64})","(?:[^"]*[\\/])?([^"]+)"$`), 1, 2}, // Get-FileHash | ConvertTo-Csv
}

var (
	// hashList is a file in the output of Get-FileHash | Format-List. It becomes a line of the other form.
	hashList = regexp.MustCompile(`(?m)^Algorithm\s*: SHA256[ \r]*\nHash\s*: ([0-9a-fA-F]{64})[ \r]*\nPath\s*: (\S.*)$`)
	// hashCut is the end of a list that is not complete.
	hashCut     = regexp.MustCompile(`^Algorithm\s*: SHA256\s*(Hash\s*: [0-9a-fA-F]{64}\s*)?$`)
	hashHeading = regexp.MustCompile(`^(Algorithm\s+Hash\s+Path|-+\s+-+\s+-+|"Algorithm","Hash","Path")$`)
)

const (
	// hintChecksums is the hint for a file that is not a list of checksums.
	hintChecksums = "use --checksums with a file in the format of sha256sum"
	// hintLine is the hint for a line without a checksum.
	hintLine = "each line must have a sha256, two spaces and a name, as in the output of sha256sum; in PowerShell: Get-FileHash FILES | Format-List > SHA256SUMS"
)

// sumOfLine returns the checksum and the name in a line; both are empty if there is none.
func sumOfLine(line string) (sum, name string) {
	for _, f := range sumLines {
		if m := f.form.FindStringSubmatch(line); m != nil {
			return m[f.sum], m[f.name]
		}
	}
	return "", ""
}

// ParsePin reads NAME=sha256:HEX.
func ParsePin(s string) (Pin, error) {
	m := pinArgument.FindStringSubmatch(s)
	if m == nil {
		return Pin{}, fault.New(fault.Usage, "checksum %q is not a name and a sha256", s).
			Hint("use --checksum NAME=sha256:HEX with 64 hexadecimal digits, for example kubelet=sha256:0123…")
	}
	return Pin{Name: m[1], SHA256: strings.ToLower(m[2])}, nil
}

// maxChecksums is the maximum size of a list of checksums in bytes.
const maxChecksums = 16 << 20

// ReadPins reads a list in the format of sha256sum or of PowerShell's Get-FileHash, also in UTF-16.
func ReadPins(path string) ([]Pin, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, hintChecksums)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxChecksums+1))
	if err == nil && len(content) > maxChecksums {
		err = fmt.Errorf("it has more than %d bytes", maxChecksums)
	}
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("reading %s: %w", path, err), fault.Usage, hintChecksums)
	}
	var pins []Pin
	text := hashList.ReplaceAllString(string(textfile.UTF8(content)), "\n\nSHA256 $1 $2")
	n, end := 0, 0
	for line := range strings.Lines(text) {
		n++
		rest := text[end:]
		end += len(line)
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || hashHeading.MatchString(line) {
			continue
		}
		switch sum, name := sumOfLine(line); {
		case sum == "" && hashCut.MatchString(strings.TrimSpace(rest)):
			return nil, fault.New(fault.Usage, "%s ends within the checksum of a file", path).Hint(hintLine)
		case sum == "":
			return nil, fault.New(fault.Usage, "%s, line %d: no sha256 in %q", path, n, line).Hint(hintLine)
		case strings.HasSuffix(name, "..."), strings.HasSuffix(name, "\u2026"):
			return nil, fault.New(fault.Usage, "%s, line %d: the name %q is cut off", path, n, name).Hint(hintLine)
		default:
			pins = append(pins, Pin{Name: name, SHA256: strings.ToLower(sum), File: path})
		}
	}
	if len(pins) == 0 {
		return nil, fault.New(fault.Usage, "%s has no checksums", path).Hint(hintChecksums)
	}
	return pins, nil
}

// pin assigns the pins to binaries and images.
func (b *build) pin() error {
	others, err := b.otherBinaries()
	if err != nil {
		return err
	}
	known := b.pinNames()
	matched := map[string]bool{} // by list
	for _, p := range b.Pins {
		hit := slices.ContainsFunc(others, p.ofBinary)
		for _, bin := range b.binaries {
			if !p.ofBinary(bin.Binary) {
				continue
			}
			for _, other := range others {
				if p.ofBinary(other) && other.Name == bin.Name && other.URL != bin.URL {
					return p.ambiguous(bin.URL, other.URL)
				}
			}
			if bin.pinned && bin.sum != p.SHA256 {
				return p.conflict(bin.sum)
			}
			hit, bin.pinned, bin.sum = true, true, p.SHA256
		}
		for _, i := range b.images {
			if !p.ofImage(i) {
				continue
			}
			digest := "sha256:" + p.SHA256
			if i.digest != "" && i.digest != digest {
				return p.conflict(strings.TrimPrefix(i.digest, "sha256:"))
			}
			hit, i.digest = true, digest
		}
		if p.File == "" && !hit {
			hint := "names in this bundle: " + strings.Join(known, ", ")
			if near := fault.Nearest(p.Name, known); near != "" {
				hint = "did you mean " + near + "? " + hint
			}
			return fault.New(fault.Usage, "--checksum names %q, which is not in this bundle", p.Name).Hint(hint)
		}
		matched[p.File] = matched[p.File] || hit
	}
	for file, hit := range matched {
		if !hit {
			return fault.New(fault.Usage, "%s has no checksum for any file or image of this bundle", file).Hint("names in this bundle: " + strings.Join(known, ", "))
		}
	}
	return nil
}

func (p Pin) ofBinary(bin release.Binary) bool {
	name := strings.TrimPrefix(p.Name, "./")
	return name == bin.Name || name == bin.URL || strings.HasSuffix(bin.URL, "/"+strings.TrimPrefix(name, "/"))
}

func (p Pin) ofImage(i *image) bool {
	if p.Name == i.Name || p.Name == i.Reference {
		return true
	}
	full, err := release.Normalize(p.Name)
	return err == nil && full == i.Reference && strings.Contains(p.Name, ":")
}

func (p Pin) conflict(other string) error {
	return fault.New(fault.Usage, "%s has two checksums: %s and %s", p.Name, other, p.SHA256).Hint("give only one checksum for each name")
}

// ambiguous is the error about one checksum for the files of two architectures.
func (p Pin) ambiguous(url, other string) error {
	flag := "--checksum"
	if p.File != "" {
		flag = p.File
	}
	return fault.New(fault.Usage, "%s has one checksum for %q, which is another file for each architecture: %s, %s", flag, p.Name, url, other).
		Hint(fmt.Sprintf("give a checksum for each of them, with the names %s and %s, or build one architecture at a time", ownName(url, other), ownName(other, url)))
}

// ownName is the shortest suffix of a URL's path that the other URL does not end with:
// "amd64/kubelet".
func ownName(url, other string) string {
	parts := strings.Split(url, "/")
	for n := len(parts) - 1; n > 0; n-- {
		if name := strings.Join(parts[n:], "/"); !strings.HasSuffix(other, "/"+name) {
			return name
		}
	}
	return url
}

// otherBinaries lists the binaries of the bundles for other architectures that the same command
// builds, of this Kubernetes version.
func (b *build) otherBinaries() (list []release.Binary, err error) {
	for _, arch := range b.Arches {
		if arch == b.Arch {
			continue
		}
		catalog, err := b.catalogOf(b.release.Version, arch)
		if err != nil {
			return nil, err
		}
		list = append(list, catalog.Binaries...)
	}
	return slices.DeleteFunc(list, func(bin release.Binary) bool { return slices.Contains(b.Without, bin.Name) }), nil
}

// pinNames lists the names that a pin may have.
func (b *build) pinNames() (names []string) {
	for _, bin := range b.binaries {
		names = append(names, bin.Name)
	}
	for _, i := range b.images {
		names = append(names, i.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// pinned lists the names of the contents that match the user's checksums.
func (b *build) pinned() (names []string) {
	for _, bin := range b.binaries {
		if bin.pinned {
			names = append(names, bin.Name)
		}
	}
	for _, i := range b.images {
		if by := i.vouchedBy(); by == byPin || by == byReference {
			names = append(names, i.Name)
		}
	}
	return names
}
