package model

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/distro"
	"airlift/scripts/fixtures/testbundle"
)

// Commands with packages of the distribution, which the real dpkg installs.
const (
	packagesInstall = "packages"
	packagesRemove  = "packages remove"
	// userPackage installs a package of the user, which needs one of the file.
	userPackage = "dpkg --install a package of the user"
	// userUpgrade installs a newer version of a package of the file.
	userUpgrade = "dpkg --install a newer version"
)

// hasPackages reports whether a sequence needs files with packages.
func (s Sequence) hasPackages() bool {
	return slices.ContainsFunc(s, func(c Command) bool {
		return slices.Contains([]string{packagesInstall, packagesRemove, userPackage, userUpgrade}, c.Name)
	})
}

const (
	dpkgDir   = "var/lib/dpkg"
	osRelease = "PRETTY_NAME=\"A test\"\nID=debian\nVERSION_ID=\"12\"\n"
)

// ownPackages are what hosts have: one that is newer than in the files, and one that the files upgrade.
var ownPackages = map[string]string{"kept": "9", "old": "1"}

// prepareDpkg creates the records of dpkg.
func (h *Host) prepareDpkg() error {
	status := ""
	for _, name := range slices.Sorted(maps.Keys(ownPackages)) {
		status += fmt.Sprintf("Package: %s\nStatus: install ok installed\nMaintainer: A <a@example.com>\nArchitecture: all\nVersion: %s\nDescription: a test\n\n", name, ownPackages[name])
	}
	err := errors.Join(h.put("etc/os-release", osRelease, 0o644), h.put(dpkgDir+"/status", status, 0o644))
	for _, dir := range []string{"updates", "triggers", "info"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(h.Root, dpkgDir, dir), 0o755))
	}
	for name := range ownPackages {
		err = errors.Join(err, h.put(dpkgDir+"/info/"+name+".list", "/.\n", 0o644))
	}
	return err
}

// addPackages adds the packages of a version to a file. The second version has newer ones and another one, the third one fewer.
func addPackages(t *testing.T, b *testbundle.Images, number int) {
	t.Helper()
	dir := t.TempDir()
	for _, p := range [][]distro.Package{
		{{Name: "app", Version: "1", Fields: "Depends: lib"}, {Name: "kept", Version: "1"}, {Name: "lib", Version: "1"}, {Name: "old", Version: "2"}},
		{{Name: "app", Version: "2", Fields: "Depends: lib (>= 2)"}, {Name: "lib", Version: "2"}, {Name: "tool", Version: "1"}},
		{{Name: "lib", Version: "3"}, {Name: "old", Version: "3"}},
	}[number] {
		data, err := os.ReadFile(distro.Deb(t, dir, p))
		if err != nil {
			t.Fatal(err)
		}
		sum := fmt.Sprintf("%x", sha256.Sum256(data))
		s := bundle.SitePackage{Name: p.Name, Version: p.Version, Arch: "all", Release: "debian-12", Entry: bundle.PackageName(sum, "deb")}
		if p.Name == "tool" {
			s.Nodes = bundle.Workers
		}
		b.Content[s.Entry] = data
		b.Manifest.Entries = append(b.Manifest.Entries, bundle.Entry{Name: s.Entry, Size: int64(len(data)), SHA256: sum})
		b.Manifest.Packages = append(b.Manifest.Packages, s)
	}
}

// userPackages are packages of the user, by their commands.
var userPackages = map[string]distro.Package{userPackage: {Name: "user", Version: "1", Fields: "Depends: lib"}, userUpgrade: {Name: "app", Version: "5"}}

// writeUserPackages writes them for all worlds of this process.
func writeUserPackages(t *testing.T) {
	t.Helper()
	for _, p := range userPackages {
		distro.Deb(t, userPackageDir, p)
	}
}

const userPackageDir = "/var/lib/user-packages"

// installPackages installs the packages of the file.
func (r *run) installPackages(b *payload.Bundle) (string, error) {
	return r.changing(packagesInstall, b.Manifest.KubernetesVersion, func(h *host.Host, c *workflow.Console) error {
		p := phases.PackagesOf(b, node.Observe(h).Role, node.NewMachine(h, c))
		return workflow.RunPhase(r.ctx, c, []workflow.Step{p.Step()}, "packages")
	})
}

// removePackages removes them.
func (r *run) removePackages() (string, error) {
	return r.changing(packagesRemove, "", func(h *host.Host, _ *workflow.Console) error {
		if err := uninstall.RemovePackages(r.ctx, h); err != nil {
			return err
		}
		return h.ForgetUnused()
	})
}

