// Command release writes the files of a release: the bundle command for each platform as
// an archive, Debian packages, SBOMs, and checksums. The same source, version and Go
// release give the same bytes on any machine and in any directory.
//
//	make release VERSION=v0.1.0
//
// "release gzip FILE..." compresses files like gzip -n, with the same bytes on any machine.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"airlift/builder/sbom"
)

type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

var platforms = []platform{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
}

var versionPattern = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$`)

func main() {
	var err error
	if len(os.Args) > 1 && os.Args[1] == "gzip" {
		err = gzipFiles(os.Args[2:])
	} else {
		r := release{}
		only := ""
		flag.StringVar(&r.version, "version", "", "version of the release, such as v0.1.0")
		flag.StringVar(&r.dir, "output", "out/release", "directory to write")
		flag.StringVar(&only, "only", "", "a platform such as linux/amd64; empty for all")
		flag.Parse()
		err = r.write(only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// A release is written from the source in the working directory.
type release struct {
	version string
	dir     string
	time    time.Time // of everything in archives
}

// write builds the platforms, or one of them, and replaces the files in r.dir.
func (r release) write(only string) (err error) {
	if !versionPattern.MatchString(r.version) {
		return fmt.Errorf("%q is not a version such as v0.1.0: use make release VERSION=v0.1.0", r.version)
	}
	if r.time, err = sourceTime(); err != nil {
		return err
	}
	if err := os.RemoveAll(r.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)

	shared, err := sharedFiles(work, r.version)
	if err != nil {
		return err
	}
	var commands []sbom.Executable
	for _, p := range platforms {
		if only != "" && only != p.String() {
			continue
		}
		command, err := r.platform(p, work, shared)
		if err != nil {
			return fmt.Errorf("writing the release of %s: %w", p, err)
		}
		commands = append(commands, command)
	}
	if err := r.sboms(commands); err != nil {
		return err
	}
	return checksums(r.dir)
}

// sourceTime returns SOURCE_DATE_EPOCH, or else the time of the commit.
func sourceTime() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.Command("git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("reading the time of the commit (without git, set SOURCE_DATE_EPOCH): %w", err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is not a number of seconds: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// sharedFiles returns the files that are the same on all platforms. The command built for
// this machine writes the man pages and completions.
func sharedFiles(work, version string) ([]file, error) {
	command := filepath.Join(work, "bundle")
	if err := build(command, version, platform{}); err != nil {
		return nil, err
	}
	var files []file
	for _, name := range []string{"CHANGELOG.md", "LICENSE", "README.md"} {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, b, 0o644})
	}
	for shell, name := range completions {
		b, err := exec.Command(command, "completion", shell).Output()
		if err != nil {
			return nil, fmt.Errorf("writing the completion of %s: %w", shell, err)
		}
		files = append(files, file{"completion/" + name, b, 0o644})
	}
	pages := filepath.Join(work, "man")
	if out, err := exec.Command(command, "man", pages).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("writing the man pages: %w: %s", err, out)
	}
	list, err := os.ReadDir(pages)
	if err != nil {
		return nil, err
	}
	for _, page := range list {
		b, err := os.ReadFile(filepath.Join(pages, page.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, file{"man/" + page.Name(), b, 0o644})
	}
	return files, nil
}

// completions names the files of shell completions as package managers do.
var completions = map[string]string{
	"bash": "bundle.bash", "fish": "bundle.fish", "powershell": "bundle.ps1", "zsh": "_bundle",
}

// platform writes the archive of one platform, and the Debian package on Linux. It returns the
// bundle command.
func (r release) platform(p platform, work string, shared []file) (command sbom.Executable, err error) {
	path := filepath.Join(work, p.os+"-"+p.arch)
	if err := build(path, r.version, p); err != nil {
		return command, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return command, err
	}
	command = sbom.Executable{Name: "bundle", Platform: p.String(), Content: content}
	return command, r.archives(p, content, shared)
}

// archives writes the archive of one platform, and the Debian package on Linux.
func (r release) archives(p platform, command []byte, shared []file) error {
	name, executable := "bundle_"+r.version+"_"+p.os+"_"+p.arch, "bundle"
	if p.os == "windows" {
		executable = "bundle.exe"
	}
	files := append(slices.Clone(shared), file{executable, command, 0o755})
	sortFiles(files)
	if p.os == "windows" {
		b, err := zipArchive(files, r.time)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(r.dir, name+".zip"), b, 0o644)
	}
	b, err := tarGz(files, r.time)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.dir, name+".tar.gz"), b, 0o644); err != nil {
		return err
	}
	if p.os != "linux" {
		return nil
	}
	b, err = debianPackage(r.version, p.arch, files, r.time)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, "airlift-bundle_"+debianVersion(r.version)+"_"+p.arch+".deb"), b, 0o644)
}

// build compiles the bundle command with the flags of "make build". The zero platform is
// this machine.
func build(path, version string, p platform) error {
	c := exec.Command("go", "build", "-buildvcs=false", "-tags", "grpcnotrace", "-trimpath",
		"-ldflags", "-s -w -buildid= -X main.version="+version, "-o", path, "./cmd/bundle")
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0")
	if p.os != "" {
		c.Env = append(c.Env, "GOOS="+p.os, "GOARCH="+p.arch)
	}
	c.Stderr = os.Stderr
	return c.Run()
}

// checksums writes SHA256SUMS, which sha256sum --check reads.
func checksums(dir string) error {
	list, err := os.ReadDir(dir) // sorted
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range list {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(b), e.Name())
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}
