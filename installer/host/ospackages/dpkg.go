package ospackages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"airlift/internal/fault"
	"airlift/internal/space"
)

// dpkgDir has the records of dpkg.
const dpkgDir = "/var/lib/dpkg"

// A dpkg is the package manager of Debian and its derivatives. apt is not needed.
type dpkg struct{ *runner }

func (dpkg) name() string     { return "dpkg" }
func (dpkg) database() string { return dpkgDir }

// on returns the arguments with the root directory of a host that is a directory.
func (d dpkg) on(args ...string) []string {
	if root := d.host.Path("/"); root != "/" {
		args = append([]string{"--root=" + root}, args...)
	}
	return args
}

func (d dpkg) architecture(ctx context.Context) (string, error) {
	out, err := d.read(ctx, "dpkg", "--print-architecture")
	return strings.TrimSpace(out), err
}

func (d dpkg) installed(ctx context.Context) (map[string]state, error) {
	arch, err := d.architecture(ctx)
	if err != nil {
		return nil, err
	}
	out, err := d.read(ctx, "dpkg-query", d.on("--show", "--showformat",
		`${Package}\t${Version}\t${Architecture}\t${db:Status-Want}\t${db:Status-Eflag}\t${db:Status-Status}\n`)...)
	var none *failed
	if errors.As(err, &none) && strings.Contains(none.output, "no packages found") { // an empty host
		err = nil
	}
	if err != nil {
		return nil, err
	}
	list := map[string]state{}
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 6 {
			return nil, fmt.Errorf("dpkg-query printed %q", line)
		}
		if f[1] == "" || f[2] != arch && f[2] != "all" || f[5] == "config-files" || f[5] == "not-installed" {
			continue
		}
		s := state{version: f[1], held: f[3] == "hold"}
		switch {
		case f[4] == "reinstreq":
			s.broken = f[5] + ", and must be installed again"
		case f[5] != "installed" && f[5] != "triggers-awaited" && f[5] != "triggers-pending":
			s.broken = f[5]
		}
		list[f[0]] = s
	}
	return list, nil
}

func (d dpkg) newer(ctx context.Context, a, b string) (bool, error) {
	_, err := d.read(ctx, "dpkg", "--compare-versions", a, "gt", b)
	var f *failed
	if errors.As(err, &f) && strings.TrimSpace(f.output) == "" { // it prints what is wrong with a version
		return false, nil
	}
	return err == nil, err
}

// lock takes the lock of programs that call dpkg, such as apt, and waits for dpkg itself.
func (d dpkg) lock(ctx context.Context) (unlock func(), err error) {
	unlock, err = d.waitLock(ctx, d.host.Path(dpkgDir+"/lock-frontend"), true)
	if err != nil {
		return nil, err
	}
	if _, err := d.waitLock(ctx, d.host.Path(dpkgDir+"/lock"), false); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// fields prints fields of a package's file control.
func (d dpkg) fields(ctx context.Context, file string, names ...string) (map[string]string, error) {
	out, err := d.read(ctx, "dpkg-deb", append([]string{"--field", file}, names...)...)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			fields[key] = strings.TrimSpace(value)
		}
	}
	return fields, nil
}

func (d dpkg) describe(ctx context.Context, file string) (name, version, arch string, err error) {
	f, err := d.fields(ctx, file, "Package", "Version", "Architecture")
	return f["Package"], strings.TrimPrefix(f["Version"], "0:"), f["Architecture"], err // dpkg records no epoch 0
}

