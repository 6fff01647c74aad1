package ospackages

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	version "github.com/knqyf263/go-rpm-version"

	"airlift/internal/fault"
)

// An rpm is the package manager of Red Hat, SUSE and their derivatives. dnf and zypper are not needed.
type rpm struct{ *runner }

func (rpm) name() string     { return "rpm" }
func (rpm) database() string { return "/var/lib/rpm" }

// on returns the arguments with the root directory of a host that is a directory.
func (r rpm) on(args ...string) []string {
	if root := r.host.Path("/"); root != "/" {
		args = append([]string{"--root=" + root}, args...)
	}
	return args
}

func (r rpm) architecture(ctx context.Context) (string, error) {
	out, err := r.read(ctx, "rpm", "--eval", "%{_arch}")
	return strings.TrimSpace(out), err
}

// nevra is a query of the whole name. A package without an epoch has epoch 0.
const nevra = `%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\t%{ARCH}\n`

func (r rpm) installed(ctx context.Context) (map[string]state, error) {
	arch, err := r.architecture(ctx)
	if err != nil {
		return nil, err
	}
	out, err := r.read(ctx, "rpm", r.on("--query", "--all", "--queryformat", nevra)...)
	if err != nil {
		return nil, err
	}
	list := map[string]state{}
	for line := range strings.Lines(out) {
		name, evr, is, err := fieldsOf(line)
		if err != nil {
			return nil, err
		}
		if is != arch && is != "noarch" {
			continue
		}
		s := list[name]
		switch { // several versions of a kernel may be installed, and of a package that rpm was replacing when it was killed
		case s.version == "":
			s.version = evr
		case newer(evr, s.version):
			s.former, s.version = append(s.former, s.version), evr
		default:
			s.former = append(s.former, evr)
		}
		list[name] = s
	}
	return list, nil
}

// fieldsOf splits a line of the query nevra.
func fieldsOf(line string) (name, evr, arch string, err error) {
	f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
	if len(f) != 3 {
		return "", "", "", fmt.Errorf("rpm printed %q", line)
	}
	return f[0], strings.TrimPrefix(f[1], "0:"), f[2], nil
}

func newer(a, b string) bool { return version.NewVersion(a).Compare(version.NewVersion(b)) > 0 }

func (rpm) newer(_ context.Context, a, b string) (bool, error) { return newer(a, b), nil }

// lock waits for other transactions. rpm itself takes the lock, and dnf takes it for its transactions.
func (r rpm) lock(ctx context.Context) (unlock func(), err error) {
	out, err := r.read(ctx, "rpm", "--eval", "%{_rpmlock_path}")
	if err != nil {
		return nil, err
	}
	return r.waitLock(ctx, r.host.Path(strings.TrimSpace(out)), false)
}

func (r rpm) describe(ctx context.Context, file string) (name, evr, arch string, err error) {
	out, err := r.read(ctx, "rpm", "--query", "--package", "--queryformat", nevra, file)
	if err != nil {
		return "", "", "", err
	}
	return fieldsOf(out)
}

