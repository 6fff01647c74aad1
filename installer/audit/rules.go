package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"

	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

// A rule judges a check.
type rule func(f *facts) finding

// A finding is what a rule found.
type finding struct {
	verdict       Verdict
	found, reason string
	fix           string   // instead of the one of the check
	files         []string // that do not have the wanted value, quoted for a shell
}

// verdictOf is Passed or Failed.
func verdictOf(ok bool) Verdict {
	if ok {
		return Passed
	}
	return Failed
}

// shown lists the first names.
func shown(names []string) string {
	const most = 6
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// Files.

type paths func(f *facts) []string

func file(names ...string) paths { return func(*facts) []string { return names } }

func manifest(name string) paths { return file(node.ManifestPath(name)) }

func glob(patterns ...string) paths {
	return func(f *facts) (list []string) {
		for _, p := range patterns {
			list = append(list, f.glob(p)...)
		}
		return list
	}
}

// inPKI are the files below the certificates' directory with a suffix.
func inPKI(suffix string) paths {
	return func(f *facts) []string {
		return slices.DeleteFunc(f.walk(f.pki()), func(name string) bool { return !strings.HasSuffix(name, suffix) })
	}
}

func kubeletFile(name func(*kubelet) string) paths {
	return func(f *facts) []string {
		return slices.DeleteFunc([]string{name(&f.kubelet)}, func(s string) bool { return s == "" })
	}
}

// etcdData is etcd's data directory on the host.
func etcdData(f *facts) []string {
	c := f.pods[node.EtcdPod]
	dir := f.value(node.EtcdPod, "data-dir").text
	if dir == "" {
		dir = "/var/lib/etcd"
	}
	if on := c.hostPath(dir); on != "" {
		dir = on
	}
	return []string{dir}
}

// each judges existing files. A missing file is not applicable.
func each(of paths, ok func(status) bool, show func(status) string) rule {
	return func(f *facts) (out finding) {
		var good, bad []string
		for _, name := range of(f) {
			s, err := f.stat(name)
			switch {
			case errors.Is(err, fs.ErrNotExist):
			case err != nil:
				return finding{verdict: Judge, reason: name + " cannot be read"}
			case ok(s):
				good = append(good, name+" "+show(s))
			default:
				bad = append(bad, name+" "+show(s))
				out.files = append(out.files, fault.Word(name))
			}
		}
		switch {
		case len(bad) > 0:
			out.verdict, out.found = Failed, shown(bad)
		case len(good) > 0:
			out.verdict, out.found = Passed, shown(good)
		default:
			out.verdict, out.reason = NotApplicable, "no such file: "+strings.Join(of(f), ", ")
			if len(of(f)) == 0 {
				out.reason = "no such file"
			}
		}
		return out
	}
}

// mode wants files without other permissions.
func mode(of paths, most os.FileMode) rule {
	return each(of, func(s status) bool {
		return s.mode.Perm()&^most == 0 && s.mode&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) == 0
	}, func(s status) string { return fmt.Sprintf("%o", s.mode.Perm()) })
}

// owner wants files of a user and a group.
func owner(of paths, want string) rule {
	return each(of, func(s status) bool { return s.owner == want }, func(s status) string { return s.owner })
}

// Flags of static pods.

