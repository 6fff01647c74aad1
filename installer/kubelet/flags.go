package kubelet

import (
	"cmp"
	"fmt"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"airlift/installer/config"
)

func itoa(n int) string { return strconv.Itoa(n) }

// ParseFlags parses the kubelet's flags in KUBELET_EXTRA_ARGS, as systemd and the
// kubelet do: from an EnvironmentFile (or one line of it, or only the value), split
// at white space outside quotes. A word that is not a flag has no Name.
func ParseFlags(line string) []config.Arg {
	value := line
	for _, l := range strings.Split(line, "\n") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(l), "KUBELET_EXTRA_ARGS="); ok {
			value = unquote(v)
		} else if strings.Contains(line, "KUBELET_EXTRA_ARGS=") && value == line {
			value = "" // the variable is on a later line, or in a comment
		}
	}
	var args []config.Arg
	list := words(value)
	for i := 0; i < len(list); i++ {
		word := list[i]
		if word == "--" {
			continue
		}
		if !strings.HasPrefix(word, "-") || word == "-" {
			args = append(args, config.Arg{Value: word})
			continue
		}
		name, v, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
		// -v is the only flag of one letter with a value: -v2, -v=2, -v 2.
		if !strings.HasPrefix(word, "--") && len(name) > 1 && name[0] == 'v' && !given {
			name, v, given = "v", name[1:], true
		}
		if !given {
			if bare(name) {
				v = "true"
			} else if i+1 < len(list) {
				i++
				v = list[i]
			}
		}
		args = append(args, config.Arg{Name: name, Value: v})
	}
	return args
}

// bare reports whether a flag may be given without a value.
func bare(name string) bool {
	if name == "h" {
		return true
	}
	for _, s := range facts().Flags[strings.ReplaceAll(name, "_", "-")] {
		return s.Is.Type == "bool" || s.Is.Type == "optional"
	}
	return false
}

// unquote is the value of one assignment in an EnvironmentFile of systemd.
func unquote(s string) string {
	var out strings.Builder
	var quote byte
	for i := 0; i < len(s); i++ {
		switch ch := s[i]; {
		case quote != 0 && ch == quote:
			quote = 0
		case quote == 0 && (ch == '"' || ch == '\'') && (i == 0 || s[i-1] == '"' || s[i-1] == '\''):
			quote = ch
		case ch == '\\' && quote != '\'' && i+1 < len(s):
			i++
			out.WriteByte(s[i])
		default:
			out.WriteByte(ch)
		}
	}
	return strings.TrimSpace(out.String())
}

// words splits a variable's value as systemd does for an unquoted $NAME: at
// white space, except in quotes, which go.
func words(s string) []string {
	var list []string
	var word strings.Builder
	var quote rune
	open := false
	for _, ch := range s {
		switch {
		case quote != 0 && ch == quote:
			quote = 0
		case quote == 0 && (ch == '"' || ch == '\''):
			quote, open = ch, true
		case quote == 0 && strings.ContainsRune(" \t\n\r", ch):
			if open {
				list = append(list, word.String())
				word.Reset()
				open = false
			}
		default:
			word.WriteRune(ch)
			open = true
		}
	}
	if open {
		list = append(list, word.String())
	}
	return list
}

// removedFlags are flags from before the oldest known version that old instructions
// still contain.
var removedFlags = map[string]string{
	"cni-bin-dir":       dockershim,
	"cni-conf-dir":      dockershim,
	"container-runtime": "v1.26 was the last version with it",
	"docker-endpoint":   dockershim,
	"network-plugin":    dockershim,
}

const dockershim = "it was removed with dockershim in v1.24; configure the container runtime instead"

