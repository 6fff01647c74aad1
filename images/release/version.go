package release

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"airlift/internal/fault"
)

type release struct{ minor, patch int }

func (r release) String() string { return fmt.Sprintf("v1.%d.%d", r.minor, r.patch) }

var fullVersion = regexp.MustCompile(`^v?1\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})$`)

func parse(version string) (release, error) {
	m := fullVersion.FindStringSubmatch(version)
	if m == nil {
		return release{}, fault.New(fault.Usage, "%q is not a full Kubernetes version", version).
			Hint("give a full version, for example v1.29.15; supported minor versions: " + strings.Join(Known(), ", "))
	}
	minor, _ := strconv.Atoi(m[1])
	patch, _ := strconv.Atoi(m[2])
	return release{minor, patch}, nil
}

var minorVersion = regexp.MustCompile(`^(?:v|stable-)?1\.(0|[1-9]\d{0,2})$`)

// Channel distinguishes a full version from a release channel. For "v1.29.15" or "1.29.15"
// it returns the full version and no URL. For "v1.29", "1.29", "stable-1.29" and "stable"
// it returns the URL of the file that has the newest version in its only line. Anything
// else is a usage error, and so is a minor version that is not in the catalog without the
// given versions that it needs.
func Channel(version string, given Versions) (full, url string, err error) {
	if m := minorVersion.FindStringSubmatch(version); m != nil {
		// Check first what needs no network. A release that is newer than the known ones
		// may have given versions.
		minor, _ := strconv.Atoi(m[1])
		r := release{minor: minor}
		if known, ok := minors[minor]; ok {
			r.patch = known.newest + 1
		}
		if _, _, err := r.versions(given); err != nil {
			return "", "", err
		}
	}
	return AnyChannel(version)
}

// AnyChannel is Channel for a bundle without components: any minor version may be newer than the
// catalog's.
func AnyChannel(version string) (full, url string, err error) {
	if version == "stable" {
		return "", "https://dl.k8s.io/release/stable.txt", nil
	}
	if m := minorVersion.FindStringSubmatch(version); m != nil {
		minor, _ := strconv.Atoi(m[1])
		return "", "https://dl.k8s.io/release/stable-1." + m[1] + ".txt", release{minor: minor}.supported()
	}
	if fullVersion.MatchString(version) {
		r, err := parse(version)
		return r.String(), "", err
	}
	return "", "", fault.New(fault.Usage, "%q is not a Kubernetes version", version).
		Hint("give a full version (v1.29.15), a minor version (v1.29) or stable; supported minor versions: " + strings.Join(Known(), ", "))
}

// AtLeast returns an error if the file at path, which has this full version, is older than the
// lowest one that the user requires.
func AtLeast(path, version, lowest string) error {
	v, err := parse(version)
	if err != nil {
		return err
	}
	required, err := parse(lowest)
	if err != nil {
		return err
	}
	if v.minor < required.minor || v.minor == required.minor && v.patch < required.patch {
		return fault.New(fault.Bundle, "%s has Kubernetes %s, which is older than the required %s", path, version, required).Hint("use a newer file; bundle inspect FILE prints its version")
	}
	return nil
}

// MinorOf returns the minor version of a full version: "v1.29" for "v1.29.15".
func MinorOf(full string) string { return full[:strings.LastIndex(full, ".")] }

// supported returns a usage error for a version that is older than the catalog.
func (r release) supported() error {
	if r.minor < OldestMinor {
		return fault.New(fault.Usage, "kubernetes version %q is not supported", r).
			Hint("supported minor versions: " + strings.Join(Known(), ", "))
	}
	return nil
}
