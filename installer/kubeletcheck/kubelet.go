// Package kubeletcheck has the rules that a kubelet applies to its flags and its
// configuration when it starts, for every minor version that can be installed. A
// kubelet that finds a rule broken exits, and systemd restarts it forever; Check
// reports the same problem before the kubelet starts, by the name of the option.
//
// The rules are the table in rules.go. The feature gates, flags and fields of each
// minor version are in facts.txt, which scripts/kubeletfacts gets from Kubernetes' own
// code.
package kubeletcheck

//go:generate go run airlift/scripts/kubeletfacts facts.txt

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"

	"airlift/images/release"
	"airlift/installer/config"
)

// The names of the checks, for --ignore-preflight-errors.
const (
	NodeLabels    = "KubeletNodeLabels"
	FeatureGates  = "KubeletFeatureGates"
	TLS           = "KubeletTLS"
	ClientCA      = "KubeletClientCA"
	Flags         = "KubeletFlags"
	Reserved      = "KubeletReserved"
	Configuration = "KubeletConfiguration"
)

// Names are the names of all checks, in order.
func Names() []string {
	return []string{Configuration, Flags, NodeLabels, FeatureGates, TLS, ClientCA, Reserved}
}

// A Problem is one option that the kubelet would refuse, or, as a warning, one that
// does not have the expected effect.
type Problem struct {
	Name    string // one of Names
	Option  string // "maxPods", or "--max-pods" if a flag sets it
	Message string // begins with the option
	Fix     string // what to do, without a network
	Warning bool   // the kubelet starts anyway
}

// Input is the configuration with which a kubelet will be started.
type Input struct {
	// Kubernetes is the kubelet's version, "v1.29.15". Unknown minor versions
	// get the rules of the nearest known one.
	Kubernetes string
	// From is the version of the kubelet that it replaces; empty for a new node.
	From string
	// Config is the KubeletConfiguration as it will be written, YAML; nil
	// means the kubelet's defaults.
	Config []byte
	// Flags are the kubelet's flags in the order of its command line. A
	// later one wins over an earlier one, and all win over Config.
	Flags []config.Arg
	// Root is the host's root file system; nil leaves files unchecked.
	Root fs.FS
	// WillExist are absolute paths of files that do not exist yet and will
	// exist when the kubelet starts.
	WillExist []string
	// Fixed are the options that the installer relies on.
	Fixed []Fixed
	// The machine's resources. 0 means unknown, and is not checked.
	CPUs        int
	MemoryBytes uint64
	PIDs        int64
}

// Fixed is an option of the kubelet whose value the installer relies on: it
// writes, reads or cleans up the path. With another value, the kubelet would not
// find its files, or reset would leave files behind.
type Fixed struct {
	Flag  string // its name, without dashes
	Value string
	Why   string // why the installer needs this value
	Fix   string
}

// Check returns all problems of a kubelet's flags and configuration. The same input
// gives the same problems in the same order.
func Check(in Input) []Problem {
	c := &check{Input: in, minor: minorOf(in.Kubernetes), from: map[string]string{}}
	c.readConfig()
	c.readFlags()
	c.decode()
	for _, f := range in.Fixed {
		c.fixed(f)
	}
	for _, group := range table {
		for _, r := range group.rules {
			for _, option := range strings.Fields(r.options) {
				c.option = option
				r.must(value{c, group.check, option, c.value(option)})
			}
		}
	}
	return c.problems
}

// check is one run of all rules.
type check struct {
	Input
	minor int
	// merged is the configuration as written, without fields that the kubelet
	// does not have, and with the flags on top. A flag that sets no field is in it
	// as "--name".
	merged map[string]any
	// config is merged as Kubernetes' type, without the kubelet's defaults.
	config kubeletv1.KubeletConfiguration
	// from is the flag that set a field, "--max-pods", by the field's path.
	from     map[string]string
	option   string // that is being checked
	problems []Problem
}

func (c *check) fail(name, fix, format string, args ...any) {
	c.problems = append(c.problems, Problem{Name: name, Option: cmp.Or(c.from[c.option], c.option), Message: fmt.Sprintf(format, args...), Fix: fix})
}

func (c *check) warn(name, fix, format string, args ...any) {
	c.problems = append(c.problems, Problem{Name: name, Option: cmp.Or(c.from[c.option], c.option), Message: fmt.Sprintf(format, args...), Fix: fix, Warning: true})
}

// named is the name of a field in messages: with the flag that set it, or only its
// path in the KubeletConfiguration.
func (c *check) named(path string) string {
	if flag := c.from[path]; flag != "" {
		return flag + " (" + path + ")"
	}
	return path
}

// where is where the user can change a field.
func (c *check) where(path string) string {
	if c.from[path] != "" {
		return "kubeletExtraArgs or KUBELET_EXTRA_ARGS"
	}
	return "the KubeletConfiguration"
}

// fixed checks an option that the installer relies on.
func (c *check) fixed(f Fixed) {
	name, option := Flags, "--"+f.Flag
	flag, _ := facts()["flag"].at(f.Flag, c.minor)
	given, _ := c.value(cmp.Or(flag.of, option)).(string)
	if flag.of != "" && c.from[flag.of] == "" {
		name, option = Configuration, flag.of
	}
	c.option = option
	if given != "" && normalized(given) != normalized(f.Value) {
		c.fail(name, f.Fix, "%s is %q, and must be %q: %s", option, given, f.Value, f.Why)
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

// minorOf is 29 for "v1.29.15", limited to the range of known versions.
func minorOf(text string) int {
	v, err := version.ParseGeneric(text)
	if err != nil {
		return release.NewestMinor
	}
	return max(release.OldestMinor, min(int(v.Minor()), release.NewestMinor))
}
