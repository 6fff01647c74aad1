package spec

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"airlift/internal/documents"
	"airlift/internal/documents/strict"
)

// check checks what was decoded by the rule that its tag names. A value that is wrong becomes zero.
func (r *reader) check(into reflect.Value, tag reflect.StructTag, at strict.Place) {
	rule := tag.Get("is")
	switch value := into.Interface().(type) {
	case int: // YAML reads 022 as 18
		if rule == "port" && (documents.Written(at.Node, value) != strconv.Itoa(value) || validation.IsValidPortNum(value) != nil) {
			r.Refuse(at, "write a number from 1 to 65535, without quotes and without a zero in front", "%s must be the number of a port", at.Path)
			into.SetZero()
		}
		if rule == "count" && (documents.Written(at.Node, value) != strconv.Itoa(value) || value < 1) {
			r.Refuse(at, "write a number from 1, without quotes", "%s must be a number from 1", at.Path)
			into.SetZero()
		}
	case map[string]string:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if _, why, hint := rules[tag.Get("names")](r, name, at); why != "" {
				r.Refuse(at.Field(name), hint, "%s: the name %q %s", at.Path, name, why)
			}
		}
	case map[string][]string:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if _, why, hint := rules[tag.Get("names")](r, name, at); why != "" {
				r.Refuse(at.Field(name), hint, "%s: the name %q %s", at.Path, name, why)
			}
		}
	case []string:
		for i, item := range value {
			if key := keys[rule]; key != nil && item != "" && hasKey(value[:i], item, key) {
				r.Refuse(at.Item(i), "remove one of them", "%s has %s twice", at.Path, key(item))
			}
		}
	case string:
		if value == "" && rule != "labelValue" {
			r.Refuse(at, "write a value, or remove the line", "%s is empty", at.Path)
		} else if strings.HasPrefix(strings.ToUpper(value), "AGE-SECRET-KEY-") {
			r.Refuse(at, "write the public key, age1…; age-keygen -y prints it", "%s is a private key: cluster.yaml has no secrets", at.Path)
			into.SetString("")
		} else if rule == "mirrorURL" && strings.Contains(value, "@") {
			r.Refuse(at, "write them to a file in the format of docker's config.json: registries.auth", "%s has a user name or a password: cluster.yaml has no secrets", at.Path)
			into.SetString("")
		} else if rule != "" {
			set, why, hint := rules[rule](r, value, at)
			if why != "" {
				r.Refuse(at, hint, "%s %q %s", at.Path, value, why)
			}
			into.SetString(set)
		}
	}
}

// keys return what a list has once, by the rules of its items.
var keys = map[string]func(item string) string{"taint": TaintKey, "day": itself, "groupName": itself}

func itself(item string) string { return item }

func hasKey(list []string, item string, key func(string) string) bool {
	return slices.ContainsFunc(list, func(other string) bool { return key(other) == key(item) })
}

// kubeletLabels are labels that the kubelet sets again when they change (pkg/kubelet/kubelet_node_status.go,
// updateDefaultLabels), and the one of the role.
var kubeletLabels = []string{"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os",
	"beta.kubernetes.io/arch", "node-role.kubernetes.io/control-plane"}

// secret matches names of fields that would have a secret.
var secret = regexp.MustCompile(`(?i)passw|passphrase|token|secret|certificatekey|credential|(key|pk)_?(data|content)|^(pk|private_?key)$`)

// unknown refuses a field that would have a secret.
func (r *reader) unknown(_ reflect.Type, name, _ string, at strict.Place) (hint string, refused bool) {
	if secret.MatchString(name) {
		r.Refuse(at, "remove the line: cluster commands ask for passwords and passphrases on the terminal, and create tokens and keys themselves",
			"%s: cluster.yaml has no secrets", at.Path)
		return "", true
	}
	return elsewhere[name], false
}

// elsewhere are fields of k0sctl, KubeKey and others, with what to write instead.
var elsewhere = map[string]string{
	"spec":                 "write its fields at the beginning of the line, without spec",
	"metadata":             "write name: at the beginning of the line",
	"hostname":             "write the name of the node in name; Airlift does not rename hosts",
	"privateAddress":       "write nodeIP",
	"internalAddress":      "write nodeIP",
	"internal_address":     "write nodeIP",
	"privateInterface":     "write the address of the interface in nodeIP",
	"user":                 "write it in ssh",
	"port":                 "write it in ssh",
	"keyPath":              "write it in ssh",
	"privateKeyPath":       "write ssh.keyPath",
	"keyFile":              "write keyPath",
	"private_key":          "write keyPath with the path of the file",
	"bastion":              "write jump, a list of hosts to go through",
	"noTaints":             "write taints: [] at the control planes that run pods",
	"roleGroups":           "write role at each host",
	"controlPlaneEndpoint": "write endpoint, or ClusterConfiguration in the documents of kubeadm",
	"kubernetes":           "kubeadm's documents follow after a line with ---, or are in a file: kubeadm: FILE",
	"kubernetesVersion":    "the version is the version of the file: ./install version",
	"version":              "the version is the version of the file: ./install version",
	"vips":                 "write vip",
	"network":              "write networking of ClusterConfiguration in the documents of kubeadm",
	"registry":             "write embeddedRegistry: true, or the mirrors of the site in registries",
}
