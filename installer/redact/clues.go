package redact

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// A clue is what shows a secret; the secret begins with the last group of the pattern, or with
// the match. A text without any of needs, in lower case, does not match. If accept is there, it
// decides about a match, from the groups and the text from the secret on.
type clue struct {
	needs   []string
	pattern *regexp.Regexp
	accept  func(groups []string, rest string) bool
}

// window limits how much of a text one decision reads: otherwise a long line takes quadratic time.
const window = 4 << 10

func head(text string) string { return text[:min(len(text), window)] }

var clues = []clue{
	{[]string{"cmd=", "command"}, regexp.MustCompile(`(?:\bcmd=|\bwith command )\[\\*"?[^\s",\]]+[",\\ ]+([^\s",\\\]].*)`), nil}, // the arguments of a probe
	{[]string{"-p"}, regexp.MustCompile(`(?:^|[\s"',\[])-u[\w.-]+[\s"',]+(?:\S.*[\s"',])?-p([^\s"',])`), nil},                    // mysql -uroot -pSECRET
	{[]string{"-p"}, regexp.MustCompile(`(?:^|[\s"'\[(,])-p([A-Za-z][^\s"',=-]*[0-9][^\s"',]*)`), nil},                           // -pSECRET
	{[]string{"@"}, regexp.MustCompile(`(?:^|[\s"'(\[=/,])[\w.+-]+:([^\s:/@"',]+@[\w.\[-]+)`), func(g []string, _ string) bool {
		return !strings.HasSuffix(g[1], "@sha256")
	}}, // robot:SECRET@registry
	{[]string{"certificate key"}, regexp.MustCompile(`(?i)\bcertificate key[: ]+([0-9a-f]{64})\b`), nil},
	{[]string{"age-"}, regexp.MustCompile(`(?i)AGE-(?:SECRET-KEY|PLUGIN)-[A-Z0-9-]+`), nil},
	{[]string{"."}, regexp.MustCompile(`\b[a-z0-9]{6}\.([a-z0-9]{16})\b`), nil}, // a bootstrap token: its first part is public
	{[]string{"eyj"}, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}`), nil},
	{vendorPrefixes, regexp.MustCompile(`(?i)\b(?:` + strings.ReplaceAll(strings.Join(vendorPrefixes, "|"), ".", `\.`) + `)[A-Za-z0-9_-]{8,}`), nil},
	{[]string{"bearer", "basic", "digest", "negotiate", "apikey"}, regexp.MustCompile(`(?i)\b(?:bearer|basic|digest|negotiate|apikey)(?:[ :=]|\\")+([^\s:"'=,;]+)`), notOrdinary},
	{[]string{"pass"}, regexp.MustCompile(`(?i)\b(?:password|passwd|passphrase|passwort)s?(?: (?:is|was|of|for))?[ \t]+([^\s:=]\S*)`), notOrdinary},
	{[]string{"token", "key"}, regexp.MustCompile(`(?i)\b(?:token|secret key|api key|access key)(?: is| was)?[ \t]+["'\x60]([^\s"'\x60]+)`), nil},
	{[]string{"token"}, regexp.MustCompile(`(?i)\btoken\s+([a-z0-9._~+/-]*[a-z][0-9][a-z0-9._~+/-]*|[a-z0-9._~+/-]*[0-9][a-z][a-z0-9._~+/-]*)`), nil},
	{[]string{"pass", "pwd", "key", "token", "secret", "cred", "auth"}, regexp.MustCompile(`\b([A-Za-z]+(?:_[A-Za-z]+)+|[a-z]+(?:[A-Z][a-z]+)+)[ \t]+["']?([^\s"']*[0-9][^\s"']*)`), func(g []string, _ string) bool { return suspiciousName(g[1]) }},
	{[]string{"-u", "--user", "sshpass"}, regexp.MustCompile(`(?:(?:^|[\s"',\[])(?:-u|--user)["',= ]+["']?([^\s:"']+:\S+)|sshpass\s+-p\s*(\S.*))`), nil},
	{[]string{"//", `\/\/`}, regexp.MustCompile(`(?is)[a-z][a-z0-9+.-]*:(?:/|\\/){2}(.)`), hasUser},
	{[]string{"http"}, regexp.MustCompile(`(?i)\bhttps?://[^\s"'?]*\?([^\s"']+)`), hasSecretQuery},
	{[]string{"http"}, regexp.MustCompile(`(?i)\bhttps?://[^/\s"',]+/([^\s"'?]+)`), hasSecretPath},
	{[]string{"-"}, regexp.MustCompile(`(?s)(?:^|[\s"'\[(,])-{1,2}([A-Za-z][A-Za-z0-9._-]*)(=|\\*["']?,?\s+\\*["']?|\\*["'],\\*["'])(\S)`), func(g []string, rest string) bool {
		return !harmlessFlags[g[1]] && !harmlessValue(g[1], rest) && (g[2] == "=" || suspiciousName(g[1]))
	}},
}

// vendorPrefixes begin the keys and tokens of cloud providers and other services.
var vendorPrefixes = strings.Fields("akia asia aiza ya29. ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- xoxa- xoxb- xoxp- xoxr- xoxs- hvs. hvb. dckr_pat_ npm_ sk- sk_live_ rk_live_ sg. pypi- dop_v1_ hf_ glrt- tskey- shpat_ dapi whsec_ glsa_ xapp-")

func notOrdinary(g []string, _ string) bool { return !ordinaryWord.MatchString(g[1]) }

// ordinaryWord matches words that follow "bearer" or "password" in messages.
var ordinaryWord = regexp.MustCompile(`(?i)^(?:tokens?|auth|authentication|authenticator|authorization|requests?|file|files|is|was|for|of|has|and|or|not|the|a|to|in|must|cannot|hash|hashes|prompt)[,.;)"']*$`)

// suspicion returns where a secret begins in a text, or -1.
func suspicion(text string) int {
	first := -1
	see := func(at int) {
		if at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	see(keyBlock(text))
	see(encodedWord(text))
	see(assignedSecret(text))
	folded := strings.ToLower(text)
	for _, c := range clues {
		if slices.ContainsFunc(c.needs, func(part string) bool { return strings.Contains(folded, part) }) {
			see(c.find(text))
		}
	}
	return first
}

// keyBlock returns where a PEM block begins that is not public, or -1.
func keyBlock(text string) int {
	const begin = "-----BEGIN "
	for from := 0; ; {
		i := strings.Index(text[from:], begin)
		if i < 0 {
			return -1
		}
		kind, _, _ := strings.Cut(text[from+i+len(begin):], "-----")
		if !slices.Contains(publicBlocks, kind) {
			return from + i
		}
		from += i + len(begin)
	}
}

// encodedWord returns where a long word begins that is a secret in base64, or -1.
func encodedWord(text string) int {
	start := 0
	for i := 0; i <= len(text); i++ {
		if i < len(text) && (text[i] >= 'a' && text[i] <= 'z' || text[i] >= 'A' && text[i] <= 'Z' || text[i] >= '/' && text[i] <= '9' || text[i] == '+' || text[i] == '_' || text[i] == '-') {
			continue
		}
		if i-start >= 40 && looksEncoded(text[start:i]) {
			return start
		}
		start = i + 1
	}
	return -1
}

// assignedSecret returns where the value of a name begins that looks like that of a secret, or -1.
func assignedSecret(text string) int {
	for i := 0; i < len(text); i++ {
		if text[i] != ':' && text[i] != '=' && text[i] != '>' {
			continue
		}
		before := strings.TrimRight(text[:i], " \t")
		bare := strings.TrimRight(before, "\"'`\\]")
		start := strings.LastIndexFunc(bare, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '.' && r != '-'
		})
		name := strings.TrimLeft(bare[start+1:], "0123456789.-")
		last := byte(0)
		if start >= 0 {
			last = bare[start]
		}
		switch {
		case name == "", text[i] == '>' && last != '<', last == '/' && (bare != before || strings.HasSuffix(name, ".key")): // a path
			continue
		}
		value := strings.TrimLeft(text[i+1:], "=>")
		value = strings.TrimLeft(value, " \t\n")
		if begin := head(value); !harmlessFlags[name] && secretAssignment(name, text[i], begin) && !harmlessValue(name, begin) {
			return len(text) - len(value)
		}
	}
	return -1
}

// find returns where the first accepted match begins, or -1.
func (c clue) find(text string) int {
	for from := 0; from < len(text); {
		m := c.pattern.FindStringSubmatchIndex(text[from:])
		if m == nil {
			return -1
		}
		last := len(m) - 2
		for m[last] < 0 {
			last -= 2
		}
		groups := make([]string, len(m)/2)
		for i := range groups {
			if m[2*i] >= 0 {
				groups[i] = text[from+m[2*i] : from+m[2*i+1]]
			}
		}
		if c.accept == nil || c.accept(groups, head(text[from+m[last]:])) {
			return from + m[last]
		}
		// Go on after the name: its value may have another one.
		next := m[1]
		if last > 0 && m[last] > m[0] {
			next = m[last]
		}
		from += max(next, 1)
	}
	return -1
}

// harmlessValue reports whether a value is no secret for any name: yes or no, nothing; or a
// path if the name asks for one.
func harmlessValue(name, value string) bool {
	value = strings.TrimLeft(value, `\"'`)
	word := value
	if i := strings.IndexFunc(value, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`,;"'\)}]`, r) }); i >= 0 {
		word = value[:i]
	}
	switch strings.ToLower(word) {
	case "simple": // etcd's kind of tokens
		return name == "auth-token"
	case "true", "false", "null", "nil", "<nil>", "none":
		return true
	}
	return hostPath.MatchString(word) && pathName.MatchString(name)
}