const (
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// sections are the fields of kubeadm's ClusterConfiguration with the arguments of components.
var sections = map[string]string{apiServer: "apiServer", controllerManager: "controllerManager", scheduler: "scheduler", "etcd": "etcd.local"}

// flags judges the values of flags, which pass if ok is true. want are the values of the fix; an empty one removes the flag.
func flags(name string, ok func(f *facts, values []value) bool, want func(f *facts) map[string]string, names ...string) rule {
	return func(f *facts) finding {
		c := f.pods[name]
		if c == nil {
			return finding{verdict: NotApplicable, reason: "no such file: " + node.ManifestPath(name)}
		}
		unclear := c.unclear
		if name == node.EtcdPod && c.flags["config-file"] != "" {
			unclear = "etcd reads a configuration file, and ignores flags"
		}
		if unclear != "" {
			return finding{verdict: Judge, reason: unclear}
		}
		var values []value
		var evidence []string
		for _, flag := range names {
			v := f.value(name, flag)
			values, evidence = append(values, v), append(evidence, v.show(flag))
		}
		out := finding{verdict: verdictOf(ok(f, values)), found: strings.Join(evidence, ", ")}
		if out.verdict == Failed && want != nil {
			out.fix = f.setFlags(name, want(f), names)
		}
		return out
	}
}

// setFlags is the command that sets flags of a component. On a node that Airlift does not manage, it edits the manifest.
func (f *facts) setFlags(name string, want map[string]string, order []string) string {
	if f.managed {
		var args []string
		for _, flag := range order {
			if v, ok := want[flag]; ok && v == "" {
				args = append(args, "without "+flag)
			} else if ok {
				args = append(args, fmt.Sprintf("{name: %s, value: %q}", flag, v))
			}
		}
		return reconfigure(sections[name] + ".extraArgs " + strings.Join(args, ", "))
	}
	var script []string
	for _, flag := range order {
		v, ok := want[flag]
		_, given := f.pods[name].flags[flag]
		switch {
		case !ok:
		case v == "":
			script = append(script, "-e '/- --"+flag+"=/d'")
		case given:
			script = append(script, "-e 's|- --"+flag+"=.*|- --"+flag+"="+v+"|'")
		default:
			script = append(script, "-e '/^ *- "+name+"$/a\\    - --"+flag+"="+v+"'")
		}
	}
	if len(script) == 0 {
		return ""
	}
	return "sed -i " + strings.Join(script, " ") + " " + node.ManifestPath(name)
}

// reconfigure is how a field of the configuration is set on a node that Airlift manages.
func reconfigure(field string) string {
	return "./install reconfigure print > kubeadm.yaml; set in it " + field + "; then: ./install reconfigure --config kubeadm.yaml"
}

// always returns the same values for a fix.
func always(pairs ...string) func(*facts) map[string]string {
	return func(*facts) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
}

// is wants a flag with a value.
func is(name, flag, want string) rule {
	return flags(name, func(_ *facts, v []value) bool { return v[0].text == want }, always(flag, want), flag)
}

// isSet wants flags with any value.
func isSet(name string, names ...string) rule {
	return flags(name, func(_ *facts, values []value) bool {
		return !slices.ContainsFunc(values, func(v value) bool { return v.text == "" })
	}, nil, names...)
}

// unset wants that a flag does not exist.
func unset(name, flag string) rule {
	return flags(name, func(_ *facts, v []value) bool { return v[0].text == "" }, always(flag, ""), flag)
}

// authorizes wants a mode of authorization, and notAlwaysAllowed that not every request is allowed.
func authorizes(mode string) rule {
	return modes(func(is []string) bool { return slices.Contains(is, mode) })
}

var notAlwaysAllowed = modes(func(is []string) bool { return len(is) > 0 && !slices.Contains(is, "AlwaysAllow") })

func modes(ok func([]string) bool) rule {
	return flags(apiServer, func(_ *facts, v []value) bool { return ok(list(v[0].text)) }, always("authorization-mode", "Node,RBAC"), "authorization-mode")
}

// without wants that a list does not have an item.
func without(name, flag, item string) rule {
	return flags(name, func(_ *facts, v []value) bool { return !slices.Contains(list(v[0].text), item) }, func(f *facts) map[string]string {
		return map[string]string{flag: strings.Join(slices.DeleteFunc(list(f.value(name, flag).text), func(s string) bool { return s == item }), ",")}
	}, flag)
}

// plugin wants that an admission plugin is on.
func plugin(name string) rule {
	return flags(apiServer, func(f *facts, _ []value) bool { return f.hasPlugin(name) }, func(f *facts) map[string]string {
		if off := list(f.value(apiServer, "disable-admission-plugins").text); slices.Contains(off, name) {
			return map[string]string{"disable-admission-plugins": strings.Join(slices.DeleteFunc(off, func(s string) bool { return s == name }), ",")}
		}
		return map[string]string{"enable-admission-plugins": strings.Join(append(list(f.value(apiServer, "enable-admission-plugins").text), name), ",")}
	}, "enable-admission-plugins", "disable-admission-plugins")
}

// auditLog wants a number of at least min in a flag of the audit log, and the log.
func auditLog(flag string, least int) rule {
	return flags(apiServer, func(f *facts, v []value) bool { return number(v[0].text) >= least && v[1].text != "" }, always(flag, strconv.Itoa(least)), flag, "audit-log-path")
}

// ciphers of the benchmark. Go names two of them in two ways. The ciphers of TLS 1.3 cannot be chosen.
var ciphers = []string{
	"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256",
	"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
}

// wantedCiphers are for the fix.
const wantedCiphers = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"

func strong(suites []string, least string) bool {
	weak := slices.ContainsFunc(suites, func(s string) bool { return !slices.Contains(ciphers, s) })
	return least == "VersionTLS13" || len(suites) > 0 && !weak
}

// firstProvider wants encryption of Secrets by the first provider. Of the file, only the names of providers are evidence.
func firstProvider(f *facts) finding {
	var document struct {
		Resources []struct {
			Resources []string         `json:"resources"`
			Providers []map[string]any `json:"providers"`
		} `json:"resources"`
	}
	if f.pods[apiServer] == nil || f.pods[apiServer].flags["encryption-provider-config"] == "" {
		return finding{verdict: Failed, found: "Secrets are in etcd as plain text", fix: encryptionFix}
	}
	if err := f.document(apiServer, "encryption-provider-config", &document); err != nil {
		return finding{verdict: Judge, reason: err.Error()}
	}
	for _, r := range document.Resources {
		for _, name := range []string{"secrets", "*.", "*.*"} {
			if !slices.Contains(r.Resources, name) || len(r.Providers) == 0 {
				continue
			}
			for provider := range r.Providers[0] {
				return finding{verdict: verdictOf(slices.Contains([]string{"secretbox", "aescbc", "kms"}, provider)), found: "the first provider of Secrets is " + provider, fix: encryptionFix}
			}
		}
	}
	return finding{verdict: Failed, found: "the encryption configuration has no provider for Secrets", fix: encryptionFix}
}

const encryptionFix = "write an encryption configuration, and set encryption-provider-config: ./install docs reconfigure"

// anonymous judges what anonymous requests may do: the kubelet's probes of the API server are anonymous, and so is join's first request.
func anonymous(f *facts) finding {
	out := flags(apiServer, func(_ *facts, v []value) bool { return v[0].text == "false" }, nil, "anonymous-auth")(f)
	if out.verdict != Failed {
		return out
	}
	if f.pods[apiServer].flags["authentication-config"] != "" {
		var document struct {
			Anonymous *struct {
				Enabled    bool `json:"enabled"`
				Conditions []struct {
					Path string `json:"path"`
				} `json:"conditions"`
			} `json:"anonymous"`
		}
		if err := f.document(apiServer, "authentication-config", &document); err != nil {
			return finding{verdict: Judge, reason: err.Error()}
		}
		if a := document.Anonymous; a != nil && !a.Enabled {
			return finding{verdict: Passed, found: "anonymous requests are disabled in the authentication configuration"}
		} else if a != nil && len(a.Conditions) > 0 {
			var paths []string
			for _, c := range a.Conditions {
				paths = append(paths, c.Path)
			}
			out.found = "anonymous requests are limited to " + strings.Join(paths, ", ")
			if !slices.ContainsFunc(paths, func(p string) bool { return !slices.Contains(publicPaths, p) }) {
				out.verdict = Passed
				return out
			}
		}
	}
	if f.objects == nil {
		return finding{verdict: Judge, found: out.found, reason: "the API server could not be read: what an anonymous user may do is not known"}
	}
	if more := f.objects.anonymousGrants(); len(more) > 0 {
		out.found += "; bindings for anonymous users: " + shown(more)
		out.fix = "kubectl delete " + more[0]
		return out
	}
	out.verdict, out.reason = ByDesign, "the kubelet's probes of the API server and the first request of a joining node are anonymous; RBAC lets such requests read only health, version and the public cluster-info"
	return out
}

// publicPaths are what probes and joining nodes read.
var publicPaths = []string{"/livez", "/readyz", "/healthz", "/version", "/api/v1/namespaces/kube-public/configmaps/cluster-info"}

// pullImages judges AlwaysPullImages.
func pullImages(f *facts) finding {
	out := plugin("AlwaysPullImages")(f)
	if out.verdict == Failed {
		out.verdict, out.fix = ByDesign, ""
		out.reason = "with it, each start of a container needs the registry, which a site without a network may not have; the images are in containerd before the pods start"
	}
	return out
}

func requestTimeout5m(f *facts) finding {
	return flags(apiServer, func(_ *facts, v []value) bool {
		d, err := time.ParseDuration(v[0].text)
		return err == nil && d > 0 && d <= 5*time.Minute
	}, always("request-timeout", "60s"), "request-timeout")(f)
}

// otherCA wants that etcd's clients are not signed by the cluster's CA.
func otherCA(f *facts) finding {
	read := func(name, flag string) []byte {
		c := f.pods[name]
		if c == nil {
			return nil
		}
		data, _ := f.read(c.hostPath(f.value(name, flag).text))
		return bytes.TrimSpace(data)
	}
	etcd, clients := read(node.EtcdPod, "trusted-ca-file"), read(apiServer, "client-ca-file")
	if len(etcd) == 0 || len(clients) == 0 {
		return finding{verdict: Judge, reason: "the files of trusted-ca-file of etcd and client-ca-file of the API server cannot be compared"}
	}
	a, err := pki.ParseCertificates(etcd)
	b, err2 := pki.ParseCertificates(clients)
	if err != nil || err2 != nil {
		return finding{verdict: Judge, reason: "a CA certificate cannot be read"}
	}
	for _, one := range a {
		for _, other := range b {
			if one.Equal(other) || bytes.Equal(one.RawSubjectPublicKeyInfo, other.RawSubjectPublicKeyInfo) {
				return finding{verdict: Failed, found: "etcd trusts the CA of the cluster's clients: " + one.Subject.CommonName}
			}
		}
	}
	return finding{verdict: Passed, found: "etcd trusts " + a[0].Subject.CommonName + ", and the API server trusts " + b[0].Subject.CommonName}
}

func inGroup(pem []byte, group string) bool {
	list, err := pki.ParseCertificates(pem)
	return err == nil && len(list) > 0 && slices.Contains(list[0].Subject.Organization, group)
}

// The kubelet.

// field judges a field of the kubelet's effective configuration. want is the field in YAML.
func field(name, want string, get func(c *kubeletv1.KubeletConfiguration) (shown string, ok bool)) rule {
	return func(f *facts) finding {
		if f.kubelet.unclear != "" {
			return finding{verdict: Judge, reason: f.kubelet.unclear}
		}
		is, ok := get(&f.kubelet.config)
		if is == "" {
			is = "not set"
		}
		out := finding{verdict: verdictOf(ok), found: fmt.Sprintf("%s is %s (%s)", name, is, f.kubelet.source)}
		switch {
		case ok || want == "":
		case f.managed:
			out.fix = reconfigure("the KubeletConfiguration " + want)
		default:
			out.fix = "kubectl -n kube-system edit configmap kubelet-config, and " + path.Clean(f.kubelet.file()) + " on each node: " + want + "; then: systemctl restart kubelet"
		}
		return out
	}
}

func boolField(name string, want bool, get func(c *kubeletv1.KubeletConfiguration) *bool) rule {
	return field(name, name+": "+strconv.FormatBool(want), func(c *kubeletv1.KubeletConfiguration) (string, bool) {
		v := get(c)
		return strconv.FormatBool(v != nil && *v), (v != nil && *v) == want
	})
}

var ownCA = regexp.MustCompile(`-ca@[0-9]+$`)

// kubeletServing wants a serving certificate that the kubelet did not sign itself.
func kubeletServing(f *facts) finding {
	return field("tlsCertFile", "serverTLSBootstrap: true", func(c *kubeletv1.KubeletConfiguration) (string, bool) {
		if c.TLSCertFile != "" && c.TLSPrivateKeyFile != "" {
			// A running kubelet also reports the certificate that it created and signed itself. Its CA's name is HOST-ca@TIME.
			data, _ := f.read(c.TLSCertFile)
			if list, err := pki.ParseCertificates(data); err != nil {
				return c.TLSCertFile + ", which has no certificate that can be read", false
			} else if issuer := list[0].Issuer.CommonName; ownCA.MatchString(issuer) {
				return c.TLSCertFile + ", signed by the kubelet itself as " + issuer, false
			}
			return c.TLSCertFile, true
		}
		const current = "/var/lib/kubelet/pki/kubelet-server-current.pem"
		_, err := f.stat(current)
		return fmt.Sprintf("%q, serverTLSBootstrap is %t, %s exists: %t", c.TLSCertFile, c.ServerTLSBootstrap, current, err == nil), c.ServerTLSBootstrap && err == nil
	})(f)
}

// noOverride wants that the kubelet has the host's name. A node may have another one, which is also in its certificate: only a new node
// could change it.
func noOverride(f *facts) finding {
	switch name := f.kubelet.flag("hostname-override"); name {
	case "":
		return finding{verdict: Passed, found: "hostname-override is not set"}
	case f.name:
		return finding{verdict: ByDesign, found: "hostname-override is " + name, reason: "the node was created with this name, and the kubelet's certificate has it"}
	default:
		return finding{verdict: Failed, found: "hostname-override is " + name + ", and the node is " + f.name, fix: "remove hostname-override from the kubelet's flags, and: systemctl restart kubelet"}
	}
}
