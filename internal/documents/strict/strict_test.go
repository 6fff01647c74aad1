package strict_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "airlift/scripts/fixtures/seed"

	"airlift/internal/documents"
	"airlift/internal/documents/problems"
	"airlift/internal/documents/strict"
)

type outer struct {
	Text   string            `json:"text"`
	On     bool              `json:"flag"`
	Count  int32             `json:"count"`
	Period time.Duration     `json:"period"`
	List   []string          `json:"list"`
	Labels map[string]string `json:"labels"`
	Inner  *outer            `json:"inner"`
}

// values of each kind, as they are written.
var values = map[string][]string{
	"text": {"a", `"7"`, "a b"}, "flag": {"true", "false"}, "count": {"7", "-1"}, "period": {"4m", "90s"},
	"list": {"[a, b]", "[]"}, "labels": {"{a: b}"}, "other": {"[[a]]", "[1]", "{a: 1}", "1.5", "4294967296"},
}

// Each field is decoded, or is one problem at its line that names it and, where it can be known, what to write.
func TestEachFieldIsUsedOrAnError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		text.WriteString("apiVersion: a/v1\nkind: K\n")
		var wrong []string
		line := 3
		var write func(indent, path string, depth int)
		write = func(indent, path string, depth int) {
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"text", "flag", "count", "period", "list", "labels", "inner", "txt"}), 1, 5, rapid.ID).Draw(t, "fields") {
				if name == "inner" && depth < 3 {
					fmt.Fprintf(&text, "%sinner:\n", indent)
					line++
					write(indent+"  ", path+"inner.", depth+1)
					continue
				}
				kind := rapid.SampledFrom([]string{"text", "flag", "count", "period", "list", "labels", "other"}).Draw(t, "kind")
				fmt.Fprintf(&text, "%s%s: %s\n", indent, name, rapid.SampledFrom(values[kind]).Draw(t, "value"))
				if fits := kind == name || name == "text" && kind == "period"; !fits {
					wrong = append(wrong, fmt.Sprintf("f:%d: %s", line, path+name))
				}
				line++
			}
		}
		write("", "", 0)
		list, errs := documents.Read([]byte(text.String()))
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		d := strict.Decoder{List: &problems.List{File: "f"}, Lines: strict.Lines{}}
		var into outer
		d.Document(&into, list[0], "")
		_ = d.Err() // sorts
		for i, p := range d.Problems {
			if got := fmt.Sprintf("f:%d: %s", p.Line, p); i >= len(wrong) || !strings.HasPrefix(got, wrong[i]) {
				t.Fatalf("%s\n%s\nwant %q", text.String(), got, wrong)
			}
		}
		if len(d.Problems) < len(wrong) {
			t.Fatalf("%s\n%v\nwant %q", text.String(), d.Problems, wrong)
		}
	})
}

func TestSentences(t *testing.T) {
	for text, want := range map[string]string{
		"txt: a":            `txt is not known: did you mean text? fields here: apiVersion, count, flag, inner, kind, labels, list, period, text`,
		"text: 1.30":        `text is the number 1.30 and must be a string: put it in quotes, "1.30"`,
		"text: no":          `text is the boolean no and must be a string: put it in quotes, "no"`,
		"text: [a]":         `text is a list and must be a string: write one value`,
		"flag: \"true\"":    `flag is the string "true" and must be true or false: write true or false, without quotes`,
		"count: 4294967296": `count is the number 4294967296 and must be a whole number of at most 32 bits: write it without quotes`,
		"period: 2d":        `period is the string "2d" and must be a duration such as 4m0s, 90s or 8760h`,
		"list: a":           `list is the string "a" and must be a list: write each item on its own line, after a dash and a space`,
		"list: [null]":      `list[0] is empty: remove the dash, or write a value after it`,
		"inner: a":          `inner is the string "a" and must be a mapping: fields here: count, flag, inner, labels, list, period, text`,
		"inner:":            `inner is empty: write a value, or remove the line`,
		"inner: {kind: x}":  `inner.kind is not known: fields here: count, flag, inner, labels, list, period, text`,
	} {
		list, _ := documents.Read([]byte(text + "\n"))
		d := strict.Decoder{List: &problems.List{File: "f"}, Lines: strict.Lines{}}
		d.Document(new(outer), list[0], "")
		if len(d.Problems) != 1 || d.Problems[0].String() != want || d.Problems[0].Line != 1 {
			t.Errorf("%s: %v, want %s", text, d.Problems, want)
		}
	}
}

// YAML 1.2 knows only true and false, and a number keeps its digits.
func TestYAML12(t *testing.T) {
	list, _ := documents.Read([]byte("text: 0644\nlist: [off, 3.10]\n"))
	d := strict.Decoder{List: &problems.List{File: "f"}, Lines: strict.Lines{}, YAML12: true}
	var into outer
	if d.Document(&into, list[0], ""); len(d.Problems) > 0 || !reflect.DeepEqual(into, outer{Text: "0644", List: []string{"off", "3.10"}}) {
		t.Errorf("%+v, %v", into, d.Problems)
	}
}
