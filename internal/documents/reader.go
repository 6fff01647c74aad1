package documents

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// A reader has the rest of a stream.
type reader struct {
	stream []byte
	line   int // of the rest
	number int // of the current document
	begin  int // its first line

	documents []Document
	errors    []Error
	names     map[string]string // by key: see name
	// notJSON is the reason why the rest of a stream that began as JSON is read as YAML.
	notJSON *Error
}

func (r *reader) addf(line int, format string, args ...any) {
	r.errors = append(r.errors, *r.errorf(line, format, args...))
}

func (r *reader) errorf(line int, format string, args ...any) *Error {
	return &Error{line, max(1, r.number), max(1, r.begin), fmt.Sprintf(format, args...)}
}

// next begins a document.
func (r *reader) next() {
	r.number++
	r.begin = r.line
}

// skip removes bytes from the beginning of the rest.
func (r *reader) skip(n int) {
	r.line += bytes.Count(r.stream[:n], []byte("\n"))
	r.stream = r.stream[n:]
}

// guess is the number of bytes in which kubectl looks for the beginning of JSON.
const guess = 4096

// readJSON reads the JSON values at the beginning of a stream. As in kubectl, the rest may be
// YAML.
func (r *reader) readJSON() {
	if !utilyaml.IsJSONBuffer(r.stream[:min(len(r.stream), guess)]) {
		return
	}
	whole := r.stream
	decoder := json.NewDecoder(bytes.NewReader(whole))
	for {
		var value json.RawMessage
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			r.skip(len(r.stream))
			return
		}
		if err != nil {
			at := offsetOf(err, whole)
			line := 1 + bytes.Count(whole[:at], []byte("\n"))
			r.notJSON = &Error{line, r.number + 1, r.line, "not JSON: " + err.Error()}
			if comment.Match(whole[at:]) {
				r.notJSON.Text = noComments
			}
			r.skipSpace()
			return
		}
		end := len(whole) - int(decoder.InputOffset())
		r.skip(len(r.stream) - end - len(value))
		r.addJSON(value)
		r.skip(len(value))
	}
}

// comment matches a comment as some programs write it in JSON, and commented a document that begins
// with one. inValue matches a YAML value of text and a comment, where the author of the JSON wanted
// only the text: //x alone is a value.
var (
	comment   = regexp.MustCompile(`^(//|/\*)`)
	commented = regexp.MustCompile(`^\s*(//|/\*)[^{]*\{`)
	inValue   = regexp.MustCompile(`(?s)^(//|/\*).*\s|\s(//|/\*)`)
)

const noComments = "JSON has no comments: remove // and /* */"

// hasComment reports whether JSON with comments was read as YAML, in which they are keys or in values.
func hasComment(n *yaml.Node) bool {
	const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle
	if n.Kind == yaml.ScalarNode && n.Style&quoted == 0 && inValue.MatchString(n.Value) {
		return true
	}
	for i, child := range n.Content {
		key := n.Kind == yaml.MappingNode && i%2 == 0
		if key && child.Style&quoted == 0 && comment.MatchString(child.Value) || hasComment(child) {
			return true
		}
	}
	return false
}

// offsetOf returns the offset of the last byte before a JSON error.
func offsetOf(err error, stream []byte) int {
	if at := (*json.SyntaxError)(nil); errors.As(err, &at) {
		return max(min(int(at.Offset), len(stream))-1, 0)
	}
	return len(bytes.TrimSpace(stream))
}

// skipSpace skips white space, up to the end of the line.
func (r *reader) skipSpace() {
	end := bytes.IndexFunc(r.stream, func(c rune) bool { return c == '\n' || !unicode.IsSpace(c) })
	if end < 0 {
		end = len(r.stream)
	} else if r.stream[end] == '\n' {
		end++
	}
	r.skip(end)
}

func (r *reader) addJSON(value json.RawMessage) {
	r.next()
	d := Document{Text: append(bytes.Clone(value), '\n'), Begin: r.line, JSON: value, Line: r.line}
	// YAML has no halves of surrogate pairs.
	if root, err := parse(pair.ReplaceAllFunc(d.Text, character), r.line); err == nil {
		d.Node = root
		r.check(root, kindOf(root))
	} else {
		r.checkJSON(value)
	}
	r.documents = append(r.documents, d)
}

