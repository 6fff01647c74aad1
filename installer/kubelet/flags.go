package kubelet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	netutils "k8s.io/utils/net"
)

// removedFlags are flags from before the oldest known version that old instructions
// still contain.
var removedFlags = map[string]string{
	"cni-bin-dir":       dockershim,
	"cni-conf-dir":      dockershim,
	"container-runtime": "; v1.26 was the last version with it",
	"docker-endpoint":   dockershim,
	"network-plugin":    dockershim,
}

const dockershim = "; it was removed with dockershim in v1.24; configure the container runtime instead"

// readFlags applies the flags on top of the configuration file.
func (c *check) readFlags() {
	values, flags := make(map[string]any), make(map[string]string) // by option
	for _, arg := range c.Flags {
		if arg.Name == "" {
			c.fail(Flags, "remove it, or write it as --name=value", "%q is not a flag: the kubelet takes no arguments", arg.Value)
			continue
		}
		name := canonical(strings.TrimLeft(arg.Name, "-"))
		flag := "--" + name
		fact, ok := facts()["flag"].at(name, c.minor)
		if !ok {
			hint := cmp.Or(removedFlags[name], facts()["flag"].hint(name, c.minor))
			c.fail(Flags, "remove "+flag+" from kubeletExtraArgs and KUBELET_EXTRA_ARGS"+hint, "%s is not a flag of the kubelet of v1.%d", flag, c.minor)
			continue
		}
		kind, deprecated, _ := strings.Cut(fact.is, " ")
		if deprecated != "" {
			c.warn(Flags, "remove "+flag+" before the next upgrade", "%s is %s", flag, deprecated)
		}
		given, err := parseFlag(kind, arg.Value)
		if err != nil {
			check := cmp.Or(map[string]string{"gates": FeatureGates, "reserved-memory": Reserved}[kind], Flags)
			c.fail(check, "correct it in kubeletExtraArgs or KUBELET_EXTRA_ARGS", "%s=%s: %v", flag, arg.Value, err)
			continue
		}
		option := cmp.Or(fact.of, flag)
		flags[option], values[option] = flag, c.join(flag, values[option], given)
	}
	for _, option := range sortedKeys(values) {
		if flags[option] != option {
			c.from[option] = flags[option]
		}
		c.override(flags[option], option, values[option])
	}
}

// canonical is the kubelet's own spelling of a flag's name.
func canonical(name string) string {
	if name == "h" {
		return "help"
	}
	return strings.ReplaceAll(name, "_", "-")
}

// join returns the value of a flag that is repeated: lists and maps are merged.
func (c *check) join(flag string, before, given any) any {
	switch given := given.(type) {
	case []any:
		before, _ := before.([]any)
		return slices.Concat(before, given)
	case map[string]any:
		before, _ := before.(map[string]any)
		merged := maps.Clone(given)
		maps.Copy(merged, before)
		maps.Copy(merged, given)
		return merged
	}
	if before != nil && !equal(before, given) {
		c.warn(Flags, "give "+flag+" once, in kubeletExtraArgs or in KUBELET_EXTRA_ARGS", "%s is given twice, as %s and as %s: %s applies, because the last one wins", flag, show(before), show(given), show(given))
	}
	return given
}

// override sets an option to a flag's value, and warns if the file has another one.
func (c *check) override(flag, option string, given any) {
	if gates, ok := given.(map[string]any); ok && option == "featureGates" {
		// Gates are merged one by one; all other maps are replaced.
		for _, name := range sortedKeys(gates) {
			c.override(flag, option+"."+name, gates[name])
		}
		return
	}
	if old := c.value(option); old != nil && !equal(old, given) {
		c.warn(Flags, "remove "+flag+", or "+option+" from the KubeletConfiguration", "%s and the KubeletConfiguration contradict each other: %s is %s in the flag and %s in the file; %s applies, because flags take precedence",
			flag, option, show(given), show(old), show(given))
	}
	unstructured.SetNestedField(c.merged, given, strings.Split(option, ".")...)
}

// equal compares two values, which may be durations in different notations.
func equal(a, b any) bool {
	x, y := fmt.Sprint(a), fmt.Sprint(b)
	d, err := time.ParseDuration(x)
	e, err2 := time.ParseDuration(y)
	return x == y || err == nil && err2 == nil && d == e
}

// show formats a value as in a YAML file.
func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// parsers parse a flag's value according to its type, and return it as in the
// configuration file. Errors of those with a description are replaced by it.
var parsers = map[string]struct {
	want  string
	parse func(string) (any, error)
}{
	"bool":            {"true or false", func(s string) (any, error) { return strconv.ParseBool(s) }},
	"int32":           {"a whole number of at most 32 bits", func(s string) (any, error) { return strconv.ParseInt(s, 0, 32) }},
	"int64":           {"a whole number of at most 64 bits", func(s string) (any, error) { return strconv.ParseInt(s, 0, 64) }},
	"duration":        {"a duration such as 30s, 5m or 1h30m", func(s string) (any, error) { _, err := time.ParseDuration(s); return s, err }},
	"quantity":        {"a quantity such as 512 or 4Mi", func(s string) (any, error) { _, err := resource.ParseQuantity(s); return s, err }},
	"ip":              {"an IP address", func(s string) (any, error) { _, err := parseIP(s); return s, err }},
	"strings":         {"", parseList},
	"labels":          {"", parseList},
	"map":             {"", func(s string) (any, error) { return pairs(s, "=") }},
	"thresholds":      {"", func(s string) (any, error) { return pairs(s, "<") }},
	"gates":           {"", parseGates},
	"taints":          {"", parseTaints},
	"reserved-memory": {"", parseReservedMemory},
	"vmodule":         {"FILE=LEVEL,FILE=LEVEL", parseVModule},
	"headers":         {"", func(string) (any, error) { return map[string]any{}, nil }},
}

func parseFlag(kind, s string) (any, error) {
	p, ok := parsers[kind]
	if !ok {
		return s, nil
	}
	v, err := p.parse(s)
	if err != nil && p.want != "" {
		err = errors.New("want " + p.want)
	}
	return v, err
}

// parseIP accepts zeros before a number, as Kubernetes does, and Go does not.
func parseIP(s string) (net.IP, error) {
	if ip := netutils.ParseIPSloppy(strings.TrimSpace(s)); ip != nil {
		return ip, nil
	}
	return nil, fmt.Errorf("%q is not an IP address", s)
}

func parseList(s string) (any, error) {
	var list []any
	for e := range strings.SplitSeq(s, ",") {
		if e != "" {
			list = append(list, e)
		}
	}
	return list, nil
}

func parseGates(s string) (any, error) {
	m, err := pairs(s, "=")
	for name, set := range m {
		if m[name], err = strconv.ParseBool(set.(string)); err != nil {
			return nil, fmt.Errorf("%s is %q: want true or false", name, set)
		}
	}
	return m, err
}

func parseVModule(s string) (any, error) {
	var list []any
	m, err := pairs(s, "=")
	for _, file := range sortedKeys(m) {
		level, bad := strconv.ParseInt(m[file].(string), 10, 32)
		err = cmp.Or(err, bad)
		list = append(list, map[string]any{"filePattern": file, "verbosity": level})
	}
	return list, err
}

// pairs reads "a=b,c=d".
func pairs(s, between string) (map[string]any, error) {
	m := make(map[string]any)
	for e := range strings.SplitSeq(s, ",") {
		k, v, ok := strings.Cut(e, between)
		if e != "" && !ok {
			return nil, fmt.Errorf("%q: want name%svalue", e, between)
		} else if ok {
			m[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	return m, nil
}
