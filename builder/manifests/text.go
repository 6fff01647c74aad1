package manifests

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"

	"airlift/internal/documents"
	"airlift/internal/documents/textfile"
)

// textOf returns content as a text, or nothing if it is binary.
func textOf(content []byte) string {
	content = textfile.UTF8(content)
	if bytes.ContainsRune(content, 0) {
		return ""
	}
	return strings.ToValidUTF8(string(content), " ")
}

// encoded matches a text that may be base64 of another text, such as user data of a machine.
var encoded = regexp.MustCompile(`^\s*[A-Za-z0-9+/\s]{16,}={0,2}\s*$`)

// text looks at a text, document by document: structured data, or else everything that may be a
// file's format or a script. c is the confidence for values without a name.
func (f *finder) text(p path, s string, c confidence) {
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
	if encoded.MatchString(s) {
		if content, err := base64.StdEncoding.DecodeString(strings.TrimSpace(s)); err == nil && utf8.Valid(content) {
			f.text(p, string(content), c)
		}
	}
	for _, document := range strings.Split("\n"+s, "\n---") {
		if values, ok := structured(document); ok {
			for _, v := range values {
				f.tree(p, v, c)
			}
			continue
		}
		f.sections(p, document, c)
	}
}

// structured returns the values of a text if all of it is one document of YAML or values of JSON,
// and they are objects or lists.
func structured(text string) (values []any, ok bool) {
	list, errs := documents.Read([]byte(text))
	if len(errs) > 0 {
		return nil, false
	}
	for _, d := range list {
		var value any
		if d.Empty() {
			continue
		}
		if err := json.Unmarshal(d.JSON, &value); err != nil {
			return nil, false
		}
		switch value.(type) {
		case map[string]any, []any:
		default:
			return nil, false
		}
		values = append(values, value)
	}
	return values, true
}

var (
	// comment matches a line that is a comment in the usual formats.
	comment = regexp.MustCompile(`(?m)^[ \t]*(#|;|//).*$`)
	// markup and block match comments of several lines. A path such as /etc/* does not begin a comment,
	// and what has no end is none.
	markup = regexp.MustCompile(`(?s)<!--.*?-->`)
	block  = regexp.MustCompile(`(?sm)(^[ \t]*/\*|[ \t;]/\*\*?[ \t\n]).*?\*/`)
	// section matches the header of a section in INI and TOML.
	section = regexp.MustCompile(`(?m)^[ \t]*\[\[?([\w. -]+)\]\]?[ \t]*$`)
)

// sections looks at the sections of a text. A section's name counts as a name of the values in it.
func (f *finder) sections(p path, s string, c confidence) {
	for _, comments := range []*regexp.Regexp{comment, markup, block} {
		s = comments.ReplaceAllString(s, " ")
	}
	from, here := 0, c
	for _, header := range append(section.FindAllStringSubmatchIndex(s, -1), []int{len(s), len(s), 0, 0}) {
		for _, v := range pairsOf(p, s[from:header[0]], here) {
			f.parts(v)
		}
		f.words(p, s[from:header[0]], here)
		from, here = header[1], max(c, confidenceOf(s[header[2]:header[3]]))
	}
}

var (
	// token matches what may be a name or a reference.
	token = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9._:/@-]*[A-Za-z0-9]`)
	// glued matches a property without a blank: image:quay.io/team/app:v1.
	glued = regexp.MustCompile(`^([\w.-]*image):(.+[:/].+)$`)
	// assigns matches what is between a name and its value.
	assigns = regexp.MustCompile(`^["'\\\]]*\s*(=>?|:=?|\+=|\?=|>|\()[\s\["'\\(-]*$|^[ \t]+["']$`)
	// follows matches what is between a flag and its value, or between two values of a list.
	follows = regexp.MustCompile(`^["'\\]*([\s,=-]+|[;|])["'\\]*$`)
	// blank matches what is between a name and its value in a text with few signs.
	blank = regexp.MustCompile(`^[ \t]+$`)
	// tools matches a line with a command that uses images.
	tools = regexp.MustCompile(`\b(docker|podman|nerdctl|crictl|ctr|skopeo|crane|buildah|kubectl|FROM|COPY --from)\b`)
	// general matches names that have the meaning of the word before them: name="image" value="busybox:1.36".
	general = regexp.MustCompile(`^(value|default|string)$`)
	// closing matches the end of an element in XML.
	closing = regexp.MustCompile(`</[\w.:-]+>`)
	// ends matches what follows a value that has neither tag nor registry.
	ends = regexp.MustCompile(`^(\\?["'<,;)\]}]|[ \t]*(\n|$))`)
)

// continues matches what follows a name whose end is computed: quay.io/team/app:${TAG}.
var continues = regexp.MustCompile(`^[:/@._-]?(\$|\{\{|%[(\w]|<[a-z])`)

// A word is a token of a text.
type word struct {
	from, to int
	flag     bool // it follows a dash
	image    confidence
	before   confidence // of the word before it, as a name
	element  confidence // as an element of a list: a in --images=a=busybox:1.36
}

// words looks at each token of a text, and judges it by the name before it.
func (f *finder) words(p path, s string, c confidence) {
	s = strings.NewReplacer(":-", "=-", `\:`, ":", `\/`, "/", "<![CDATA[", "", "]]>", "").Replace(s) // ${IMAGE:-busybox}, and escaped signs
	s = closing.ReplaceAllString(s, "<>")
	var last word
	lineEnd, usesImages := 0, false
	for _, t := range token.FindAllStringIndex(s, -1) {
		w := word{from: t[0], to: t[1], flag: t[0] > 0 && s[t[0]-1] == '-'}
		value := s[w.from:w.to]
		if w.from >= lineEnd {
			line, _, _ := strings.Cut(s[w.from:], "\n")
			lineEnd, usesImages = w.from+len(line), tools.MatchString(line)
		}
		judged := judge(s, last, w)
		if usesImages {
			judged = max(judged, hinted)
		}
		switch m := glued.FindStringSubmatch(value); {
		case m != nil:
			value, judged = m[2], confidenceOf(m[1])
		case value == strings.TrimSpace(s):
			judged = max(judged, c)
		default:
			judged = max(judged, min(c, hinted))
		}
		// The rest of a URL or of a path is not an image.
		if (w.from == 0 || !strings.ContainsRune("/.@$}", rune(s[w.from-1]))) && !continues.MatchString(s[w.to:]) {
			f.add(p, value, judged)
		}
		if _, ok := looksLikeImage(strings.TrimPrefix(value, transport), judged); ok {
			w.image = judged
		}
		w.before = confidenceOf(s[last.from:last.to])
		if w.from > 0 && strings.ContainsRune("=,;|", rune(s[w.from-1])) {
			w.element = min(judged, hinted)
		}
		last = w
	}
}

// judge returns how likely the word w is an image.
func judge(s string, last, w word) confidence {
	name, between := s[last.from:last.to], s[last.to:w.from]
	c := confidenceOf(name)
	if general.MatchString(name) {
		c = last.before
	}
	if between == "=" {
		c = max(c, last.element)
	}
	bare := !strings.ContainsAny(s[w.from:w.to], ":/@")
	switch {
	case last.image > anywhere && follows.MatchString(between):
		c = min(last.image, hinted)
		if strings.Contains(between, ",") && !bare {
			c = last.image
		}
	case last.flag && follows.MatchString(between):
	case assigns.MatchString(between):
		if bare && !ends.MatchString(s[w.to:]) && between != "=" {
			c = min(c, hinted)
		}
	case blank.MatchString(between):
		c = min(c, hinted)
	default:
		c = anywhere
	}
	return c
}
