package documents_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"airlift/internal/documents"
	"airlift/scripts/fixtures/seed"
)

// kubectl returns the values that kubectl's decoder reads, and its error.
func kubectl(stream []byte) (values []any, err error) {
	d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096)
	for {
		var raw json.RawMessage
		if err := d.Decode(&raw); errors.Is(err, io.EOF) {
			return values, nil
		} else if err != nil {
			return values, err
		}
		if v := decoded(raw); v != nil {
			values = append(values, v)
		}
	}
}

func decoded(raw []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	_ = d.Decode(&v) // an empty document is no value
	return v
}

func values(documents []documents.Document) (values []any) {
	for _, d := range documents {
		if !d.Empty() {
			values = append(values, decoded(d.JSON))
		}
	}
	return values
}

// clean are objects as people write them. %[1]s is unique.
var clean = []string{
	"apiVersion: v1\nkind: Pod\nmetadata:\n  name: %[1]s\n",
	"# comment\napiVersion: v1\nkind: Pod\nmetadata: {name: %[1]s} # comment\n",
	"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  text: |\n    ---\n    %[1]s\n    ...\n  \"no\": 'yes'\n",
	"{apiVersion: v1, kind: Pod,\n metadata: {name: %[1]s}}\n",
	"{\"apiVersion\": \"v1\",\n\t\"kind\": \"Pod\", \"metadata\": {\"name\": \"%[1]s\"}}\n",
	"{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%[1]s\"}}\n",
	"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: %[1]s}}\n- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n",
	"apiVersion: v1\nkind: Pod\nmetadata: &m\n  name: %[1]s\nspec:\n  <<: *m\n  name: b\n  port: 0x1F\n",
	"apiVersion: v1\r\nkind: Pod\r\nmetadata:\r\n  name: %[1]s\r\n",
	"apiVersion: v1\nkind: Secret\ndata:\n  a: !!binary aGVsbG8=\nmetadata: {name: !!str %[1]s, labels: {a: \u00fcber\u3042}}\n",
	"{\"url\": //host/%[1]s, \"kind\": Pod,\n \"any\": [/*]}\n",
	"# only a comment\n", "", "\n\n",
}

// joints are what users and tools write between two objects; the first ones are separators.
var joints = []string{
	"---\n", "---\n", "--- # comment\n", "---\t\n", "---\r\n", "---\n---\n", "---\n# comment\n---\n",
	"", "\n", ",\n", ", ", "# comment\n", "...\n", "...\n---\n", "... # comment\n", "--- ", "---", "----\n", "\r", "\r---\r", "\u0085---\u0085",
	"\u2028---\u2028", "\u2029", "%YAML 1.1\n---\n", "\ufeff", "---\n\ufeff", "\ufeff---\n", "\x00", "\x00---\n", "}\n", "]", "'", "\t", " ", "  ---\n",
	"null\n", "---\n~\n---\n", "- a\n", "[1, 2]\n", "---\n[{\"a\": 1}]\n---\n", "garbage\n", "\xff\n", "!x ", "&a ", "*a\n", "? ", "| \n", "5\n", "\"text\"\n", "<<: {a: 1}\n",
	"kind: Pod\n", "metadata: {}\n", "\"kind\": 1\n", "...---\n", "---...\n", "--- |\n", "--- {a: 1}\n", "%%", "@", "`", "//", " // ", "//x", "/* ", "*/",
}

const separators = 7

var breaks = regexp.MustCompile("[\n\r\u0085\u2028\u2029]")

func TestReadEqualsKubectl(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Value(t), 0))
	refused := 0
	for range 5000 {
		var stream strings.Builder
		var markers []string
		for n := range 1 + random.IntN(4) {
			if n > 0 || random.IntN(4) == 0 {
				joint := joints[random.IntN(len(joints))]
				if random.IntN(2) == 0 {
					joint = joints[random.IntN(separators)]
				}
				stream.WriteString(joint)
			}
			object := clean[random.IntN(len(clean))]
			if strings.Contains(object, "%[1]s") {
				marker := fmt.Sprintf("marker%d", n)
				markers = append(markers, marker)
				object = fmt.Sprintf(object, marker)
			}
			if random.IntN(4) == 0 {
				object = strings.TrimRight(object, "\r\n")
			}
			if random.IntN(20) == 0 {
				object = strings.ReplaceAll(object, "\n", "\r")
			}
			stream.WriteString(object)
		}
		if !compare(t, stream.String(), markers) {
			refused++
		}
		mutated := []byte(stream.String())
		for range 1 + random.IntN(3) {
			at := random.IntN(len(mutated) + 1)
			switch to := min(len(mutated), at+random.IntN(4)); random.IntN(3) {
			case 0:
				mutated = append(mutated[:at:at], mutated[to:]...)
			case 1:
				mutated = append(mutated[:to:to], mutated[at:]...)
			default:
				mutated = append(mutated[:at:at], append([]byte(joints[random.IntN(len(joints))]), mutated[at:]...)...)
			}
		}
		compare(t, string(mutated), nil)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of 5000 streams are refused", refused)
}

// compare reports whether the stream is accepted. Then it must have the values that kubectl's
// decoder reads, and the markers.
func compare(t *testing.T, stream string, markers []string) bool {
	t.Helper()
	docs, errs := documents.Read([]byte(stream))
	if len(errs) > 0 {
		if lines := 1 + len(breaks.FindAllString(stream, -1)); errs[0].Line < 1 || errs[0].Line > lines {
			t.Errorf("%q: the line of %v is not in the stream", stream, errs[0])
		}
		return false
	}
	got := values(docs)
	want, err := kubectl([]byte(stream))
	if err != nil && len(want) <= len(got) {
		got = got[:len(want)] // kubectl reads no further
	}
	if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("%q:\ngot  %v\nwant %v", stream, got, want)
	}
	text, _ := json.Marshal(values(docs))
	for _, marker := range markers {
		if !bytes.Contains(text, []byte(marker)) && !commented(stream, marker) {
			t.Errorf("%q: %s is lost in %s", stream, marker, text)
		}
	}
	return true
}

// commented reports whether a joint made the marker a comment.
func commented(stream, marker string) bool {
	before, _, _ := strings.Cut(stream, marker)
	line := before[strings.LastIndexAny(before, "\r\n")+1:]
	return strings.Contains(line, "#")
}

// What is fine is not refused.
func TestReadAcceptsCleanStreams(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Value(t), 0))
	for range 2000 {
		var stream strings.Builder
		var markers []string
		if random.IntN(4) == 0 {
			stream.WriteString("\ufeff")
		}
		for n := range 1 + random.IntN(6) {
			if n > 0 || random.IntN(3) == 0 {
				stream.WriteString(joints[random.IntN(separators)])
			}
			object := clean[random.IntN(len(clean))]
			if strings.Contains(object, "%[1]s") {
				markers = append(markers, fmt.Sprintf("marker%d", n))
				object = fmt.Sprintf(object, markers[len(markers)-1])
			}
			stream.WriteString(object)
		}
		if !compare(t, stream.String(), markers) {
			_, errs := documents.Read([]byte(stream.String()))
			t.Fatalf("%q is refused: %v", stream.String(), errs)
		}
	}
}
