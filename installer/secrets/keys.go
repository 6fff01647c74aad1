// Package secrets encrypts the Secrets of a cluster in etcd. It has the keys, the steps from one key to the next, and the proof that no
// value was left behind. The steps are reconfigurations: package reconfiguration refuses one after which a server could not read a Secret.
package secrets

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// Dir is mounted into the API servers: one that mounts a single file would not see that the file was replaced. File is their
// EncryptionConfiguration.
const (
	Dir  = config.KubernetesDir + "/encryption"
	File = Dir + "/secrets.yaml"
)

// A Key encrypts Secrets with secretbox. Its name is stored with each value, so a name is never used twice.
type Key struct {
	Name   string
	Secret [32]byte
}

// namePrefix precedes the number of a key: airlift-2-5b0c9d3e follows airlift-1-7f00aa12.
const namePrefix = "airlift-"

// newKey returns a key that follows those with these numbers.
func newKey(after int) (k Key) {
	var unique [4]byte
	_, _ = rand.Read(unique[:]) // never fails
	_, _ = rand.Read(k.Secret[:])
	k.Name = fmt.Sprintf("%s%d-%s", namePrefix, after+1, hex.EncodeToString(unique[:]))
	return k
}

// number is the place of a key in the order of all keys of the cluster.
func (k Key) number() int {
	text, _, _ := strings.Cut(strings.TrimPrefix(k.Name, namePrefix), "-")
	n, _ := strconv.Atoi(text)
	return n
}

// Prefix is what values that the key encrypted begin with.
func (k Key) Prefix() string { return "k8s:enc:secretbox:v1:" + k.Name + ":" }

// Keys are the contents of File. Its first provider encrypts, all decrypt.
type Keys struct {
	// Plain is set if identity is the first provider, which does not encrypt. Otherwise it is the last one.
	Plain bool
	// Active are the keys with which API servers decrypt. The first one encrypts, unless Plain.
	Active []Key
	// Retired are former keys, which no value has any more. Only an older snapshot of etcd needs them: the file keeps them as comments.
	Retired []Key
}

// New returns the keys of a new cluster.
func New() *Keys { return &Keys{Active: []Key{newKey(0)}} }

// Writes is what values begin with that API servers with these keys write, "" if they do not encrypt.
func (k *Keys) Writes() string {
	if k == nil || k.Plain || len(k.Active) == 0 {
		return ""
	}
	return k.Active[0].Prefix()
}

// last is the highest number of a key.
func (k *Keys) last() (last int) {
	if k != nil {
		for _, one := range slices.Concat(k.Active, k.Retired) {
			last = max(last, one.number())
		}
	}
	return last
}

const (
	retired = "# retired "
	header  = "# The keys that encrypt Secrets in etcd. Change them with './install secrets', on all control planes: one with other keys cannot read Secrets.\n"
)

type wireKey struct {
	Name   string `json:"name"`
	Secret string `json:"secret"`
}

type wireSecretbox struct {
	Keys []wireKey `json:"keys"`
}

type wireProvider struct {
	Secretbox *wireSecretbox `json:"secretbox,omitempty"`
	Identity  *struct{}      `json:"identity,omitempty"`
}

type wireResource struct {
	Resources []string       `json:"resources"`
	Providers []wireProvider `json:"providers"`
}

type wireFile struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Resources  []wireResource `json:"resources"`
}

const apiVersion, kind = "apiserver.config.k8s.io/v1", "EncryptionConfiguration"

// Text returns the file. The provider follows the line "providers:", where tools look for it.
func (k *Keys) Text() []byte {
	providers := []wireProvider{{Identity: &struct{}{}}}
	if len(k.Active) > 0 {
		box := &wireSecretbox{}
		for _, one := range k.Active {
			box.Keys = append(box.Keys, wireKey{one.Name, base64.StdEncoding.EncodeToString(one.Secret[:])})
		}
		at := 0
		if k.Plain {
			at = 1
		}
		providers = slices.Insert(providers, at, wireProvider{Secretbox: box})
	}
	text, err := yaml.Marshal(wireFile{apiVersion, kind, []wireResource{{[]string{"secrets"}, providers}}})
	if err != nil {
		panic(err) // text alone
	}
	text = append([]byte(header), text...)
	for _, one := range k.Retired {
		text = fmt.Appendf(text, "%s%s %s\n", retired, one.Name, base64.StdEncoding.EncodeToString(one.Secret[:]))
	}
	return text
}

