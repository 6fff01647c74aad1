package kubelet

import (
	"path"
	"strings"
)

// Fixed is a setting of the kubelet that the installer relies on: it writes or
// reads what is there, or cleans it up at reset. Another value would leave the
// kubelet without these files, or files without an owner.
type Fixed struct {
	Flag  string // its name, without dashes
	Value string
	Why   string // what the installer does there
	Fix   string
}

// fixed checks the settings that the installer relies on.
func (c *check) fixed() {
	for _, f := range c.Fixed {
		fact, _ := facts().Flags.at(f.Flag, c.minor)
		name, setting, value := Flags, "--"+f.Flag, c.flags[f.Flag]
		if fact.Field != "" {
			v, _ := lookup(c.settings, fact.Field)
			value, _ = v.(string)
			if c.from[fact.Field] == "" {
				name, setting = Configuration, fact.Field
			}
		}
		if value != "" && plain(value) != plain(f.Value) {
			c.fail(name, f.Fix, "%s is %q, and must be %q: %s", setting, value, f.Value, f.Why)
		}
	}
}

// plain is the usual form of a path or of a socket's URL.
func plain(value string) string {
	value = strings.TrimPrefix(value, "unix://")
	if !path.IsAbs(value) {
		return value
	}
	value = path.Clean(value)
	if rest, ok := strings.CutPrefix(value, "/var/run/"); ok { // a link to /run
		return "/run/" + rest
	}
	return value
}
