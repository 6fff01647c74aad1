package adoption

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/installer/host/systemd"
	"airlift/installer/kubelet"
	"airlift/installer/preflight"
	"airlift/installer/redact"
	"airlift/installer/render"
)

// KubeletFlags are the flags of a kubelet that somebody else started, as an upgrade keeps them.
type KubeletFlags struct {
	// Kept are the flags that KUBELET_KUBEADM_ARGS in kubeadm-flags.env must have, so that the kubelet has the same flags
	// when Airlift's unit starts it.
	Kept []config.Arg
	// Gone are flags that the kubelet of the new version does not have. They are not in Kept.
	Gone []config.Arg
	// Unused are flags in kubeadm-flags.env with which the kubelet does not run. They are not in Kept.
	Unused []config.Arg
	// Changed is set if kubeadm-flags.env does not have exactly the flags in Kept.
	Changed bool
}

// fromUnit are the flags that the kubelet's drop-in has, Airlift's and kubeadm's.
var fromUnit = []string{"bootstrap-kubeconfig", "kubeconfig", "config"}

// A kubeletUnit is the kubelet's unit with its drop-ins, and its process.
type kubeletUnit struct {
	host    *hostFiles
	process Process
	unit    systemd.UnitState
}

func (in Input) kubelet(files *hostFiles) *kubeletUnit {
	return &kubeletUnit{files, in.Kubelet, in.Units["kubelet.service"]}
}

// KubeletFlags returns the flags that the running kubelet keeps in a version, "v1.37.1". Its flags may come from files that
// Airlift's unit does not read: from the unit itself, a drop-in, /etc/sysconfig/kubelet. It needs Root, Kubelet and Units.
func (in Input) KubeletFlags(version string) (KubeletFlags, error) {
	k := in.kubelet(filesOf(in.Root))
	f := k.kubeletFlags(version)
	return f, k.host.err()
}

// ExtraFlags returns the flags that the kubelet gets from elsewhere than kubeadm-flags.env when Airlift's unit starts it. It
// needs Root and Units.
func (in Input) ExtraFlags() ([]config.Arg, error) {
	k := in.kubelet(filesOf(in.Root))
	flags := k.extraFlags()
	return flags, k.host.err()
}

