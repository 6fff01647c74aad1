package main

import (
	"encoding/json"
	"strings"
	"testing"
	"text/template"
)

// TestGoTemplates: what a template prints, and whether it fails, is what text/template does.
func TestGoTemplates(t *testing.T) {
	const document = `{"kind": "Images", "images": ["a/b:1", "c/d:2", ""], "on": true, "off": false, "zero": 0,
		"n": 31535999, "half": 0.5, "encoded": "aGVsbG8=", "empty": {}, "none": [], "map": {"z": "last", "a": "first", "deep": {"x": [1, 2]}}}`
	var value any
	if err := json.Unmarshal([]byte(document), &value); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", "plain\n", "{{.kind}}", "{{ .kind -}}  x", "{{/* nothing */}}", "{{.}}", "{{$.kind}}", "{{.map}}", "{{.images}}", "{{.n}} {{.half}} {{.on}}",
		"{{.missing}}", "{{.missing.below}}", "{{.map.missing}}", "{{.kind.below}}", "{{.images.x}}", "{{.map.deep.x}}",
		"{{range .images}}{{.}}\n{{end}}", "{{range $i, $v := .images}}{{$i}}={{$v}} {{end}}", "{{range $v := .map}}{{$v}},{{end}}",
		"{{range $k, $v := .map}}{{$k}}:{{$v}};{{end}}", "{{range .none}}x{{else}}empty{{end}}", "{{range .missing}}x{{else}}none{{end}}",
		"{{range .images}}{{if eq . `c/d:2`}}{{break}}{{end}}{{.}}{{end}}", "{{range .images}}{{if not .}}{{continue}}{{end}}<{{.}}>{{end}}",
		"{{range .kind}}x{{end}}", "{{range .on}}x{{end}}", "{{range $i, $e := .images}}{{if $i}}, {{end}}{{$e}}{{end}}",
		"{{if .on}}yes{{else}}no{{end}}", "{{if .off}}yes{{else}}no{{end}}", "{{if .zero}}a{{else if .n}}b{{else}}c{{end}}", "{{if .empty}}a{{else}}b{{end}}",
		"{{if .missing}}a{{end}}", "{{if and .on .kind}}a{{end}}", "{{or .off .zero .kind}}", "{{and .on .off .missing.x}}", "{{.on | and .kind}}", "{{and}}", "{{not .on}}", "{{not}}",
		"{{with .map}}{{.a}} {{$.kind}}{{end}}", "{{with .none}}a{{else}}{{.kind}}{{end}}", "{{with $x := .map.a}}{{$x}}{{end}}", "{{with .none}}a{{else with .map}}{{.a}}{{end}}",
		"{{$x := .kind}}{{$x}}{{$x = `other`}}{{$x}}", "{{$x := 1}}{{range .images}}{{$x = 2}}{{end}}{{$x}}", "{{if true}}{{$x := 3}}{{$x}}{{end}}", "{{$m := .map}}{{$m.deep.x}}",
		"{{len .images}} {{len .map}} {{len .kind}}", "{{len .n}}", "{{len}}", "{{index .images 0}}", "{{index .images 9}}", "{{index .images -1}}", "{{index .map `a`}}", "{{index .map `no`}}",
		"{{index .map `deep` `x` 1}}", "{{index .map 1}}", "{{index .kind 0}}", "{{index .images .n}}", "{{index .n 1}}", "{{(index .map `deep`).x}}", "{{(index .images 0) | len}}",
		"{{slice .kind 1 3}}", "{{slice .images 1}}", "{{slice .images}}", "{{slice .kind 4 2}}", "{{slice .kind 9}}", "{{slice .n 1}}",
		"{{print .kind 1 2 .n}}", "{{println .kind}}", "{{printf `%s-%d-%v` .kind 3 .half}}", "{{.kind | printf `%q`}}", "{{printf `%.0f` .n}}", "{{printf}}", "{{printf .n}}",
		"{{eq .kind `Images`}} {{eq .kind `a` `Images`}} {{ne .kind `x`}}", "{{eq .n 31535999}}", "{{eq .n 31535999.0}}", "{{lt .half 1.0}} {{ge 2 1}} {{le `a` `b`}} {{gt 1 2}}", "{{eq .kind 1}}", "{{eq .on true}}", "{{eq 1}}", "{{lt 1}}", "{{eq .missing 1}} {{eq .missing .gone}} {{ne .missing 1}}", "{{lt .on .off}}", "{{ne .on .off}}", "{{lt .missing 1}}", "{{eq .map .map}}", "{{range 3}}{{.}}{{end}}", "{{print .missing}}", "{{len .missing}}", "{{index .missing `a`}}",
		"{{1}} {{1.5}} {{1e3}} {{0x10}} {{'a'}} {{true}} {{`raw`}} {{\"q\\n\"}}", "{{nil}}",
		"{{define `x`}}<{{.}}>{{end}}{{template `x` .kind}}{{template `x`}}", "{{block `b` .map}}{{.a}}{{end}}", "{{template `no`}}", "{{define `only`}}x{{end}}",
		"{{.kind 1}}", "{{.kind | .map}}", "{{1 2}}", "{{`a` | len | printf `%d`}}", "{{len (print .kind .kind)}}",
		"{{exists .map `a`}} {{exists .map `no`}} {{exists .images 0}} {{exists .images 7}} {{exists .map `deep` `x` 0}}", "{{base64decode .encoded}}", "{{.encoded | base64decode | len}}", "{{base64decode .kind}}",
		"{{", "{{end}}", "{{nofunc .}}", "{{$undefined}}", "{{break}}", "{{range .images}}", "{{.map.a.}}",
	} {
		for _, missing := range []bool{true, false} {
			want, wantErr := realTemplate(text, value, missing)
			var got strings.Builder
			tmpl, err := parseGoTemplate(text, missing)
			if err == nil {
				err = tmpl.execute(&got, value)
			}
			if (err != nil) != (wantErr != nil) {
				t.Errorf("%q, missing keys allowed %t: error %v, in text/template %v", text, missing, err, wantErr)
			} else if err == nil && got.String() != want {
				t.Errorf("%q, missing keys allowed %t: %q, in text/template %q", text, missing, got.String(), want)
			}
		}
	}
}

// realTemplate executes a template as kubeadm's printer does.
func realTemplate(text string, value any, allowMissing bool) (string, error) {
	option := "missingkey=error"
	if allowMissing {
		option = "missingkey=default"
	}
	tmpl, err := template.New("output").Funcs(template.FuncMap{
		"exists": func(item any, keys ...any) bool {
			v, found, err := indexed(item, keys)
			return err == nil && found && v != nil
		},
		"base64decode": func(text string) (any, error) { return templateFuncs["base64decode"]([]any{text}) },
	}).Option(option).Parse(text)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = tmpl.Execute(&out, value)
	return out.String(), err
}