// readFlags applies the flags on top of the configuration file.
func (c *check) readFlags() {
	c.flags = make(map[string]string)
	values := make(map[string]any) // by field
	for _, arg := range c.Flags {
		if arg.Name == "" {
			c.fail(Flags, "remove it, or write it as --name=value", "%q is not a flag: the kubelet takes no arguments", arg.Value)
			continue
		}
		// The kubelet treats _ as -.
		name := strings.ReplaceAll(strings.TrimLeft(arg.Name, "-"), "_", "-")
		flag := "--" + name
		if name == "h" {
			name = "help"
		}
		fact, ok := facts().Flags.at(name, c.minor)
		if !ok {
			fix := fmt.Sprintf("remove %s from kubeletExtraArgs and KUBELET_EXTRA_ARGS", flag)
			if hint := cmp.Or(removedFlags[name], facts().Flags.hint(name, c.minor)); hint != "" {
				fix += "; " + hint
			}
			c.fail(Flags, fix, "%s is not a flag of the kubelet of v1.%d", flag, c.minor)
			continue
		}
		if fact.Deprecated != "" {
			c.warn(Flags, fmt.Sprintf("remove %s before the next upgrade", flag), "%s is deprecated: %s", flag, strings.TrimSuffix(fact.Deprecated, "."))
		}
		value, err := parseFlag(fact.Type, arg.Value)
		if err != nil {
			check := Flags
			switch fact.Type {
			case "labels":
				check = NodeLabels
			case "gates":
				check = FeatureGates
			case "reserved-memory":
				check = Reserved
			}
			c.fail(check, "correct it in kubeletExtraArgs or KUBELET_EXTRA_ARGS", "%s=%s: %v", flag, arg.Value, err)
			continue
		}
		switch {
		case name == "help" || name == "version":
			// --version=v1.2.3 only changes the reported version.
			if arg.Value != "false" && !strings.HasPrefix(arg.Value, "v") {
				c.fail(Flags, "remove it", "%s makes the kubelet print and exit", flag)
			}
		case name == "node-labels":
			c.labelPairs = append(c.labelPairs, value.([]string)...)
		case fact.Field == "":
			if before, ok := c.flags[name]; ok && before != arg.Value {
				c.twice(flag, before, arg.Value)
			}
			c.flags[name] = arg.Value
		default:
			if before, ok := values[fact.Field]; ok && single(value) && !equal(before, value) {
				c.twice(flag, before, value)
			}
			// Lists and maps of a repeated flag are merged.
			values[fact.Field] = join(values[fact.Field], value)
			c.from[fact.Field] = flag
		}
	}
	c.startFlags()
	for _, field := range sortedKeys(values) {
		c.override(field, values[field])
	}
}

// twice warns of a flag with a single value that is given two.
func (c *check) twice(flag string, before, value any) {
	c.warn(Flags, fmt.Sprintf("give %s once, in kubeletExtraArgs or in KUBELET_EXTRA_ARGS", flag), "%s is given twice, as %s and as %s: %s applies, because the last one wins", flag, show(before), show(value), show(value))
}

// single reports whether a value is not a list or a map, which are merged.
func single(v any) bool {
	switch v.(type) {
	case []any, map[string]any:
		return false
	}
	return true
}

// startFlags checks the flags that set no field.
func (c *check) startFlags() {
	if provider := c.flags["cloud-provider"]; provider != "" && provider != "external" {
		// Since 1.34, the kubelet does not check the value.
		report := c.fail
		if c.minor >= 34 {
			report = c.warn
		}
		report(Flags, `use "external" and install the provider's controller manager`, "--cloud-provider=%s: the kubelet has no built-in cloud providers any more", provider)
	}
	if _, ok := c.flags["config-dir"]; ok && c.minor < 30 {
		c.fail(Flags, "set KUBELET_CONFIG_DROPIN_DIR_ALPHA in the kubelet's environment, or use the KubeletConfiguration", "--config-dir needs the variable KUBELET_CONFIG_DROPIN_DIR_ALPHA in v1.29")
	}
	if c.flags["exit-on-lock-contention"] == "true" && c.flags["lock-file"] == "" {
		c.fail(Flags, "give --lock-file too", "--exit-on-lock-contention needs --lock-file")
	}
	c.nodeIP(c.flags["node-ip"])
}

// nodeIP checks --node-ip: one address, or one of each family.
func (c *check) nodeIP(list string) {
	if list == "" {
		return
	}
	const fix = "give one address of this host, or one of each family, separated by a comma"
	var ips []net.IP
	for _, s := range strings.Split(list, ",") {
		if ip := parseIP(s); ip != nil {
			ips = append(ips, ip)
		} else {
			c.warn(Flags, fix, "--node-ip=%s: %q is not an IP address, and the kubelet will ignore it", list, s)
		}
	}
	if len(ips) > 2 || len(ips) == 2 && (ips[0].To4() == nil) == (ips[1].To4() == nil) {
		c.fail(Flags, fix, "--node-ip=%s: it must be one address, or one of IPv4 and one of IPv6", list)
	} else if len(ips) == 2 && (ips[0].IsUnspecified() || ips[1].IsUnspecified()) {
		c.fail(Flags, fix, "--node-ip=%s: 0.0.0.0 and :: cannot be one of two addresses", list)
	}
}

// leadingZeros in IPv4 addresses are accepted by Kubernetes, and not by Go.
var leadingZeros = regexp.MustCompile(`(^|\.)0+([0-9])`)

func parseIP(s string) net.IP {
	s = strings.TrimSpace(s)
	if !strings.Contains(s, ":") {
		s = leadingZeros.ReplaceAllString(s, "$1$2")
	}
	return net.ParseIP(s)
}

