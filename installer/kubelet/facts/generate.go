//go:build ignore

// Generate writes facts.json: the feature gates, flags and configuration fields of
// the kubelet of each minor version. It parses the sources of Kubernetes in Go's
// module cache and runs none of them:
//
//	go run ./installer/kubelet/facts/generate.go installer/kubelet/facts/facts.json
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// versions are the Kubernetes releases that Airlift installs, oldest first.
var versions = []string{"1.29.15", "1.30.14", "1.31.14", "1.32.13", "1.33.13", "1.34.9", "1.35.6", "1.36.3", "1.37.1"}

type gate struct {
	Stage   string   `json:"stage"`
	Default bool     `json:"default,omitempty"`
	Locked  bool     `json:"locked,omitempty"`
	Needs   []string `json:"needs,omitempty"`
}

type flag struct {
	Type       string `json:"type"`
	Field      string `json:"field,omitempty"`
	Deprecated string `json:"deprecated,omitempty"`
}

// A span is one entry and the minor versions for which it is true.
type span[T any] struct {
	From int `json:"from"`
	To   int `json:"to"`
	T    T   `json:"is"`
}

type history[T any] map[string][]span[T]

// add records an entry of one minor version. Equal entries of consecutive versions
// become one span.
func (h history[T]) add(minor int, name string, entry T) {
	spans := h[name]
	if n := len(spans); n > 0 && spans[n-1].To == minor-1 && same(spans[n-1].T, entry) {
		spans[n-1].To = minor
		return
	}
	h[name] = append(spans, span[T]{From: minor, To: minor, T: entry})
}

func same(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: generate FILE")
	}
	gates, flags, fields := history[gate]{}, history[flag]{}, history[struct{}]{}
	for _, version := range versions {
		s := &source{version: version, packages: make(map[string]*pkg)}
		s.minor, _ = strconv.Atoi(strings.Split(version, ".")[1])
		for name, g := range s.gates() {
			gates.add(s.minor, name, g)
		}
		goFields := make(map[string]string)
		s.fields("k8s.io/kubelet/config/v1beta1", "KubeletConfiguration", "", "", goFields)
		for _, path := range goFields {
			fields.add(s.minor, path, struct{}{})
		}
		for name, f := range s.flags(goFields) {
			flags.add(s.minor, name, f)
		}
	}
	var out bytes.Buffer
	fmt.Fprint(&out, "{")
	section(&out, "gates", gates, ",")
	section(&out, "flags", flags, ",")
	section(&out, "fields", fields, "")
	fmt.Fprintln(&out, "\n}")
	if err := os.WriteFile(os.Args[1], out.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}

// section writes one line for each name, so that diffs are readable.
func section[T any](out *bytes.Buffer, title string, h history[T], end string) {
	var names []string
	for name := range h {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Fprintf(out, "\n%q: {", title)
	for i, name := range names {
		line, err := json.Marshal(h[name])
		if err != nil {
			log.Fatal(err)
		}
		comma := ","
		if i == len(names)-1 {
			comma = ""
		}
		fmt.Fprintf(out, "\n%q: %s%s", name, line, comma)
	}
	fmt.Fprintf(out, "\n}%s", end)
}

// source is the source of one release.
type source struct {
	version  string
	minor    int
	packages map[string]*pkg
}

// pkg is one parsed package.
type pkg struct {
	path    string
	files   []*ast.File
	imports map[*ast.File]map[string]string // local name to path
	consts  map[string]*ast.ValueSpec
	file    map[string]*ast.File // where a constant is
}

var moduleCache = func() string {
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		log.Fatalf("finding the module cache: %v", err)
	}
	return strings.TrimSpace(string(out))
}()

// dir finds the directory of a package in the module cache.
func (s *source) dir(path string) string {
	if rest, ok := strings.CutPrefix(path, "k8s.io/kubernetes"); ok {
		return filepath.Join(moduleCache, "k8s.io/kubernetes@v"+s.version, rest)
	}
	if rest, ok := strings.CutPrefix(path, "k8s.io/"); ok {
		module, below, _ := strings.Cut(rest, "/")
		return filepath.Join(moduleCache, "k8s.io", module+"@v0."+strings.TrimPrefix(s.version, "1."), below)
	}
	// The rest is in another module, with the version in Kubernetes' go.mod.
	mod, err := os.ReadFile(filepath.Join(s.dir("k8s.io/kubernetes"), "go.mod"))
	if err != nil {
		log.Fatal(err)
	}
	for module := path; strings.Contains(module, "/"); module = filepath.Dir(module) {
		found := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(mod)
		if found != nil {
			return filepath.Join(moduleCache, module+"@"+string(found[1]), strings.TrimPrefix(path, module))
		}
	}
	return ""
}

