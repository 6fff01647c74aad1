package secrets

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/crypto/nacl/secretbox"
)

// Plain is how a Scan counts Secrets that are not encrypted.
const Plain = "not encrypted"

// A Scan is what etcd has: how each Secret is stored. Add counts one.
type Scan struct {
	keys *Keys
	// Total is the number of Secrets, and By how many each key has encrypted: "secretbox airlift-1-7f00aa12", or Plain.
	Total int
	By    map[string]int
	// Stale are the Secrets, NAMESPACE/NAME, that are stored in another way than API servers with the keys write them.
	Stale []string
	// Unreadable are the Secrets that no API server with the keys can read, with the reason.
	Unreadable []string
}

// NewScan returns an empty Scan for the keys of the API servers, nil for none.
func NewScan(k *Keys) *Scan { return &Scan{keys: k, By: map[string]int{}} }

const encrypted = "k8s:enc:"

// Add counts a value of etcd.
func (s *Scan) Add(key string, value []byte) {
	parts := strings.Split(strings.Trim(key, "/"), "/")
	name := strings.Join(parts[max(0, len(parts)-2):], "/")
	text := string(value)
	label, reason := s.check(text)
	s.Total++
	s.By[label]++
	writes := s.keys.Writes()
	if stale := !strings.HasPrefix(text, writes) || writes == "" && strings.HasPrefix(text, encrypted); stale {
		s.Stale = append(s.Stale, name)
	}
	if reason != "" {
		s.Unreadable = append(s.Unreadable, name+": "+reason)
	}
}

// check returns how a value is stored, and why it cannot be read.
func (s *Scan) check(text string) (label, reason string) {
	rest, ok := strings.CutPrefix(text, encrypted)
	if !ok {
		return Plain, ""
	}
	parts := strings.SplitN(rest, ":", 4) // provider, version, name, data
	if len(parts) < 4 {
		return "damaged", "its value in etcd is damaged"
	}
	label = parts[0] + " " + parts[2]
	if s.keys != nil {
		for _, k := range s.keys.Active {
			if parts[0] == "secretbox" && k.Name == parts[2] {
				return label, opens(parts[3], k)
			}
		}
	}
	return label, fmt.Sprintf("it is encrypted with %s, which the API servers do not have", label)
}

// opens returns why a value cannot be decrypted with a key. The data begins with the nonce (k8s.io/apiserver's secretbox).
func opens(data string, k Key) string {
	var nonce [24]byte
	if copy(nonce[:], data) == len(nonce) {
		if _, ok := secretbox.Open(nil, []byte(data[len(nonce):]), &nonce, &k.Secret); ok {
			return ""
		}
	}
	return fmt.Sprintf("it names key %q, but the key of that name in %s on this host does not decrypt it: that key has other bytes, or the value is damaged", k.Name, File)
}

// Labels are the keys of By, sorted.
func (s *Scan) Labels() []string { return slices.Sorted(maps.Keys(s.By)) }
