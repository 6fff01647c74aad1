package redact

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A clue finds a secret in a text. The secret begins at the last group of the pattern, or else at
// the match. A text whose lower-case form contains none of needs cannot match. accept, if not nil,
// confirms a match: it gets the groups and the text from the secret on.
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
	{[]string{"@"}, regexp.MustCompile(`(?:^|[\s"'(\[=/,])[\w.+-]+:([^\s:/@"',]+@[\w.\[/-]+)`), func(g []string, _ string) bool {
		return !strings.HasSuffix(g[1], "@sha256")
	}}, // robot:SECRET@registry
	{[]string{"certificate key"}, regexp.MustCompile(`(?i)\bcertificate key[: ]+([0-9a-f]{64})\b`), nil},
	{[]string{"."}, regexp.MustCompile(`\b[a-z0-9]{6}\.([a-z0-9]{16})\b`), nil}, // a bootstrap token: its first part is public
	{[]string{"eyj"}, regexp.MustCompile(`(?:^|[^A-Za-z0-9])(eyJ[A-Za-z0-9_-]{6,})`), nil},
	{folded(vendorPrefixes), vendorPattern, nil},
	{[]string{"bearer", "basic", "digest", "negotiate", "apikey"}, regexp.MustCompile(`(?i)\b(?:bearer|basic|digest|negotiate|apikey)(?:[ :=]|\\")+([^\s:"'=,;]+)`), notOrdinary},
	{shortOptions, regexp.MustCompile(`(?:^|[\s"'\[(,])-(?:p|pw|w|a)[\s"',]+([^\s"',-][^\s"',]*)`), notNumber},                                                                          // app -p SECRET
	{[]string{"identified"}, regexp.MustCompile(`(?i)\bidentified\s+(?:with\s+\S+\s+)?(?:by|as)\s+(?:password\s+)?(\S)`), nil},                                                          // SQL
	{[]string{"('", "(\"", `(\"`, "(`"}, regexp.MustCompile("([A-Za-z][\\w.-]*)\\(\\\\*[\"'`]([^\"'`\\\\])"), hasSecretName},                                                            // SetPassword("SECRET")
	{[]string{"pass", "pwd"}, regexp.MustCompile(`(?i)(?:password|passwd|passphrase|passwort|pwd)[\[({<|;]\\*["']?([^\s"'\])}>|;\\])`), nil},                                            // password[SECRET]
	{[]string{"',", `",`, `, "`, `,"`, ",<<", ", '", ", u'", ", b'"}, regexp.MustCompile(`(?:["']|[{(\[]\s*)([A-Za-z][\w.-]*)\\*["']?,\s*\\*(?:<<|[ub])?["']([^"'\\])`), hasSecretName}, // ("password", "SECRET")
	{[]string{"@"}, regexp.MustCompile(`(?:^|[\s"'=(:])[A-Za-z][\w.-]*/([^\s@]+@[\w./\[-]+)`), notModule},                                                                               // scott/SECRET@database
	{[]string{":"}, regexp.MustCompile(`^["'\s]*([\w.*-]+):(?:[0-9]{2,5}|\*):[^:\s]+:[^:\s]+:(\S)`), func(g []string, _ string) bool { return !hexWord.MatchString(g[1]) }},             // .pgpass
	{[]string{"$", "{s"}, regexp.MustCompile(`\$(?:1|2[abxy]?|5|6|7|y|gy|md5|apr1|argon2id?|argon2i|scrypt|pbkdf2[\w-]*|sha1)\$\S|\{(?:S?SHA[0-9]*|CRYPT|S?MD5)\}\S`), nil},             // a password's hash
	{opened, structure, nil}, // Env:[name=SECRET]
	{[]string{"auth", "pass", "login"}, regexp.MustCompile(`(?:^|[\s"'>])(?:AUTH|PASS|(?:LOGIN\s+\S+))["']?[ \t]+["']?([^\s"':=][^\s"']*)`), notOrdinary}, // Redis, SMTP, FTP, IMAP
	{[]string{"cred"}, regexp.MustCompile(`(?i)\bcred(?:ential)?s?[: ]+([^\s:/]+[:/]\S)`), nil},
	{strings.Fields("pass pw key token secret cred auth"), regexp.MustCompile(`\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)["']?[ \t]+["']?([^\s"':=][^\s"']*)`), func(g []string, _ string) bool {
		return suspiciousName(g[1]) && !ordinaryWord.MatchString(g[2])
	}}, // DB_PASSWORD SECRET
	{strings.Fields("pass pw psk auth key secret token cred community"), regexp.MustCompile(`(?i:^|\n|\bset |\bsnmp )\s*["']?([A-Za-z][\w.-]*)["']?[ \t]+["']?([^\s"':=][^\s"']*)`), func(g []string, rest string) bool {
		return suspiciousName(g[1]) && !ordinaryWord.MatchString(g[2]) && (len(wordsOf(g[1])) > 1 || !secretWords[strings.ToLower(g[1])] || !strings.ContainsAny(strings.TrimSpace(rest), " \t"))
	}}, // requirepass SECRET
	{[]string{"\x00", `\0`, `\x00`, `\u0000`, "^@"}, regexp.MustCompile(`(?s)(?:^|\s)([^\s]*?(?:\x00|\\0|\\x00|\\u0000|\^@).)`), nil}, // /proc/1/environ
	{[]string{"setenv"}, regexp.MustCompile(`\bsetenv\s+\w+\s+(\S)`), nil},
	{[]string{"putty-"}, regexp.MustCompile(`PuTTY-User-Key-File`), nil},
	{[]string{"?"}, regexp.MustCompile(`(?m)^\s*\? ["']?([\w.-]+)["']?(\s*)$`), hasSecretName},           // YAML: the value is on the next line
	{[]string{">"}, regexp.MustCompile(`(?m)^\s*<(?:\w+:)?([\w.-]+)(?:\s[^>]*)?>(\s*)$`), hasSecretName}, // XML: the same
	{[]string{"pass"}, regexp.MustCompile(`(?i)\b(?:password|passwd|passphrase|passwort)s?(?: (?:is|was|of|for|set|now|to|from)){0,4}[ \t]+([^\s:=]\S*)`), notOrdinary},
	{[]string{"：", "＝"}, regexp.MustCompile(`([\pL\pN_.-]+)[\s"']*[：＝]\s*(\S)`), hasSecretName},
	{[]string{"key"}, regexp.MustCompile(`(?i)\b(?:unseal|recovery|preshared|pre-shared|shared|signing|encryption|master|private|license|secret|access|api)[ -]key(?: [0-9]+)?[ \t]*[:=]?[ \t]+["']?([^\s:="']\S*)`), func(g []string, _ string) bool {
		return !ordinaryWord.MatchString(g[1]) && !strings.HasPrefix(g[1], "/")
	}}, // Unseal Key 1: SECRET
	{[]string{"echo ", "printf ", "<<<"}, regexp.MustCompile(`(?:(?:^|[\s"'(;])(?:echo|printf)[ \t]+(?:-[neE]+[ \t]+)?([^\s|][^|]*\|)|<<<\s*(\S))`), nil}, // echo SECRET | app
	{[]string{"token", "key"}, regexp.MustCompile(`(?i)\b(?:token|secret key|api key|access key)(?: is| was)?[ \t]+["'\x60]([^\s"'\x60]+)`), nil},
	{[]string{"token"}, regexp.MustCompile(`(?i)\btoken\s+([a-z0-9._~+/-]*[a-z][0-9][a-z0-9._~+/-]*|[a-z0-9._~+/-]*[0-9][a-z][a-z0-9._~+/-]*)`), nil},
	{[]string{"pass", "pwd", "key", "token", "secret", "cred", "auth"}, regexp.MustCompile(`\b([A-Za-z]+(?:_[A-Za-z]+)+|[a-z]+(?:[A-Z][a-z]+)+)[ \t]+["']?([^\s"']*[0-9][^\s"']*)`), func(g []string, _ string) bool { return suspiciousName(g[1]) }},
	{[]string{"-u", "--user"}, regexp.MustCompile(`(?:^|[\s"',\[])(?:-u|--user)["',= ]*["']?([^\s:"'=]+:\S+)`), nil},
	{[]string{"//", `\/\/`}, regexp.MustCompile(`(?is)[a-z][a-z0-9+.-]*:(?:/|\\/){2}(.)`), hasUser},
	{[]string{"?"}, regexp.MustCompile(`/[^\s"'?]*\?([^\s"']+)`), hasSecretQuery},
	{[]string{"http"}, regexp.MustCompile(`(?i)\bhttps?://[^/\s"',]+/([^\s"'?]+)`), hasSecretPath},
	{[]string{"-"}, regexp.MustCompile(`(?s)(?:^|[\s"'\[(,])-{1,2}([A-Za-z][A-Za-z0-9._-]*)(=|\\*["']?,?\s+\\*["']?|\\*["'],\\*["'])(\S)`), func(g []string, rest string) bool {
		return !harmlessFlags[g[1]] && !harmlessValue(g[1], rest) && (g[2] == "=" || suspiciousName(g[1]))
	}},
}