// load parses the files of a package for Linux; nil if this release does not have
// the package.
func (s *source) load(path string) *pkg {
	if p, ok := s.packages[path]; ok {
		return p
	}
	dir := s.dir(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		s.packages[path] = nil
		return nil
	}
	context := build.Default
	context.GOOS, context.GOARCH = "linux", "amd64"
	p := &pkg{path: path, imports: make(map[*ast.File]map[string]string), consts: make(map[string]*ast.ValueSpec), file: make(map[string]*ast.File)}
	s.packages[path] = p
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		if ok, err := context.MatchFile(dir, e.Name()); err != nil || !ok {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			log.Fatal(err)
		}
		p.files = append(p.files, f)
		names := make(map[string]string)
		for _, i := range f.Imports {
			to, _ := strconv.Unquote(i.Path.Value)
			name := filepath.Base(to)
			if i.Name != nil {
				name = i.Name.Name
			}
			names[name] = to
		}
		p.imports[f] = names
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
				for _, spec := range g.Specs {
					v := spec.(*ast.ValueSpec)
					for _, name := range v.Names {
						p.consts[name.Name], p.file[name.Name] = v, f
					}
				}
			}
		}
	}
	return p
}

// text is the value of a string expression in a file of a package.
func (s *source) text(p *pkg, f *ast.File, e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		t, err := strconv.Unquote(e.Value)
		return t, err == nil
	case *ast.Ident:
		v := p.consts[e.Name]
		if v == nil {
			return "", false
		}
		for i, name := range v.Names {
			if name.Name == e.Name && i < len(v.Values) {
				return s.text(p, p.file[e.Name], v.Values[i])
			}
		}
	case *ast.SelectorExpr:
		x, ok := e.X.(*ast.Ident)
		if !ok {
			return "", false
		}
		if other := s.load(p.imports[f][x.Name]); other != nil {
			return s.text(other, nil, e.Sel)
		}
	case *ast.CallExpr: // a conversion
		if len(e.Args) == 1 {
			return s.text(p, f, e.Args[0])
		}
	}
	return "", false
}

// gatePackages are the packages that register feature gates in the kubelet.
var gatePackages = []string{
	"k8s.io/kubernetes/pkg/features",
	"k8s.io/apiserver/pkg/features",
	"k8s.io/apiextensions-apiserver/pkg/features",
	"k8s.io/component-base/logs/api/v1",
	"k8s.io/component-base/metrics/features",
	"k8s.io/component-base/zpages/features",
	"k8s.io/client-go/features",
}

func (s *source) gates() map[string]gate {
	all := map[string]gate{"AllAlpha": {Stage: "alpha"}, "AllBeta": {Stage: "beta"}}
	needs := make(map[string][]string)
	for _, path := range gatePackages {
		// Before 1.30, only environment variables set client-go's gates.
		p := s.load(path)
		if p == nil || strings.HasPrefix(path, "k8s.io/client-go") && s.minor < 30 {
			continue
		}
		for _, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				lit, ok := n.(*ast.CompositeLit)
				if !ok {
					return true
				}
				m, ok := lit.Type.(*ast.MapType)
				if !ok || last(m.Key) != "Feature" {
					return true
				}
				for _, e := range lit.Elts {
					kv := e.(*ast.KeyValueExpr)
					name, ok := s.text(p, f, kv.Key)
					if !ok {
						continue // the zero key of a converted map
					}
					switch value := kv.Value.(type) {
					case *ast.CompositeLit:
						switch {
						case last(m.Value) == "FeatureSpec":
							all[name] = spec(p, value)
						case last(m.Value) == "VersionedSpecs":
							if g, ok := s.versioned(p, value); ok {
								all[name] = g
							}
						default:
							for _, dep := range value.Elts {
								if d, ok := s.text(p, f, dep); ok {
									needs[name] = append(needs[name], d)
								}
							}
						}
					}
				}
				return false
			})
		}
	}
	for name, deps := range needs {
		if g, ok := all[name]; ok {
			slices.Sort(deps)
			g.Needs = slices.Compact(deps)
			all[name] = g
		}
	}
	return all
}