var (
	pathName = regexp.MustCompile(`(?i)(file|path|dir|directory|socket|cert|certificate|ca|key)s?$`)
	hostPath = regexp.MustCompile(`^/(?:etc|var|run|usr|opt|home|root|tmp|proc|sys|dev|mnt|srv)/[\w./@-]*$`)
)

// secretAssignment reports whether a name that has a value is that of a secret: by its words;
// or as a variable of the environment, unless it is known to be harmless.
func secretAssignment(name string, separator byte, value string) bool {
	base := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case strings.HasPrefix(value, "//"), goType.MatchString(name): // a URL; *v1.Secret
		return false
	case strings.EqualFold(base, "value") || base == "Values":
		return strings.TrimSpace(value) != ""
	case emptyValue.MatchString(value), failure.MatchString(value):
		return false
	case strings.EqualFold(base, "key"):
		return !objectKey.MatchString(value) && (value != "" || separator != '>')
	case strings.HasSuffix(base, "dockerconfigjson"), strings.HasSuffix(base, "dockercfg"):
		return true
	case suspiciousName(base):
		return strings.Trim(strings.TrimSpace(value), `"'\`) != "" && !strings.HasPrefix(value, `"",`) || value == "" && separator != '>'
	}
	return separator == '=' && envName.MatchString(base) && !harmlessVariables[base] && !argumentVariables[base] && !packetNames[base] && value != "" && value[0] != '='
}

var (
	envName = regexp.MustCompile(`^[A-Z][A-Z0-9_]{2,}$`)
	goType  = regexp.MustCompile(`^(?:v[0-9][a-z0-9]*|core)\.[A-Z]`)
	// emptyValue matches nothing in quotes, as in a structured log: secret="" err=…
	emptyValue = regexp.MustCompile(`^(?:""|\\+"\\+"|\\*'')(?:[\s,})\]\\]|$)`)
	// failure matches a reason: failed to fetch token: serviceaccounts "x" is forbidden.
	failure = regexp.MustCompile(`^(?:[a-z]+ \\*"[a-z0-9.-]+\\*" (?:is forbidden|not found)|server message: |Get \\*"https?://|open /[\w./-]+: (?:no such file or directory|permission denied))`)
	// objectKey matches the key of an object in a log of Kubernetes: "kube-system/coredns".
	objectKey = regexp.MustCompile(`^\\?"?(?:[a-z0-9.-]+/[a-z0-9.:-]+|/registry/[a-z0-9./:-]*|node-role\.[a-z0-9./-]+|\(null\)|\{.*|&.*)\\?"?(?:[\s,}\])]|$)`)
)

