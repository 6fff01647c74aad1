package sitefile

import (
	"regexp"

	"airlift/builder"
)

// releaseForm is ID-VERSION_ID of os-release(5).
var releaseForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*-[A-Za-z0-9][A-Za-z0-9._]*$`)

// readPackages checks what is written about packages. The builder reads them, because what one needs another one may have.
func (r *reader) readPackages(site *builder.Site) {
	for n, p := range r.Packages {
		at := item("packages", n)
		to := builder.PackageSource{Release: p.Release, Nodes: r.nodes(at+".nodes", p.Nodes), At: r.At(r.Lines[at])}
		if p.Source == "" {
			r.refuse(at, "add source: with a .deb, a .rpm or a directory of them", "packages number %d have no source", n+1)
		} else {
			to.Source = r.resolve(p.Source)
			r.checkExists(at+".source", to.Source)
		}
		switch {
		case p.Release == "":
			r.refuse(at, "add release: with ID and VERSION_ID of /etc/os-release on the hosts, for example debian-12", "packages number %d have no release", n+1)
		case !releaseForm.MatchString(p.Release):
			r.refuse(at+".release", "write ID and VERSION_ID of /etc/os-release on the hosts, for example debian-12, ubuntu-24.04 or rhel-9", "release %q is not a release", p.Release)
		}
		if p.Installed != "" {
			to.Installed = r.resolve(p.Installed)
			r.checkExists(at+".installed", to.Installed)
		}
		site.Packages = append(site.Packages, to)
	}
}
