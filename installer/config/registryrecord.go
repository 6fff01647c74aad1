package config

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A RegistryRecord is what a host has of the registries that the site configures. It has no secret. Passwords may be short enough to
// be guessed, so they are compared by a digest with a key that is random on each host. Only root of the host and a driver read the
// key; it is in no plan.
type RegistryRecord struct {
	// Settings are lines: "docker.io: https://mirror.example:5000".
	Settings []string `json:"settings"`
	// Key is random, in hex; "" on a host that never had credentials.
	Key string `json:"key,omitempty"`
	// Credentials is the HMAC-SHA256 of the credentials, in hex; "" for none.
	Credentials string `json:"credentials,omitempty"`
}

// RecordRegistries returns the record of registries. before is the present one, or nil.
func RecordRegistries(list []Registry, before *RegistryRecord) RegistryRecord {
	r := RegistryRecord{}
	if before != nil {
		r.Key = before.Key
	}
	credentials := map[string]string{}
	add := func(line string) {
		if !slices.Contains(r.Settings, line) {
			r.Settings = append(r.Settings, line)
		}
	}
	access := func(host string, a RegistryAccess) {
		if len(a.CA) > 0 {
			sum := sha256.Sum256(a.CA)
			add("CA for " + host + ": sha256:" + hex.EncodeToString(sum[:8]))
		}
		if a.Authorization != "" {
			credentials[host] = a.Authorization
			add("credentials for " + host)
		}
	}
	for _, registry := range list {
		var urls []string
		for _, m := range registry.Mirrors {
			urls = append(urls, m.URL.String())
			access(m.URL.Host, m.RegistryAccess)
		}
		if urls != nil {
			add(registry.Host + ": " + strings.Join(urls, ", "))
		}
		access(registry.Host, registry.RegistryAccess)
	}
	slices.Sort(r.Settings)
	if len(credentials) == 0 {
		return r
	}
	if r.Key == "" {
		r.Key = rand.Text()
	}
	sum := hmac.New(sha256.New, []byte(r.Key))
	for _, host := range slices.Sorted(maps.Keys(credentials)) {
		fmt.Fprintf(sum, "%s %q\n", host, credentials[host])
	}
	r.Credentials = hex.EncodeToString(sum.Sum(nil))
	return r
}

// Changes returns what differs on a host with this record, nil for a host without one, from registries: the lines with + or - in
// front.
func (r *RegistryRecord) Changes(list []Registry) (changes []string) {
	has := RegistryRecord{}
	if r != nil {
		has = *r
	}
	wanted := RecordRegistries(list, &has)
	for _, line := range has.Settings {
		if !slices.Contains(wanted.Settings, line) {
			changes = append(changes, "-"+line)
		}
	}
	for _, line := range wanted.Settings {
		if !slices.Contains(has.Settings, line) {
			changes = append(changes, "+"+line)
		}
	}
	if len(changes) == 0 && has.Credentials != wanted.Credentials {
		changes = []string{"+other credentials"}
	}
	return changes
}

// String returns what a plan was made for. Without the key, nobody can guess credentials from it.
func (r *RegistryRecord) String() string {
	if r == nil {
		return ""
	}
	text := strings.Join(r.Settings, "; ")
	if r.Credentials != "" {
		text += "; digest of the credentials " + r.Credentials
	}
	return text
}