// hasUser reports whether a URL has a user, a token or a password.
func hasUser(_ []string, rest string) bool {
	rest = strings.ReplaceAll(rest, `\/`, "/")
	authority := rest
	if i := strings.IndexAny(rest, ",/?# \t\"'"); i >= 0 {
		authority = rest[:i]
	}
	if at := strings.Index(rest, "@"); at >= 0 && !digestOrName.MatchString(rest[at:]) {
		return true
	}
	host := authority[strings.LastIndexByte(authority, ']')+1:]
	_, port, ok := strings.Cut(host, ":")
	return ok && !portWord.MatchString(port) && !strings.HasSuffix(authority, "]")
}

var (
	digestOrName = regexp.MustCompile(`^@(?:sha256:|sha512:|v?[0-9.]+[/ ]|\.service|-)`)
	portWord     = regexp.MustCompile(`^[0-9]{0,5}[\]),.;:\\]*$|^[0-9]{1,5}:|^\$|^%`)
)

// Queries and paths of URLs that are harmless.
var (
	queryNames = set(`limit resourceVersion resourceVersionMatch timeout timeoutSeconds watch allowWatchBookmarks sendInitialEvents fieldSelector labelSelector fieldManager fieldValidation force
		propagationPolicy verbose exclude container follow tailLines pretty dryRun ns n`)
	pathStart = regexp.MustCompile(`^(?:api/v1\b|apis/[a-z0-9.-]+/v[0-9][a-z0-9]*\b|healthz|livez|readyz|version|metrics|openapi|v2(?:/|$)|dashboard|stats|pods|configz|debug|docs/|health$|logs?$|[\w.-]+/?[\\),.:;\]}]*$)`)
	pathHosts = regexp.MustCompile(`(?i)^https?://(?:[a-z0-9-]+\.)*(?:kubernetes\.io|k8s\.io|github\.com|etcd\.io|containerd\.io|coredns\.io|cncf\.io|debian\.org|ubuntu\.com|redhat\.com|rockylinux\.org|systemd\.io|freedesktop\.org|golang\.org|go\.dev)/`)
)

