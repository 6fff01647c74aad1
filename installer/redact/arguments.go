package redact

import (
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	flagWord    = regexp.MustCompile(`^(--?)([a-z][a-z0-9]*(?:[-_.][a-zA-Z0-9]+)*|[A-Za-z]+(?:[-_][A-Za-z]+)*)(=(?s:.*))?$`)
	programWord = regexp.MustCompile(`^[-+:@!|]*[A-Za-z0-9._/-]+$`)
	expansion   = regexp.MustCompile(`^\$\{?[A-Z][A-Z0-9_]*\}?$`)
)

// Arguments redacts a command line: it keeps the program, if the first word is one, the names
// of flags, and the values of flags that are known to be harmless.
func Arguments(words []string, program bool) []string {
	out := make([]string, len(words))
	value, known := false, false // the last word was a flag without a value, and a known one
	for i, word := range words {
		m := flagWord.FindStringSubmatch(word)
		switch {
		case i == 0 && program && programWord.MatchString(word), expansion.MatchString(word):
			out[i] = word
		case m != nil && m[3] != "" && (!value && (m[1] == "--" || len(m[2]) == 1) || harmlessFlags[m[2]]): // not -pSEC=RET
			out[i] = m[1] + m[2] + "=" + flagValue(m[2], m[3][1:])
		case m != nil && m[3] == "" && (!value && (m[1] == "--" || len(m[2]) == 1) || harmlessFlags[m[2]]): // not -pSECRET
			out[i] = word
		case value && known:
			out[i] = plain(word)
		default:
			out[i] = Marker
		}
		value = m != nil && m[3] == "" && !harmlessFlags[m[2]] || m != nil && m[3] == "" && separateValues[m[2]]
		known = m != nil && separateValues[m[2]]
	}
	return out
}

func flagValue(name, value string) string {
	if harmlessFlags[name] {
		return plain(value)
	}
	return scalar(value)
}

// scalar redacts a value of an unknown name.
func scalar(value string) string {
	s, _ := unknown(value).(string)
	return s
}

// variableValue redacts the value of an environment variable.
func variableValue(name, value string) string {
	switch {
	case proxyVariables[name]:
		return proxy(value)
	case argumentVariables[name]:
		return quote(Arguments(splitWords(value), false))
	case harmlessVariables[name]:
		return plain(value)
	}
	return scalar(value)
}

// proxy keeps the host and the port of a proxy.
func proxy(value string) string {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || strings.Contains(value, "@") {
		return scalar(value)
	}
	return value
}

// variable redacts a variable of a container.
func variable(v any) any { return pair(variableValue)(v) }

// pair redacts an object with a name and a value. Without a rule, the value is taken out.
func pair(rule func(name, value string) string) func(any) any {
	return func(v any) any {
		m, _ := v.(map[string]any)
		name, _ := m["name"].(string)
		return fields(v, func(field string, v any) any {
			value, isString := v.(string)
			switch {
			case field == "value" && isString && rule != nil:
				return rule(name, value)
			case field == "value":
				return unknown(v)
			case field == "name" && isString, field == "mergeMethod" && isString:
				return plain(value)
			case field == "valueFrom":
				return typed(v, reflect.TypeFor[corev1.EnvVarSource]())
			}
			return unknown(v)
		})
	}
}

// httpGet redacts the request of a probe. It keeps words of common endpoints in the path.
func httpGet(v any) any {
	return fields(v, func(name string, v any) any {
		if text, ok := v.(string); ok && name == "path" {
			return endpoint(text)
		}
		return fieldOf(reflect.TypeFor[corev1.HTTPGetAction](), name, v)
	})
}

// harmlessQuery matches a field of the queries of components' probes.
var harmlessQuery = regexp.MustCompile(`^(?:verbose|exclude|serializable|timeout)(?:=[A-Za-z0-9-]{0,16})?$`)

func endpoint(text string) string {
	begin, query, hasQuery := strings.Cut(text, "?")
	switch {
	case !isEndpoint(begin):
		return "/" + Marker
	case hasQuery && slices.ContainsFunc(strings.Split(query, "&"), func(field string) bool { return !harmlessQuery.MatchString(field) }):
		return begin + "?" + Marker
	}
	return text
}

// isEndpoint reports whether a path has only words of usual endpoints.
func isEndpoint(text string) bool {
	return !slices.ContainsFunc(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("/-_.", r) }), func(word string) bool { return !endpointWords[word] })
}

