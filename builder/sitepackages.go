package builder

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"airlift/builder/ospackage"
	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
)

// A PackageSource is a package of a distribution, or a directory of packages.
type PackageSource struct {
	// Source is the path of a .deb or .rpm, or of a directory that has nothing else.
	Source string
	// Release is the release of the hosts, ID-VERSION_ID of os-release(5).
	Release string
	// Nodes are as in bundle.SiteFile.
	Nodes string
	// Installed, if not empty, is the path of a list of what the hosts have.
	Installed string
	// At is where the user wrote it, for messages.
	At string
}

// maxInstalled is the maximum size of a list of installed packages. A server has less than 10 MB, with the names of all files.
const maxInstalled = 256 << 20

// An osPackage is a package for the bundle.
type osPackage struct {
	bundle.SitePackage
	read   *ospackage.Package
	source PackageSource
	file   string // the path as the user wrote it
}

// readPackages reads the packages, and checks whether the hosts can install them. Each error has all problems of one source.
func (b *build) readPackages(ctx context.Context) (errs []error) {
	problems := map[string][]string{} // by PackageSource.At
	refuse := func(s PackageSource, file, text, hint string) {
		line := "\n  " + file + ": " + text
		if hint != "" {
			line += "\n    (" + hint + ")"
		}
		if !slices.Contains(problems[s.At], line) {
			problems[s.At] = append(problems[s.At], line)
		}
	}
	var all []*osPackage
	lists := map[string]map[string]*ospackage.Installed{} // by release and path
	for _, s := range b.Site.Packages {
		all = append(all, b.readPackageSource(ctx, s, refuse)...)
		if ctx.Err() != nil {
			return []error{ctx.Err()}
		}
		if s.Installed == "" {
			continue
		}
		list, err := b.readInstalled(s.Installed)
		if err != nil {
			refuse(s, b.asWritten(s.Installed), err.Error(), "write the list on a host of the site: "+ospackage.WriteDeb+", or "+ospackage.WriteRPM)
			continue
		}
		if lists[s.Release] == nil {
			lists[s.Release] = map[string]*ospackage.Installed{}
		}
		lists[s.Release][s.Installed] = list
	}
	byRelease := map[string][]*osPackage{}
	for _, p := range all {
		byRelease[p.Release] = append(byRelease[p.Release], p)
	}
	for _, release := range slices.Sorted(maps.Keys(byRelease)) {
		// Hosts of a minor release also get the packages for all of them, except packages that the minor release has itself.
		all, installed := byRelease[release], lists[release]
		for other := release; strings.Contains(other, "."); {
			other = other[:strings.LastIndex(other, ".")]
			for _, p := range byRelease[other] {
				if !slices.ContainsFunc(all, func(o *osPackage) bool { return o.Name == p.Name && o.Release != other }) {
					all = append(all, p)
				}
			}
			if len(installed) == 0 {
				installed = lists[other]
			}
		}
		b.checkPackages(release, all, installed, refuse)
	}
	for _, s := range b.Site.Packages {
		if list := problems[s.At]; len(list) > 0 {
			errs = append(errs, fault.New(fault.Usage, "%s: hosts of %s could not install the packages:%s", s.At, s.Release, strings.Join(list, "")).Hint("how to get packages with all that they need: bundle docs packages"))
			delete(problems, s.At)
		}
	}
	if len(errs) == 0 {
		b.content.addPackages(all)
	}
	return errs
}

