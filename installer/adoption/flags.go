package adoption

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/installer/host/systemd"
	"airlift/installer/kubeletcheck"
	"airlift/installer/preflight"
	"airlift/installer/redact"
	"airlift/installer/render"
)

// kubeletFlags are the flags of a kubelet that another tool started. An upgrade keeps them.
type kubeletFlags struct {
	kept   []config.Arg // that kubeadm-flags.env must have, so that the kubelet has the same flags when Airlift's unit starts it
	gone   []config.Arg // that the kubelet of the new version does not have; not in kept
	unused []config.Arg // in kubeadm-flags.env, and the kubelet does not run with them; not in kept
	// changed is set if kubeadm-flags.env does not have exactly the flags in kept.
	changed bool
}

// fromUnit are the flags that the kubelet's drop-in has, Airlift's and kubeadm's.
var fromUnit = []string{"bootstrap-kubeconfig", "kubeconfig", "config"}

const (
	extraArgs    = "KUBELET_EXTRA_ARGS"
	commandLine  = "the kubelet's command line"
	setField     = "set the field of the KubeletConfiguration instead, remove the argument from the kubelet's unit, and run: systemctl daemon-reload; systemctl restart kubelet"
	hostnameFile = "/proc/sys/kernel/hostname"
)

var flagChecks = []func(*view){
	refuse("KubeletFlags", running, func(v *view) [][]string {
		return per(v.kubelet.flags(v.Target).kept, func(a config.Arg) [][]string { return given(!writable(a), shown(a)) })
	}, "the kubelet runs with the argument $1", commandLine, "it cannot be written to "+config.KubeletFlagsFile+", which Airlift's unit reads", setField),
	find("KubeletFlags", running, func(v *view) [][]string {
		return per(v.kubelet.flags(v.Target).kept, func(a config.Arg) [][]string {
			var files []string
			for _, s := range v.kubelet.flagSources() {
				if slices.ContainsFunc(s.flags, func(f config.Arg) bool { return f.Name == a.Name }) {
					files = append(files, s.file)
				}
			}
			return given(!slices.Contains(v.kubelet.written(), a), shown(a), cmp.Or(strings.Join(files, ", "), commandLine))
		})
	}, "the kubelet runs with $1", "$2", "the first upgrade writes it to "+config.KubeletFlagsFile+", which its unit reads", ""),
	find("KubeletFlagsUnused", running, word(func(v *view) string {
		var list []string
		for _, a := range v.kubelet.flags(v.Target).unused {
			if kubeletcheck.HasFlag(v.Target, a.Name) {
				list = append(list, shown(a))
			}
		}
		return strings.Join(list, " ")
	}), "the kubelet does not run with $1", config.KubeletFlagsFile, "the first upgrade removes it there: the kubelet keeps the flags that it has now", ""),
	refuse("KubeletExtraArgs", running, func(v *view) [][]string {
		return per(v.kubelet.extraFlags(), func(a config.Arg) [][]string {
			return given(a.Name != "" && !slices.Contains(v.flags, a) && kubeletcheck.HasFlag(v.Target, a.Name), shown(a))
		})
	}, "the kubelet does not run with $1 of "+extraArgs, "/etc/default/kubelet, or a drop-in of the kubelet",
		"Airlift's unit reads it, so the first upgrade would start the kubelet with it", "remove it there; or, if the kubelet is to have it: systemctl daemon-reload; systemctl restart kubelet"),
	// Also in a file that the unit does not read now.
	find("KubeletFlagsGone", running, func(v *view) (list [][]string) {
		gone := v.kubelet.flags(v.Target).gone
		for _, s := range v.kubelet.flagSources() {
			for _, a := range s.flags {
				if a.Name == "" || kubeletcheck.HasFlag(v.Target, a.Name) {
					continue
				}
				gone = slices.DeleteFunc(gone, func(g config.Arg) bool { return g == a })
				effect, hint := "the first upgrade leaves it out", ""
				if s.stays {
					effect, hint = "the upgrade refuses it until it is removed there", "remove it from "+s.file
				}
				list = append(list, []string{shown(a), s.file, effect, hint})
			}
		}
		for _, a := range gone {
			list = append(list, []string{shown(a), commandLine, "the first upgrade leaves it out", ""})
		}
		return list
	}, "$1 is not a flag of the kubelet of $target", "$2", "$3", "$4"),
}

// A kubeletUnit is the kubelet's unit with its drop-ins, and its process.
type kubeletUnit struct {
	host    *hostFiles
	process Process
	unit    systemd.UnitState
}

func (in Input) kubelet(files *hostFiles) *kubeletUnit {
	return &kubeletUnit{files, in.Kubelet, in.Units[kubeletUnitName]}
}

// binary returns the path of the running kubelet, without links.
func (k *kubeletUnit) binary() string { return strings.TrimSuffix(k.process.Exe, deleted) }