func (k *kubeletUnit) kubeletFlags(version string) (f KubeletFlags) {
	written := preflight.KubeletFlags("KUBELET_KUBEADM_ARGS", k.host.read(config.KubeletFlagsFile))
	// A flag may be given twice: each of the running ones comes from one place.
	unit := slices.Concat(written, k.extraFlags())
	var runs, more []config.Arg
	for _, a := range kubelet.ParseFlags(k.process.Args) {
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
	for _, a := range written {
		if !slices.Contains(runs, a) {
			f.Unused = append(f.Unused, a)
		}
	}
	for _, a := range slices.Concat(written, more) {
		switch {
		case slices.Contains(f.Unused, a):
		case a.Name != "" && !kubelet.HasFlag(version, a.Name):
			f.Gone = append(f.Gone, a)
		default:
			f.Kept = append(f.Kept, a)
		}
	}
	f.Changed = !slices.Equal(f.Kept, written)
	return f
}

// Writable reports whether an argument of the kubelet can be a word of KUBELET_KUBEADM_ARGS: systemd splits it at white space.
func Writable(a config.Arg) bool {
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
func (k *kubeletUnit) flagSources() (list []flagSource) {
	add := func(file string, stays bool, flags []config.Arg) {
		if len(flags) > 0 {
			list = append(list, flagSource{file, flags, stays})
		}
	}
	add(config.KubeletFlagsFile, false, preflight.KubeletFlags("KUBELET_KUBEADM_ARGS", k.host.read(config.KubeletFlagsFile)))
	add(preflight.DefaultKubelet, true, preflight.KubeletFlags("KUBELET_EXTRA_ARGS", k.host.read(preflight.DefaultKubelet)))
	known := []string{config.KubeletFlagsFile, preflight.DefaultKubelet}
	unit := k.unit
	for _, file := range append([]string{unit.File}, unit.DropIns...) {
		if file == "" {
			continue
		}
		list := k.host.directives(string(k.host.read(file)))
		var flags []config.Arg
		values := environment(list)
		for _, name := range sorted(values) {
			flags = append(flags, ofKubelet(kubelet.ParseFlags(preflight.Words(values[name])))...)
		}
		add(file, k.dropInStays(file), append(flags, commandLine(list)...))
		for _, f := range k.host.environmentFiles(list) {
			if !slices.Contains(known, f) {
				known = append(known, f)
				add(f, k.dropInStays(file), variables(k.host.read(f)))
			}
		}
	}
	for _, file := range []string{"/etc/sysconfig/kubelet", "/etc/kubernetes/kubelet.env"} { // which a unit may read again
		if !slices.Contains(known, file) {
			add(file, false, variables(k.host.read(file)))
		}
	}
	return list
}

// dropInStays reports whether a file of the kubelet's unit still counts next to Airlift's.
func (k *kubeletUnit) dropInStays(file string) bool {
	return file != k.unit.File && path.Base(file) != path.Base(render.KubeletDropInPath)
}

// extraFlags returns the flags in KUBELET_EXTRA_ARGS with Airlift's unit: from /etc/default/kubelet and the drop-ins that stay.
// Files precede the lines Environment=, and a later one precedes an earlier one (systemd.exec(5)).
func (k *kubeletUnit) extraFlags() []config.Arg {
	const name = "KUBELET_EXTRA_ARGS"
	var all []directive
	for _, text := range k.fragments() {
		all = append(all, k.host.directives(text)...)
	}
	for _, file := range slices.Backward(k.host.environmentFiles(all)) {
		if data := k.host.read(file); sets(data, name) {
			return preflight.KubeletFlags(name, data)
		}
	}
	return kubelet.ParseFlags(preflight.Words(environment(all)[name]))
}

// fragments returns the texts of the drop-ins of the kubelet when Airlift's unit starts it, in systemd's order: by the names
// of the files.
func (k *kubeletUnit) fragments() []string {
	texts := map[string]string{path.Base(render.KubeletDropInPath): render.KubeletDropIn}
	for _, file := range k.unit.DropIns {
		if k.dropInStays(file) {
			texts[path.Base(file)] = string(k.host.read(file))
		}
	}
	var list []string
	for _, name := range sorted(texts) {
		list = append(list, texts[name])
	}
	return list
}

// sets reports whether an environment file sets a variable.
func sets(file []byte, name string) bool {
	return slices.ContainsFunc(preflight.EnvironmentFile(file), func(v preflight.Variable) bool { return v.Name == name })
}

// A directive is a line NAME=VALUE of a unit.
type directive struct{ name, value string }

// directives returns the directives of a unit's text, as systemd reads them (systemd.syntax(7)): white space around the equals
// sign does not count, a backslash at the end of a line continues it, and comments do not end what is continued. Specifiers of the
// host and of the unit are expanded (systemd.unit(5)).
func (h *hostFiles) directives(text string) (list []directive) {
	specifiers := strings.NewReplacer("%%", "%", "%H", strings.TrimSpace(string(h.read("/proc/sys/kernel/hostname"))), "%n", "kubelet.service", "%N", "kubelet", "%p", "kubelet")
	for line := range strings.Lines(joined(text)) {
		if name, value, ok := strings.Cut(line, "="); ok {
			list = append(list, directive{strings.TrimSpace(name), specifiers.Replace(strings.TrimSpace(value))})
		}
	}
	return list
}

// environmentFiles returns the paths in EnvironmentFile=, of which each may be a pattern. An empty one removes those before it.
func (h *hostFiles) environmentFiles(list []directive) (files []string) {
	for _, d := range list {
		if d.name != "EnvironmentFile" {
			continue
		}
		pattern := strings.TrimPrefix(strings.Trim(d.value, `"'`), "-")
		found, err := fs.Glob(h.files, inRoot(pattern))
		switch {
		case d.value == "":
			files = nil
		case err == nil && len(found) > 0:
			for _, file := range found {
				files = append(files, "/"+file)
			}
		default:
			files = append(files, pattern)
		}
	}
	return files
}

// environment returns the variables in Environment=, of which each may have several. An empty one removes those before it.
func environment(list []directive) map[string]string {
	values := map[string]string{}
	for _, d := range list {
		if d.name != "Environment" {
			continue
		}
		if d.value == "" {
			clear(values)
		}
		for _, word := range unitWords(d.value) {
			if name, value, ok := strings.Cut(word, "="); ok {
				values[name] = value
			}
		}
	}
	return values
}

// joined joins lines that end with a backslash, without comments, as systemd does.
func joined(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if is := strings.TrimSpace(line); strings.HasPrefix(is, "#") || strings.HasPrefix(is, ";") {
			continue
		}
		if before, ok := strings.CutSuffix(strings.TrimSuffix(line, "\n"), "\\"); ok {
			line = before + " "
		}
		out.WriteString(line)
	}
	return out.String()
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

// variables returns the flags in all variables of an environment file, except for the paths of the drop-in.
func variables(file []byte) (flags []config.Arg) {
	seen := map[string]bool{}
	for _, v := range preflight.EnvironmentFile(file) {
		if !seen[v.Name] {
			seen[v.Name] = true
			flags = append(flags, ofKubelet(preflight.KubeletFlags(v.Name, file))...)
		}
	}
	return flags
}

// commandLine returns the flags that a unit writes in ExecStart itself.
func commandLine(list []directive) (flags []config.Arg) {
	for _, d := range list {
		if d.name != "ExecStart" || d.value == "" {
			continue
		}
		words := slices.DeleteFunc(unitWords(d.value), func(word string) bool { return strings.HasPrefix(word, "$") })
		flags = append(flags, ofKubelet(kubelet.ParseFlags(words[min(1, len(words)):]))...)
	}
	return flags
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

func texts(flags []config.Arg) string {
	var list []string
	for _, a := range flags {
		list = append(list, shown(a))
	}
	return strings.Join(list, " ")
}

// sources returns the files that set a flag, by name.
func (k *kubeletUnit) sources(name string) (files []string, stays bool) {
	for _, s := range k.flagSources() {
		if slices.ContainsFunc(s.flags, func(a config.Arg) bool { return a.Name == name }) {
			files, stays = append(files, s.file), stays || s.stays
		}
	}
	if len(files) == 0 {
		files = []string{"the kubelet's command line"}
	}
	return files, stays
}

// carriedFlags reports flags that come from elsewhere than Airlift's unit reads them, and flags that the new kubelet
// does not have. The second is looked for in every file, also in one that the unit does not read now.
func carriedFlags(v *view) {
	if v.Kubelet.PID == 0 {
		return
	}
	f := v.kubelet.kubeletFlags(v.Target)
	written := preflight.KubeletFlags("KUBELET_KUBEADM_ARGS", v.host.read(config.KubeletFlagsFile))
	for _, a := range f.Kept {
		if !Writable(a) {
			v.refuse("KubeletFlags", "the kubelet runs with the argument "+shown(a), "the kubelet's command line", "it cannot be written to "+config.KubeletFlagsFile+", which Airlift's unit reads",
				"set the field of the KubeletConfiguration instead, remove the argument from the kubelet's unit, and run: systemctl daemon-reload; systemctl restart kubelet")
		}
		if slices.Contains(written, a) {
			continue
		}
		files, _ := v.kubelet.sources(a.Name)
		v.find("KubeletFlags", "the kubelet runs with "+shown(a), strings.Join(files, ", "), "the first upgrade writes it to "+config.KubeletFlagsFile+", which its unit reads", "")
	}
	if unused := slices.DeleteFunc(f.Unused, func(a config.Arg) bool { return !kubelet.HasFlag(v.Target, a.Name) }); len(unused) > 0 {
		v.find("KubeletFlagsUnused", "the kubelet does not run with "+texts(unused), config.KubeletFlagsFile, "the first upgrade removes it there: the kubelet keeps the flags that it has now", "")
	}
	runs := kubelet.ParseFlags(v.Kubelet.Args)
	for _, a := range v.kubelet.extraFlags() {
		if a.Name != "" && !slices.Contains(runs, a) && kubelet.HasFlag(v.Target, a.Name) {
			v.refuse("KubeletExtraArgs", "the kubelet does not run with "+shown(a)+" of KUBELET_EXTRA_ARGS", "/etc/default/kubelet, or a drop-in of the kubelet",
				"Airlift's unit reads it, so the first upgrade would start the kubelet with it", "remove it there; or, if the kubelet is to have it: systemctl daemon-reload; systemctl restart kubelet")
		}
	}
	gone := map[config.Arg]bool{}
	for _, s := range v.kubelet.flagSources() {
		for _, a := range s.flags {
			if a.Name == "" || kubelet.HasFlag(v.Target, a.Name) {
				continue
			}
			gone[a] = true
			effect, hint := "the first upgrade leaves it out", ""
			if s.stays {
				effect, hint = "the upgrade refuses it until it is removed there", "remove it from "+s.file
			}
			v.find("KubeletFlagsGone", shown(a)+" is not a flag of the kubelet of "+v.Target, s.file, effect, hint)
		}
	}
	for _, a := range f.Gone {
		if !gone[a] {
			v.find("KubeletFlagsGone", shown(a)+" is not a flag of the kubelet of "+v.Target, "the kubelet's command line", "the first upgrade leaves it out", "")
		}
	}
}