// vendorPrefixes begin the keys and tokens of cloud providers and other services.
var vendorPrefixes = strings.Fields(`AKIA ASIA ABIA ACCA AIza ya29. GOCSPX- ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- glrt- gldt- glptt- glcbt- glsoat- glft- glagent- glimt- xox xapp- xwfp- hvs. hvb. hvr. dckr_pat_ dckr_oat_
	npm_ sk- sk_live_ sk_test_ pk_live_ pk_test_ rk_live_ rk_test_ whsec_ SG. pypi- dop_v1_ doo_v1_ dor_v1_ hf_ api_org_ tskey- shpat_ shpss_ shpca_ shppa_ dapi glsa_ glc_ NRAK- NRAL- NRII- NRIQ- NRJS- ATATT ATCTT ATBB ATOA
	ATSTT sntrys_ sntryu_ sbp_ lin_api_ figd_ rubygems_ pul- PMAK- CFPAT- nvapi- gsk_ xai- r8_ pplx- sq0atp- sq0csp- EAAA dp.pt. dp.st. dt0c01. ops_eyJ pscale_ rnd_ vercel_ cio_ AGE-SECRET-KEY- AGE-PLUGIN- age-secret-key- secret-token:`)

// vendorPattern matches such a key. Its beginning is not a part of a longer word.
var vendorPattern = regexp.MustCompile(`(?:^|[^A-Za-z0-9])((?:` + strings.ReplaceAll(strings.Join(vendorPrefixes, "|"), ".", `\.`) + `)[A-Za-z0-9_.~+/=-]{6,})`)

