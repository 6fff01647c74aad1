package kubeletcheck

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"airlift/images/release"
)

// beKnownGates checks the feature gates of the flag and the file together.
func beKnownGates(v value) {
	v.check.gates(v.check.config.FeatureGates, " in the kubelet of")
	all := facts()["gate"]
	for _, name := range sortedKeys(all) {
		if gate, ok := all.at(name, v.check.minor); ok && gate.of != "" && v.check.enabled(name) {
			off := strings.Join(slices.DeleteFunc(strings.Split(gate.of, ","), v.check.enabled), ", ")
			if off != "" {
				v.check.fail(v.name, "turn on "+off+" too, or turn off "+name,
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
	for stage, all := range map[string]string{"alpha": "AllAlpha", "beta": "AllBeta"} {
		if !isSet && gate.has(stage) {
			set, isSet = c.config.FeatureGates[all]
		}
	}
	if isSet && !gate.has("locked") {
		return set
	}
	return gate.has("on")
}

// gates checks feature gates one by one. in precedes the version in the message.
func (c *check) gates(gates map[string]bool, in string) {
	all := facts()["gate"]
	for _, name := range sortedKeys(gates) {
		gate, ok := all.at(name, c.minor)
		fix, on := "remove "+name+" from featureGates and --feature-gates", gate.has("on")
		switch {
		case !ok:
			c.fail(FeatureGates, fix+all.hint(name, c.minor), "feature gate %s does not exist%s v1.%d", name, in, c.minor)
		case gate.has("locked") && gates[name] != on:
			c.fail(FeatureGates, fix, "feature gate %s cannot be %v in v1.%d: it is locked to %v", name, !on, c.minor, on)
		case gate.has("deprecated"):
			c.warn(FeatureGates, "remove "+name+" before the next upgrade", "feature gate %s is deprecated in v1.%d", name, c.minor)
		}
	}
}

// GateProblems checks feature gates of another component of a Kubernetes version: all components
// have the gates of Kubernetes' common code, and none has a gate that the kubelet never had. Unknown gates of a
// version that is newer than the known ones are not checked.
func GateProblems(kubernetes string, gates map[string]bool) []Problem {
	if v, err := version.ParseGeneric(kubernetes); err != nil || v.Minor() > release.NewestMinor {
		gates = maps.Clone(gates)
		maps.DeleteFunc(gates, func(name string, _ bool) bool { return len(facts()["gate"][name]) == 0 })
	}
	c := check{minor: minorOf(kubernetes)}
	c.gates(gates, " in")
	return c.problems
}
