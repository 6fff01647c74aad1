package kubeletcheck

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	netutils "k8s.io/utils/net"
	utiljson "sigs.k8s.io/json"

	"airlift/installer/config"
)

// types are the types of flags and fields, by their names in facts.txt.
var types = map[string]struct {
	// joint joins the values of a repeated flag. If it is empty, the last value applies.
	joint string
	// want describes the accepted values. If it is empty, the error of parse describes them.
	want  string
	parse func(string) (any, error)
}{
	"bool":     {"", "true or false", func(s string) (any, error) { return strconv.ParseBool(s) }},
	"duration": {"", "a duration such as 30s, 5m or 1h30m", text(time.ParseDuration)},
	"int":      {"", "a whole number", func(s string) (any, error) { return strconv.ParseInt(s, 0, 64) }},
	"int32":    {"", "a whole number of at most 32 bits", func(s string) (any, error) { return strconv.ParseInt(s, 0, 32) }},
	"int64":    {"", "a whole number of at most 64 bits", func(s string) (any, error) { return strconv.ParseInt(s, 0, 64) }},
	"string":   {"", "a string", func(s string) (any, error) { return s, nil }},
	"stringSlice": {",", "", func(s string) (any, error) {
		return strings.FieldsFunc(s, func(r rune) bool { return r == ',' }), nil
	}},
	"versionValue": {"", "", func(s string) (any, error) { return s, nil }},

	"ConfigurationMap": {",", "", with(func(m *cliflag.ConfigurationMap) pflag.Value {
		*m = cliflag.ConfigurationMap{}
		return m
	})},
	"ColonSeparatedMultimapStringString": {",", "NAME:VALUE,NAME:VALUE", with(cliflag.NewColonSeparatedMultimapStringString)},
	"LangleSeparatedMapStringString":     {",", "NAME<VALUE,NAME<VALUE", with(cliflag.NewLangleSeparatedMapStringString)},
	"MapStringBool":                      {",", "NAME=true,NAME=false", with(cliflag.NewMapStringBool)},
	"MapStringString":                    {",", "NAME=VALUE,NAME=VALUE", with(cliflag.NewMapStringString)},
	"verbosityLevelPflag":                {"", "a whole number", with(logsapi.VerbosityLevelPflag)},
	"vmoduleConfigurationPFlag":          {",", "FILE=LEVEL,FILE=LEVEL", with(logsapi.VModuleConfigurationPflag)},

	// These packages of Kubernetes cannot be imported.
	"IPVar":                 {"", "an IP address", text(parseIP)},
	"QuantityValue":         {"", "a quantity such as 512 or 4Mi", text(resource.ParseQuantity)},
	"RegisterWithTaintsVar": {"", "", parseTaints},
	"ReservedMemoryVar":     {";", "", parseReservedMemory},

	// These are only types of fields.
	"Duration":   {want: "a duration such as 30s, 5m or 1h30m"},
	"map":        {want: "a mapping of names to values"},
	"map string": {want: "a mapping of names to values, with numbers in quotes"},
	"slice":      {want: "a list"},
	"struct":     {want: "a mapping of fields"},
}

// text is for a value that is in the configuration file as it is in the flag.
func text[T any](parse func(string) (T, error)) func(string) (any, error) {
	return func(s string) (any, error) {
		_, err := parse(s)
		return s, err
	}
}

// with is for a value that Kubernetes' own type of flag parses.
func with[T any, V pflag.Value](flag func(*T) V) func(string) (any, error) {
	return func(s string) (any, error) {
		target := new(T)
		err := flag(target).Set(s)
		return target, err
	}
}

// parseIP accepts zeros before a number, as Kubernetes does, and Go does not.
func parseIP(s string) (net.IP, error) {
	if ip := netutils.ParseIPSloppy(strings.TrimSpace(s)); ip != nil {
		return ip, nil
	}
	return nil, fmt.Errorf("%q is not an IP address", s)
}

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

// canonical is the kubelet's own spelling of a flag's name.
func canonical(name string) string { return strings.ReplaceAll(strings.TrimLeft(name, "-"), "_", "-") }

