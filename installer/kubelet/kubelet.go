// Package kubelet knows the rules that a kubelet applies to its settings when
// it starts, for every minor version that can be installed. A kubelet that
// finds one broken ends, and systemd starts it again for ever; Check says the
// same before anything is started, by the name of the setting.
//
// The rules are those of Kubernetes' cmd/kubelet/app and pkg/kubelet. What
// differs between minor versions (feature gates, flags, fields of the
// configuration) is in facts/facts.json, which facts/generate.go reads from
// their sources.
package kubelet

//go:generate go run facts/generate.go facts/facts.json

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"

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

// Names are the names of all checks, in the order in which they are made.
func Names() []string {
	return []string{Configuration, Flags, NodeLabels, FeatureGates, TLS, ClientCA, Reserved}
}

// A Problem is one setting that the kubelet would refuse, or, as a warning, one
// that does not do what it says.
type Problem struct {
	Name    string // one of Names
	Message string // begins with the setting
	Fix     string // what to do, without a network
	Warning bool   // the kubelet starts all the same
}

// Input is what a kubelet will be started with.
type Input struct {
	// Kubernetes is the kubelet's version, "v1.29.15". The rules of the
	// nearest minor version known hold for others.
	Kubernetes string
	// Config is the KubeletConfiguration as it will be written, YAML; nil
	// means the kubelet's defaults.
	Config []byte
	// Flags are the kubelet's flags in the order of its command line. A
	// later one wins over an earlier one, and all win over Config.
	Flags []config.Arg
	// Root is the host's root file system; nil leaves files unchecked.
	Root fs.FS
	// WillExist are files that are not there yet and will be when the
	// kubelet starts: absolute paths.
	WillExist []string
	// Fixed are the settings that the installer relies on.
	Fixed []Fixed
	// What the machine has. 0 is not known, and is not checked.
	CPUs        int
	MemoryBytes uint64
	PIDs        int64
}

// Check finds everything that is wrong with a kubelet's settings. The same
// input gives the same problems in the same order.
func Check(in Input) []Problem {
	c := &check{Input: in, minor: minorOf(in.Kubernetes), from: make(map[string]string)}
	c.readConfig()
	c.readFlags()
	c.decode()
	c.fixed()
	c.gates()
	c.labels()
	c.taints()
	c.numbers()
	c.choices()
	c.combinations()
	c.eviction()
	c.tls()
	c.clientCA()
	c.reserved()
	return c.problems
}

// check is one run of all rules.
type check struct {
	Input
	minor int
	// file is the configuration as written, less what the kubelet does not
	// know; settings is the same with the flags on top.
	file, settings map[string]any
	// config is settings as Kubernetes' type. Fields that the kubelet would
	// fill in are zero.
	config kubeletv1.KubeletConfiguration
	// from has the flag that set a field, "--max-pods", by the field's path.
	from map[string]string
	// flags has the last value of every flag that is no field, by its name.
	flags map[string]string
	// labelPairs are all of --node-labels, in order.
	labelPairs []string
	problems   []Problem
}

func (c *check) fail(name, fix, format string, args ...any) {
	c.problems = append(c.problems, Problem{Name: name, Message: fmt.Sprintf(format, args...), Fix: fix})
}

func (c *check) warn(name, fix, format string, args ...any) {
	c.problems = append(c.problems, Problem{Name: name, Message: fmt.Sprintf(format, args...), Fix: fix, Warning: true})
}

// named is a field as a person finds it again: by the flag that set it, or by
// its path in the KubeletConfiguration.
func (c *check) named(path string) string {
	if flag := c.from[path]; flag != "" {
		return fmt.Sprintf("%s (%s)", flag, path)
	}
	return path
}

// where says where a field is to be changed.
func (c *check) where(path string) string {
	if c.from[path] != "" {
		return "kubeletExtraArgs or KUBELET_EXTRA_ARGS"
	}
	return "the KubeletConfiguration"
}

// minorOf is 29 of "v1.29.15", brought into the range of the versions known.
func minorOf(version string) int {
	words := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(words) < 2 {
		return newest
	}
	minor, err := strconv.Atoi(words[1])
	if err != nil {
		return newest
	}
	return max(oldest, min(minor, newest))
}