func folded(list []string) (out []string) {
	for _, s := range list {
		out = append(out, strings.ToLower(s))
	}
	return out
}

// shortOptions are strings of which a text with an option -p, -w or -a contains at least one.
var shortOptions = strings.Split(` -p| -w| -a|"-p|"-w|"-a|'-p|'-w|'-a|[-p|(-p|,-p|,-a|,-w|[-a|[-w`, "|")

// opened are strings of which a text contains at least one if a list or a map begins in it.
var opened = strings.Split("=[|:[|={|:{|: [|: {|= [|= {|map[|map{|:<|=<|:(|=(|: (|\"[|\"{|'[|'{|[]|>[|> [|>{|> {|:&|=&", "|")

// structure matches the beginning of such a list or map as Go, Python, JSON and CRI print it. A
// command's first word is its program.
var structure = regexp.MustCompile(`(?i)(?:^|[^a-z])(?:(?:args?|argv|arguments|cmd|cmdline|command|entrypoint)\\*["']?\s*(?:[:=]|=>)\s*` + open + `(?:\\*["']?/?[\w./-]+\\*["']?[\s,]+\\*["']?)?|` +
	`(?:[a-z]+_)?(?:envs?|environ|environment|env_?vars?|variables|vars|headers?|cookies|(?:string|binary)?data|secrets|params|parameters|(?:volume_?)?attributes|(?:volume|publish)_?context|options)\\*["']?\s*(?:[:=]|=>)\s*` + open + `)([^\s\]})>"'\\])`)

// open begins a list or a map.
const open = `\\*["']?&?(?:(?:\[\]|\*)*[\w.*{}]*map\[[\w.]+\][\w.\[\]]*|map|(?:\[\])+[\w.*]+)?[\[{(<][\[{(<\s]*\\*["']?`

func hasSecretName(g []string, _ string) bool { return suspiciousName(g[1]) }