// HasFlag reports whether the kubelet of a Kubernetes version, "v1.29.15", has a flag.
func HasFlag(kubernetes, name string) bool {
	_, ok := facts()["flag"].at(canonical(name), minorOf(kubernetes))
	return ok
}

// ParseFlags parses the words of the kubelet's command line. A word that is not a flag has
// no Name.
func ParseFlags(words []string) (args []config.Arg) {
	for ; len(words) > 0; words = words[1:] {
		word := words[0]
		if word == "--" {
			continue
		}
		// The flags of one letter are -h, and -v2, -v=2 or -v 2.
		if level, ok := strings.CutPrefix(word, "-v"); ok {
			word = strings.TrimSuffix("--v="+strings.TrimPrefix(level, "="), "=")
		} else if word == "-h" {
			word = "--help"
		}
		name, v, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
		known := facts()["flag"][canonical(name)]
		switch {
		case !strings.HasPrefix(word, "--"):
			name, v = "", word
		case !given && len(known) > 0 && (known[0].has("bool") || known[0].has("versionValue")):
			v = "true"
		case !given && len(words) > 1:
			v, words = words[1], words[1:]
		}
		args = append(args, config.Arg{Name: name, Value: v})
	}
	return args
}

// readFlags applies the flags on top of the configuration file.
func (c *check) readFlags() {
	values := make(map[string][]string) // by the flag's name
	for _, arg := range c.Flags {
		if arg.Name == "" {
			c.fail(Flags, "remove it, or write it as --name=value",
				"%q is not a flag: the kubelet takes no arguments", arg.Value)
			continue
		}
		name := canonical(arg.Name)
		values[name] = append(values[name], arg.Value)
	}
	for _, name := range sortedKeys(values) {
		c.readFlag(name, values[name])
	}
}

// readFlag applies all values of one flag.
func (c *check) readFlag(name string, values []string) {
	flag, flags := "--"+name, facts()["flag"]
	c.option = flag
	fact, ok := flags.at(name, c.minor)
	if !ok {
		hint := cmp.Or(removedFlags[name], flags.hint(name, c.minor))
		c.fail(Flags, "remove "+flag+" from kubeletExtraArgs and KUBELET_EXTRA_ARGS"+hint,
			"%s is not a flag of the kubelet of v1.%d", flag, c.minor)
		return
	}
	is, deprecated, _ := strings.Cut(fact.is, " ")
	if deprecated != "" {
		c.warn(Flags, "remove "+flag+" before the next upgrade", "%s is %s", flag, deprecated)
	}
	kind := types[is]
	text := values[len(values)-1]
	if kind.joint != "" {
		text = strings.Join(values, kind.joint)
	} else if i := slices.IndexFunc(values, func(v string) bool { return !equal(v, text) }); i >= 0 {
		c.warn(Flags, "give "+flag+" once, in kubeletExtraArgs or in KUBELET_EXTRA_ARGS",
			"%s is given twice, as %s and as %s: %[3]s applies, because the last one wins", flag, values[i], text)
	}
	given, err := kind.parse(text)
	if err != nil {
		if kind.want != "" {
			err = errors.New("want " + kind.want)
		}
		check := map[string]string{"feature-gates": FeatureGates, "reserved-memory": Reserved}[name]
		c.fail(cmp.Or(check, Flags), "correct it in kubeletExtraArgs or KUBELET_EXTRA_ARGS", "%s=%s: %v", flag, text, err)
		return
	}
	option := cmp.Or(fact.of, flag)
	if option != flag {
		c.from[option] = flag
	}
	var value any // with the type that it has in the file
	utiljson.UnmarshalCaseSensitivePreserveInts([]byte(show(given)), &value)
	c.override(flag, option, value)
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
		c.warn(Flags, "remove "+flag+", or "+option+" from the KubeletConfiguration",
			"%s and the KubeletConfiguration contradict each other: %s is %s in the flag and %s in the file; "+
				"%[3]s applies, because flags take precedence", flag, option, show(given), show(old))
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
	text, _ := json.Marshal(v)
	return string(text)
}