// Parse reads what Text returned. Its errors have no keys.
func Parse(data []byte) (*Keys, error) {
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, errors.New("it is not YAML, or has a field twice")
	}
	var f wireFile
	strict, err := kjson.UnmarshalStrict(text, &f)
	if err != nil || len(strict) > 0 || f.APIVersion != apiVersion || f.Kind != kind || len(f.Resources) != 1 || !slices.Equal(f.Resources[0].Resources, []string{"secrets"}) {
		return nil, errors.New("it was edited: it is not an EncryptionConfiguration of Secrets alone, with secretbox and identity")
	}
	k, identities, boxes := &Keys{}, 0, 0
	for _, p := range f.Resources[0].Providers {
		switch {
		case p.Secretbox != nil && p.Identity == nil:
			boxes++
			for _, one := range p.Secretbox.Keys {
				key, err := parseKey(one.Name, one.Secret)
				if err != nil {
					return nil, err
				}
				k.Active = append(k.Active, key)
			}
		case p.Identity != nil && p.Secretbox == nil:
			identities++
			k.Plain = boxes == 0
		}
	}
	if identities != 1 || boxes > 1 || len(f.Resources[0].Providers) != identities+boxes || (boxes == 1) != (len(k.Active) > 0) {
		return nil, errors.New("it was edited: its providers are not secretbox and identity, once each")
	}
	for line := range bytes.Lines(data) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(string(line)), retired); ok {
			name, secret, _ := strings.Cut(rest, " ")
			key, err := parseKey(name, secret)
			if err != nil {
				return nil, err
			}
			k.Retired = append(k.Retired, key)
		}
	}
	names := map[string]bool{}
	for _, one := range slices.Concat(k.Active, k.Retired) {
		if names[one.Name] {
			return nil, fmt.Errorf("it has two keys with the name %q", one.Name)
		}
		names[one.Name] = true
	}
	return k, nil
}

func parseKey(name, secret string) (k Key, err error) {
	data, err := base64.StdEncoding.DecodeString(secret)
	k.Name = name
	if err != nil || copy(k.Secret[:], data) != len(k.Secret) || len(data) != len(k.Secret) {
		return k, fmt.Errorf("its key %q has not %d bytes in base64", name, len(k.Secret))
	}
	if k.number() < 1 || strings.ContainsAny(name, ": \n") {
		return k, fmt.Errorf("its key %q has a name that Airlift does not give", name)
	}
	return k, nil
}

const providerFlag, reloadFlag, volume = "encryption-provider-config", "encryption-provider-config-automatic-reload", "encryption"

// IsUsed reports whether the API servers of a cluster read File.
func IsUsed(c *config.Cluster) bool {
	value, _ := config.LastArg(c.APIServer.ExtraArgs, providerFlag)
	return value == File
}

// OfSite returns the file with which the API servers of a cluster encrypt, if it is the site's own one.
func OfSite(c *config.Cluster) string {
	if value, _ := config.LastArg(c.APIServer.ExtraArgs, providerFlag); value != File {
		return value
	}
	return ""
}

// Use lets the API servers of a cluster read File. It is what a user of kubeadm would write to the ClusterConfiguration, so kubeadm's
// upgrade keeps it.
func Use(c *config.Cluster) error {
	if IsUsed(c) {
		return nil
	}
	if file := OfSite(c); file != "" {
		return fault.New(fault.Preflight, "the API servers encrypt with the configuration of the site: --%s=%s", providerFlag, file).
			Hint("change that one in steps (./install docs reconfigure), or remove it before Airlift keeps the keys")
	}
	for _, v := range c.APIServer.ExtraVolumes {
		if v.Name == volume || v.MountPath == Dir {
			return fault.New(fault.Preflight, "apiServer.extraVolumes has %q at %s already", v.Name, v.MountPath).Hint("remove it: Airlift mounts " + Dir + " there")
		}
	}
	c.APIServer.ExtraArgs = append(slices.Clip(c.APIServer.ExtraArgs), config.Arg{Name: providerFlag, Value: File}, config.Arg{Name: reloadFlag, Value: "true"})
	c.APIServer.ExtraVolumes = append(slices.Clip(c.APIServer.ExtraVolumes),
		config.HostPathMount{Name: volume, HostPath: Dir, MountPath: Dir, ReadOnly: true, PathType: corev1.HostPathDirectoryOrCreate})
	return nil
}
