// Package ospackage reads packages of distributions, .deb and .rpm, and checks whether a set of them can be installed on
// hosts. It needs no network, no dpkg and no rpm.
package ospackage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"

	deb "github.com/knqyf263/go-deb-version"
	rpm "github.com/knqyf263/go-rpm-version"
)

// A Format is the format of a package, and its extension.
type Format string

// The formats.
const (
	Deb Format = "deb"
	RPM Format = "rpm"
)

// A Package is the description in a package.
type Package struct {
	Format Format
	Name   string
	// Version is the whole version: [EPOCH:]UPSTREAM[-REVISION], [EPOCH:]VERSION-RELEASE.
	Version string
	Arch    string // as the distribution names it; "all" or "noarch" fits every host
	// Source is the name of the source package, and SourceVersion its version.
	Source, SourceVersion string
	// Signature names the key of the signature in the package, "key 0123456789ABCDEF". It is empty if there is none. The
	// signature is not verified.
	Signature string

	requires    []clause   // all must be satisfied
	preRequires []clause   // also before the package is unpacked
	conflicts   []relation // no other package may satisfy them
	obsoletes   []relation // of rpm: packages that it would remove
	provides    []relation
	replaces    []relation // of deb: packages whose files it may have
	files       map[string]owned
	multiArch   string // of deb
	diverts     bool   // of deb: a script may rename files of other packages
}

// An owned is a file of a package.
type owned struct {
	dir bool
	// same is what two packages must agree on to have the file both; "" if they cannot.
	same string
}

// place returns the name of a file by which two packages with it are found. On hosts, /bin, /sbin and /lib are links to directories in /usr: dpkg
// would not notice that a file replaces another one.
func place(name string) string {
	name = path.Join("/", name)
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"} {
		if name == dir || strings.HasPrefix(name, dir+"/") {
			return "/usr" + name
		}
	}
	return name
}

// spellings returns the names that a file may have in another package: as place has it, and with the links to directories in /usr.
func spellings(name string) []string {
	merged := place(name)
	names := []string{name, merged}
	if short := strings.TrimPrefix(merged, "/usr"); place(short) == merged {
		names = append(names, short)
	}
	return names
}

func (p *Package) String() string { return p.Name + " " + p.Version }

// A relation is a condition for a package: its name, and perhaps a version.
type relation struct {
	name    string
	arch    string // after the colon, of deb
	op      string // "", "<", "<=", "=", ">=" or ">"
	version string
}

func (r relation) String() string {
	text := r.name
	if r.arch != "" {
		text += ":" + r.arch
	}
	if r.op != "" {
		text += " (" + r.op + " " + r.version + ")"
	}
	return text
}

// A clause is a condition that one of several relations satisfies.
type clause []relation

func (c clause) String() string {
	var list []string
	for _, r := range c {
		list = append(list, r.String())
	}
	return strings.Join(list, " | ")
}

// The forms of names, versions and architectures that package managers accept. Versions and names are also words of command lines on
// hosts, so none begins with a dash.
var (
	debName    = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)
	rpmName    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._+-]*$`)
	versionSet = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+~^:_-]*$`)
	archSet    = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)
)

// Read reads a package to its end. The error begins with what is wrong with the file.
func Read(r io.Reader) (*Package, error) {
	in := bufio.NewReader(r)
	magic, err := in.Peek(len(arMagic))
	if err != nil && err != io.EOF {
		return nil, err
	}
	var p *Package
	switch {
	case string(magic) == arMagic:
		p, err = readDeb(in)
	case strings.HasPrefix(string(magic), rpmMagic):
		p, err = readRPM(in)
	default:
		return nil, errors.New("it is neither a .deb nor a .rpm: a source is a package, or a directory of packages that has nothing else")
	}
	if err != nil {
		return nil, err
	}
	return p, p.check()
}

// check refuses names and versions that no package manager writes.
func (p *Package) check() error {
	name := debName
	if p.Format == RPM {
		name = rpmName
	}
	for _, f := range []struct {
		what, value string
		form        *regexp.Regexp
	}{{"name", p.Name, name}, {"version", p.Version, versionSet}, {"architecture", p.Arch, archSet}} {
		if !f.form.MatchString(f.value) || len(f.value) > 200 {
			return fmt.Errorf("its %s %q is not one of a package", f.what, f.value)
		}
	}
	if _, err := Compare(p.Format, p.Version, p.Version); err != nil {
		return fmt.Errorf("its version %q is not one of a package: %w", p.Version, err)
	}
	return nil
}

// Fits reports whether the package can be installed on a host of an architecture, "amd64" or "arm64".
func (p *Package) Fits(arch string) bool {
	return p.Arch == "all" || p.Arch == "noarch" || p.Arch == map[Format]map[string]string{Deb: debArches, RPM: rpmArches}[p.Format][arch]
}

// The names of the architectures in packages.
var (
	debArches = map[string]string{"amd64": "amd64", "arm64": "arm64"}
	rpmArches = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}
)

// longNumber is a number that does not fit into 64 bits, in which the libraries compare.
var longNumber = regexp.MustCompile(`[0-9]{19}`)

// Compare compares two versions as the package manager of a format does.
func Compare(format Format, a, b string) (int, error) {
	if longNumber.MatchString(a + " " + b) {
		return 0, fmt.Errorf("a number in %q or %q has more than 18 digits", a, b)
	}
	if format == RPM {
		return rpm.NewVersion(a).Compare(rpm.NewVersion(b)), nil
	}
	x, err := deb.NewVersion(a)
	if err != nil {
		return 0, err
	}
	y, err := deb.NewVersion(b)
	return x.Compare(y), err
}
