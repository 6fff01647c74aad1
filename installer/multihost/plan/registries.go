package plan

import (
	"fmt"
	"path"

	"airlift/installer/config"
	"airlift/installer/multihost/spec"
)

// RegistriesDir is where the CAs and the credentials of registries are on a host while the command reads them.
const RegistriesDir = "/var/lib/airlift/cluster/registries"

// mirrors gives a node the registries of the file.
func (s *site) mirrors(h host) *Action {
	r := s.Spec.Registries
	if r == nil {
		return nil
	}
	var has *config.RegistryRecord
	if !h.isNew() {
		if h.Node.OtherRuntime {
			return nil
		}
		has = h.Node.Registries
	}
	a := &Action{Host: h.Name, Verb: Mirrors, Why: "the site's registries differ", Effect: None, Changes: has.Changes(r.List)}
	switch {
	case len(a.Changes) > 0:
		return a
	case h.began(Mirrors):
		a.Why = fmt.Sprintf("did not finish %q", Mirrors)
		return a
	}
	return nil
}

// mirrorsCommand is the command that sets the registries, also for none.
func (s *site) mirrorsCommand() []string {
	flags, _ := OnHost(s.Spec.Registries)
	command := []string{"registry", "mirrors"}
	if len(s.Spec.Registries.List) == 0 {
		return append(command, "--off")
	}
	for _, m := range flags.Mirrors {
		command = append(command, "--registry-mirror", m)
	}
	for _, ca := range flags.CAs {
		command = append(command, "--registry-ca", ca)
	}
	if flags.Auth != "" {
		command = append(command, "--registry-auth", flags.Auth)
	}
	return command
}

// OnHost returns the flags with the paths of the files on a host, and the files on the driver's machine by these paths.
func OnHost(r *spec.Registries) (flags config.RegistryFlags, files map[string]string) {
	files = map[string]string{}
	place := func(name, file string) string {
		at := path.Join(RegistriesDir, name)
		files[at] = file
		return at
	}
	flags.Mirrors = r.Flags.Mirrors
	for i, ca := range r.Flags.CAs {
		host, file, named := config.CutRegistryCA(ca)
		at := place(fmt.Sprintf("ca-%d.pem", i+1), file)
		if named {
			at = host + "=" + at
		}
		flags.CAs = append(flags.CAs, at)
	}
	if r.Flags.Auth != "" {
		flags.Auth = place("auth.json", r.Flags.Auth)
	}
	return flags, files
}
