package lab

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"airlift/internal/fault"
)

// defaultSuite is the Debian release of the hosts, and of the machine that runs a lab.
const defaultSuite = "bookworm"

// basePackages are the packages of a host in addition to Debian's minimal system.
var basePackages = []string{
	"ca-certificates", "conntrack", "curl", "dbus", "ethtool", "iproute2", "iptables",
	"iputils-ping", "kmod", "mount", "procps", "socat", "systemd", "systemd-sysv", "util-linux",
}

// rootfsRecipe is the version of the recipe for root file systems. A change makes earlier
// tarballs unused.
const rootfsRecipe = "1"

// unused is removed from a new root file system: lab hosts need no documentation and have no
// package mirror. This halves the size.
var unused = []string{
	"usr/share/doc", "usr/share/info", "usr/share/lintian", "usr/share/locale", "usr/share/man",
	"var/cache/apt", "var/cache/debconf", "var/lib/apt/lists",
}

// CacheDir is the directory for root file systems: $AIRLIFT_CACHE/lab, or airlift/lab in the
// user's cache directory.
func CacheDir() (string, error) {
	if dir := os.Getenv("AIRLIFT_CACHE"); dir != "" {
		return filepath.Join(dir, "lab"), nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fault.New(fault.Usage, "finding the cache directory: %w", err).Hint("set AIRLIFT_CACHE")
	}
	return filepath.Join(dir, "airlift", "lab"), nil
}

// Rootfs returns a tarball (.tar.zst) of a Debian release with systemd and the extra packages. An
// empty suite or arch means this machine's. The first call creates it with debootstrap, which takes
// one or two minutes, and ten for another architecture. Two processes that need the same tarball
// create it once.
func Rootfs(ctx context.Context, suite, arch string, extra []string, log func(string, ...any)) (string, error) {
	suite, arch = cmp.Or(suite, defaultSuite), cmp.Or(arch, runtime.GOARCH)
	if err := ensureTools(ctx, log); err != nil {
		return "", err
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	packages := slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(basePackages), extra...))))
	sum := sha256.Sum256([]byte(rootfsRecipe + " " + suite + " " + arch + " " + strings.Join(packages, ",")))
	path := filepath.Join(cache, fmt.Sprintf("rootfs-%s-%s.tar.zst", suite, hex.EncodeToString(sum[:6])))

	unlock, err := lock(ctx, path+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("looking for root file system: %w", err)
	}
	log("creating a Debian %s root file system for %s with debootstrap (once)", suite, arch)
	if arch != runtime.GOARCH {
		if err := emulate(ctx, arch, log); err != nil {
			return "", err
		}
	}
	if err := makeRootfs(ctx, suite, arch, path, cache, packages, log); err != nil {
		return "", fmt.Errorf("making root file system: %w", err)
	}
	return path, nil
}

func makeRootfs(ctx context.Context, suite, arch, path, cache string, packages []string, log func(string, ...any)) error {
	mirror, err := debianMirror(ctx)
	if err != nil {
		return err
	}
	debs := filepath.Join(cache, "debs")
	if err := os.MkdirAll(debs, 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, debs+".lock") // file systems with other packages are created at the same time
	if err != nil {
		return err
	}
	defer unlock()
	tmp := path + ".tmp" // protected by the lock; a killed process may have left it
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	root := filepath.Join(tmp, "root")
	// debootstrap starts processes and mounts file systems. In separate namespaces, all of
	// them end with it.
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
		"debootstrap", "--arch="+arch, "--variant=minbase", "--cache-dir="+debs,
		"--include="+strings.Join(packages, ","), suite, root, mirror)
	if cmd.Env, err = withAptProxy(ctx, mirror); err != nil {
		return err
	}
	cmd.Stdout = &sampler{log: log, last: time.Now()}
	if err := runCommand(ctx, cmd); err != nil {
		return err
	}
	for _, dir := range unused {
		if err := os.RemoveAll(filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	tarball := filepath.Join(tmp, "root.tar.zst")
	if err := run(ctx, "tar", "--numeric-owner", "--xattrs", "--zstd", "-C", root, "-cf", tarball, "."); err != nil {
		return err
	}
	return os.Rename(tarball, path)
}

// sampler prints one line of a command's output every ten seconds, to show that it still runs.
type sampler struct {
	log  func(string, ...any)
	last time.Time
}

func (s *sampler) Write(p []byte) (int, error) {
	if time.Since(s.last) > 10*time.Second {
		s.last = time.Now()
		s.log("%s", strings.TrimPrefix(strings.TrimSpace(string(p)), "I: "))
	}
	return len(p), nil
}

// lock locks a file exclusively, creating it if needed, and waits until ctx ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = poll(ctx, "the lock on "+path, func() (bool, error) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
