package audit

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/installer/redact"
	"airlift/installer/staticpod"
)

// A component is a static pod of a control plane, with its flags.
type component struct {
	name, image string
	flags       map[string]string
	environment map[string]string
	// hostPath returns the path on the host of a path in the container; "" if it is in no volume of the host.
	hostPath func(string) string
	// unclear is why the flags are not known.
	unclear string
}

// parseComponent reads the manifest of a component. The last of several values of a flag counts.
func parseComponent(name string, manifest []byte) (*component, error) {
	c := &component{name: name, flags: map[string]string{}, environment: map[string]string{}, hostPath: func(string) string { return "" }}
	parsed, err := staticpod.Parse(name, manifest)
	var pod corev1.Pod
	if err == nil {
		c.hostPath = parsed.HostPath
		err = yaml.Unmarshal(manifest, &pod)
	}
	if err == nil && len(pod.Spec.Containers) == 0 {
		err = errors.New("it has no container")
	}
	if err != nil {
		c.unclear = "the manifest cannot be read"
		return c, err
	}
	container := pod.Spec.Containers[max(0, slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name }))]
	c.image = container.Image
	for _, e := range container.Env {
		c.environment[e.Name] = e.Value
	}
	words := slices.Concat(container.Command, container.Args)
	if len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		if path.Base(words[0]) != name {
			c.unclear = "it is started by " + redact.Arguments(words[:1], true)[0] + ", so its flags are not known"
		}
		words = words[1:]
	}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		key, value, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
		key = strings.ReplaceAll(key, "_", "-")
		switch {
		case !strings.HasPrefix(word, "-"):
			continue
		case given:
		case isBool(defaults[name][key]) || len(words) == 0 || strings.HasPrefix(words[0], "-"):
			value = "true"
		default:
			value, words = words[0], words[1:]
		}
		c.flags[key] = value
	}
	return c, nil
}

func isBool(s string) bool { return s == "true" || s == "false" }

// defaults are the values of flags that a manifest does not have. Flags without a default here have none.
var defaults = map[string]map[string]string{
	"kube-apiserver": {
		"anonymous-auth": "true", "authorization-mode": "AlwaysAllow", "enable-bootstrap-token-auth": "false", "profiling": "true", "request-timeout": "1m0s",
		"service-account-extend-token-expiration": "true", "service-account-lookup": "true",
	},
	"kube-controller-manager": {"bind-address": "0.0.0.0", "profiling": "true", "terminated-pod-gc-threshold": "12500", "use-service-account-credentials": "false"},
	"kube-scheduler":          {"bind-address": "0.0.0.0", "profiling": "true"},
	"etcd":                    {"auto-tls": "false", "client-cert-auth": "false", "peer-auto-tls": "false", "peer-client-cert-auth": "false"},
}

// auditDefaults are defaults of the API server since v1.37. Before, no flag means that old logs are kept forever.
var auditDefaults = map[string]string{"audit-log-maxage": "366", "audit-log-maxbackup": "100", "audit-log-maxsize": "100"}

// A value is the effective value of a flag.
type value struct {
	text  string
	given bool // in the manifest
}

// value returns the effective value of a flag of a component. Of etcd, a flag precedes its environment variable.
func (f *facts) value(name, flag string) value {
	c := f.pods[name]
	if text, ok := c.flags[flag]; ok {
		return value{text, true}
	}
	if text, ok := c.environment["ETCD_"+strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))]; ok && name == "etcd" {
		return value{text, true}
	}
	text := defaults[name][flag]
	switch {
	case auditDefaults[flag] != "" && f.minor() >= 37:
		text = auditDefaults[flag]
	case flag == "authorization-mode" && c.flags["authorization-config"] != "":
		text = strings.Join(f.authorizers(), ",")
	case name == "kube-scheduler" && flag == "profiling" && c.flags["config"] != "":
		text = f.schedulerProfiling()
	}
	return value{text: text}
}

// show is a value as evidence, without secrets.
func (v value) show(flag string) string {
	switch shown := cmp.Or(strings.TrimPrefix(redact.Arguments([]string{"--" + flag + "=" + v.text}, false)[0], "--"), flag); {
	case v.given:
		return shown
	case v.text == "":
		return flag + " is not set"
	default:
		return shown + " (default)"
	}
}

// document decodes a file that a flag of a component names. It is nil if the host does not have it.
func (f *facts) document(name, flag string, into any) error {
	c := f.pods[name]
	inside := c.flags[flag]
	if inside == "" {
		return errors.New(flag + " is not set")
	}
	file := c.hostPath(inside)
	if file == "" {
		return errors.New(inside + " is in no volume of the host")
	}
	data, err := f.read(file)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	if err != nil { // a decoder's message may quote the file
		return errors.New(file + " cannot be read")
	}
	return nil
}

// authorizers are the types in the API server's authorization configuration.
func (f *facts) authorizers() (types []string) {
	var document struct {
		Authorizers []struct {
			Type string `json:"type"`
		} `json:"authorizers"`
	}
	if err := f.document("kube-apiserver", "authorization-config", &document); err != nil {
		return nil
	}
	for _, a := range document.Authorizers {
		types = append(types, a.Type)
	}
	return types
}

// schedulerProfiling is enableProfiling of the scheduler's configuration, which precedes the flag.
func (f *facts) schedulerProfiling() string {
	var document struct {
		EnableProfiling *bool `json:"enableProfiling"`
	}
	if err := f.document("kube-scheduler", "config", &document); err != nil || document.EnableProfiling == nil {
		return "true"
	}
	return strconv.FormatBool(*document.EnableProfiling)
}

// hasPlugin reports whether an admission plugin is on. The two of the benchmark that are on without a flag are named here.
func (f *facts) hasPlugin(name string) bool {
	on, off := list(f.value("kube-apiserver", "enable-admission-plugins").text), list(f.value("kube-apiserver", "disable-admission-plugins").text)
	return slices.Contains(on, name) || slices.Contains([]string{"ServiceAccount", "NamespaceLifecycle", "PodSecurity"}, name) && !slices.Contains(off, name)
}

func list(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return strings.TrimSpace(s) == "" })
}

// pki is the directory of the cluster's certificates on this host.
func (f *facts) pki() string {
	if api := f.pods["kube-apiserver"]; api != nil && api.hostPath(api.flags["client-ca-file"]) != "" {
		return path.Dir(api.hostPath(api.flags["client-ca-file"]))
	}
	return config.CertificatesDir
}