// check lets rpm test the transaction, which has no stages.
func (r rpm) check(ctx context.Context, _ string, stages [][]string) error {
	files := slices.Concat(stages...)
	has, err := r.installed(ctx)
	if err != nil {
		return err
	}
	var refused []string
	for _, file := range files {
		name, evr, _, err := r.describe(ctx, file)
		if err != nil {
			return err
		}
		provides, err := r.read(ctx, "rpm", "--query", "--package", "--provides", file)
		if err != nil {
			return err
		}
		if s := has[name]; s.version != "" && strings.Contains(provides, "installonlypkg(") {
			refused = append(refused, fmt.Sprintf("  %s %s would remove %s %s, which may be the kernel that runs: install it yourself with rpm --install", name, evr, name, s.version))
		}
		out, err := r.read(ctx, "rpm", "--query", "--package", "--queryformat", `[%{OBSOLETENAME}\t%{OBSOLETEFLAGS:depflags}\t%{OBSOLETEVERSION}\n]`, file)
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			if len(f) != 3 || f[0] == name || has[f[0]].version == "" {
				continue
			}
			if isIn(has[f[0]].version, strings.TrimSpace(f[1]), f[2]) {
				refused = append(refused, fmt.Sprintf("  %s would remove %s %s", name, f[0], has[f[0]].version))
			}
		}
	}
	_, err = r.read(ctx, "rpm", append(r.on("--upgrade", "--replacepkgs", "--test"), files...)...)
	if f, ok := errors.AsType[*failed](err); ok {
		refused = append(refused, tail(f.output))
	} else if err != nil {
		return err
	}
	if len(refused) > 0 {
		return fault.New(fault.Preflight, "rpm would refuse the packages, or remove others:\n%s", strings.Join(refused, "\n")).
			Hint("build the bundle with all that they need, which installed: in bundle.yaml lets the build check; if another package is in the way, remove it first: rpm --erase NAME")
	}
	return nil
}

// isIn reports whether a version is in a range, "<", "<=", "=", ">=", ">" or "" for all.
func isIn(has, op, limit string) bool {
	if op == "" || limit == "" {
		return true
	}
	if !strings.Contains(limit, "-") { // every release is meant
		has, _, _ = strings.Cut(has, "-")
	}
	order := version.NewVersion(has).Compare(version.NewVersion(limit))
	return order < 0 && strings.HasPrefix(op, "<") || order > 0 && strings.HasPrefix(op, ">") || order == 0 && strings.HasSuffix(op, "=")
}

// install installs a package again if the last rpm was killed before it removed the former version.
func (r rpm) install(ctx context.Context, stages [][]string) error {
	return explain("installing", r.change(ctx, "rpm", append(r.on("--upgrade", "--replacepkgs"), slices.Concat(stages...)...)...))
}

// neededBy is a line of rpm about a capability that a package needs.
var neededBy = regexp.MustCompile(`(?m)^\s+(.+) is needed by \(installed\) (\S+)$`)

func (r rpm) needed(ctx context.Context, names []string) (map[string]string, error) {
	needed := map[string]string{}
	for left := names; len(left) > 0; {
		_, err := r.read(ctx, "rpm", append(r.on("--erase", "--allmatches", "--test"), left...)...)
		f, ok := errors.AsType[*failed](err)
		if !ok {
			return needed, err
		}
		before := len(needed)
		for _, m := range neededBy.FindAllStringSubmatch(f.output, -1) {
			if strings.HasPrefix(m[1], "(") { // a condition with "and", "or" or "if"
				for _, name := range left {
					if slices.Contains(strings.FieldsFunc(m[1], func(r rune) bool { return strings.ContainsRune("() ", r) }), name) && needed[name] == "" {
						needed[name] = m[2] + " needs " + m[1]
					}
				}
				continue
			}
			capability, _, _ := strings.Cut(m[1], " ")
			out, err := r.read(ctx, "rpm", r.on("--query", "--whatprovides", "--queryformat", `%{NAME}\n`, capability)...)
			if err != nil {
				return nil, err
			}
			for name := range strings.FieldsSeq(out) {
				if slices.Contains(left, name) && needed[name] == "" {
					needed[name] = m[2] + " needs it"
				}
			}
		}
		if len(needed) == before {
			why := neededBy.FindStringSubmatch(f.output)
			if why == nil {
				return nil, err
			}
			for _, name := range left { // it is not known which one
				needed[name] = why[2] + " needs " + why[1]
			}
		}
		left = slices.DeleteFunc(slices.Clone(left), func(name string) bool { return needed[name] != "" })
	}
	return needed, nil
}

// keepsConfiguration is false: rpm keeps only edited files, under another name.
func (rpm) keepsConfiguration(context.Context, string) (bool, error) { return false, nil }

func (r rpm) remove(ctx context.Context, names []string) error {
	return explain("removing", r.change(ctx, "rpm", append(r.on("--erase", "--allmatches"), names...)...))
}
