package main

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"path"
	"strings"
	"time"
)

// debianVersion returns the version as Debian sorts it: v0.1.0-rc.1 precedes v0.1.0.
func debianVersion(version string) string {
	return strings.Replace(strings.TrimPrefix(version, "v"), "-", "~", 1)
}

// debianPackage returns a package with the bundle command: deb(5). It is written here, not
// by dpkg-deb, because the compressed bytes must not depend on the machine's dpkg.
func debianPackage(version, arch string, release []file, at time.Time) ([]byte, error) {
	files, err := debianFiles(release)
	if err != nil {
		return nil, err
	}
	size, sums := 0, ""
	for _, f := range files {
		size += (len(f.content) + 1023) / 1024
		sums += fmt.Sprintf("%x  %s\n", md5.Sum(f.content), f.name)
	}
	control := fmt.Sprintf(`Package: airlift-bundle
Version: %s
Architecture: %s
Maintainer: The Airlift authors <airlift@localhost>
Installed-Size: %d
Section: admin
Priority: optional
Description: build one file that installs Kubernetes without a network
 The command bundle downloads the binaries and images of a Kubernetes version,
 verifies them, and writes them into one executable file. Copy that file to
 hosts that have no network, and run it there.
`, debianVersion(version), arch, size)
	data, err := tarball(files, "./", at)
	if err != nil {
		return nil, err
	}
	meta, err := tarball([]file{{"control", []byte(control), 0o644}, {"md5sums", []byte(sums), 0o644}}, "./", at)
	if err != nil {
		return nil, err
	}
	if data, err = compressed(data); err != nil {
		return nil, err
	}
	if meta, err = compressed(meta); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, member := range []file{
		{"debian-binary", []byte("2.0\n"), 0o100644},
		{"control.tar.gz", meta, 0o100644},
		{"data.tar.gz", data, 0o100644},
	} {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", member.name, at.Unix(), 0, 0, member.mode, len(member.content))
		b.Write(member.content)
		if len(member.content)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes(), nil
}

// debianFiles returns the files of the release under the paths that Debian's policy gives
// them.
func debianFiles(release []file) ([]file, error) {
	const doc = "usr/share/doc/airlift-bundle/"
	var files []file
	for _, f := range release {
		pack := false
		switch dir, name := path.Split(f.name); {
		case f.name == "bundle":
			f.name = "usr/bin/bundle"
		case dir == "man/":
			f.name, pack = "usr/share/man/man1/"+name+".gz", true
		case name == "bundle.bash":
			f.name = "usr/share/bash-completion/completions/bundle"
		case name == "bundle.fish":
			f.name = "usr/share/fish/vendor_completions.d/bundle.fish"
		case name == "_bundle":
			f.name = "usr/share/zsh/vendor-completions/_bundle"
		case name == "LICENSE":
			f.name = doc + "copyright"
		case name == "README.md":
			f.name = doc + "README.md"
		case name == "CHANGELOG.md":
			f.name, pack = doc+"NEWS.gz", true
		default:
			continue
		}
		if pack {
			var err error
			if f.content, err = compressed(f.content); err != nil {
				return nil, err
			}
		}
		files = append(files, f)
	}
	sortFiles(files)
	return files, nil
}
