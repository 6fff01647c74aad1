package adoption

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"airlift/installer/host"
	"airlift/internal/childprocess"
)

// packageTimeout limits a command of a package manager: another one may hold its lock.
const packageTimeout = time.Minute

// packages asks the package manager which packages own the binaries of this node.
func (r reader) packages(ctx context.Context) {
	r.in.Packages = map[string]Package{}
	files := filesOf(r.in.Root)
	var owner func(ctx context.Context, h *host.Host, file string) (*Package, error)
	switch {
	case files.exists(dpkgDir + "/status"):
		owner = dpkgOwner
	case files.exists("/var/lib/rpm"), files.exists("/usr/lib/sysimage/rpm"):
		owner = rpmOwner
	default:
		return // as on Flatcar
	}
	list := []string{strings.TrimSuffix(r.in.Kubelet.Exe, deleted), strings.TrimSuffix(r.in.Containerd.Exe, deleted)}
	for _, dir := range clientBinaries {
		list = append(list, path.Join(dir, "kubelet"), path.Join(dir, "kubectl"))
	}
	ctx, cancel := context.WithTimeout(ctx, packageTimeout)
	defer cancel()
	for _, file := range slices.Compact(slices.Sorted(slices.Values(list))) {
		if file == "" || !files.exists(file) {
			continue
		}
		p, err := owner(ctx, r.host, file)
		if err != nil {
			r.cannotRead("the package of "+file, err)
			return
		}
		if p != nil {
			r.in.Packages[file] = *p
		}
	}
	r.in.Unread = append(r.in.Unread, files.unread...)
}

const dpkgDir = "/var/lib/dpkg"

// dpkgOwner returns the package of dpkg that owns a file; nil if none does.
func dpkgOwner(ctx context.Context, h *host.Host, file string) (*Package, error) {
	admin := "--admindir=" + h.Path(dpkgDir)
	out, err := run(ctx, "dpkg-query", admin, "--search", file)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// NAME: FILE, NAME:ARCH: FILE, or NAME, NAME: FILE. Lines of diversions begin with "diversion by" or
	// "local diversion".
	diverted := false
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "local diversion ") {
			diverted = true
			continue
		}
		names, found, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || found != file || strings.HasPrefix(line, "diversion by ") {
			continue
		}
		name, _, _ := strings.Cut(names, ",")
		out, err := run(ctx, "dpkg-query", admin, "--show", "--showformat", "${Package}\t${Version}\t${db:Status-Want}\n", name)
		if err != nil {
			return nil, err
		}
		fields := strings.Split(strings.TrimSuffix(out, "\n"), "\t")
		if len(fields) != 3 {
			return nil, fmt.Errorf("dpkg-query printed %q", out)
		}
		return &Package{Name: fields[0], Version: fields[1], Manager: "dpkg", Held: fields[2] == "hold", Diverted: diverted}, nil
	}
	return nil, nil
}

// rpmOwner returns the package of rpm that owns a file; nil if none does.
func rpmOwner(ctx context.Context, h *host.Host, file string) (*Package, error) {
	out, err := run(ctx, "rpm", "--root", h.Path("/"), "--query", "--file", "--queryformat", "%{NAME}\t%{VERSION}-%{RELEASE}\n", file)
	if strings.Contains(out, "is not owned by any package") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	name, version, ok := strings.Cut(strings.TrimSpace(out), "\t")
	if !ok {
		return nil, fmt.Errorf("rpm printed %q", out)
	}
	held, err := rpmHolds(os.DirFS(h.Path("/")), name)
	return &Package{Name: name, Version: version, Manager: "rpm", Held: held}, err
}

// holdFiles are the files, as patterns, in which dnf, yum and zypper have packages that they do not update.
var holdFiles = []string{
	"etc/dnf/dnf.conf", "etc/yum.conf", "etc/yum.repos.d/*.repo", "etc/dnf/libdnf5.conf.d/*.conf",
	"etc/dnf/plugins/versionlock.list", "etc/yum/pluginconf.d/versionlock.list", "etc/dnf/versionlock.toml", "etc/zypp/locks",
}

// rpmHolds reports whether dnf, yum or zypper does not update a package: an exclude in their configuration, versionlock, a lock.
func rpmHolds(root fs.FS, name string) (bool, error) {
	for _, pattern := range holdFiles {
		files, err := fs.Glob(root, pattern)
		if err != nil {
			return false, err
		}
		for _, file := range files {
			info, err := fs.Stat(rooted{root}, file)
			if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() { // a link to nothing, as subscription-manager leaves
				continue
			}
			data, err := fs.ReadFile(rooted{root}, file)
			if err != nil {
				return false, err
			}
			for line := range strings.Lines(continuation.ReplaceAllString(string(data), " ")) {
				if line = strings.TrimSpace(line); line != "" && !strings.ContainsRune("#!", rune(line[0])) && holds(path.Base(file), line, name) {
					return true, nil
				}
			}
		}
	}
	return false, nil
}

// continuation is the beginning of a line that continues the one before, as in files of dnf.
var continuation = regexp.MustCompile(`\n[ \t]+`)

// holds reports whether a line of one of the holdFiles is for a package.
func holds(file, line, name string) bool {
	is := func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }
	key, value, _ := strings.Cut(line, "=")
	switch key = strings.TrimSpace(key); {
	case file == "locks": // zypper's: solvable_name: NAME
		_, value, ok := strings.Cut(line, "solvable_name:")
		return ok && is(strings.TrimSpace(value))
	case file == "versionlock.toml": // since dnf 5: name = "NAME"
		return key == "name" && is(strings.Trim(strings.TrimSpace(value), `"'`))
	case file == "versionlock.list": // [EPOCH:]NAME-[EPOCH:]VERSION-RELEASE.ARCH, or a pattern of that
		line = epoch.ReplaceAllString(line, "")
		for i, r := range line {
			if r == '-' && i+1 < len(line) && strings.ContainsRune("0123456789*", rune(line[i+1])) && is(line[:i]) {
				return true
			}
		}
		return is(line)
	case key == "exclude" || key == "excludepkgs":
		return slices.ContainsFunc(strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' }), is)
	}
	return false
}

var epoch = regexp.MustCompile(`^[0-9]+:`)

// run returns what a command prints, in English.
func run(ctx context.Context, name string, args ...string) (string, error) {
	c := childprocess.Command(ctx, name, args...)
	c.Env = append(c.Env, "LC_ALL=C", "LANGUAGE=")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("running %s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), err
}