// pair matches a surrogate pair of \u escapes, and any other escape.
var pair = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\.`)

// character returns the character of a pair, which YAML cannot escape like this.
func character(escape []byte) []byte {
	var text string
	if len(escape) == 2 || json.Unmarshal([]byte(`"`+string(escape)+`"`), &text) != nil {
		return escape
	}
	return []byte(text)
}

// inline matches the beginning of a document on the line of its separator.
var inline = regexp.MustCompile(`(?m)^---[ \t]+[^#\s\v\pZ\x{85}]`)

// readYAML reads the documents between separators, as kubectl finds them. kubectl refuses inline
// documents.
func (r *reader) readYAML() {
	whole, begin := r.stream, 0
	for _, next := range inline.FindAllIndex(whole, -1) {
		r.readSeparated(whole[begin:next[0]])
		begin = next[0]
	}
	r.readSeparated(whole[begin:])
}

// readSeparated reads the documents of a part of the stream. The first document may begin on the
// line of its separator.
func (r *reader) readSeparated(part []byte) {
	r.stream = part
	if inline.Match(part) {
		r.stream = append([]byte("   "), part[3:]...) // keeps the columns
	}
	if len(part) > 0 && part[len(part)-1] != '\n' { // YAMLReader may drop the line
		r.stream = append(bytes.Clone(r.stream), '\n')
	}
	defer func() { r.skip(len(r.stream)) }()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(r.stream)))
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			bad := afterSeparators(r.stream, r.line)[0]
			r.next()
			r.addf(bad.Line, "%s", bad.Text)
			return
		}
		if err := r.addYAML(text); err != nil {
			r.errors = append(r.errors, *err)
		}
		r.notJSON = nil
		r.skipLines(bytes.Count(text, []byte("\n")))
		if err := r.separatorError(r.stream); err != nil {
			r.errors = append(r.errors, *err)
		}
		r.skipLines(1)
	}
}

// otherBreaks are line breaks of YAML at which kubectl ends no line.
const otherBreaks = "\r\u0085\u2028\u2029"

// separatorError returns an error if the first line, a separator, contains line breaks other than a
// line feed: YAML begins a new line there, and kubectl treats the text as a comment of the
// separator.
func (r *reader) separatorError(text []byte) *Error {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if !bytes.HasPrefix(line, []byte("---")) || !bytes.ContainsAny(bytes.TrimRight(line, "\r"), otherBreaks) {
		return nil
	}
	return r.errorf(r.line, "%q is not read: end lines with a line feed", line)
}

func (r *reader) skipLines(n int) {
	for ; n > 0; n-- {
		end := bytes.IndexByte(r.stream, '\n') + 1
		if end == 0 {
			end = len(r.stream)
		}
		r.skip(end)
	}
}

// Inline returns an error for each text after a separator, for formats that do not allow it.
func Inline(stream []byte) []Error { return afterSeparators(stream, 1) }

func afterSeparators(stream []byte, line int) (errs []Error) {
	for text := range bytes.Lines(stream) {
		after, ok := strings.CutPrefix(string(text), "---")
		if after = strings.TrimSpace(after); ok && after != "" && after[0] != '#' {
			errs = append(errs, Error{line, 1, line, fmt.Sprintf("%q after --- is not read: start the document on the next line", after)})
		}
		line++
	}
	return errs
}

// separator matches a separator for kubectl and for YAML.
var separator = regexp.MustCompile(`^---([ \t]+#[^\r\x{85}\x{2028}\x{2029}\n]*|[ \t]*)\n`)

// markInside matches a byte order mark that begins a line, but not the text. The YAML parser skips it and
// can lose the first character of each line that follows.
var markInside = regexp.MustCompile(`(^\x{feff}|[\n\r\x{85}\x{2028}\x{2029}])\x{feff}`)

// control matches a character that YAML does not allow. The parser's error has no line.
var control = regexp.MustCompile(`[^\t\n\r -~\x{85}\x{a0}-\x{d7ff}\x{e000}-\x{fffd}\x{10000}-\x{10ffff}]`)

