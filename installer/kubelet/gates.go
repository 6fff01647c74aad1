package kubelet

import (
	"slices"
	"strings"
)

// beKnownGates checks the feature gates of the flag and the file together.
func beKnownGates(v value) {
	all := facts()["gate"]
	for _, name := range sortedKeys(v.config.FeatureGates) {
		fix := "remove " + name + " from featureGates and --feature-gates"
		gate, ok := all.at(name, v.minor)
		switch set := v.config.FeatureGates[name]; {
		case !ok:
			v.fail(v.name, fix+all.hint(name, v.minor),
				"feature gate %s does not exist in the kubelet of v1.%d", name, v.minor)
		case gate.has("locked") && set != gate.has("on"):
			v.fail(v.name, fix, "feature gate %s cannot be %v in v1.%d: it is locked to %v",
				name, set, v.minor, gate.has("on"))
		case gate.has("deprecated"):
			v.warn(v.name, "remove "+name+" before the next upgrade", "feature gate %s is deprecated in v1.%d", name, v.minor)
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