// versioned is the entry for this release.
func (s *source) versioned(p *pkg, list *ast.CompositeLit) (gate, bool) {
	var g gate
	found := false
	for _, e := range list.Elts {
		lit, ok := e.(*ast.CompositeLit)
		if !ok {
			continue
		}
		// A kubelet alone is compatible with the minor version before its own,
		// and entries that ask for more do not hold for it.
		since, compatible := 0, 0
		for _, field := range lit.Elts {
			kv := field.(*ast.KeyValueExpr)
			switch last(kv.Key) {
			case "Version":
				since = minorIn(kv.Value)
			case "MinCompatibilityVersion":
				compatible = minorIn(kv.Value)
			}
		}
		if since <= s.minor && compatible < s.minor {
			g, found = spec(p, lit), true
		}
	}
	return g, found
}

// minorIn is 37 of version.MustParse("1.37").
func minorIn(e ast.Expr) int {
	version, err := strconv.Unquote(e.(*ast.CallExpr).Args[0].(*ast.BasicLit).Value)
	if err != nil {
		log.Fatal(err)
	}
	minor, err := strconv.Atoi(strings.Split(version, ".")[1])
	if err != nil {
		log.Fatal(err)
	}
	return minor
}

func spec(p *pkg, lit *ast.CompositeLit) gate {
	var g gate
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch last(kv.Key) {
		case "Default":
			g.Default = truth(p, kv.Value)
		case "LockToDefault":
			g.Locked = truth(p, kv.Value)
		case "PreRelease":
			g.Stage = strings.ToLower(last(kv.Value))
		}
	}
	return g
}

// truth is the value of true, false, or a constant of the package.
func truth(p *pkg, e ast.Expr) bool {
	name := last(e)
	if v := p.consts[name]; v != nil && len(v.Values) == 1 {
		return last(v.Values[0]) == "true"
	}
	return name == "true"
}

// last is the last word of a name.
func last(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// fields collects the fields of a struct, by their path in Go, with their path
// in the file.
func (s *source) fields(path, name, goPath, filePath string, into map[string]string) {
	p := s.load(path)
	if p == nil {
		return
	}
	for _, f := range p.files {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, spec := range g.Specs {
				t := spec.(*ast.TypeSpec)
				if st, ok := t.Type.(*ast.StructType); ok && t.Name.Name == name {
					for _, field := range st.Fields.List {
						s.field(p, f, field, goPath, filePath, into)
					}
				}
			}
		}
	}
}

func (s *source) field(p *pkg, f *ast.File, field *ast.Field, goPath, filePath string, into map[string]string) {
	if field.Tag == nil {
		return
	}
	tag, _ := strconv.Unquote(field.Tag.Value)
	found := regexp.MustCompile(`json:"([^"]*)"`).FindStringSubmatch(tag)
	if found == nil {
		return
	}
	name, options, _ := strings.Cut(found[1], ",")
	t := field.Type
	for {
		if star, ok := t.(*ast.StarExpr); ok {
			t = star.X
		} else if list, ok := t.(*ast.ArrayType); ok {
			t = list.Elt
		} else {
			break
		}
	}
	typePath, typeName := p.path, last(t)
	if sel, ok := t.(*ast.SelectorExpr); ok {
		typePath = p.imports[f][sel.X.(*ast.Ident).Name]
	}
	if strings.Contains(options, "inline") || name == "" && len(field.Names) == 0 {
		if typeName == "TypeMeta" {
			into["Kind"], into["APIVersion"] = "kind", "apiVersion"
			return
		}
		s.fields(typePath, typeName, goPath, filePath, into)
		return
	}
	goPath += field.Names[0].Name
	filePath += name
	into[goPath] = filePath
	// These are written as one value.
	if typeName != "Duration" && typeName != "Time" && typeName != "QuantityValue" && typeName != "TimeOrMetaDuration" {
		s.fields(typePath, typeName, goPath+".", filePath+".", into)
	}
}

