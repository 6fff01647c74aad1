package kubelet

import (
	"fmt"
	"slices"
	"strings"
)

// beKnownGates checks the feature gates of the flag and the file together.
func beKnownGates(v value) {
	all := facts()["gate"]
	for _, name := range sortedKeys(v.config.FeatureGates) {
		if p, bad := gateProblem(name, v.config.FeatureGates[name], v.minor, " in the kubelet of"); bad {
			p.Name = v.name
			v.problems = append(v.problems, p)
		}
	}
	for _, name := range sortedKeys(all) {
		if gate, ok := all.at(name, v.minor); ok && gate.of != "" && v.enabled(name) {
			off := strings.Join(slices.DeleteFunc(strings.Split(gate.of, ","), v.enabled), ", ")
			if off != "" {
				v.fail(v.name, "turn on "+off+" too, or turn off "+name,
					"feature gate %s is on and needs %s, which is off", name, off)
			}
		}
	}
}

// enabled reports whether a feature is on. A gate that was removed from this
// version means that the feature is always on.
func (c *check) enabled(name string) bool {
	gate, ok := facts()["gate"].at(name, c.minor)
	if !ok {
		known := facts()["gate"][name]
		return len(known) == 0 || known[0].since < c.minor
	}
	set, isSet := c.config.FeatureGates[name]
	if !isSet && gate.has("alpha") {
		set, isSet = c.config.FeatureGates["AllAlpha"]
	}
	if !isSet && gate.has("beta") {
		set, isSet = c.config.FeatureGates["AllBeta"]
	}
	if isSet && !gate.has("locked") {
		return set
	}
	return gate.has("on")
}

// gateProblem checks one feature gate. in precedes the version in the message.
func gateProblem(name string, set bool, minor int, in string) (p Problem, bad bool) {
	all := facts()["gate"]
	gate, ok := all.at(name, minor)
	fix := "remove " + name + " from featureGates and --feature-gates"
	switch {
	case !ok:
		return Problem{FeatureGates, fmt.Sprintf("feature gate %s does not exist%s v1.%d", name, in, minor), fix + all.hint(name, minor), false}, true
	case gate.has("locked") && set != gate.has("on"):
		return Problem{FeatureGates, fmt.Sprintf("feature gate %s cannot be %v in v1.%d: it is locked to %v", name, set, minor, gate.has("on")), fix, false}, true
	case gate.has("deprecated"):
		return Problem{FeatureGates, fmt.Sprintf("feature gate %s is deprecated in v1.%d", name, minor), "remove " + name + " before the next upgrade", true}, true
	}
	return Problem{}, false
}

// GateProblems checks feature gates of another component of a Kubernetes version: all components
// register those of Kubernetes' common code. Gates that no kubelet has had are not checked.
func GateProblems(kubernetes string, gates map[string]bool) (problems []Problem) {
	minor := minorOf(kubernetes)
	for _, name := range sortedKeys(gates) {
		if len(facts()["gate"][name]) == 0 {
			continue
		}
		if p, bad := gateProblem(name, gates[name], minor, " in"); bad {
			problems = append(problems, p)
		}
	}
	return problems
}
