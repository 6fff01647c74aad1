package sbom

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"strings"
)

// A pkg is an installed package of a distribution.
type pkg struct {
	name, version, arch   string
	source, sourceVersion string // sourceVersion is empty if it is version
}

// maxDatabase bounds a package database, in bytes. The database of a Debian desktop with 3000
// packages has 4 MB.
const maxDatabase = 64 << 20

// A database is the packages of one file.
type database struct {
	kind     Kind // Deb or Apk
	packages []pkg
}

// databaseKind returns the kind of the package database at path, or "".
func databaseKind(path string) Kind {
	const single = "var/lib/dpkg/status.d/" // one file for each package, in distroless images
	switch {
	case path == "var/lib/dpkg/status":
		return Deb
	case strings.HasPrefix(path, single) && !strings.HasSuffix(path, ".md5sums") && !strings.Contains(path[len(single):], "/"):
		return Deb
	case path == "lib/apk/db/installed" || path == "usr/lib/apk/db/installed":
		return Apk
	}
	return ""
}

func parseDatabase(kind Kind, content []byte) (*database, error) {
	d := &database{kind: kind}
	err := stanzas(content, func(fields map[string]string) {
		p := pkg{name: fields["P"], version: fields["V"], arch: fields["A"], source: cmp.Or(fields["o"], fields["P"])}
		if kind == Deb {
			if !installed(fields["Status"]) {
				return
			}
			p = pkg{name: fields["Package"], version: fields["Version"], arch: fields["Architecture"]}
			// "glibc (2.36-9)", the version only if it differs.
			source, version, _ := strings.Cut(cmp.Or(fields["Source"], p.name), " ")
			p.source, p.sourceVersion = source, strings.Trim(version, "() ")
		}
		if p.name != "" && p.version != "" {
			d.packages = append(d.packages, p)
		}
	})
	return d, err
}

// installed reports whether dpkg's field Status means that the package's files are on the system.
// Distroless images have no such field.
func installed(status string) bool {
	words := strings.Fields(status)
	if len(words) != 3 {
		return status == ""
	}
	return words[2] != "not-installed" && words[2] != "config-files"
}

// wanted are the fields that are kept.
var wanted = map[string]bool{"Package": true, "Status": true, "Version": true, "Architecture": true, "Source": true,
	"P": true, "V": true, "A": true, "o": true}

// stanzas calls each with the fields of every stanza: lines "Key: value", or apk's "K:value".
// An empty line ends a stanza.
func stanzas(content []byte, each func(fields map[string]string)) error {
	s := bufio.NewScanner(bytes.NewReader(content))
	s.Buffer(nil, 8<<20) // the longest are lists of dependencies
	fields := map[string]string{}
	for s.Scan() {
		line := s.Text()
		if line == "" {
			if len(fields) > 0 {
				each(fields)
			}
			fields = map[string]string{}
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			continue
		}
		if key, value, ok := strings.Cut(line, ":"); ok && wanted[key] {
			fields[key] = strings.TrimSpace(value)
		}
	}
	if len(fields) > 0 {
		each(fields)
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("reading the package database: %w", err)
	}
	return nil
}

// A release is what os-release contains about the distribution.
type release struct{ id, version string }

// maxRelease bounds os-release, in bytes.
const maxRelease = 64 << 10

// isRelease reports whether os-release may be at path: /etc/os-release is often a link.
func isRelease(path string) bool { return path == "usr/lib/os-release" || path == "etc/os-release" }

func parseRelease(content []byte) *release {
	r := &release{}
	for line := range strings.Lines(string(content)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			r.id = value
		case "VERSION_ID":
			r.version = value
		}
	}
	return r
}

// item returns a package of a distribution as an item. r is nil if the image has no
// os-release.
func (p pkg) item(kind Kind, r *release) Item {
	id, version := "debian", ""
	if kind == Apk {
		id = "alpine"
	}
	if r != nil && r.id != "" {
		id, version = r.id, r.version
	}
	distro := id
	if version != "" {
		distro += "-" + version
	}
	upstream := ""
	if p.source != p.name || p.sourceVersion != "" {
		upstream = p.source
		if p.sourceVersion != "" {
			upstream += "@" + p.sourceVersion
		}
	}
	return Item{Kind: kind, Name: p.name, Version: p.version,
		PURL: purl(string(kind), strings.ToLower(id), strings.ToLower(p.name), p.version, map[string]string{"arch": p.arch, "distro": distro, "upstream": upstream}),
		Properties: []Property{{"architecture", p.arch}, {"sourcePackage", p.source},
			{"sourceVersion", cmp.Or(p.sourceVersion, p.version)}}}
}