// override sets a field to a flag's value, and warns if the file has another one.
func (c *check) override(field string, value any) {
	flag := c.from[field]
	old, had := lookup(c.file, field)
	if gates, ok := value.(map[string]any); ok && field == "featureGates" {
		// Gates are merged one by one; all other maps are replaced.
		merged := make(map[string]any)
		if m, ok := old.(map[string]any); ok {
			for name, v := range m {
				merged[name] = v
			}
		}
		for _, name := range sortedKeys(gates) {
			if before, ok := merged[name]; ok && before != gates[name] {
				c.warn(Flags, fmt.Sprintf("set %s in one place", name), "%s sets %s to %v, the KubeletConfiguration to %v: %v applies, because flags take precedence", flag, name, gates[name], before, gates[name])
			}
			merged[name] = gates[name]
		}
		store(c.merged, field, merged)
		return
	}
	if had && !equal(old, value) {
		c.warn(Flags, fmt.Sprintf("remove %s, or %s from the KubeletConfiguration", flag, field), "%s and the KubeletConfiguration contradict each other: %s is %s in the flag and %s in the file; %s applies, because flags take precedence",
			flag, field, show(value), show(old), show(value))
	}
	store(c.merged, field, value)
}

// equal compares a flag's value with a file's, which may have another notation:
// durations, numbers.
func equal(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, y := fmt.Sprint(a), fmt.Sprint(b)
	if x == y {
		return true
	}
	d, err := time.ParseDuration(x)
	e, err2 := time.ParseDuration(y)
	return err == nil && err2 == nil && d == e
}

// show formats a value as on a command line.
func show(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case []any:
		var list []string
		for _, e := range v {
			list = append(list, strings.Trim(show(e), `"`))
		}
		return strconv.Quote(strings.Join(list, ","))
	case map[string]any:
		var list []string
		for _, k := range sortedKeys(v) {
			list = append(list, k+"="+strings.Trim(show(v[k]), `"`))
		}
		return strconv.Quote(strings.Join(list, ","))
	}
	return fmt.Sprint(v)
}

// join merges the values of a repeated flag.
func join(before, value any) any {
	switch v := value.(type) {
	case []any:
		if b, ok := before.([]any); ok {
			return append(slices.Clone(b), v...)
		}
	case map[string]any:
		if b, ok := before.(map[string]any); ok {
			for k, e := range v {
				b[k] = e
			}
			return b
		}
	}
	return value
}

// parseFlag parses a flag's value according to its type, and returns it as in the
// configuration file.
func parseFlag(kind, s string) (any, error) {
	switch kind {
	case "bool":
		b, err := strconv.ParseBool(s)
		if err != nil {
			return nil, fmt.Errorf("want true or false")
		}
		return b, nil
	case "int", "int32", "int64":
		bits := 64
		if kind == "int32" {
			bits = 32
		}
		n, err := strconv.ParseInt(s, 0, bits)
		if err != nil {
			return nil, fmt.Errorf("want a whole number of at most %d bits", bits)
		}
		return n, nil
	case "duration":
		if _, err := time.ParseDuration(s); err != nil {
			return nil, fmt.Errorf("want a duration such as 30s, 5m or 1h30m")
		}
		return s, nil
	case "ip":
		if parseIP(s) == nil {
			return nil, fmt.Errorf("want an IP address")
		}
		return s, nil
	case "quantity":
		if _, err := resource.ParseQuantity(s); err != nil {
			return nil, fmt.Errorf("want a quantity such as 512 or 4Mi")
		}
		return s, nil
	case "strings":
		var list []any
		for _, e := range strings.Split(s, ",") {
			if e != "" {
				list = append(list, e)
			}
		}
		return list, nil
	case "map":
		return pairs(s, "=")
	case "thresholds":
		return pairs(s, "<")
	case "gates":
		m, err := pairs(s, "=")
		for name, v := range m {
			b, err := strconv.ParseBool(v.(string))
			if err != nil {
				return nil, fmt.Errorf("%s is %q: want true or false", name, v)
			}
			m[name] = b
		}
		return m, err
	case "labels":
		var list []string
		for _, e := range strings.Split(s, ",") {
			if e != "" {
				list = append(list, e)
			}
		}
		return list, nil
	case "taints":
		return parseTaints(s)
	case "reserved-memory":
		return parseReservedMemory(s)
	case "headers":
		return map[string]any{}, nil
	}
	return s, nil
}

// pairs reads "a=b,c=d".
func pairs(s, between string) (map[string]any, error) {
	m := make(map[string]any)
	for _, e := range strings.Split(s, ",") {
		if e == "" {
			continue
		}
		k, v, ok := strings.Cut(e, between)
		if !ok {
			return nil, fmt.Errorf("%q: want name%svalue", e, between)
		}
		m[strings.TrimSpace(k)] = strings.TrimSpace(v)
	}
	return m, nil
}