// flags collects the flags that the kubelet's command registers. Its packages call the
// flag set's methods with the name as a literal or a constant.
func (s *source) flags(fields map[string]string) map[string]flag {
	all := map[string]flag{"help": {Type: "bool"}, "version": {Type: "optional"}}
	deprecated := make(map[string]string)
	// The options of the container runtime were in the second until 1.35.
	for _, path := range []string{"k8s.io/kubernetes/cmd/kubelet/app/options", "k8s.io/kubernetes/pkg/kubelet/config", "k8s.io/component-base/logs/api/v1"} {
		p := s.load(path)
		for _, f := range p.files {
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || strings.HasSuffix(path, "logs/api/v1") && fn.Name.Name != "addFlags" {
					continue
				}
				ast.Inspect(fn, func(n ast.Node) bool {
					if call, ok := n.(*ast.CallExpr); ok {
						s.call(p, f, call, fields, all, deprecated)
					}
					return true
				})
			}
		}
	}
	for name, why := range deprecated {
		if g, ok := all[name]; ok {
			g.Deprecated = why
			all[name] = g
		}
	}
	return all
}

func (s *source) call(p *pkg, f *ast.File, call *ast.CallExpr, fields map[string]string, all map[string]flag, deprecated map[string]string) {
	method := last(call.Fun)
	switch method {
	case "register", "registerDeprecated", "pflagRegister":
		name, ok := s.text(p, f, call.Args[2])
		if !ok {
			return
		}
		name = strings.ReplaceAll(name, "_", "-")
		all[name] = flag{Type: "string"}
		if switches[name] {
			all[name] = flag{Type: "bool"}
		}
		if method == "registerDeprecated" {
			deprecated[name] = "will be removed"
		}
		return
	case "MarkDeprecated":
		if name, ok := s.text(p, f, call.Args[0]); ok {
			why, _ := s.text(p, f, call.Args[1])
			deprecated[name] = why
		}
		return
	}
	kind, ok := strings.CutSuffix(method, "Var")
	if method == "VarP" {
		kind, ok = "", true
	}
	if sel, isSel := call.Fun.(*ast.SelectorExpr); !ok || !isSel || len(call.Args) < 3 || last(sel.X) != "fs" {
		return
	}
	name, ok := s.text(p, f, call.Args[1])
	if !ok {
		return
	}
	target := call.Args[0]
	kind = strings.ToLower(kind)
	if kind == "" {
		kind = kindOf(target)
	}
	if kind == "stringslice" {
		kind = "strings"
	}
	all[name] = flag{Type: kind, Field: fields[goField(target, p.path)]}
}

// kinds are the flag types with a special syntax, by their constructors.
var kinds = map[string]string{
	"NewMapStringString": "map", "NewMapStringStringNoSplit": "map", "NewLangleSeparatedMapStringString": "thresholds",
	"NewMapStringBool": "gates", "NewColonSeparatedMultimapStringString": "headers", "IPVar": "ip", "IPPortVar": "ip:port",
	"ReservedMemoryVar": "reserved-memory", "RegisterWithTaintsVar": "taints", "bindableNodeLabels": "labels",
	"VerbosityLevelPflag": "int32", "InfoBufferSize": "quantity", "VModuleConfigurationPflag": "string",
}

// switches are the flags of cadvisor, defined in its own packages, that take no
// value.
var switches = map[string]bool{"enable-load-reader": true, "log-cadvisor-usage": true, "storage-driver-secure": true}

func kindOf(e ast.Expr) string {
	kind := "string"
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && kinds[id.Name] != "" && kind == "string" {
			kind = kinds[id.Name]
		}
		return true
	})
	return kind
}

// goField is the field of the configuration that a flag's target is, by its
// path in Go: the part after the variable c.
func goField(e ast.Expr, path string) string {
	var found string
	ast.Inspect(e, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || found != "" {
			return found == ""
		}
		var words []string
		var x ast.Expr = sel
		for {
			s, ok := x.(*ast.SelectorExpr)
			if !ok {
				break
			}
			words = append([]string{s.Sel.Name}, words...)
			x = s.X
		}
		if id, ok := x.(*ast.Ident); ok && id.Name == "c" {
			found = strings.Join(words, ".")
			return false
		}
		return true
	})
	for strings.HasSuffix(found, ".Duration") {
		found = strings.TrimSuffix(found, ".Duration")
	}
	if strings.HasSuffix(path, "logs/api/v1") {
		found = "Logging." + found
	}
	return found
}