func hasSecretQuery(g []string, _ string) bool {
	for _, field := range strings.FieldsFunc(g[1], func(r rune) bool { return r == '&' || r == ';' }) {
		if name, _, _ := strings.Cut(field, "="); !queryNames[name] {
			return true
		}
	}
	return false
}

func hasSecretPath(g []string, _ string) bool {
	return !pathStart.MatchString(g[1]) && !pathHosts.MatchString(g[0])
}

var camelCase = regexp.MustCompile(`^[a-z]*(?:[A-Z]+[a-z]{2,})*$`)

// ordinaryPath matches paths whose names are words.
var ordinaryPath = regexp.MustCompile(`^/?(?:(?:[a-z0-9_-]+|[A-Z]?[a-z]+(?:[A-Z][a-z]+)*)/)+(?:[a-z0-9_-]+|[A-Z]?[a-z]+(?:[A-Z][a-z]+)*)?$`)

// looksEncoded reports whether a long word is a secret in base64: not a digest, a path, a name
// or a certificate.
func looksEncoded(word string) bool {
	if strings.Trim(word, "0123456789abcdef") == "" || camelCase.MatchString(word) || strings.ToLower(word) == word || strings.ToUpper(word) == word {
		return false
	}
	if strings.Count(word, "-") > len(word)/8 || ordinaryPath.MatchString(word) {
		return false
	}
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(word, "="))
	return err != nil || !isPublic(data)
}
