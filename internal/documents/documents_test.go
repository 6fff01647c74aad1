package documents_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"airlift/internal/documents"
)

// utf16Text encodes a text as UTF-16.
func utf16Text(text string, order binary.ByteOrder, mark bool) []byte {
	if mark {
		text = "\ufeff" + text
	}
	var b []byte
	for _, c := range utf16.Encode([]rune(text)) {
		b = append(b, 0, 0)
		order.PutUint16(b[len(b)-2:], c)
	}
	return b
}

func TestErrors(t *testing.T) {
	const text = "a: 1\n---\nb: é\n"
	for _, c := range []struct {
		stream string
		line   int
		want   string
	}{
		{string(utf16Text(text, binary.LittleEndian, true)), 1, "UTF-16"},
		{string(utf16Text(text, binary.BigEndian, true)), 1, "UTF-16"},
		{string(utf16Text(text, binary.LittleEndian, false)), 1, "UTF-16LE"},
		{string(utf16Text(text, binary.BigEndian, false)), 1, "UTF-16BE"},
		{"\xff\xfe\x00\x00a\x00\x00\x00", 1, "UTF-32"},
		{"a: 1\nb: \xe4\n", 2, "0xe4 is not UTF-8"},
		{"\x00\x00\x00a\x00\x00\x00:\x00\x00\x00 \x00\x00\x001", 1, "UTF-32BE"},
		{"a\x00\x00\x00:\x00\x00\x00 \x00\x00\x001\x00\x00\x00", 1, "UTF-32LE"},
		{"a: 1\n\x00", 2, "zero byte"},
		{"a: 1\nb: 2\nc: \x1b[0m\n", 3, "control characters are not allowed"},
		{"a: 1\n---\nb: 2\n\f", 4, "control characters are not allowed"},
		{"a: 1\nb: 2\n...\nc: 3\n", 4, "a second document begins here"},
		{"a: 1\r---\rb: 2\r", 1, "end lines with a line feed"},
		{"a: 1\n--- # c\rb: 2\n", 2, "end lines with a line feed"},
		{"a: 1\n--- # c\u2028b: 2\n", 2, "end lines with a line feed"},
		{"{\"a\":1}\n--- # c\rb: 2\r", 2, "end lines with a line feed"},
		{"--- # c\rb: 2\r", 1, "end lines with a line feed"},
		{"{a: 1}\n{b: 2}", 2, "a second document begins here"},
		{"---\n{\"a\":1}\n{\"b\":2}\n", 3, "a second document begins here"},
		{"[1]\n[2]", 2, "a second document begins here"},
		{"{\"a\":1}\n{\"b\":2},\n{\"c\":3}", 2, "not JSON: invalid character ','"},
		{"{\"a\":1}\n]", 2, "not JSON: invalid character ']'"},
		{"{\n\"a\": 1,\n\"b\": [1,2\n", 3, "not JSON: unexpected EOF"},
		{"{\"a\":1}\ngarbage: [\n", 2, "not JSON"},
		{"kind: Pod\nmetadata: {}\nkind: Pod\n", 3, "Pod.kind is written twice, first at line 1"},
		{"kind: Pod\na:\n - b: 1\n   b: 2", 4, "Pod.a[0].b is written twice, first at line 3"},
		{"{\"kind\":\"Pod\",\n\"kind\":\"Pod\"}", 2, "Pod.kind is written twice, first at line 1"},
		{"{\"a\":\"\\ud83d\\ude00\",\"b\":{\"c\":1,\"c\":2}}", 1, "b.c is written twice"},
		{"1: a\n\"1\": b\n", 2, "1 is written twice"},
		{"yes: a\ntrue: b\n", 2, "true is written twice"},
		{"1: a\n!!str 1: b\n", 2, "1 is written twice"},
		{"x: &a {k: 1}\nz:\n  k: 2\n  <<: *a", 4, "z.k is replaced by << here, first at line 3"},
		{"a: !!binary gICA", 1, "a is binary and not UTF-8"},
		{"{\"a\":\"\\ud800\"}", 1, "surrogate"},
		{"x: &a {k: 1}\nz:\n  <<: *a\n  <<: {k: 2}", 4, "z.<< is written twice, first at line 3"},
		{"%YAML 1.1\n---\na: 1\n", 1, "a directive such as %YAML"},
		{"%YAML 1.2\n---\na: 1\n", 1, "a directive such as %YAML"},
		{"a: 1\n---{b: 1}\n", 2, `"{b: 1}" after --- is not read`},
		{"a: 1\n--- b\n---\n---{b: 1}\n", 4, `"{b: 1}" after --- is not read`},
		{"a: 1\n\ufeffb: 1\n", 2, "a byte order mark is in the document"},
		{"\ufeff\ufeffapiVersion: v1\nkind: Pod\n", 1, "a byte order mark is in the document"},
		{"a: 1\n---\n\ufeff\ufeffapiVersion: v1\nkind: Pod\n", 3, "a byte order mark is in the document"},
		{"a: |\r  b\r\ufeffc: 1\r", 1, "a byte order mark is in the document"},
		{"a: 1\n---\nb: [\n---\nc: 1\n", 3, "did not find"},
		{"a:\n\tb: 1\n", 2, "cannot start any token"},
		{"// c\n{\"a\": 1}\n", 1, "JSON has no comments"},
		{"\n/* c\n */\n{\"a\": 1}\n", 2, "JSON has no comments"},
		{"{\n\"a\": 1, // c\n\"b\": 2}\n", 2, "JSON has no comments"},
		{"{\n// c\n\"a\": 1\n}\n", 2, "JSON has no comments"},
		{"{\"a\": 1}\n/* c */\n", 2, "JSON has no comments"},
		{"{\n\"a\": 1 // c\n}\n", 2, "JSON has no comments"},
		{"{\"a\": // c\n 1}\n", 1, "JSON has no comments"},
		{"{\"a\": /* c */ 1}\n", 1, "JSON has no comments"},
		{"{\"a\": [\n1 /* c */]}\n", 2, "JSON has no comments"},
		{"{\"a\": //x,\n\"b\": 1 // c\n}\n", 1, "JSON has no comments"},
		{"{\"a\": 1}\n//c\n", 2, "JSON has no comments"},
		{"{\"a\": 1, //c\n}\n", 1, "JSON has no comments"},
		{"a: 1\nb: 2\nc: .inf\n", 3, `.inf is not a number in JSON: put it in quotes, ".inf"`},
		{"a: 1\n---\n.inf: 1\nb:\n- [-.Inf]\n", 5, `put it in quotes, "-.Inf"`},
		{"a: &x .NaN\nb: *x\n", 1, `put it in quotes, ".NaN"`},
	} {
		_, errs := documents.Read([]byte(c.stream))
		if len(errs) == 0 {
			t.Errorf("%q: no error", c.stream)
		} else if errs[0].Line != c.line || !strings.Contains(errs[0].Text, c.want) {
			t.Errorf("%q: %v, want line %d: %s", c.stream, errs, c.line, c.want)
		}
	}
}

