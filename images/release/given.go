package release

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"airlift/internal/fault"
)

// versioned lists the components in Versions.
var versioned = []struct {
	name string
	of   func(*Versions) *string
	form *regexp.Regexp // the groups are the major and the minor version
	// optional: a newer minor version needs no given version. crictl only serves
	// troubleshooting, and the CRI changes seldom.
	optional bool
}{
	{Etcd, func(v *Versions) *string { return &v.Etcd }, regexp.MustCompile(`^(\d{1,4})\.(\d{1,4})\.\d{1,4}-\d{1,4}$`), false},
	{CoreDNS, func(v *Versions) *string { return &v.CoreDNS }, regexp.MustCompile(`^v(\d{1,4})\.(\d{1,4})\.\d{1,4}$`), false},
	{Pause, func(v *Versions) *string { return &v.Pause }, regexp.MustCompile(`^(\d{1,4})\.(\d{1,4})(?:\.\d{1,4})?$`), false},
	{"crictl", func(v *Versions) *string { return &v.Crictl }, regexp.MustCompile(`^v(\d{1,4})\.(\d{1,4})\.\d{1,4}$`), true},
}

// flagOf is the flag of bundle that gives a component's version.
func flagOf(component string) string { return "--" + component + "-version" }

// nearest returns the newest release in the catalog of the same minor version, or of all, if
// the catalog does not have r because r is newer.
func (r release) nearest() (n release, newer bool) {
	number := min(r.minor, NewestMinor)
	n = release{number, minors[number].newest}
	return n, r.minor > NewestMinor || r.patch > n.patch
}

// versions returns the versions of r's components: the catalog's, or, if r is newer than the
// catalog, the given ones. Versions that are not given are assumed to be as in the nearest release;
// assumed lists them.
func (r release) versions(given Versions) (own Versions, assumed []string, err error) {
	if err := r.supported(); err != nil {
		return own, nil, err
	}
	near, newer := r.nearest()
	own = minors[near.minor].at(r.patch)
	if newer {
		own = minors[near.minor].at(near.patch)
	}
	var missing, example []string
	for _, c := range versioned {
		known, value := c.of(&own), *c.of(&given)
		switch {
		case value == "" && !newer:
		case value == "" && (r.minor == near.minor || c.optional):
			assumed = append(assumed, c.name+" "+*known)
		case value == "":
			missing = append(missing, flagOf(c.name))
			example = append(example, flagOf(c.name)+" "+*known)
		case c.form.FindStringSubmatch(value) == nil:
			return own, nil, fault.New(fault.Usage, "%s %q is not a version of %s", flagOf(c.name), value, c.name).
				Hint(fmt.Sprintf("write it in the form of %s %s", flagOf(c.name), *known))
		case !newer && value != *known:
			return own, nil, fault.New(fault.Usage, "kubernetes %s uses %s %s, but %s is %s", r, c.name, *known, flagOf(c.name), value).
				Hint("remove " + flagOf(c.name) + ": it is only for releases that are newer than the known ones")
		case older(c.form, value, *known):
			return own, nil, fault.New(fault.Usage, "%s %s is too old or has another major version: kubernetes %s is newer than %s, which uses %s %s", flagOf(c.name), value, r, near, c.name, *known).
				Hint(fmt.Sprintf(`to print its versions: "kubeadm config images list" of %s; to print the versions of %s: "bundle versions"`, r, near))
		default:
			*known = value
		}
	}
	if len(missing) > 0 {
		return own, nil, fault.New(fault.Usage,
			"kubernetes %s is newer than the known versions and needs %s", r, strings.Join(missing, ", ")).
			Hint(fmt.Sprintf(`give the versions that "kubeadm config images list" of %s prints; the versions of %s are %s. Known minor versions: %s`,
				r, near, strings.Join(example, " "), strings.Join(Known(), ", ")))
	}
	return own, assumed, nil
}

// older reports whether a version has another major version than a known one, or an older
// minor version. The components of newer releases of Kubernetes never had.
func older(form *regexp.Regexp, version, known string) bool {
	v, k := form.FindStringSubmatch(version), form.FindStringSubmatch(known)
	number := func(s string) int { n, _ := strconv.Atoi(s); return n }
	return v[1] != k[1] || number(v[2]) < number(k[2])
}

// Assumptions describes for the user what the catalog assumes about a version that is newer
// than the known ones. For other versions it is empty.
func (c *Catalog) Assumptions() []string {
	if c.Nearest == "" {
		return nil
	}
	list := []string{Newer(c.Version, c.Nearest)}
	if len(c.Assumed) > 0 {
		list = append(list, fmt.Sprintf("assumed as in %s: %s", c.Nearest, strings.Join(c.Assumed, ", ")))
	}
	return list
}

// Newer describes what it means that version is newer than nearest, the nearest known
// release.
func Newer(version, nearest string) string {
	minor := MinorOf(nearest)
	if strings.HasPrefix(version, minor+".") {
		return fmt.Sprintf("Kubernetes %s is newer than %s, the newest known patch of %s: components without a given version are assumed to be as in %s",
			version, nearest, minor, nearest)
	}
	return fmt.Sprintf("Kubernetes %s is newer than %s, the newest known minor version: the rules of %s apply to its configuration, feature gates and kubelet",
		version, minor, minor)
}
