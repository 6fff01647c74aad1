package reconfiguration

import (
	"fmt"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// An Encryption is the EncryptionConfiguration of an API server. nil is an API server without one: it writes its data as it is.
type Encryption struct {
	groups []providerGroup
}

type providerGroup struct {
	resources []string
	providers []Provider // in order; the first one encrypts, all decrypt
}

// A Provider encrypts data with one key.
type Provider struct {
	// Kind is identity, aesgcm, aescbc, secretbox or kms, and Name the name of its key or of its KMS plugin.
	Kind, Name string
	secret     string // the key; of a KMS plugin, its API version
}

func (p Provider) String() string {
	if p.Name == "" {
		return p.Kind
	}
	return p.Kind + " " + p.Name
}

// Prefix is what the values that it wrote begin with, "" for identity (k8s.io/apiserver/pkg/server/options/encryptionconfig).
func (p Provider) Prefix() string {
	switch p.Kind {
	case "identity":
		return ""
	case "kms":
		return "k8s:enc:kms:" + p.secret + ":" + p.Name + ":"
	}
	return "k8s:enc:" + p.Kind + ":v1:" + p.Name + ":"
}

// identity is the provider that does not encrypt.
var identity = Provider{Kind: "identity"}

type wireEncryption struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Resources  []struct {
		Resources []string                   `json:"resources"`
		Providers []map[string]*wireProvider `json:"providers"`
	} `json:"resources"`
}

// wireProvider has the fields of all kinds of providers.
type wireProvider struct {
	Keys []struct {
		Name   string `json:"name"`
		Secret string `json:"secret"`
	} `json:"keys,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
	Name       string `json:"name,omitempty"`
	CacheSize  *int32 `json:"cachesize,omitempty"`
	Endpoint   string `json:"endpoint,omitempty"`
	Timeout    string `json:"timeout,omitempty"`
}

// ParseEncryption reads an EncryptionConfiguration, strictly. Its errors have no keys.
func ParseEncryption(data []byte) (*Encryption, error) {
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("it is not YAML, or has a key twice")
	}
	var w wireEncryption
	strict, err := kjson.UnmarshalStrict(text, &w)
	if err != nil || len(strict) > 0 {
		return nil, fmt.Errorf("it is not an EncryptionConfiguration: a field is unknown or has another type")
	}
	if w.Kind != "EncryptionConfiguration" || !strings.HasPrefix(w.APIVersion, "apiserver.config.k8s.io/") {
		return nil, fmt.Errorf("it is %s, kind %s, and not apiserver.config.k8s.io/v1, kind EncryptionConfiguration", w.APIVersion, w.Kind)
	}
	e := &Encryption{}
	for i, r := range w.Resources {
		g := providerGroup{resources: r.Resources}
		for j, kinds := range r.Providers {
			list, err := providers(kinds)
			if err != nil {
				return nil, fmt.Errorf("resources[%d].providers[%d] %w", i, j, err)
			}
			g.providers = append(g.providers, list...)
		}
		if len(g.resources) == 0 || len(g.providers) == 0 {
			return nil, fmt.Errorf("resources[%d] has no resources or no providers", i)
		}
		e.groups = append(e.groups, g)
	}
	if len(e.groups) == 0 {
		return nil, fmt.Errorf("it has no resources")
	}
	return e, nil
}

// providers returns the providers of an item of a list, one for each key.
func providers(kinds map[string]*wireProvider) (list []Provider, err error) {
	if len(kinds) != 1 {
		return nil, fmt.Errorf("must have one of identity, aesgcm, aescbc, secretbox and kms")
	}
	for kind, p := range kinds {
		switch kind {
		case "identity":
			return []Provider{identity}, nil
		case "kms":
			if p == nil || p.Name == "" {
				return nil, fmt.Errorf("has no name")
			}
			version := p.APIVersion
			if version == "" {
				version = "v1"
			}
			return []Provider{{"kms", p.Name, version}}, nil
		case "aesgcm", "aescbc", "secretbox":
			if p == nil || len(p.Keys) == 0 {
				return nil, fmt.Errorf("has no keys")
			}
			for _, k := range p.Keys {
				list = append(list, Provider{kind, k.Name, k.Secret})
			}
			return list, nil
		default:
			return nil, fmt.Errorf("has the unknown provider %q", kind)
		}
	}
	return nil, nil
}

// of returns the providers of a resource, "secrets" or "pandas.example".
func (e *Encryption) of(resource string) []Provider {
	if e == nil {
		return []Provider{identity}
	}
	_, group, _ := strings.Cut(resource, ".")
	for _, g := range e.groups {
		for _, name := range g.resources {
			if name == resource || name == "*.*" || name == "*."+group {
				return g.providers
			}
		}
	}
	return []Provider{identity}
}

// AllOthers is the name of a resource that represents all resources of a wildcard: "all-others.apps".
const AllOthers = "all-others"

// resources are the names of resources for which of differs, each wildcard as a resource that no list names.
func (e *Encryption) resources() (list []string) {
	if e == nil {
		return nil
	}
	for _, g := range e.groups {
		for _, name := range g.resources {
			if rest, ok := strings.CutPrefix(name, "*."); ok {
				if rest == "*" {
					rest = "another"
				}
				name = strings.TrimSuffix(AllOthers+"."+rest, ".")
			}
			list = append(list, name)
		}
	}
	return list
}

// An Unsafe is a change of an encryption in one step that would make data unreadable.
type Unsafe struct {
	Resource string
	Provider Provider
	// Removed is set if data may have been written with the provider, and the next API server could not read it. Otherwise, the
	// next API server would write data with the provider, which API servers with the former configuration cannot read.
	Removed bool
	// MayBeUnused is set if the former API servers do not write with the provider any more: it can be removed if no data is
	// left that was written with it.
	MayBeUnused bool
}

// CheckStep returns what one step from an encryption to the next one would make unreadable. During the step, API servers
// have either of them, and undo goes back. So what one writes, the other must read; and data stays as it was written.
func CheckStep(former, next *Encryption) (list []Unsafe) {
	names := append(former.resources(), next.resources()...)
	slices.Sort(names)
	for _, resource := range slices.Compact(names) {
		was, is := former.of(resource), next.of(resource)
		if !slices.Contains(was, is[0]) {
			list = append(list, Unsafe{Resource: resource, Provider: is[0]})
		}
		for i, p := range was {
			if !slices.Contains(is, p) {
				list = append(list, Unsafe{Resource: resource, Provider: p, Removed: true, MayBeUnused: i > 0})
			}
		}
	}
	return list
}

// String describes what would be unreadable.
func (u Unsafe) String() string {
	switch {
	case !u.Removed:
		return fmt.Sprintf("%s: an API server with this configuration writes with %s, which the others cannot read yet", u.Resource, u.Provider)
	case u.MayBeUnused:
		return fmt.Sprintf("%s: %s is removed, and data that was written with it is left", u.Resource, u.Provider)
	}
	return fmt.Sprintf("%s: %s is removed, and the API servers still write with it", u.Resource, u.Provider)
}

// Order is how to go to another provider without a step that makes data unreadable.
const Order = "change it in these steps, each on all control planes before the next (here: ./install reconfigure; on the others: ./install reconfigure node): " +
	"1. add the new provider or key after the first one; 2. put it first; " +
	"3. write all data again: kubectl get secrets --all-namespaces -o json | kubectl replace -f -, and so for each resource; 4. remove the old one"
