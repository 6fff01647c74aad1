// Package secrets makes texts with random secrets, for tests that nothing of a secret is left.
package secrets

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Kinds of texts that are neither a file nor what a command prints.
const (
	Log     = "log"     // lines of a log
	Message = "message" // one message
	Table   = "table"   // each line is a record
	Any     = "any"     // a text of an unknown form
)

// A Probe is a text with a secret in it.
type Probe struct {
	Name string // what is around the secret
	// Source is the path of a file of a host, or a command line, or one of the kinds above.
	Source string
	Text   func(secret string) string
	// OneLine is set if a secret with line ends cannot be there.
	OneLine bool
	// Dropped is set if all of the text may be dropped without a mark: a comment.
	Dropped bool
}

// object is a decoded object.
type object = map[string]any

func toYAML(v any) string {
	data, err := yaml.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func toJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// A Generator makes secrets and texts with them.
type Generator struct{ *rand.Rand }

// New returns a generator. The same seed gives the same texts.
func New(seed uint64) Generator { return Generator{rand.New(rand.NewPCG(seed, 0))} }

// Seed returns $AIRLIFT_SEED, to repeat a test, or another seed each time.
func Seed() uint64 {
	if seed, err := strconv.ParseUint(os.Getenv("AIRLIFT_SEED"), 10, 64); err == nil {
		return seed
	}
	return uint64(time.Now().UnixNano())
}

func pick[T any](g Generator, from ...T) T { return from[g.IntN(len(from))] }

func (g Generator) word(letters string, n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte(letters[g.IntN(len(letters))])
	}
	return b.String()
}

const (
	lower = "abcdefghijklmnopqrstuvwxyz"
	alnum = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
)

