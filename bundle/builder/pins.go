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

var (
	pinArgument = regexp.MustCompile(`^(.+)=(?:sha256:)?([0-9a-fA-F]{64})$`)
	sumLine     = regexp.MustCompile(`^\\?([0-9a-fA-F]{64}) [ *](.+)$`)
	bsdLine     = regexp.MustCompile(`^SHA256 \((.+)\) = ([0-9a-fA-F]{64})$`)

	// The table, the list and the CSV of Get-FileHash.
	hashHeading = regexp.MustCompile(`^(Algorithm\s+Hash\s+Path|-+\s+-+\s+-+|"Algorithm","Hash","Path")$`)
	hashRow     = regexp.MustCompile(`^SHA256\s+([0-9a-fA-F]{64})\s+(\S.*)$`)
	hashCSV     = regexp.MustCompile(`^"SHA256","([0-9a-fA-F]{64})","([^"]+)"$`)
	hashField   = regexp.MustCompile(`^(Algorithm|Hash|Path)\s*: (\S.*)$`)
)

const (
	// hintChecksums is the hint for a file that is not a list of checksums.
	hintChecksums = "use --checksums with a file in the format of sha256sum"
	// hintLine is the hint for a line without a checksum.
	hintLine = "each line must have a sha256, two spaces and a name, as in the output of sha256sum; in PowerShell: Get-FileHash FILES | Format-List > SHA256SUMS"
)

// sumOfLine returns the checksum and the name in a line; both are empty if there is none.
func sumOfLine(line string) (sum, name string) {
	if m := sumLine.FindStringSubmatch(line); m != nil {
		return m[1], m[2]
	}
	if m := bsdLine.FindStringSubmatch(line); m != nil {
		return m[2], m[1]
	}
	for _, form := range []*regexp.Regexp{hashRow, hashCSV} {
		if m := form.FindStringSubmatch(line); m != nil {
			return m[1], fileName(m[2])
		}
	}
	return "", ""
}

// fileName returns the name of a file without its directories: Get-FileHash prints the path on the machine where it ran.
func fileName(path string) string { return path[strings.LastIndexAny(path, `\/`)+1:] }

// A fileHash is a file in the list of Get-FileHash, whose fields are on lines of their own.
type fileHash struct{ algorithm, hash string }

// add adds a line. It returns the checksum and the name with the last line of a file.
func (f *fileHash) add(line string) (sum, name string) {
	m := hashField.FindStringSubmatch(line)
	switch {
	case m == nil:
	case m[1] == "Algorithm" && m[2] == "SHA256" && *f == (fileHash{}):
		f.algorithm = m[2]
		return "", ""
	case m[1] == "Hash" && pinArgument.MatchString("x="+m[2]) && f.algorithm != "" && f.hash == "":
		f.hash = m[2]
		return "", ""
	case m[1] == "Path" && f.hash != "":
		return f.hash, fileName(m[2])
	}
	*f = fileHash{}
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
	var listed fileHash
	n := 0
	for line := range strings.Lines(string(textfile.UTF8(content))) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || hashHeading.MatchString(line) {
			continue
		}
		sum, name := sumOfLine(line)
		if sum == "" {
			sum, name = listed.add(line)
		}
		switch {
		case sum == "" && listed == (fileHash{}):
			return nil, fault.New(fault.Usage, "%s, line %d: no sha256 in %q", path, n, line).Hint(hintLine)
		case strings.HasSuffix(name, "..."), strings.HasSuffix(name, "\u2026"):
			return nil, fault.New(fault.Usage, "%s, line %d: the name %q is cut off", path, n, name).Hint(hintLine)
		case sum != "":
			pins, listed = append(pins, Pin{Name: name, SHA256: strings.ToLower(sum), File: path}), fileHash{}
		}
	}
	if listed != (fileHash{}) {
		return nil, fault.New(fault.Usage, "%s ends within the checksum of a file", path).Hint(hintLine)
	}
	if len(pins) == 0 {
		return nil, fault.New(fault.Usage, "%s has no checksums", path).Hint(hintChecksums)
	}
	return pins, nil
}

// pin assigns the pins to binaries and images. others are the binaries of the bundles for other
// architectures that the same command builds.
func pin(pins []Pin, binaries []*binary, wanted []*wantedImage, others []release.Binary) error {
	matched := map[string]int{} // matches, by list
	for _, p := range pins {
		hit := false
		for _, bin := range binaries {
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
		hit = hit || slices.ContainsFunc(others, p.ofBinary)
		for _, i := range wanted {
			if !p.ofImage(i.Image) {
				continue
			}
			digest := "sha256:" + p.SHA256
			if i.digest != "" && i.digest != digest {
				return p.conflict(strings.TrimPrefix(i.digest, "sha256:"))
			}
			hit, i.digest = true, digest
		}
		switch {
		case p.File == "" && !hit:
			return p.unknown(known(binaries, wanted))
		case hit:
			matched[p.File]++
		default:
			matched[p.File] += 0
		}
	}
	for file, n := range matched {
		if n == 0 {
			return fault.New(fault.Usage, "%s has no checksum for any file or image of this bundle", file).Hint("names in this bundle: " + strings.Join(known(binaries, wanted), ", "))
		}
	}
	return nil
}

func (p Pin) ofBinary(bin release.Binary) bool {
	name := strings.TrimPrefix(p.Name, "./")
	return name == bin.Name || name == bin.URL || strings.HasSuffix(bin.URL, "/"+strings.TrimPrefix(name, "/"))
}

func (p Pin) ofImage(i release.Image) bool {
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
func (inv *inventory) otherBinaries() (list []release.Binary, err error) {
	for _, arch := range inv.Arches {
		if arch == inv.Arch {
			continue
		}
		of := inv.Target
		of.Arch = arch
		catalog, err := of.catalogOf(inv.release.Version)
		if err != nil {
			return nil, err
		}
		for _, bin := range catalog.Binaries {
			if !slices.Contains(inv.Without, bin.Name) {
				list = append(list, bin)
			}
		}
	}
	return list, nil
}

// known lists the names that a pin may have.
func known(binaries []*binary, wanted []*wantedImage) []string {
	var names []string
	for _, bin := range binaries {
		names = append(names, bin.Name)
	}
	for _, i := range wanted {
		names = append(names, i.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (p Pin) unknown(known []string) error {
	hint := "names in this bundle: " + strings.Join(known, ", ")
	if near := fault.Nearest(p.Name, known); near != "" {
		hint = "did you mean " + near + "? " + hint
	}
	return fault.New(fault.Usage, "--checksum names %q, which is not in this bundle", p.Name).Hint(hint)
}

// pinned lists the names of the contents that match the user's checksums.
func (inv *inventory) pinned() (names []string) {
	for _, bin := range inv.components.binaries {
		if bin.pinned {
			names = append(names, bin.Name)
		}
	}
	for _, i := range inv.images {
		if by := vouchedBy(i); by == byPin || by == byReference {
			names = append(names, i.Name)
		}
	}
	return names
}