// asWritten returns the path of a file as the user wrote it, or the directory that it is in.
func (b *build) asWritten(path string) string {
	if written := b.Site.Written[path]; written != "" {
		return written
	}
	if dir := b.Site.Written[filepath.Dir(path)]; dir != "" {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

// readPackageSource reads the packages of one source. refuse gets what is wrong with a file.
func (b *build) readPackageSource(ctx context.Context, s PackageSource, refuse func(s PackageSource, file, text, hint string)) (list []*osPackage) {
	files := []string{s.Source}
	if i, err := os.Stat(s.Source); err == nil && i.IsDir() {
		names, err := os.ReadDir(s.Source)
		if err == nil && len(names) == 0 {
			err = fmt.Errorf("the directory is empty")
		}
		if err != nil {
			refuse(s, b.asWritten(s.Source), err.Error(), "")
			return nil
		}
		files = nil
		for _, n := range names {
			files = append(files, filepath.Join(s.Source, n.Name()))
		}
	}
	for _, file := range files {
		p, e, err := readPackage(ctx, file)
		if err != nil {
			refuse(s, b.asWritten(file), err.Error(), "")
			continue
		}
		if !p.Fits(b.Arch) {
			if !slices.ContainsFunc(b.Arches, p.Fits) { // it is for the file of another architecture
				refuse(s, b.asWritten(file), fmt.Sprintf("it is for %s, and the bundle for %s", p.Arch, b.Arch), "download it for that architecture")
			}
			continue
		}
		b.content.packageFile(file, e)
		list = append(list, &osPackage{read: p, source: s, file: b.asWritten(file), SitePackage: bundle.SitePackage{
			Name: p.Name, Version: p.Version, Arch: p.Arch, Release: s.Release, Nodes: s.Nodes, Signature: p.Signature, Entry: e.Name,
		}})
	}
	return list
}

// readPackage reads a package to its end, and returns its entry.
func readPackage(ctx context.Context, file string) (*ospackage.Package, bundle.Entry, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, bundle.Entry{}, err
	}
	defer f.Close()
	i, err := f.Stat()
	if err != nil || !i.Mode().IsRegular() {
		return nil, bundle.Entry{}, cmp.Or(err, fmt.Errorf("it is not a regular file"))
	}
	sum := sha256.New()
	p, err := ospackage.Read(interrupt.Reader(ctx, io.TeeReader(f, sum)))
	if err != nil {
		return nil, bundle.Entry{}, err
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	return p, bundle.Entry{Name: bundle.PackageName(digest, string(p.Format)), Size: i.Size(), SHA256: digest}, nil
}

func (b *build) readInstalled(file string) (*ospackage.Installed, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxInstalled+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxInstalled {
		return nil, fmt.Errorf("it has more than %d bytes", maxInstalled)
	}
	b.content.sources[file] = hexSum(text)
	return ospackage.ParseInstalled(text)
}

// checkPackages checks the packages for the hosts of a release, with each list of what such hosts have, and for each kind of
// node. It sets their stages.
func (b *build) checkPackages(release string, all []*osPackage, lists map[string]*ospackage.Installed, refuse func(s PackageSource, file, text, hint string)) {
	first := map[*ospackage.Package]*osPackage{}
	for n, p := range all {
		same := slices.IndexFunc(all[:n], func(o *osPackage) bool { return o.Name == p.Name })
		if same >= 0 {
			refuse(p.source, p.file, fmt.Sprintf("%s is here, and %s in %s", p.read, all[same].read, all[same].file), "leave out one of them")
			continue
		}
		if p.Format() != all[0].Format() {
			refuse(p.source, p.file, fmt.Sprintf("it is a .%s, and %s a .%s", p.Format(), all[0].file, all[0].Format()), "hosts of one release have one package manager: write the release of each")
			return
		}
		first[p.read] = p
	}
	for path, list := range lists {
		if string(list.Format()) != all[0].Format() {
			refuse(all[0].source, b.asWritten(path), fmt.Sprintf("it lists packages of the format %s, and %s is a .%s", list.Format(), all[0].file, all[0].Format()), "")
			return
		}
	}
	if len(lists) == 0 {
		lists = map[string]*ospackage.Installed{"": nil}
	}
	var unsure []string
	for _, role := range []string{bundle.ControlPlanes, bundle.Workers} {
		var set []*ospackage.Package
		for _, p := range all {
			if first[p.read] != nil && (p.Nodes == "" || p.Nodes == role) {
				set = append(set, p.read)
			}
		}
		for _, path := range slices.Sorted(maps.Keys(lists)) {
			for _, problem := range ospackage.Check(set, b.Arch, lists[path]) {
				if p := first[problem.Package]; problem.Unsure {
					unsure = append(unsure, problem.Message)
				} else {
					refuse(p.source, p.file, problem.Message, problem.Hint)
				}
			}
		}
		for p, stage := range ospackage.Stages(set) { // a package of all nodes has the higher stage of both kinds
			first[p].Stage = max(first[p].Stage, stage)
		}
	}
	if len(unsure) == 0 {
		return
	}
	write := ospackage.WriteDeb
	if all[0].Format() == string(ospackage.RPM) {
		write = ospackage.WriteRPM
	}
	slices.Sort(unsure)
	b.objects.warnings = append(b.objects.warnings, fault.Printable(fmt.Sprintf("packages for %s: not checked, because only the hosts know it: %s (installed: names a list of what a host has; this command writes it there: %s)",
		release, strings.Join(slices.Compact(unsure), "; "), write)))
}

// joined returns one error for several, with the hint of the first.
func joined(errs []error) error {
	if len(errs) < 2 {
		return cmp.Or(append(errs, nil)...)
	}
	return fault.Wrap(errors.Join(errs...), fault.ExitCode(errs[0]), fault.Hint(errs[0]))
}