// Secret returns a random secret: with and without characters that have a meaning somewhere.
func (g Generator) Secret() string {
	w := func(n int) string { return g.word(alnum, n) }
	return pick(g,
		w(8+g.IntN(30)), w(6), g.word(lower, 6+g.IntN(6)), g.word("0123456789", 8),
		w(5)+" "+w(7)+" "+w(6), w(6)+","+w(7), w(6)+"@"+w(8), w(7)+"/"+w(8), "/"+w(9), w(6)+"="+w(7)+"==", w(6)+"'"+w(6), w(6)+`"`+w(6), w(6)+`\`+w(6),
		w(6)+"\n"+w(9), w(8)+": "+w(8), w(7)+"#"+w(7), w(6)+"$"+w(6)+"&"+w(6)+"!", w(6)+"äöü"+w(6)+"€", "-"+w(8), "--"+g.word(lower, 8), "{"+w(6)+"}", "["+w(7)+"]", w(6)+";"+w(6), w(6)+"%"+w(6), w(7)+":"+w(7),
		g.word(lower, 7)+" "+g.word(lower, 8)+" "+g.word(lower, 6),
	)
}

// style writes words in one of the ways in which names are written.
func (g Generator) style(words ...string) string {
	switch g.IntN(4) {
	case 0:
		return strings.ToUpper(strings.Join(words, "_"))
	case 1:
		return strings.Join(words, "-")
	case 2:
		return strings.Join(words, "_")
	}
	name := words[0]
	for _, w := range words[1:] {
		name += strings.ToUpper(w[:1]) + w[1:]
	}
	return name
}

// anyName returns a name that does not tell what it is: structures do not need one that does.
func (g Generator) anyName() string {
	return g.style(g.word(lower, 4), pick(g, "pass", "value", "code", "thing", "token", "str", "x"))
}

// upperName returns the name of a variable of the environment.
func (g Generator) upperName() string {
	return strings.ToUpper(g.word(lower, 3) + "_" + pick(g, "pass", "code", "word", "pw", "x", "key_base"))
}

// secretName returns a name that tells that its value is a secret.
func (g Generator) secretName() string {
	what := pick(g, []string{"password"}, []string{"pass"}, []string{"passwd"}, []string{"secret"}, []string{"token"}, []string{"api", "key"}, []string{"secret", "key", "base"}, []string{"access", "key"},
		[]string{"private", "key"}, []string{"credentials"}, []string{"auth"}, []string{"passphrase"}, []string{"client", "secret"}, []string{"signing", "key"}, []string{"pwd"}, []string{"cookie"})
	if g.IntN(2) == 0 {
		what = append([]string{g.word(lower, 3)}, what...)
	}
	return g.style(what...)
}

func indent(text, by string) string { return by + strings.ReplaceAll(text, "\n", "\n"+by) }

// pod returns a pod whose container has a field.
func pod(field string, v any) object {
	return object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "app"}, "spec": object{"containers": []any{object{"name": "app", "image": "registry.example/app:1", field: v}}}}
}

func probe(path string) object {
	return pod("readinessProbe", object{"httpGet": object{"path": path, "port": 80}})
}

// oneWord makes one word of a secret that needs no quotes.
func oneWord(s string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(alnum, r) {
			return r
		}
		return 'x'
	}, s)
}

func configMap(name, text string) object {
	return object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "app"}, "data": object{name: text, "mode": "true"}}
}

// objects returns objects with the secret in them.
func (g Generator) objects(s string) map[string]any {
	env := func(s string) object {
		return pod("env", []any{object{"name": g.anyName(), "value": s}, object{"name": "GOGC", "value": "50"}})
	}
	flag := "--" + g.style(g.word(lower, 4), pick(g, "password", "thing", "token"))
	kubeconfig := func(user, cluster object) object {
		return object{"apiVersion": "v1", "kind": "Config", "clusters": []any{object{"name": "c", "cluster": cluster}}, "users": []any{object{"name": "u", "user": user}}}
	}
	b64 := base64.StdEncoding.EncodeToString([]byte(s))
	escaped := url.UserPassword("robot", s).String()
	name := g.anyName()
	return map[string]any{
		"env": env(s), "args =": pod("args", []any{"serve", flag + "=" + s, "--v=2"}), "args list": pod("args", []any{flag, s, "--v=2"}), "a flag and its value in one": pod("args", []any{flag + " " + s}),
		"shell": pod("command", []any{"sh", "-c", "export X=" + s + "; exec app"}), "command": pod("command", []any{"/bin/app", strings.TrimLeft(s, "-")}),
		"probe's query": probe("/healthz?" + name + "=" + url.QueryEscape(s)), "probe's path": probe("/" + url.PathEscape(s) + "/healthz"), "answer": configMap("Corefile", ".:53 {\n    template IN TXT example.org {\n        answer \"{{ .Name }} 60 IN TXT "+oneWord(s)+"\"\n    }\n}\n"),
		"rewrite": configMap("Corefile", ".:53 {\n    rewrite name exact a.example "+oneWord(s)+"\n    errors\n}\n"), "inline hosts": configMap("Corefile", ".:53 {\n    hosts {\n        10.0.0.1 "+oneWord(s)+"\n        fallthrough\n    }\n}\n"),
		"plugin's argument": configMap("Corefile", ".:53 {\n    "+pick(g, "any", "errors", "cache", "forward", "kubernetes", "log", "header", "acl", "file", "whoami", "loop")+" "+oneWord(s)+"\n}\n"),
		"probe":             pod("livenessProbe", object{"exec": object{"command": []any{"curl", "-u", "x:" + s}}}), "header": pod("livenessProbe", object{"httpGet": object{"path": "/", "port": 80, "httpHeaders": []any{object{"name": "X-Y", "value": s}}}}),
		"hook": pod("lifecycle", object{"preStop": object{"exec": object{"command": []any{"app", flag, s}}}}), "a field that pods do not have": pod(name, s),
		"annotation":                object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "app", "annotations": object{"example.com/" + name: s}}},
		"last-applied":              object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"annotations": object{"kubectl.kubernetes.io/last-applied-configuration": toJSON(env(s))}}},
		"change-cause":              object{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"annotations": object{"kubernetes.io/change-cause": "kubectl set env X=" + s}}},
		"template":                  object{"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": object{"template": object{"spec": env(s)["spec"]}}},
		"flex volume":               object{"apiVersion": "v1", "kind": "Pod", "spec": object{"volumes": []any{object{"name": "v", "flexVolume": object{"driver": "d", "options": object{name: s}}}}}},
		"CSI":                       object{"apiVersion": "v1", "kind": "PersistentVolume", "spec": object{"csi": object{"driver": "d", "volumeHandle": "h", "volumeAttributes": object{name: s}}}},
		"mount options":             object{"apiVersion": "v1", "kind": "PersistentVolume", "spec": object{"mountOptions": []any{"ro", "password=" + s}}},
		"parameters":                object{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "parameters": object{name: s}},
		"Secret":                    object{"apiVersion": "v1", "kind": "Secret", "stringData": object{name: s}, "data": object{name: b64}},
		"list":                      object{"apiVersion": "v1", "kind": "List", "items": []any{env(s)}},
		"text in a ConfigMap":       configMap("app.conf", s),
		"properties in a ConfigMap": configMap("app.properties", "mode=plain\n"+name+"="+s+"\n"),
		"TOML in a ConfigMap":       configMap("app.toml", "[a]\n"+name+" = "+strconv.Quote(s)+"\n"),
		"YAML in a ConfigMap":       configMap("app.yaml", toYAML(object{"a": object{name: s}, "list": []any{s}})),
		"JSON in a ConfigMap":       configMap("app.json", toJSON(object{"a": object{name: s}})),
		"JSON in YAML in one":       configMap("app.yaml", toYAML(object{"inner": toJSON(env(s))})),
		"pod in a ConfigMap":        configMap("pod.yaml", toYAML(env(s))),
		"kubeconfig in a ConfigMap": configMap("kubeconfig", toYAML(kubeconfig(object{"token": s}, object{"server": "https://10.0.0.1:6443"}))),
		"docker in a ConfigMap":     configMap(".dockerconfigjson", toJSON(object{"auths": object{"r": object{"auth": base64.StdEncoding.EncodeToString([]byte("u:" + s))}}})),
		"Corefile":                  configMap("Corefile", ".:53 {\n    errors\n    route53 example.org:Z1 {\n        aws_access_key X "+strconv.Quote(s)+"\n    }\n}\n"),
		"PEM in a ConfigMap":        configMap("tls.key", "-----BEGIN PRIVATE KEY-----\n"+b64+"\n-----END PRIVATE KEY-----\n"),
		"PGP in a ConfigMap":        configMap("key.asc", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n"+b64+"\n-----END PGP PRIVATE KEY BLOCK-----\n"),
		"binary":                    object{"apiVersion": "v1", "kind": "ConfigMap", "binaryData": object{"x": b64}},
		"user's token":              kubeconfig(object{"token": s}, object{}), "user's password": kubeconfig(object{"username": "u", "password": s}, object{}), "user's key": kubeconfig(object{"client-key-data": b64}, object{}),
		"user's exec": kubeconfig(object{"exec": object{"command": "aws", "args": []any{"--x", s}, "env": []any{object{"name": "A", "value": s}}}}, object{}), "auth provider": kubeconfig(object{"auth-provider": object{"name": "oidc", "config": object{name: s}}}, object{}),
		"extension": kubeconfig(object{"extensions": []any{object{"name": "e", "extension": object{name: s}}}}, object{}),
		"server":    kubeconfig(object{}, object{"server": "https://" + escaped + "@10.0.0.1:6443"}), "proxy": kubeconfig(object{}, object{"proxy-url": "http://u:" + s + "@proxy:3128"}), "token in a URL": kubeconfig(object{}, object{"server": "https://" + s + "@host"}),
		"kubelet's header": object{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "staticPodURLHeader": object{"X": []any{s}}},
		"kubelet's URL":    object{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "staticPodURL": "https://u:" + s + "@h/pods"},
		"kubeadm's token":  object{"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "InitConfiguration", "bootstrapTokens": []any{object{"token": s}}, "certificateKey": s},
		"join":             object{"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration", "discovery": object{"tlsBootstrapToken": s, "bootstrapToken": object{"token": s}}},
		"extraArgs":        object{"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration", "apiServer": object{"extraArgs": []any{object{"name": name, "value": s}}, "extraEnvs": []any{object{"name": name, "value": s}}}},
		"extraArgs map":    object{"apiVersion": "kubeadm.k8s.io/v1beta3", "kind": "ClusterConfiguration", "apiServer": object{"extraArgs": object{name: s}}},
		"encryption":       object{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": []any{object{"providers": []any{object{"aescbc": object{"keys": []any{object{"name": "k", "secret": s}}}}}}}},
		"CNI":              object{"cniVersion": "1.0.0", "name": "n", "plugins": []any{object{"type": "calico", "policy": object{"type": "k8s", "k8s_auth_token": s}, name: s, "args": object{"type": s}}}},
		"unknown kind":     object{"apiVersion": "example.com/v1", "kind": "Thing", "spec": object{name: s, "list": []any{s}, "env": []any{object{"name": "X", "value": s}}}},
		"no kind":          object{name: s, "image": s},
		"webhook":          object{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "webhooks": []any{object{"name": "w", "clientConfig": object{"url": "https://h/hook?x=" + url.QueryEscape(s)}}}},
		"event":            object{"apiVersion": "v1", "kind": "Event", "message": "it failed: " + g.secretName() + "=" + s},
		"terminated":       object{"apiVersion": "v1", "kind": "Pod", "status": object{"containerStatuses": []any{object{"state": object{"terminated": object{"exitCode": 1, "message": `bad config {"` + g.secretName() + `": ` + toJSON(s) + `}`}}}}}},
	}
}

// Files that are read in a form.
const (
	documents   = "/etc/kubernetes/manifests/app.yaml"
	tomlFile    = "/etc/containerd/config.toml"
	environment = "/etc/default/kubelet"
	unit        = "/etc/systemd/system/kubelet.service.d/10-app.conf"
)

// Probes returns one probe of each kind. The names in them are random.
func (g Generator) Probes() (list []Probe) {
	seed := g.Uint64()
	add := func(name, source string, oneLine bool, text func(s string) string) {
		list = append(list, Probe{Name: name, Source: source, Text: text, OneLine: oneLine, Dropped: strings.Contains(name, "comment")})
	}
	at := func(s string) map[string]any { // the same names for each secret
		return Generator{rand.New(rand.NewPCG(seed, 1))}.objects(s)
	}
	for _, name := range slices.Sorted(maps.Keys(at("x"))) {
		add(name, documents, false, func(s string) string { return toYAML(at(s)[name]) })
		add(name+", JSON", documents, false, func(s string) string { return toJSON(at(s)[name]) })
		add(name+", any text", Any, false, func(s string) string { return toJSON(at(s)[name]) })
	}
	envName, name, other := g.upperName(), g.secretName(), g.anyName()
	add("literal block", documents, false, func(s string) string {
		return "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - env:\n    - name: X\n      value: |\n" + indent(s, "        ") + "\n"
	})
	add("folded block", documents, false, func(s string) string {
		return "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - env:\n    - value: >-\n" + indent(s, "        ") + "\n      name: X\n"
	})
	add("not YAML", documents, false, func(s string) string { return "a: [\n" + other + ": " + s + "\n" })
	add("comment", documents, true, func(s string) string { return "# old: " + s + "\na: true\n" })

	quoted := map[string]func(string) string{"basic": strconv.Quote, "'''": func(s string) string { return "'''" + s + "'''" }, `"""`: func(s string) string { return `"""` + s + `"""` }, "array": func(s string) string { return "[" + strconv.Quote(s) + ", 'x']" }, "lines": func(s string) string { return "[\n  " + strconv.Quote(s) + ",\n]" }}
	for _, kind := range slices.Sorted(maps.Keys(quoted)) {
		q := quoted[kind]
		add("registry, "+kind, tomlFile, false, func(s string) string {
			return "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".registry.configs.\"r\".auth]\n" + other + " = " + q(s) + "\n"
		})
		add("header, "+kind, tomlFile, false, func(s string) string {
			return "server = 'https://r'\n[host.'https://m'.header]\nserver = " + q(s) + "\n"
		})
		add("any text, "+kind, Log, false, func(s string) string { return "[a]\n" + name + " = " + q(s) + "\n" })
	}
	add("comment in TOML", tomlFile, true, func(s string) string { return "# password = " + s + "\nversion = 2\n" })
	add("mirror", tomlFile, true, func(s string) string {
		return "[host.\"https://u:" + url.PathEscape(s) + "@m\"]\ncapabilities = ['pull']\n"
	})

	for kind, line := range []string{`%s=%q`, `export %s=%q`} {
		add(fmt.Sprint("environment, ", kind), environment, false, func(s string) string { return fmt.Sprintf(line, envName, s) + "\nNEXT=1\n" })
	}
	add("environment, quoted lines", environment, false, func(s string) string { return envName + "='" + strings.ReplaceAll(s, "'", `'\''`) + "'\n" })
	add("environment, plain", environment, true, func(s string) string { return envName + "=" + s + "\n" })
	add("environment, comment", environment, true, func(s string) string { return "#" + envName + "=" + s + "\nA=1\n" })
	add("kubelet's flags", environment, true, func(s string) string {
		return "KUBELET_KUBEADM_ARGS=\"--v=2 --" + other + "=" + s + " --" + other + " " + s + "\"\n"
	})
	add("environment, proxy", environment, true, func(s string) string { return "HTTPS_PROXY=http://u:" + s + "@proxy:3128\n" })
	add("unit", unit, true, func(s string) string {
		return "[Service]\nEnvironment=" + strconv.Quote(other+"="+s) + " A=b\nRestart=always\n"
	})
	add("unit, plain", unit, true, func(s string) string { return "[Service]\nEnvironment=" + other + "=" + s + "\n" })
	add("unit, proxy", unit, true, func(s string) string { return "[Service]\nEnvironment=\"HTTPS_PROXY=http://u:" + s + "@proxy:3128\"\n" })
	add("unit, exec", unit, true, func(s string) string {
		return "[Service]\nExecStart=/usr/bin/app --v=2 \\\n  --" + other + "=" + strconv.Quote(s) + " \\\n  --" + other + " " + s + "\n"
	})
	add("unit, description", unit, true, func(s string) string { return "[Unit]\nDescription=" + s + "\n" })
	add("unit, short option", unit, true, func(s string) string {
		return "[Service]\nExecStart=/usr/bin/app -p " + s + "\nExecStop=/usr/bin/app -p" + s + "\n"
	})
	add("show, description", "systemctl show kubelet.service", true, func(s string) string { return "Id=kubelet.service\nDescription=" + s + "\n" })
	add("status, description", "systemctl status kubelet.service", true, func(s string) string { return "● kubelet.service - " + s + "\n     Loaded: loaded\n" })
	g.cutLogs(add)
	add("unit, credential", unit, true, func(s string) string { return "[Service]\nSetCredential=" + other + ":" + s + "\nX-Any=" + s + "\n" })
	add("show", "systemctl show kubelet.service", true, func(s string) string {
		return "Environment=" + strconv.Quote(other+"="+s) + "\nExecStart={ path=/usr/bin/a ; argv[]=/usr/bin/a --" + other + " " + s + " ; pid=1 }\nActiveState=active\n"
	})
	add("status", "systemctl status kubelet.service", true, func(s string) string {
		return "     Active: active (running)\n    Process: 12 ExecStartPre=/bin/a --" + other + "=" + s + " (code=exited, status=0/SUCCESS)\n     CGroup: /system.slice/a.service\n             └─1234 /usr/bin/a --" + other + "=" + s + " --v=2\n"
	})
	add("runtime", "crictl info", false, func(s string) string {
		return toJSON(object{"status": object{"conditions": []any{object{"type": "RuntimeReady"}}}, "config": object{"registry": object{"configs": object{"r": object{"auth": object{"password": s, other: s}}}, "headers": object{other: []any{s}}}}})
	})
	add("kernel", "cat /proc/cmdline", true, func(s string) string {
		return "BOOT_IMAGE=/vmlinuz root=UUID=1 ro quiet " + other + "=" + s + " systemd.setenv=" + s + "\n"
	})
	add("fstab", "/etc/fstab", true, func(s string) string {
		return "//nas/share\t/mnt\tcifs\tro,username=u,password=" + s + "\t0\t0\n# old " + s + "\n"
	})
	add("hosts", "/etc/hosts", true, func(s string) string {
		return "127.0.0.1 localhost\n# " + s + "\nupstream https://robot:" + s + "@r.example\n"
	})
	add("sysctl file", "/etc/sysctl.d/x.conf", true, func(s string) string { return "vm.swappiness = 1\nnet.ipv4.tcp_fastopen_key = " + s + "\n" })

	record := "I1126 12:00:00.000000       1 server.go:1] \"next\" pod=\"kube-system/coredns\"\n"
	lines := g.logLines(name, envName)
	maps.Copy(lines, g.commandLines())
	maps.Copy(lines, g.printedStructures(name))
	maps.Copy(lines, g.configurationLines(name, envName))
	for _, kind := range slices.Sorted(maps.Keys(lines)) {
		line := lines[kind]
		add("log, "+kind, Log, false, func(s string) string { return record + line(s) + "\n" + record })
		add("container's log, "+kind, Log, false, func(s string) string {
			const prefix = "2026-11-26T12:00:00.5Z stderr F "
			return prefix + record + prefix + strings.ReplaceAll(line(s), "\n", "\n"+prefix) + "\n" + prefix + record
		})
		add("journal, "+kind, Log, false, func(s string) string {
			const prefix = "2026-11-26T12:00:00.000001+00:00 host1 kubelet[123]: "
			return prefix + record + prefix + strings.ReplaceAll(line(s), "\n", "\n"+prefix) + "\n" + prefix + record
		})
		add("message, "+kind, Message, false, line)
		add("table, "+kind, Table, true, func(s string) string { return line(s) + "\n" })
	}
	return list
}

// logLines returns lines of logs with a secret.
func (g Generator) logLines(name, envName string) map[string]func(string) string {
	compound := pick(g, "smtp_pass", "certificateKey", "auth_token", "MYSQL_PWD", "apiKey")
	shortName := strings.ToUpper(g.word(lower, 5))
	unknownFlag := g.word(lower, 5) + "x"
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte("user:" + s + "padding")) }
	return map[string]func(string) string{
		"name=value":     func(s string) string { return "login failed " + name + "=" + s + " user=jane" },
		"name: value":    func(s string) string { return "config " + name + ": " + s },
		"quoted":         func(s string) string { return fmt.Sprintf("msg=%q %s=%q", "x", name, s) },
		"variable":       func(s string) string { return "environment A=b " + envName + "=" + s },
		"flag =":         func(s string) string { return "running app --" + name + "=" + s + " --v=2" },
		"unknown flag =": func(s string) string { return "running app --" + unknownFlag + "=" + s },
		"flag":           func(s string) string { return "running app --" + name + " '" + s + "'" },
		"flags in JSON":  func(s string) string { return `{"level":"info","args":["app","--` + name + `",` + toJSON(s) + `]}` },
		"JSON":           func(s string) string { return `x {"a":1,"` + name + `":` + toJSON(s) + `}` },
		"escaped JSON":   func(s string) string { return `x ` + strconv.Quote(`{"`+name+`":`+toJSON(s)+`}`) },
		"env in JSON":    func(s string) string { return `{"name":"X","value":` + toJSON(s) + `}` },
		"env turned":     func(s string) string { return `[{"value":` + toJSON(s) + `,"name":"X"}]` },
		"Go's struct": func(s string) string {
			return "container &Container{Name:a,Env:[]EnvVar{EnvVar{Name:X,Value:" + s + ",ValueFrom:nil,},}}"
		},
		"Go's map": func(s string) string { return "config map[" + name + ":" + s + " mode:x]" },
		"user in a URL": func(s string) string {
			return "pulling https://robot:" + strings.ReplaceAll(s, "\n", "") + "@registry.example/v2/ failed"
		},
		"token in a URL": func(s string) string {
			return "GET https://" + strings.ReplaceAll(s, "\n", "") + "@registry.example/v2/ failed"
		},
		"query":       func(s string) string { return "GET https://h.example/login?" + name + "=" + url.QueryEscape(s) },
		"path":        func(s string) string { return "POST https://hooks.example/services/T0/" + url.PathEscape(s) },
		"bearer":      func(s string) string { return "Authorization: Bearer " + s },
		"basic":       func(s string) string { return "> Basic " + b64(s) },
		"header list": func(s string) string { return `"Authorization":["Bearer ` + s + `"]` },
		"base64": func(s string) string {
			return "payload " + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(s+" Aa1 ", 4)))
		},
		"next line": func(s string) string {
			return name + ":\n    " + strings.ReplaceAll(strings.ReplaceAll(s, ": ", "-"), "\n", "\n    ")
		},
		"block":        func(s string) string { return name + ": |\n" + indent(s, "  ") },
		"folded block": func(s string) string { return "- name: X\n  value: >-\n" + indent(s, "    ") },
		"PEM": func(s string) string {
			return "-----BEGIN EC PRIVATE KEY-----\n" + b64(s) + "\n-----END EC PRIVATE KEY-----"
		},
		"PGP": func(s string) string {
			return "-----BEGIN PGP MESSAGE-----\n\n" + b64(s) + "\n-----END PGP MESSAGE-----"
		},
		"docker": func(s string) string { return `.dockerconfigjson: ` + b64(s) },
		"SQL": func(s string) string {
			return "dial postgres://app:" + strings.ReplaceAll(s, "\n", "") + "@db:5432/x: refused"
		},
		"password in text":  func(s string) string { return "wrong password " + s + " for jane" },
		"user and password": func(s string) string { return "curl -u admin:" + strings.ReplaceAll(s, "\n", "") + " https://h" },
		"name and value":    func(s string) string { return "using " + compound + " 4x" + strings.ReplaceAll(s, "\n", "") },
		"token in text":     func(s string) string { return "invalid token 4x" + strings.ReplaceAll(s, "\n", "") },
		"short variable":    func(s string) string { return "env " + shortName + "=" + s },
		"XML":               func(s string) string { return "<" + name + ">" + s + "</x>" },
	}
}