var (
	hexWord      = regexp.MustCompile(`^[0-9a-fA-F]{0,4}$`)
	harmlessWord = regexp.MustCompile(`^(?:[0-9]{1,5}|tcp|udp|udplite|icmp|icmpv6|ipv6-icmp|sctp|all|esp|ah|gre|vrrp|igmp|ospf|vxlan|strings?|ints?|uint|value|duration|float|file|path|name|port)$`)
	moduleOrName = regexp.MustCompile(`@(?:sha256|sha512|v[0-9]+\.[0-9])`)
)

// notNumber reports whether the value of -p is not a port, a protocol or a path.
func notNumber(g []string, _ string) bool {
	return !harmlessWord.MatchString(g[1]) && !hostPath.MatchString(g[1])
}

func notModule(g []string, _ string) bool { return !moduleOrName.MatchString(g[1]) }

func notOrdinary(g []string, _ string) bool { return !ordinaryWord.MatchString(g[1]) }

// ordinaryWord matches words that follow "bearer" or "password" in messages.
var ordinaryWord = regexp.MustCompile(`(?i)^(?:tokens?|auth|authentication|authenticator|authorization|requests?|file|files|is|was|for|of|has|and|or|not|the|a|an|to|in|on|at|by|with|from|via|must|cannot|could|should|will|were|are|does|did|can|may|if|when|that|this|hash|hashes|prompt|failed|fails|failure|expired|expires|required|error|errors|err|denied|invalid|missing|mismatch|succeeded|success|disabled|enabled|set|unset|empty|found|provider|providers|plugin|plugins|manager|controller|change|changed|method|methods|type|rejected|ok|handshake|store|server|client|data|value|values|key|keys)[,.;)"']*$`)

// suspicion returns where a secret begins in a text, or -1.
func suspicion(text string) int { return suspicionIn(text, 3) }

// suspicionIn also looks for a secret in a text that is encoded depth times.
func suspicionIn(text string, depth int) int {
	first := -1
	see := func(at int) {
		if at > 0 && strings.HasPrefix(text[at-1:], Marker) {
			at-- // redacted before
		}
		if at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	see(keyBlock(text))
	see(encodedWord(text))
	see(assignedSecret(text))
	see(commandSecret(text))
	see(encodedSecret(text, depth))
	folded := strings.ToLower(text)
	for _, c := range clues {
		if slices.ContainsFunc(c.needs, func(part string) bool { return strings.Contains(folded, part) }) {
			see(c.find(text))
		}
	}
	return first
}

// keyBlock returns the start of a PEM block with non-public content, or -1.
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
		if word := text[start:i]; len(word) >= 40 && looksEncoded(word) || len(word) >= 8 && decodesToPair(word, strings.HasPrefix(text[i:], "=")) {
			return start
		}
		start = i + 1
	}
	return -1
}

// decodesToPair reports whether a word is user:password in base64, or any text if padding follows.
func decodesToPair(word string, padded bool) bool {
	if strings.ToLower(word) == word || len(word) > window {
		return false
	}
	data, err := base64.RawStdEncoding.DecodeString(word)
	if err != nil {
		data, err = base64.RawURLEncoding.DecodeString(word)
	}
	isText := err == nil && utf8.Valid(data) && !strings.ContainsFunc(string(data), func(r rune) bool { return !unicode.IsPrint(r) && !unicode.IsSpace(r) })
	return isText && !isPublic(data) && (padded && len(word)%4 > 1 || bytes.IndexByte(data, ':') > 0)
}

// encodedSecret returns where a secret begins in a text with %3A, \u003d and the like, or -1.
func encodedSecret(text string, depth int) int {
	if depth == 0 || !strings.ContainsAny(text, `%\\`) {
		return -1
	}
	var decoded strings.Builder
	var places []int // where each byte of the decoded text is
	for i := 0; i < len(text); i++ {
		places = append(places, i)
		if m := encodedByte.FindStringSubmatch(text[i:min(i+6, len(text))]); m != nil {
			b, _ := strconv.ParseUint(m[1], 16, 8) // the pattern has two digits
			decoded.WriteByte(byte(b))
			i += len(m[0]) - 1
		} else {
			decoded.WriteByte(text[i])
		}
	}
	if decoded.Len() == len(text) { // no codes
		return -1
	}
	at := suspicionIn(decoded.String(), depth-1)
	if at >= 0 {
		at = append(places, len(text))[at]
	}
	return at
}

