// Package kubelet has the rules that a kubelet applies to its flags and its
// configuration when it starts, for every minor version that can be installed. A
// kubelet that finds a rule broken exits, and systemd restarts it forever; Check
// reports the same problem before the kubelet starts, by the name of the option.
//
// The rules are those of Kubernetes' cmd/kubelet/app and pkg/kubelet. What differs
// between minor versions (feature gates, flags, fields of the configuration) is in
// facts/facts.json, which facts/generate.go reads from Kubernetes' sources.
package kubelet

//go:generate go run facts/generate.go facts/facts.json

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"

	"airlift/images"
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
	Message string // begins with the option
	Fix     string // what to do, without a network
	Warning bool   // the kubelet starts anyway
}

// Input is what a kubelet will be started with.
type Input struct {
	// Kubernetes is the kubelet's version, "v1.29.15". Unknown minor versions
	// get the rules of the nearest known one.
	Kubernetes string
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

// Check returns all problems of a kubelet's flags and configuration. The same input
// gives the same problems in the same order.
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
	// file is the configuration as written, without fields that the kubelet
	// does not have; merged is the same with the flags on top.
	file, merged map[string]any
	// config is merged as Kubernetes' type, without the kubelet's defaults.
	config kubeletv1.KubeletConfiguration
	// from is the flag that set a field, "--max-pods", by the field's path.
	from map[string]string
	// flags is the last value of every flag that sets no field, by its name.
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

// named is the name of a field in messages: with the flag that set it, or only its
// path in the KubeletConfiguration.
func (c *check) named(path string) string {
	if flag := c.from[path]; flag != "" {
		return fmt.Sprintf("%s (%s)", flag, path)
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

// minorOf is 29 for "v1.29.15", limited to the range of known versions.
func minorOf(version string) int {
	words := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(words) < 2 {
		return images.NewestMinor
	}
	minor, err := strconv.Atoi(words[1])
	if err != nil {
		return images.NewestMinor
	}
	return max(images.OldestMinor, min(minor, images.NewestMinor))
}
