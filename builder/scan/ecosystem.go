package scan

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	apk "github.com/knqyf263/go-apk-version"
	deb "github.com/knqyf263/go-deb-version"
	"golang.org/x/mod/semver"

	"airlift/builder/sbom"
)

// A subject is a package as databases name it.
type subject struct {
	ecosystems []string // other names of one ecosystem, as "Ubuntu:24.04:LTS"; none if OSV has no ecosystem for it
	group      string   // what the package belongs to, for people: "Debian 12"
	name       string
	version    string // "" if it is not known
	from       string // where the version was taken from, if not from the package itself
}

const goEcosystem = "Go"

// OSV has Kubernetes in an ecosystem of its own, too, with the names of its Go modules.
const kubernetesEcosystem = "Kubernetes"

// family is the part of an ecosystem's name before its release: a database file has one.
func family(ecosystem string) string {
	name, _, _ := strings.Cut(ecosystem, ":")
	return name
}

// subjectOf returns the package that the last item of a chain is, and false if it is no package.
func subjectOf(chain []*sbom.Item) (subject, bool) {
	item := chain[len(chain)-1]
	switch item.Kind {
	case sbom.Module:
		s := subject{ecosystems: []string{goEcosystem}, group: "Go", name: item.Name}
		s.version, s.from = moduleVersion(chain)
		return s, true
	case sbom.Deb, sbom.Apk, sbom.RPM:
		s := subject{name: cmp.Or(property(item, "sourcePackage"), item.Name), version: cmp.Or(property(item, "sourceVersion"), item.Version)}
		s.ecosystems, s.group = distribution(item.PURL)
		return s, true
	}
	return subject{}, false
}

func property(i *sbom.Item, name string) string {
	for _, p := range i.Properties {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}

// distribution returns OSV's names for the distribution in a package URL, and its name for people.
func distribution(purl string) (ecosystems []string, group string) {
	_, query, _ := strings.Cut(purl, "?")
	values, _ := url.ParseQuery(query)
	id, version, _ := strings.Cut(values.Get("distro"), "-")
	group = strings.TrimSpace(id + " " + version)
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	minor, _, _ = strings.Cut(minor, "_") // "3.22_alpha20250108"
	switch {
	case id == "debian" && major != "":
		return []string{"Debian:" + major}, group
	case id == "ubuntu" && minor != "":
		release := "Ubuntu:" + major + "." + minor
		return []string{release + ":LTS", release}, group
	case id == "alpine" && minor != "":
		return []string{"Alpine:v" + major + "." + minor}, group
	case id == "wolfi":
		return []string{"Wolfi"}, group
	case id == "chainguard":
		return []string{"Chainguard"}, group
	}
	return nil, group
}

var toolchain = regexp.MustCompile(`^go(\d+)\.(\d+)(?:\.(\d+))?(?:(rc|beta)(\d+))?(?:[- ].*)?$`)

// moduleVersion returns the version of the Go module at the end of a chain as "1.2.3", and where it was taken from if
// the binary does not have it.
func moduleVersion(chain []*sbom.Item) (version, from string) {
	item := chain[len(chain)-1]
	if item.Name == "stdlib" {
		m := toolchain.FindStringSubmatch(item.Version)
		if m == nil {
			return "", ""
		}
		version = m[1] + "." + m[2] + "." + cmp.Or(m[3], "0")
		if m[4] != "" {
			version += "-" + m[4] + "." + m[5]
		}
		return version, ""
	}
	replaced := property(item, "replacedBy") != ""
	if v := item.Version; !replaced && semver.IsValid(v) && v != "v0.0.0" {
		return strings.TrimPrefix(v, "v"), ""
	}
	// Builds outside of "go install" leave out the version of the main module.
	if len(chain) < 2 {
		return "", ""
	}
	binary := chain[len(chain)-2]
	main := property(binary, "goPackage")
	release, from := releaseOf(chain[:len(chain)-1])
	inKubernetes := strings.HasPrefix(main, "k8s.io/kubernetes/")
	switch {
	case release == "":
	case !replaced && (main == item.Name || strings.HasPrefix(main, item.Name+"/")):
		return release, from
	case inKubernetes && strings.HasPrefix(item.Name, "k8s.io/") && strings.HasPrefix(release, "1."):
		return "0" + strings.TrimPrefix(release, "1"), from // the modules in its directory staging
	}
	return "", ""
}

// releaseOf returns the version of a binary, of its component or of its image's tag.
func releaseOf(chain []*sbom.Item) (version, from string) {
	for _, item := range slices.Backward(chain) {
		v, from := item.Version, "the version of "+item.Name
		if item.Kind == sbom.Image {
			reference, _, _ := strings.Cut(item.Name, "@")
			_, v, _ = strings.Cut(reference[strings.LastIndexByte(reference, '/')+1:], ":")
			from = "the tag of " + item.Name
		}
		if v != "" && v[0] >= '0' && v[0] <= '9' {
			v = "v" + v
		}
		if item.Kind != sbom.Bundle && semver.IsValid(v) && strings.Count(v, ".") >= 2 {
			return strings.TrimPrefix(v, "v"), from
		}
	}
	return "", ""
}

var longNumber = regexp.MustCompile(`[0-9]{19}`)

// compare compares two versions by the rules of an ecosystem.
func compare(ecosystem, a, b string) (int, error) {
	switch family(ecosystem) {
	case "Debian", "Ubuntu":
		if longNumber.MatchString(a + " " + b) {
			return 0, fmt.Errorf("%q or %q has a number of more than 18 digits", a, b) // the library compares 64 bits
		}
		x, err := deb.NewVersion(a)
		if err != nil {
			return 0, fmt.Errorf("version %q: %w", a, err)
		}
		y, err := deb.NewVersion(b)
		if err != nil {
			return 0, fmt.Errorf("version %q: %w", b, err)
		}
		return cmp.Compare(x.Compare(y), 0), nil
	case "Alpine", "Wolfi", "Chainguard":
		for _, v := range []string{a, b} {
			if !apk.Valid(v) {
				return 0, fmt.Errorf("version %q is not valid", v)
			}
		}
		return cmp.Compare(apk.Version(a).Compare(apk.Version(b)), 0), nil
	}
	for _, v := range []*string{&a, &b} {
		*v = "v" + strings.TrimPrefix(*v, "v")
		if !semver.IsValid(*v) {
			return 0, fmt.Errorf("version %q is not semantic", *v)
		}
	}
	return semver.Compare(a, b), nil
}