// flagList redacts kubeadm's extraArgs: a list of names and values, or a map.
func flagList(v any) any {
	switch v := v.(type) {
	case []any:
		return each(v, pair(flagValue))
	case map[string]any:
		return eachField(v, func(name string, v any) any {
			if value, ok := v.(string); ok {
				return flagValue(name, value)
			}
			return unknown(v)
		})
	}
	return unknown(v)
}

// argumentList redacts a command or its arguments in an object.
func argumentList(program bool) func(any) any {
	return func(v any) any {
		switch v := v.(type) {
		case string: // the command of a kubeconfig
			if programWord.MatchString(v) {
				return v
			}
		case []any:
			words := make([]string, len(v))
			for i, item := range v {
				words[i], _ = item.(string)
			}
			out := make([]any, len(v))
			for i, word := range Arguments(words, program) {
				out[i] = word
			}
			return out
		}
		return unknown(v)
	}
}

// plainMap redacts labels and quantities: their values have a narrow syntax.
func plainMap(v any) any {
	return fields(v, func(name string, v any) any {
		if s, ok := v.(string); ok && !secretName.MatchString(name) {
			return plain(s)
		}
		return unknown(v)
	})
}

// selector redacts the selector of a Service, which is a map of labels, or of another object.
func selector(v any) any {
	m, _ := v.(map[string]any)
	for _, value := range m {
		if _, ok := value.(string); !ok {
			return typed(v, reflect.TypeFor[metav1.LabelSelector]())
		}
	}
	return plainMap(v)
}

// mountOptions redacts a list of options.
func mountOptions(v any) any {
	list, ok := v.([]any)
	if !ok {
		return unknown(v)
	}
	return each(list, func(v any) any {
		s, _ := v.(string)
		return mountOption(s)
	})
}

var harmlessOption = regexp.MustCompile(`^([a-z_]{2,16}|(size|mode|uid|gid|pri|subvol|subvolid|errors|commit|compress|data|vers|nfsvers|proto|timeo|retrans|rsize|wsize|port|sec|x-systemd\.[a-z-]+)=[A-Za-z0-9.:/@_-]{1,64})$`)

func mountOption(option string) string {
	name, _, hasValue := strings.Cut(option, "=")
	switch {
	case harmlessOption.MatchString(option):
		return option
	case hasValue && optionName.MatchString(name):
		return name + "=" + Marker
	}
	return Marker
}

var optionName = regexp.MustCompile(`^[a-z][a-z0-9._-]{0,24}$`)

// mounts redacts a file like /etc/fstab: options with values that are not known are taken out.
func mounts(text []byte) []byte {
	return oneMarker(eachLine(text, func(line string) string {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			return line
		}
		if len(fields) < 4 || len(fields) > 6 || !mountPoint.MatchString(fields[1]) || !fileSystem.MatchString(fields[2]) {
			return Marker
		}
		options := strings.Split(fields[3], ",")
		for i, o := range options {
			options[i] = mountOption(o)
		}
		fields[3] = strings.Join(options, ",")
		if !device.MatchString(fields[0]) {
			fields[0] = Marker
		}
		for i := range fields[4:] {
			fields[4+i] = plain(fields[4+i])
		}
		return strings.Join(fields, "\t")
	}))
}

var (
	mountPoint = regexp.MustCompile(`^(/[\w./-]*|none|swap)$`)
	fileSystem = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,31}$`)
	device     = regexp.MustCompile(`^(/[\w./-]*|(UUID|LABEL|PARTUUID|PARTLABEL)=[\w.-]+|[\w.-]+(:/[\w./-]*)?|//[\w.-]+/[\w./-]*)$`)
)

// rootDevice matches the kernel's names of a disk: an address in a network may have a password.
var rootDevice = regexp.MustCompile(`^(?:/dev/[\w./-]*|(?:UUID|LABEL|PARTUUID|PARTLABEL)=(?:[\w.-]+|` + regexp.QuoteMeta(Marker) + `))$`)

// kernelArguments redacts the kernel's command line.
func kernelArguments(text []byte) []byte {
	return eachLine(text, func(line string) string {
		words := splitWords(line)
		for i, word := range words {
			name, value, hasValue := strings.Cut(word, "=")
			switch {
			case kernelNames[name] && (name != "root" || rootDevice.MatchString(value)):
				words[i] = plain(word)
			case hasValue && optionName.MatchString(name):
				words[i] = name + "=" + Marker
			default:
				words[i] = Marker
			}
		}
		return quote(words)
	})
}
