// Package debian downloads Debian packages with apt from this machine's sources, also packages of
// another CPU architecture, without installing them.
package debian

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"airlift/scripts/oracle/upstream/components"
)

// dependsFlags make apt-cache list a package with all its dependencies.
var dependsFlags = []string{"depends", "--recurse", "--no-recommends", "--no-suggests",
	"--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances"}

// Download writes the .deb files of packages to a directory and returns their paths. With
// dependencies it includes the packages that they need.
func Download(ctx context.Context, dir, arch string, dependencies bool, packages ...string) ([]string, error) {
	flags, err := aptFlags(ctx, arch, packages[0])
	if err != nil {
		return nil, err
	}
	if dependencies {
		out, err := Run(ctx, dir, "apt-cache", append(append(flags[:len(flags):len(flags)], dependsFlags...), packages...)...)
		if err != nil {
			return nil, err
		}
		packages = nil
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "<") {
				packages = append(packages, strings.TrimSpace(line))
			}
		}
	}
	// apt would download as its own user, who cannot write here.
	flags = append(flags, "download", "-q", "-o", "APT::Sandbox::User=root")
	if _, err := Run(ctx, dir, "apt-get", append(flags, packages...)...); err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(dir, "*.deb"))
}

// DownloadSource downloads a file that is in the same directory of the mirror as a package, such as
// the archive of its source, and returns its path.
func DownloadSource(ctx context.Context, dir, pkg, file, sha256 string) (string, error) {
	flags, err := aptFlags(ctx, runtime.GOARCH, pkg)
	if err != nil {
		return "", err
	}
	out, err := Run(ctx, dir, "apt-get", append(flags, "download", "--print-uris", "-q", pkg)...)
	if err != nil {
		return "", err
	}
	uri, _, _ := strings.Cut(strings.TrimPrefix(string(out), "'"), "'") // 'URI' NAME SIZE SUM
	slash := strings.LastIndexByte(uri, '/')
	if slash < 0 {
		return "", fmt.Errorf("apt-get prints no address of the package %s: %q", pkg, out)
	}
	path := filepath.Join(dir, file)
	// apt's own program uses the proxy of apt, if there is one.
	_, err = Run(ctx, dir, "/usr/lib/apt/apt-helper", "download-file", "-o", "APT::Sandbox::User=root", uri[:slash+1]+file, path, "SHA256:"+sha256)
	return path, err
}

// aptFlags returns apt's flags for an architecture, and downloads its package lists if they are
// missing. The package lists of another architecture are in the rig's cache, so this machine's apt
// does not change.
func aptFlags(ctx context.Context, arch, example string) ([]string, error) {
	var flags []string
	state := "/var/lib/apt"
	if arch != runtime.GOARCH {
		cache, err := components.CacheDir()
		if err != nil {
			return nil, err
		}
		state = filepath.Join(cache, "apt", arch)
		flags = []string{
			"-o", "APT::Architecture=" + arch, "-o", "Dir::State=" + state, "-o", "Dir::State::status=/dev/null",
			"-o", "Dir::Cache=" + filepath.Join(state, "cache"),
		}
		for _, dir := range []string{"lists/partial", "cache/archives/partial"} {
			if err := os.MkdirAll(filepath.Join(state, dir), 0o755); err != nil {
				return nil, err
			}
		}
	}
	lock, err := os.Open(state)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // a second apt-get update would fail
		return nil, err
	}
	if out, err := Run(ctx, "/", "apt-cache", append(flags[:len(flags):len(flags)], "show", example)...); err != nil || len(out) == 0 {
		if _, err := Run(ctx, "/", "apt-get", append(flags[:len(flags):len(flags)], "update", "-q")...); err != nil {
			return nil, err
		}
	}
	return flags, nil
}

// Run runs a command and returns its standard output. An error includes its messages.
func Run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, fmt.Errorf("running %s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}
