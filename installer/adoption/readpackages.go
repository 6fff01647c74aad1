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
	"slices"
	"strings"
	"time"

	"airlift/childprocess"
	"airlift/installer/host"
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

// rpmHolds reports whether dnf or yum does not update a package: an exclude in their configuration, or versionlock.
func rpmHolds(root fs.FS, name string) (bool, error) {
	files := []string{"etc/dnf/dnf.conf", "etc/yum.conf", "etc/dnf/plugins/versionlock.list", "etc/dnf/versionlock.toml", "etc/yum/pluginconf.d/versionlock.list"}
	repositories, err := fs.Glob(root, "etc/yum.repos.d/*.repo")
	if err != nil {
		return false, err
	}
	for _, file := range append(files, repositories...) {
		data, err := fs.ReadFile(rooted{root}, file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		for line := range strings.Lines(string(data)) {
			line = strings.TrimSpace(line)
			key, value, _ := strings.Cut(line, "=")
			switch key = strings.TrimSpace(key); {
			case strings.HasPrefix(line, "#"), strings.HasPrefix(line, "!"):
			case strings.Contains(file, "versionlock"):
				// NAME-0:VERSION-RELEASE.* or 0:NAME-VERSION…, and name = "NAME" since dnf 5.
				locked := strings.TrimPrefix(line, "0:")
				if rest, ok := strings.CutPrefix(locked, name+"-"); ok && rest != "" && rest[0] >= '0' && rest[0] <= '9' || key == "name" && strings.Trim(strings.TrimSpace(value), `"'`) == name {
					return true, nil
				}
			case key == "exclude" || key == "excludepkgs":
				for _, pattern := range strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' }) {
					if ok, _ := path.Match(pattern, name); ok {
						return true, nil
					}
				}
			}
		}
	}
	return false, nil
}

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