// installOwn installs a package of the user.
func (h *Host) installOwn(command string) error {
	p := userPackages[command]
	args := []string{"--root=" + h.Root, "--install", filepath.Join(userPackageDir, fmt.Sprintf("%s_%s_all.deb", p.Name, p.Version))}
	cmd := exec.Command("dpkg", args...)
	cmd.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// cutDpkg leaves what a dpkg leaves that the power cut stops: packages that it was unpacking, or had unpacked and not configured.
func (r *run) cutDpkg(before map[string]string) error {
	status := r.host.read(dpkgDir + "/status")
	half := []string{"install reinstreq half-installed", "install ok unpacked", "install ok half-configured"}[r.crashAt%3]
	for name, version := range r.host.packages() {
		if before[name] != version {
			stanza := regexp.MustCompile(`(?m)^(Package: ` + name + `\n(?:.+\n)*?Status: )install ok installed$`)
			status = stanza.ReplaceAllString(status, "${1}"+half)
		}
	}
	return r.host.put(dpkgDir+"/status", status, 0o644)
}

// packages returns what dpkg's records have: the version of each package, and its status if it is not installed completely.
func (h *Host) packages() map[string]string {
	list := map[string]string{}
	for stanza := range strings.SplitSeq(h.read(dpkgDir+"/status"), "\n\n") {
		fields := map[string]string{}
		for line := range strings.Lines(stanza) {
			if key, value, ok := strings.Cut(line, ": "); ok {
				fields[key] = strings.TrimSpace(value)
			}
		}
		if status := fields["Status"]; fields["Package"] != "" && !strings.HasSuffix(status, " not-installed") && !strings.HasSuffix(status, " config-files") {
			list[fields["Package"]] = strings.TrimSpace(fields["Version"] + strings.TrimPrefix(" "+status, " install ok installed"))
		}
	}
	return list
}

// recorded returns the packages in the ledger.
func (h *Host) recorded() map[string]ledger.PackageVersions {
	list := map[string]ledger.PackageVersions{}
	var document ledger.Document
	if json.Unmarshal([]byte(h.read(ledger.Path)), &document) == nil {
		for _, e := range document.Entries {
			if e.Kind == ledger.Package && e.Package != nil {
				list[e.Name] = *e.Package
			}
		}
	}
	return list
}

// installsPackages are the commands that install packages, and removesPackages those that remove them.
var (
	installsPackages = regexp.MustCompile(`^(init|join|packages$|dpkg|etcd restore|the way back)`)
	removesPackages  = regexp.MustCompile(`^(reset|packages remove|the way back)`)
)

// beginPackages notes which packages a host has, and returns the function that returns what must not happen to them.
func (s *Site) beginPackages(r *run, command string) (check func(err error) error) {
	h := r.host
	if !s.packaged || command == hostLost {
		return func(error) error { return nil }
	}
	before, recorded := h.packages(), h.recorded()
	return func(err error) error {
		is, records := h.packages(), h.recorded()
		for name, version := range before {
			old, airlifts := recorded[name]
			switch {
			case is[name] == version:
			case is[name] == "" && (!airlifts || old.Before != "" || !removesPackages.MatchString(command)):
				return fmt.Errorf("%s has removed the package %s %s: the record has %+v", command, name, version, old)
			case is[name] != "" && !installsPackages.MatchString(command) && !removesPackages.MatchString(command):
				return fmt.Errorf("%s has changed the package %s %s to %s", command, name, version, is[name])
			case is[name] != "" && strings.Compare(is[name], version) < 0 && !strings.Contains(version, " "):
				return fmt.Errorf("%s has installed the package %s %s in place of %s", command, name, is[name], version)
			}
		}
		for name, version := range is {
			if _, airlifts := records[name]; before[name] != version && !airlifts && !strings.HasPrefix(command, "dpkg") && !removesPackages.MatchString(command) {
				return fmt.Errorf("%s has installed the package %s %s, and the ledger does not have it", command, name, version)
			}
		}
		for name, version := range ownPackages {
			if is[name] == "" || strings.Compare(is[name], version) < 0 {
				return fmt.Errorf("after %s, the host has the package %s %q, and had %s", command, name, is[name], version)
			}
		}
		if err != nil || r.disturbed {
			return nil
		}
		for name, old := range recorded {
			needed := name == "lib" && (is["user"] != "" || is["app"] == "1" || is["app"] == "2")
			version, _, _ := strings.Cut(before[name], " ") // it may be half installed
			unchanged := version == old.Version || version == old.Replaces
			if removesPackages.MatchString(command) && !r.host.isAdopted() && command != "the way back" && old.Before == "" && unchanged && !needed && is[name] != "" {
				return fmt.Errorf("%s has left the package %s %s", command, name, is[name])
			}
		}
		if installsPackages.MatchString(command) {
			for name, version := range is {
				if strings.Contains(version, " ") {
					return fmt.Errorf("%s has succeeded, and the package %s is %s", command, name, version)
				}
			}
		}
		return nil
	}
}

// hasPackagesOf fails if a host does not have the packages of a file.
func (h *Host) hasPackagesOf(b *payload.Bundle) error {
	is := h.packages()
	for _, p := range b.Manifest.Packages {
		if p.Nodes == bundle.Workers && (h.controlPlane() || !h.exists(kubeletConf)) {
			continue
		}
		if is[p.Name] == "" || strings.Compare(is[p.Name], p.Version) < 0 {
			return fmt.Errorf("the host has the package %s %q, and the file has %s", p.Name, is[p.Name], p.Version)
		}
	}
	return nil
}