// ExtraFlags returns the flags that the kubelet gets from elsewhere than kubeadm-flags.env when Airlift's unit starts it. It
// needs Root and Units.
func (in Input) ExtraFlags() ([]config.Arg, error) {
	k := in.kubelet(filesOf(in.Root))
	flags := k.extraFlags()
	return flags, k.host.err()
}

// written are the flags in KUBELET_KUBEADM_ARGS.
func (k *kubeletUnit) written() []config.Arg {
	return preflight.KubeletFlags(kubeletArgs, k.host.read(config.KubeletFlagsFile))
}

// flags returns the flags that the running kubelet keeps in a version, "v1.37.1". They may come from files that Airlift's unit does
// not read: from the unit itself, a drop-in, /etc/sysconfig/kubelet.
func (k *kubeletUnit) flags(version string) (f kubeletFlags) {
	written := k.written()
	// A flag may be given twice: each of the running ones comes from one place.
	unit := slices.Concat(written, k.extraFlags())
	var runs, more []config.Arg
	for _, a := range kubeletcheck.ParseFlags(k.process.Args) {
		if slices.Contains(fromUnit, a.Name) {
			continue
		}
		runs = append(runs, a)
		if i := slices.Index(unit, a); i >= 0 {
			unit = slices.Delete(unit, i, i+1)
		} else {
			more = append(more, a)
		}
	}
	for _, a := range slices.Concat(written, more) {
		switch {
		case !slices.Contains(runs, a):
			f.unused = append(f.unused, a)
		case a.Name != "" && !kubeletcheck.HasFlag(version, a.Name):
			f.gone = append(f.gone, a)
		default:
			f.kept = append(f.kept, a)
		}
	}
	f.changed = !slices.Equal(f.kept, written)
	return f
}

// writable reports whether an argument of the kubelet can be a word of KUBELET_KUBEADM_ARGS: systemd splits it at white space.
func writable(a config.Arg) bool {
	return a.Name != "" && !strings.ContainsAny(a.Name+a.Value, " \t\n\"'\\")
}

// A flagSource is a file that sets flags of the kubelet.
type flagSource struct {
	file  string
	flags []config.Arg
	// stays is set if the kubelet also gets these flags when Airlift's unit and drop-in start it.
	stays bool
}

// flagSources returns all files that may set flags of the kubelet, whether or not its unit reads them.
func (k *kubeletUnit) flagSources() []flagSource {
	list := []flagSource{
		{config.KubeletFlagsFile, k.written(), false},
		{preflight.DefaultKubelet, preflight.KubeletFlags(extraArgs, k.host.read(preflight.DefaultKubelet)), true},
	}
	addFile := func(file string, stays bool) {
		if slices.ContainsFunc(list, func(s flagSource) bool { return s.file == file }) {
			return
		}
		data := k.host.read(file)
		var flags []config.Arg
		for _, name := range sorted(preflight.EnvironmentFile(data)) {
			flags = append(flags, ofKubelet(preflight.KubeletFlags(name, data))...)
		}
		list = append(list, flagSource{file, flags, stays})
	}
	for _, file := range append([]string{k.unit.File}, k.unit.DropIns...) {
		if file == "" {
			continue
		}
		lines := k.host.directives(string(k.host.read(file)))
		var flags []config.Arg
		values := environment(lines)
		for _, name := range sorted(values) {
			flags = append(flags, ofKubelet(kubeletcheck.ParseFlags(preflight.Words(values[name])))...)
		}
		for _, d := range lines {
			if d.name == "ExecStart" && d.value != "" {
				words := slices.DeleteFunc(unitWords(d.value), func(word string) bool { return strings.HasPrefix(word, "$") })
				flags = append(flags, ofKubelet(kubeletcheck.ParseFlags(words[min(1, len(words)):]))...)
			}
		}
		list = append(list, flagSource{file, flags, k.stays(file)})
		for _, f := range k.host.environmentFiles(lines) {
			addFile(f, k.stays(file))
		}
	}
	for _, file := range []string{"/etc/sysconfig/kubelet", "/etc/kubernetes/kubelet.env"} { // which a unit may read again
		addFile(file, false)
	}
	return list
}

// stays reports whether a file of the kubelet's unit still counts next to Airlift's.
func (k *kubeletUnit) stays(file string) bool {
	return file != k.unit.File && path.Base(file) != base10
}

// extraFlags returns the flags in KUBELET_EXTRA_ARGS with Airlift's unit: from /etc/default/kubelet and the drop-ins that stay, in
// systemd's order: by the names of the files. Files precede the lines Environment=, and a later one precedes an earlier one
// (systemd.exec(5)).
func (k *kubeletUnit) extraFlags() []config.Arg {
	texts := map[string]string{base10: render.KubeletDropIn}
	for _, file := range k.unit.DropIns {
		if k.stays(file) {
			texts[path.Base(file)] = string(k.host.read(file))
		}
	}
	var all directives
	for _, name := range sorted(texts) {
		all = append(all, k.host.directives(texts[name])...)
	}
	for _, file := range slices.Backward(k.host.environmentFiles(all)) {
		if data := k.host.read(file); has(preflight.EnvironmentFile(data), extraArgs) {
			return preflight.KubeletFlags(extraArgs, data)
		}
	}
	return kubeletcheck.ParseFlags(preflight.Words(environment(all)[extraArgs]))
}

