package ospackage

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"airlift/internal/documents/textfile"
)

// An Installed lists what a host of the site has already.
type Installed struct {
	format   Format
	packages []*Package
	// capabilities and files are what packages of rpm provide, without the names of the packages.
	capabilities []relation
	files        map[string]bool
	// namesOnly is set if the list does not have what packages provide.
	namesOnly bool
}

// The commands that write a list, for hints.
const (
	WriteDeb = "cp /var/lib/dpkg/status installed.status"
	WriteRPM = "(rpm -qa --provides; rpm -qal) > installed.txt"
)

// dpkgLine is a line of dpkg-query -W: NAME or NAME:ARCH, and the version.
var dpkgLine = regexp.MustCompile(`^([a-z0-9][a-z0-9+.-]+)(?::([a-z0-9-]+))?\t(\S+)$`)

// capabilityLine is a line of rpm --provides: a capability, perhaps with its version.
var capabilityLine = regexp.MustCompile(`^(\S.*?)(?: (<|<=|=|>=|>) (\S+))?$`)

// nevraLine is a line of rpm -qa alone.
var nevraLine = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._+-]*-[^-\s]+-[^-\s]+\.(noarch|x86_64|aarch64|i[3-6]86)$`)

// ParseInstalled reads what a host has: its file /var/lib/dpkg/status, the output of dpkg-query -W, or the output of
// rpm -qa --provides and rpm -qal.
func ParseInstalled(text []byte) (*Installed, error) {
	text = textfile.UTF8(text)
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	first := strings.TrimRight(lines[0], "\r")
	switch {
	case strings.TrimSpace(string(text)) == "":
		return nil, errors.New("the list is empty")
	case dpkgLine.MatchString(first):
		return parseNames(lines)
	case regexp.MustCompile(`(?m)^Package: `).Match(text):
		return parseStatus(text)
	}
	return parseRPM(lines)
}

// parseStatus reads the format of dpkg's file status.
func parseStatus(text []byte) (*Installed, error) {
	i := &Installed{format: Deb}
	err := stanzas(bytes.NewReader(text), func(fields map[string]string) error {
		if fields["filename"] != "" {
			return errors.New("it is the index of a repository: that lists what can be installed, and not what a host has")
		}
		status := strings.Fields(fields["status"])
		if fields["package"] == "" || fields["version"] == "" || len(status) == 3 && !isInstalled(status[2]) {
			return nil
		}
		if !debName.MatchString(fields["package"]) { // hints have names in commands
			return fmt.Errorf("%q is not the name of a package", fields["package"])
		}
		p, err := fromControl(fields)
		if err != nil {
			return fmt.Errorf("package %q: %w", fields["package"], err)
		}
		i.packages = append(i.packages, p)
		return nil
	})
	if err == nil && len(i.packages) == 0 {
		err = errors.New("no package in it is installed")
	}
	return i, err
}

// isInstalled reports whether a state of dpkg satisfies dependencies.
func isInstalled(state string) bool {
	return state == "installed" || state == "triggers-awaited" || state == "triggers-pending"
}

func parseNames(lines []string) (*Installed, error) {
	i := &Installed{format: Deb, namesOnly: true}
	for n, line := range lines {
		m := dpkgLine.FindStringSubmatch(strings.TrimRight(line, "\r"))
		if m == nil {
			return nil, fmt.Errorf("line %d is %q: it is not a name, a tab and a version, as dpkg-query -W prints them", n+1, line)
		}
		i.packages = append(i.packages, &Package{Format: Deb, Name: m[1], Arch: m[2], Version: m[3]})
	}
	return i, nil
}

func parseRPM(lines []string) (*Installed, error) {
	i := &Installed{format: RPM, files: map[string]bool{}}
	names := 0
	for _, line := range lines {
		line = strings.TrimRight(line, "\r")
		m := capabilityLine.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "/"):
			i.files[line] = true
		case line == "" || line == "(contains no files)":
		case nevraLine.MatchString(line) && !strings.HasSuffix(line, ")"):
			names++
		case m == nil:
			return nil, fmt.Errorf("%q is not a line of rpm -qa --provides", line)
		default:
			i.capabilities = append(i.capabilities, relation{name: m[1], op: m[2], version: m[3]})
		}
	}
	if names > len(i.capabilities) {
		return nil, errors.New("it has only names of packages, as rpm -qa prints them: what they provide is missing")
	}
	return i, nil
}

// Format is the format of the packages in the list.
func (i *Installed) Format() Format { return i.format }

// version returns the version in which the list has a package, or "".
func (i *Installed) version(name string) string {
	if i.format == RPM { // a package provides its name with its version
		found := ""
		for _, c := range i.capabilities {
			if c.name != name || c.op != "=" {
				continue
			}
			if order, err := Compare(RPM, c.version, found); found == "" || err == nil && order > 0 {
				found = c.version
			}
		}
		return found
	}
	for _, p := range i.packages {
		if p.Name == name {
			return p.Version
		}
	}
	return ""
}
