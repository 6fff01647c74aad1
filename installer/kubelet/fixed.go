package kubelet

import (
	"path"
	"strings"
)

// Fixed is an option of the kubelet whose value the installer relies on: it
// writes, reads or cleans up the path. With another value, the kubelet would not
// find its files, or reset would leave files behind.
type Fixed struct {
	Flag  string // its name, without dashes
	Value string
	Why   string // why the installer needs this value
	Fix   string
}

// fixed checks the options that the installer relies on.
func (c *check) fixed() {
	for _, f := range c.Fixed {
		fact, _ := facts().Flags.at(f.Flag, c.minor)
		name, option, value := Flags, "--"+f.Flag, c.flags[f.Flag]
		if fact.Field != "" {
			v, _ := lookup(c.merged, fact.Field)
			value, _ = v.(string)
			if c.from[fact.Field] == "" {
				name, option = Configuration, fact.Field
			}
		}
		if value != "" && normalized(value) != normalized(f.Value) {
			c.fail(name, f.Fix, "%s is %q, and must be %q: %s", option, value, f.Value, f.Why)
		}
	}
}

// normalized is the canonical form of a path or of a socket's URL.
func normalized(value string) string {
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