// check runs dpkg on a copy of its records, stage by stage, without the files of the packages: --no-act finds conflicts and
// missing pre-dependencies, and the configuration of packages that are unpacked in the copy finds missing dependencies.
func (d dpkg) check(ctx context.Context, dir string, stages [][]string) error {
	if err := d.checkSpace(ctx, stages); err != nil {
		return err
	}
	admin := filepath.Join(dir, "check")
	for _, name := range []string{"", "updates", "triggers"} {
		if err := os.Mkdir(filepath.Join(admin, name), 0o700); err != nil {
			return err
		}
	}
	if err := os.Symlink(d.host.Path(dpkgDir+"/info"), filepath.Join(admin, "info")); err != nil {
		return err
	}
	for _, name := range []string{"arch", "diversions", "statoverride"} {
		if _, err := os.Stat(d.host.Path(dpkgDir + "/" + name)); err == nil {
			if err := os.Symlink(d.host.Path(dpkgDir+"/"+name), filepath.Join(admin, name)); err != nil {
				return err
			}
		}
	}
	status, err := d.copyRecords(ctx, admin)
	if err != nil {
		return err
	}
	records := triggered(status)
	write := func() error { return os.WriteFile(filepath.Join(admin, "status"), []byte(records), 0o600) }
	var refused []string
	refuse := func(err error) error {
		f, ok := errors.AsType[*failed](err)
		if ok {
			refused = append(refused, tail(f.output))
			return nil
		}
		return err
	}
	for _, files := range stages {
		if err := write(); err != nil {
			return err
		}
		out, err := d.readAll(ctx, "dpkg", append([]string{"--admindir=" + admin, "--no-act", "--no-triggers", "--install"}, files...)...)
		if m := removing.FindAllString(out, -1); err == nil && len(m) > 0 {
			err = &failed{errors.New("dpkg would remove packages"), strings.Join(m, "\n")}
		}
		if err := refuse(err); err != nil {
			return err
		}
		var names []string
		for _, file := range files {
			control, err := d.read(ctx, "dpkg-deb", "--field", file)
			if err != nil {
				return err
			}
			name, _, _, err := d.describe(ctx, file)
			if err != nil {
				return err
			}
			names = append(names, name)
			records = without(records, name) + strings.TrimRight(control, "\n") + "\nStatus: install ok unpacked\n\n"
		}
		if err := write(); err != nil {
			return err
		}
		if _, err := d.readAll(ctx, "dpkg", append([]string{"--admindir=" + admin, "--no-act", "--no-triggers", "--configure"}, names...)...); err != nil {
			if err := refuse(err); err != nil {
				return err
			}
		}
		records = strings.ReplaceAll(records, "\nStatus: install ok unpacked\n", "\nStatus: install ok installed\n")
	}
	if len(refused) > 0 {
		return fault.New(fault.Preflight, "dpkg would refuse the packages, or remove others:\n%s", strings.Join(refused, "\n")).
			Hint("build the bundle with all that they need, which installed: in bundle.yaml lets the build check; if another package is in the way, remove it first: dpkg --remove NAME")
	}
	return nil
}

// triggered returns the records of packages without triggers that wait since earlier installations, as on a host that debootstrap has just made:
// dpkg will process them, but --no-act never does.
func triggered(records string) string {
	list := strings.Split(records, "\n\n")
	for i, r := range list {
		if waitsForTriggers.MatchString(r) {
			list[i] = strings.TrimRight(triggerFields.ReplaceAllString(waitsForTriggers.ReplaceAllString(r, "Status: install ok installed"), ""), "\n")
		}
	}
	return strings.Join(list, "\n\n")
}

var (
	waitsForTriggers = regexp.MustCompile(`(?m)^Status: install ok triggers-(?:pending|awaited)$`)
	triggerFields    = regexp.MustCompile(`(?m)^(?:Triggers-Pending|Triggers-Awaited|Config-Version):.*\n?`)
)

// removing is what dpkg prints before it removes or deconfigures another package in favour of a new one.
var removing = regexp.MustCompile(`(?m)^dpkg: (?:considering (?:removing|deconfiguration)|yes, will (?:remove|deconfigure)).*$`)

// readAll is read, with all that the command printed.
func (d dpkg) readAll(ctx context.Context, name string, args ...string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, readingTimeout)
	defer cancel()
	out, err := d.command(limited, name, args...).CombinedOutput()
	if err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		err = &failed{fmt.Errorf("running %s: %w", name, err), string(out)}
	}
	return string(out), err
}

// without returns the records of dpkg without a package of the host's own architecture.
func without(records, name string) string {
	arch := regexp.MustCompile(`(?m)^Architecture: (\S+)$`)
	native := ""
	if m := regexp.MustCompile(`(?m)^Package: dpkg\n(?:.+\n)*?Architecture: (\S+)$`).FindStringSubmatch(records); m != nil {
		native = m[1]
	}
	var kept []string
	for stanza := range strings.SplitSeq(records, "\n\n") {
		m := arch.FindStringSubmatch(stanza)
		own := m == nil || m[1] == "all" || native == "" || m[1] == native
		if strings.TrimSpace(stanza) != "" && !(own && strings.HasPrefix(strings.TrimLeft(stanza, "\n"), "Package: "+name+"\n")) {
			kept = append(kept, strings.Trim(stanza, "\n"))
		}
	}
	if len(kept) == 0 {
		return ""
	}
	return strings.Join(kept, "\n\n") + "\n\n"
}

