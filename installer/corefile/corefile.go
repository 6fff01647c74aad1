// Package corefile migrates a Corefile from one version of CoreDNS to another. It is the home
// of CoreDNS's own library for that.
package corefile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/coredns/corefile-migration/migration"
	parser "github.com/coredns/corefile-migration/migration/corefile"
)

// A Migration is the result of Migrate.
type Migration struct {
	// Corefile is the migrated one. It is the given one if nothing must change.
	Corefile string
	// Changes are the plugins and options that changed or are deprecated, for people.
	Changes []string
	// Unknown are plugins that the library does not know. They are kept as they are.
	Unknown []string
}

// Changed reports whether the Corefile must change.
func (m Migration) Changed(from string) bool { return m.Corefile != from }

// IsDefault reports whether a Corefile is the unchanged default of some kubeadm.
func IsDefault(corefile string) bool { return migration.Default("", corefile) }

// Migrate migrates a Corefile between two versions of CoreDNS, such as "v1.11.1". As in kubeadm, it
// changes only what CoreDNS removed or gave another default. An error means that it does not know
// the versions or cannot parse the Corefile. Then the caller must not change the Corefile and
// CoreDNS.
func Migrate(from, to, corefile string) (Migration, error) {
	m := Migration{Corefile: corefile}
	from, to = strings.TrimPrefix(from, "v"), strings.TrimPrefix(to, "v")
	if from == to {
		return m, nil
	}
	notices, err := migration.Deprecated(from, to, corefile)
	if err != nil {
		return m, fmt.Errorf("migrating the Corefile from CoreDNS %s to %s: %w", from, to, err)
	}
	required := false
	for _, n := range notices {
		m.Changes = append(m.Changes, n.ToString())
		required = required || n.Severity == "removed" || n.Severity == "newdefault"
	}
	unknown, err := migration.Unsupported(from, to, corefile)
	if err != nil {
		return m, fmt.Errorf("migrating the Corefile from CoreDNS %s to %s: %w", from, to, err)
	}
	for _, n := range unknown {
		m.Unknown = append(m.Unknown, n.ToString())
	}
	if !required {
		return m, nil
	}
	m.Corefile, err = migration.Migrate(from, to, corefile, false)
	if err != nil {
		return Migration{Corefile: corefile}, fmt.Errorf("migrating the Corefile from CoreDNS %s to %s: %w", from, to, err)
	}
	return m, nil
}

// Mask replaces each argument that keep does not accept, of a plugin or of its option. For a
// plugin's own arguments the option name is empty. Options that are not names are treated as
// arguments. Comments are removed.
func Mask(corefile, mask string, keep func(plugin, option, argument string) bool) (string, error) {
	parsed, err := parser.New(corefile)
	if err != nil {
		return "", err
	}
	masked := func(plugin, option string, arguments []string) (out []string) {
		for _, a := range arguments {
			if !keep(plugin, option, a) {
				a = mask
			}
			out = append(out, a)
		}
		return slices.Compact(out)
	}
	for _, s := range parsed.Servers {
		for _, p := range s.Plugins {
			p.Args = masked(p.Name, "", p.Args)
			for _, o := range p.Options {
				o.Args = masked(p.Name, o.Name, o.Args)
				if !optionName.MatchString(o.Name) && !keep(p.Name, "", o.Name) {
					o.Name = mask
				}
			}
		}
	}
	return parsed.ToString(), nil
}

var optionName = regexp.MustCompile(`^[a-z][a-z_]*$`)
