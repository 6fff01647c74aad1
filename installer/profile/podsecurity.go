package profile

import (
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
)

// A Level is the level of Pod Security for namespaces without labels.
type Level struct {
	Enforce, Version string
	// Exempt are the namespaces for which there is none.
	Exempt []string
}

// PodSecurity returns the level of a cluster with the profile, if the profile sets it.
func PodSecurity(c *config.Cluster) (level Level, ok bool) {
	for _, f := range Files(c) {
		if f.Path != admissionFile {
			continue
		}
		var file struct {
			Plugins []struct {
				Name          string `json:"name"`
				Configuration struct {
					Defaults struct {
						Enforce string `json:"enforce"`
						Version string `json:"enforce-version"`
					} `json:"defaults"`
					Exemptions struct {
						Namespaces []string `json:"namespaces"`
					} `json:"exemptions"`
				} `json:"configuration"`
			} `json:"plugins"`
		}
		if yaml.Unmarshal(f.Data, &file) != nil {
			return level, false
		}
		for _, p := range file.Plugins {
			if p.Name == "PodSecurity" {
				return Level{p.Configuration.Defaults.Enforce, p.Configuration.Defaults.Version, p.Configuration.Exemptions.Namespaces}, true
			}
		}
	}
	return level, false
}