// addYAML adds the document of a text, which may begin with the separator before it.
func (r *reader) addYAML(text []byte) *Error {
	if err := r.separatorError(text); err != nil {
		return err
	}
	d := Document{Text: text, Begin: r.line, Line: r.line}
	if separator.Match(text) {
		d.Text, d.Begin = text[bytes.IndexByte(text, '\n')+1:], r.line+1
	}
	if len(bytes.Trim(d.Text, " \t\r\n")) == 0 {
		return nil
	}
	r.next()
	d.Text = bytes.TrimPrefix(d.Text, []byte("\ufeff"))
	if at := markInside.FindIndex(text); at != nil {
		r.addf(r.line+bytes.Count(text[:at[1]], []byte("\n")), "a byte order mark is in the document: put a line with --- before it, or remove the mark")
	}
	var err error
	d.JSON, err = sigsyaml.YAMLToJSON(text)
	if commented.Match(d.Text) && !bytes.HasPrefix(d.JSON, []byte("{")) {
		begin, _, _ := bytes.Cut(d.Text, []byte("/"))
		return r.errorf(d.Begin+bytes.Count(begin, []byte("\n")), noComments)
	}
	if err != nil {
		return cmp.Or(r.notJSON, r.notFinite(err, text), r.syntax(err, text))
	}
	if d.Node, err = parse(text, r.line); err != nil {
		return r.syntax(err, text)
	}
	if why := r.notJSON; why != nil && why.Text == noComments && (d.Node.Kind != yaml.MappingNode || hasComment(d.Node)) {
		return why
	}
	if d.Node != nil {
		d.Line = d.Node.Line
		r.check(d.Node, kindOf(d.Node))
	}
	r.documents = append(r.documents, d)
	return nil
}

// notFinite returns an error for a number that JSON cannot express, such as .inf.
func (r *reader) notFinite(err error, text []byte) *Error {
	if !errors.As(err, new(*json.UnsupportedValueError)) {
		return nil
	}
	root, err := parse(text, r.line)
	if err != nil || root == nil {
		return nil
	}
	if n := notFinite(root); n != nil {
		return r.errorf(n.Line, "%s is not a number in JSON: put it in quotes, %q, or write a number", n.Value, n.Value)
	}
	return nil
}

// notFinite returns the first value that is infinite or not a number, or nil.
func notFinite(n *yaml.Node) *yaml.Node {
	var number float64
	if n.ShortTag() == "!!float" && n.Decode(&number) == nil && (math.IsInf(number, 0) || math.IsNaN(number)) {
		return n
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			continue // keys are text in JSON
		}
		if found := notFinite(child); found != nil {
			return found
		}
	}
	return nil
}

// parse returns the only value of a text that begins at this line of the stream, or nil if the
// text has only comments.
func parse(text []byte, line int) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var root, next yaml.Node
	if err := decoder.Decode(&root); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := decoder.Decode(&next); err == nil {
		return nil, &second{next.Content[0].Line}
	} else if m := noSeparator.FindStringSubmatch(err.Error()); m != nil {
		n, _ := strconv.Atoi(m[1]) // the parser counts from 0
		return nil, &second{n + 1}
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	shift(&root, line-1)
	return root.Content[0], nil
}

var noSeparator = regexp.MustCompile(`^yaml: (?:line (\d+): )?did not find expected <document start>`)

// A second value follows the first one of a document, which kubectl ignores.
type second struct{ line int }

func (s *second) Error() string {
	return "a second document begins here: put a line with --- before it"
}

// shift adds to the lines of a node. What an alias points to is in the tree once.
func shift(n *yaml.Node, lines int) {
	n.Line += lines
	for _, child := range n.Content {
		shift(child, lines)
	}
}

var errorLine = regexp.MustCompile(`^(?:error converting YAML to JSON: )?(?:yaml: )?(?:(?:unmarshal|construct) errors:\s*)?(?:line (\d+): )?`)

// syntax returns a parser's error. Its line counts from the document's beginning, and is missing
// for the first line.
func (r *reader) syntax(err error, text []byte) *Error {
	m := errorLine.FindStringSubmatch(err.Error())
	line, _ := strconv.Atoi(m[1])
	why := "not YAML: " + strings.TrimPrefix(err.Error(), m[0])
	if next := (*second)(nil); errors.As(err, &next) {
		line, why = next.line, err.Error()
	}
	if at := control.FindIndex(text); at != nil && strings.Contains(why, "control characters") {
		line = 1 + bytes.Count(text[:at[0]], []byte("\n"))
	}
	if strings.Contains(why, "expected <document start>") || strings.Contains(why, "incompatible YAML document") {
		why = "a directive such as %YAML is not supported: remove the line"
	}
	if bytes.ContainsAny(text, otherBreaks) {
		why += "; end lines with a line feed"
	}
	last := bytes.Count(text, []byte("\n")) // an error at the end is in the line after it
	return r.errorf(r.line+max(1, min(line, last))-1, "%s", why)
}