// encodedByte matches a text that begins with a byte in the codes of URLs, JSON and Go.
var encodedByte = regexp.MustCompile(`^(?:%|\\u00|\\x)([0-9A-Fa-f]{2})`)

// assignedSecret returns the start of a value whose name looks like the name of a secret, or -1.
func assignedSecret(text string) int {
	for i := 0; i < len(text); i++ {
		if text[i] != ':' && text[i] != '=' && text[i] != '>' {
			continue
		}
		before := strings.TrimRightFunc(text[:i], unicode.IsSpace)
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
		case name == "", text[i] == '>' && (last == 0 || !strings.ContainsRune("<\"':", rune(last))), last == '/' && (bare != before || strings.HasSuffix(name, ".key")): // a path
			continue
		}
		value := strings.TrimLeft(text[i+1:], "=>")
		opens := strings.HasPrefix(strings.TrimLeft(value, " \t"), "\n")
		value = strings.TrimLeft(value, " \t\n")
		if isSecretValue(name, text[i], value) || opens && belowAny(name, true) {
			return len(text) - len(value)
		}
	}
	return -1
}

// isSecretValue reports whether a name with a separator and a value is a secret.
func isSecretValue(name string, separator byte, value string) bool {
	value = head(value)
	return !harmlessFlags[name] && secretAssignment(name, separator, value) && !harmlessValue(name, value)
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

// secretAssignment reports whether a name with a value is the name of a secret: by its words; or as
// a variable of the environment, unless it is known to be harmless.
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
	case belowAny(name, value == "" && separator == ':'):
		return !emptyList.MatchString(value)
	case suspiciousName(base):
		return strings.Trim(strings.TrimSpace(value), `"'\`) != "" && !strings.HasPrefix(value, `"",`) || value == "" && separator != '>' || openQuote.MatchString(value)
	}
	return separator == '=' && envName.MatchString(base) && !harmlessVariables[base] && !argumentVariables[base] && !packetNames[base] && value != "" && value[0] != '='
}

// belowAny reports whether a name, or one before a dot in it, has values of any kind.
func belowAny(name string, opens bool) bool {
	return slices.ContainsFunc(strings.Split(strings.ToLower(name), "."), func(part string) bool { return anyBelow[part] && (opens || !plainBelow[part]) })
}

var (
	envName = regexp.MustCompile(`^(?:[A-Z][A-Z0-9_]{2,}|[A-Z][A-Z0-9]*_[A-Za-z0-9_]+)$`)
	goType  = regexp.MustCompile(`^(?:v[0-9][a-z0-9]*|core)\.[A-Z]`)
	// emptyValue matches nothing in quotes, as in a structured log: secret="" err=…
	emptyValue = regexp.MustCompile(`^(?:""|\\+"\\+"|\\*'')(?:[\s,})\]\\]|$)`)
	// openQuote matches a value that begins on this line and is on the next one.
	openQuote = regexp.MustCompile(`^\s*(?:"""|\x27\x27\x27|["\x27\\])\s*$`)
	emptyList = regexp.MustCompile(`^["'\\]*(?:\[\]|\{\}|map\[\]|<nil>|null)`)
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
	digestOrName = regexp.MustCompile(`^@(?:sha256:|sha512:|v[0-9.]+[/ ]|\.service|-)`)
	portWord     = regexp.MustCompile(`^[0-9]{0,5}[\]),.;:\\]*$|^[0-9]{1,5}:|^\$|^%`)
)

// Queries and paths of URLs that are harmless.
var (
	queryNames = set(`limit resourceVersion resourceVersionMatch timeout timeoutSeconds watch allowWatchBookmarks sendInitialEvents fieldSelector labelSelector fieldManager fieldValidation force
		propagationPolicy serializable verbose exclude container follow tailLines pretty dryRun ns n`)
	pathStart = regexp.MustCompile(`^(?:api/v1\b|apis/[a-z0-9.-]+/v[0-9][a-z0-9]*\b|healthz|livez|readyz|version|metrics|openapi|v2(?:/|$)|dashboard|stats|pods|configz|debug|docs/|logs?$)`)
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
	return !pathStart.MatchString(g[1]) && !pathHosts.MatchString(g[0]) && !isEndpoint(strings.TrimRight(g[1], `/\),.:;]}`))
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