// copyRecords copies the records to another directory, and returns them as the next dpkg would complete them if the last one was killed.
func (d dpkg) copyRecords(ctx context.Context, admin string) (string, error) {
	updates, err := filepath.Glob(d.host.Path(dpkgDir + "/updates/[0-9]*"))
	if err != nil {
		return "", err
	}
	for _, file := range append(updates, d.host.Path(dpkgDir+"/status")) {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		name, err := filepath.Rel(d.host.Path(dpkgDir), file)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(admin, name), data, 0o600); err != nil {
			return "", err
		}
	}
	if len(updates) > 0 {
		if _, err := d.read(ctx, "dpkg", "--admindir="+admin, "--set-selections"); err != nil { // without input, it changes nothing else
			return "", err
		}
	}
	status, err := os.ReadFile(filepath.Join(admin, "status"))
	return string(status), err
}

// checkSpace requires space for the files of the packages: dpkg itself does not look for it, and leaves half of a package.
func (d dpkg) checkSpace(ctx context.Context, stages [][]string) error {
	var need int64
	for _, files := range stages {
		for _, file := range files {
			f, err := d.fields(ctx, file, "Installed-Size")
			if err != nil {
				return err
			}
			if kib, err := strconv.ParseInt(f["Installed-Size"], 10, 40); err == nil {
				need += kib << 10
			}
		}
	}
	if err := space.Check(d.host.Path("/usr"), "the packages", need); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fault.Wrap(err, fault.Preflight, "free some space there: df /usr")
	}
	return nil
}

func (d dpkg) install(ctx context.Context, stages [][]string) error {
	for _, files := range stages {
		if err := d.change(ctx, "dpkg", append(d.on("--force-confold", "--refuse-confnew", "--install"), files...)...); err != nil {
			return explain("installing", err)
		}
	}
	return nil
}

// refusedRemoval is a package that dpkg does not remove.
var refusedRemoval = regexp.MustCompile(`(?m)^dpkg: error processing package (\S+) \(--remove\):\n (.*)$`)

// dependent is a line about a package that needs another one.
var dependent = regexp.MustCompile(`(?m)^ (\S+) (?:pre-)?depends on (\S+?)(?: \(.*\))?\.?$`)

func (d dpkg) needed(ctx context.Context, names []string) (map[string]string, error) {
	needed := map[string]string{}
	for left := names; len(left) > 0; {
		out, err := d.readAll(ctx, "dpkg", append(d.on("--no-act", removeHalf, "--remove"), left...)...)
		if err == nil {
			return needed, nil
		}
		if _, ok := errors.AsType[*failed](err); !ok {
			return nil, err
		}
		found := refusedRemoval.FindAllStringSubmatch(out, -1)
		if len(found) == 0 {
			return nil, err
		}
		for _, m := range found {
			name, _, _ := strings.Cut(m[1], ":")
			needed[name] = "dpkg does not remove it: " + m[2]
			for _, who := range dependent.FindAllStringSubmatch(out, -1) {
				if who[2] == name {
					needed[name] = who[1] + " needs it"
				}
			}
		}
		var rest []string
		for _, name := range left {
			if needed[name] == "" {
				rest = append(rest, name)
			}
		}
		if len(rest) == len(left) {
			return nil, err
		}
		left = rest
	}
	return needed, nil
}

func (d dpkg) keepsConfiguration(ctx context.Context, name string) (bool, error) {
	out, err := d.read(ctx, "dpkg-query", d.on("--show", "--showformat", "${Conffiles}", name)...)
	return strings.TrimSpace(out) != "", err
}

// removeHalf is the option to remove a package that dpkg was unpacking when it was killed.
const removeHalf = "--force-remove-reinstreq"

// remove keeps the configuration files: they may have been edited.
func (d dpkg) remove(ctx context.Context, names []string) error {
	return explain("removing", d.change(ctx, "dpkg", append(d.on(removeHalf, "--remove"), names...)...))
}