// replaces returns what a drop-in takes from Airlift's: the command, or one of its variables; "" if nothing.
func (k *kubeletUnit) replaces(file string) string {
	list := k.host.directives(string(k.host.read(file)))
	if len(list.values("ExecStart")) > 0 {
		return "ExecStart"
	}
	taken := environment(list)
	for _, d := range list {
		switch {
		case d.value == "" && (d.name == "Environment" || d.name == "EnvironmentFile"):
			return "an empty " + d.name + "=, which takes back those before it"
		case d.name == "UnsetEnvironment":
			for _, name := range strings.Fields(d.value) {
				taken[name] = ""
			}
		}
	}
	for _, f := range k.host.environmentFiles(list) {
		maps.Copy(taken, preflight.EnvironmentFile(k.host.read(f)))
	}
	for _, name := range []string{"KUBELET_KUBECONFIG_ARGS", "KUBELET_CONFIG_ARGS", kubeletArgs} {
		if has(taken, name) {
			return name
		}
	}
	return ""
}

// Directives are the lines NAME=VALUE of units, in order.
type directives []struct{ name, value string }

// values returns the values of a directive. An empty one removes those before it.
func (list directives) values(name string) (values []string) {
	for _, d := range list {
		switch {
		case d.name != name:
		case d.value == "":
			values = nil
		default:
			values = append(values, d.value)
		}
	}
	return values
}

// directives returns the directives of a unit's text, as systemd reads them (systemd.syntax(7)): white space around the equals
// sign does not count, a backslash at the end of a line continues it, and comments do not end what is continued. Specifiers of the
// host and of the unit are expanded (systemd.unit(5)).
func (h *hostFiles) directives(text string) (list directives) {
	var joined strings.Builder
	for line := range strings.Lines(text) {
		if is := strings.TrimSpace(line); strings.HasPrefix(is, "#") || strings.HasPrefix(is, ";") {
			continue
		}
		if before, ok := strings.CutSuffix(strings.TrimSuffix(line, "\n"), "\\"); ok {
			line = before + " "
		}
		joined.WriteString(line)
	}
	specifiers := strings.NewReplacer("%%", "%", "%H", h.text(hostnameFile), "%n", kubeletUnitName, "%N", "kubelet", "%p", "kubelet")
	for line := range strings.Lines(joined.String()) {
		if name, value, ok := strings.Cut(line, "="); ok {
			list = append(list, struct{ name, value string }{strings.TrimSpace(name), specifiers.Replace(strings.TrimSpace(value))})
		}
	}
	return list
}

// environmentFiles returns the paths in EnvironmentFile=, of which each may be a pattern.
func (h *hostFiles) environmentFiles(list directives) (files []string) {
	for _, value := range list.values("EnvironmentFile") {
		pattern := strings.TrimPrefix(strings.Trim(value, `"'`), "-")
		found := h.glob(pattern)
		if len(found) == 0 {
			found = []string{pattern}
		}
		files = append(files, found...)
	}
	return files
}

// environment returns the variables in Environment=, of which each may have several.
func environment(list directives) map[string]string {
	values := map[string]string{}
	for _, value := range list.values("Environment") {
		for _, word := range unitWords(value) {
			if name, value, ok := strings.Cut(word, "="); ok {
				values[name] = value
			}
		}
	}
	return values
}

// unitWords splits the value of a directive as systemd does: at white space outside quotes. A backslash escapes a quote, a
// backslash or a space, also in quotes; other escapes stay as they are.
func unitWords(value string) (words []string) {
	var word strings.Builder
	var quote byte
	begun := false
	end := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	for i := 0; i < len(value); i++ {
		switch ch := value[i]; {
		case ch == '\\' && i+1 < len(value) && strings.ContainsRune("\"'\\ s", rune(value[i+1])):
			i++
			escaped := value[i]
			if escaped == 's' {
				escaped = ' '
			}
			word.WriteByte(escaped)
			begun = true
		case quote != 0 && ch == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(ch)
		case ch == '"' || ch == '\'':
			quote, begun = ch, true
		case ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r':
			end()
		default:
			word.WriteByte(ch)
			begun = true
		}
	}
	end()
	return words
}

// ofKubelet returns the flags among arguments, except for the paths of the drop-in.
func ofKubelet(flags []config.Arg) []config.Arg {
	return slices.DeleteFunc(flags, func(a config.Arg) bool { return a.Name == "" || slices.Contains(fromUnit, a.Name) })
}

// shown is a flag as on a command line, without secrets.
func shown(a config.Arg) string {
	word := "--" + a.Name + "=" + a.Value
	if a.Name == "" {
		word = a.Value
	}
	return redact.Arguments([]string{word}, false)[0]
}
