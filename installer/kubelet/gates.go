package kubelet

import (
	"fmt"
	"strings"
)

// gates checks the feature gates of the flag and the file together.
func (c *check) gates() {
	all := facts().Gates
	for _, name := range sortedKeys(c.config.FeatureGates) {
		value := c.config.FeatureGates[name]
		fact, ok := all.at(name, c.minor)
		if !ok {
			fix := fmt.Sprintf("remove %s from featureGates and --feature-gates", name)
			if hint := all.hint(name, c.minor); hint != "" {
				fix += "; " + hint
			}
			c.fail(FeatureGates, fix, "feature gate %s does not exist in the kubelet of v1.%d", name, c.minor)
			continue
		}
		if fact.Locked && value != fact.Default {
			c.fail(FeatureGates, fmt.Sprintf("remove %s from featureGates and --feature-gates", name), "feature gate %s cannot be %v in v1.%d: it is locked to %v", name, value, c.minor, fact.Default)
		} else if fact.Stage == "deprecated" {
			c.warn(FeatureGates, fmt.Sprintf("remove %s before the next upgrade", name), "feature gate %s is deprecated in v1.%d", name, c.minor)
		}
	}
	for _, name := range sortedKeys(all) {
		fact, ok := all.at(name, c.minor)
		if !ok || len(fact.Needs) == 0 || !c.enabled(name) {
			continue
		}
		var off []string
		for _, need := range fact.Needs {
			if !c.enabled(need) {
				off = append(off, need)
			}
		}
		if len(off) > 0 {
			list := strings.Join(off, ", ")
			c.fail(FeatureGates, fmt.Sprintf("turn on %s too, or turn off %s", list, name), "feature gate %s is on and needs %s, which is off", name, list)
		}
	}
}

// enabled reports whether a feature is on. A gate that was removed from this
// version means that the feature is always on.
func (c *check) enabled(name string) bool {
	fact, ok := facts().Gates.at(name, c.minor)
	if !ok {
		spans := facts().Gates[name]
		return len(spans) == 0 || spans[len(spans)-1].To < c.minor
	}
	if fact.Locked {
		return fact.Default
	}
	if v, ok := c.config.FeatureGates[name]; ok {
		return v
	}
	for stage, group := range map[string]string{"alpha": "AllAlpha", "beta": "AllBeta"} {
		if v, ok := c.config.FeatureGates[group]; ok && fact.Stage == stage {
			return v
		}
	}
	return fact.Default
}