func TestRead(t *testing.T) {
	for stream, want := range map[string]string{
		"":                                "",
		"---\n---\n":                      "",
		"# c\n---\na: 1\n":                "1 null;3 {\"a\":1}",
		"\ufeffa: 1\r\n---\r\nb: 2\r\n":   "1 {\"a\":1};3 {\"b\":2}",
		"a: 1\n---\n\ufeffb: 2\n":         "1 {\"a\":1};3 {\"b\":2}",
		"--- {a: 1}\n---\n--- b: 2\n":     "1 {\"a\":1};3 {\"b\":2}",
		"a: 1\n...\n# end\n":              "1 {\"a\":1}",
		"{\"a\":1}{\"b\":2}\n---\nc: 3\n": "1 {\"a\":1};1 {\"b\":2};3 {\"c\":3}",
		"{\"a\":1}\n{\"b\":2}\n---\n\n{\"c\":3}\n---\n{\"d\":4}": "1 {\"a\":1};2 {\"b\":2};5 {\"c\":3};7 {\"d\":4}",
		"\n\n{\"a\":1.30}\n[1]\n":                                "3 {\"a\":1.30};4 [1]",
		"x: &a {k: 1}\nz:\n  <<: *a\n  k: 2\n":                   "1 {\"x\":{\"k\":1},\"z\":{\"k\":2}}",
		"{\"a\": //x}\n":                                         "1 {\"a\":\"//x\"}",
		"{\"a\": [//x, //y],\n \"b\": /*}\n---\nc: 1\n":          "1 {\"a\":[\"//x\",\"//y\"],\"b\":\"/*\"};4 {\"c\":1}",
		"{\"a\": 1}\n{\"b\": //x}\n":                             "1 {\"a\": 1};2 {\"b\":\"//x\"}",
		"{\"a\": //x, # c // d\n \"b\": \"1 // c\"}\n":           "1 {\"a\":\"//x\",\"b\":\"1 // c\"}",
		"no: 010\n": "1 {\"false\":8}",
	} {
		docs, errs := documents.Read([]byte(stream))
		var got []string
		for _, d := range docs {
			got = append(got, strings.TrimSpace(strings.Join([]string{line(d.Line), string(d.JSON)}, " ")))
		}
		if text := strings.Join(got, ";"); text != want || len(errs) > 0 {
			t.Errorf("%q: %s %v, want %s", stream, text, errs, want)
		}
	}
}

// kubectl's reader drops a last line of 4096 bytes without a line feed.
func TestLastLine(t *testing.T) {
	for size := 4090; size < 4100; size++ {
		docs, errs := documents.Read([]byte("a: 1\nb: " + strings.Repeat("x", size)))
		if len(errs) > 0 || len(docs) != 1 || len(docs[0].JSON) != len(`{"a":1,"b":""}`)+size {
			t.Errorf("%d bytes: %v", size, errs)
		}
	}
}

func line(n int) string { return string(rune('0' + n)) }

func TestUnmarshal(t *testing.T) {
	var into struct{ A int }
	if err := documents.Unmarshal([]byte("# c\na: 1\n"), &into); err != nil || into.A != 1 {
		t.Error(into, err)
	}
	if err := documents.Unmarshal([]byte("# c\n"), &into); err != nil || into.A != 1 {
		t.Error(into, err)
	}
	for stream, want := range map[string]string{
		"a: 1\n---\nb: 1": "line 3: there is a second document",
		"{\"a\":1} x":     "line 1: ",
		"a: 1\na: 2":      "line 2: a is written twice",
	} {
		if err := documents.Unmarshal([]byte(stream), &into); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", stream, err, want)
		}
	}
}

// A character outside the first plane has the lines of its document.
func TestSurrogatePairs(t *testing.T) {
	for text, want := range map[string]string{`\ud83d\ude00`: "\U0001f600", `\\ud83d\\ude00`: `\ud83d\ude00`, `\\\uD83D\uDE00\n`: "\\\U0001f600\n"} {
		docs, errs := documents.Read([]byte("{\"a\":\n\"" + text + "\"}"))
		if len(errs) > 0 || docs[0].Node == nil {
			t.Errorf("%s: %v, %v", text, docs, errs)
			continue
		}
		if n := documents.Value(docs[0].Node, "a"); n.Line != 2 || n.Value != want {
			t.Errorf("%s: %q at line %d", text, n.Value, n.Line)
		}
	}
}
