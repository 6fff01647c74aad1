//go:build ignore

// Generate writes facts.txt: the feature gates, flags and configuration fields of the
// kubelet of each minor version. It parses the sources of Kubernetes, which the go
// command downloads, and runs none of them:
//
//	go run ./installer/kubelet/facts/generate.go installer/kubelet/facts/facts.txt
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// versions are the Kubernetes releases that Airlift installs, oldest first.
var versions = []string{"1.29.15", "1.30.14", "1.31.14", "1.32.13", "1.33.13", "1.34.9", "1.35.6", "1.36.3", "1.37.1"}

// facts are what is true of "gate NAME", "flag NAME" and "field NAME", in the words of
// facts.txt before the colon and after the equals sign.
type facts map[string]fact

type fact struct{ is, of string }

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: generate FILE")
	}
	var out bytes.Buffer
	known := facts{}
	for _, version := range versions {
		s := &source{version: version, root: download("k8s.io/kubernetes@v" + version), packages: make(map[string]*pkg)}
		s.minor, _ = strconv.Atoi(strings.Split(version, ".")[1])
		mod, err := os.ReadFile(s.root + "/go.mod")
		if err != nil {
			log.Fatal(err)
		}
		s.mod = string(mod)
		now := facts{}
		s.gates(now)
		s.flags(now, s.fields(now))
		changes(&out, s.minor, known, now)
		known = now
	}
	if err := os.WriteFile(os.Args[1], out.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}

// changes writes what a minor version changed, one line for each kind of change, or more
// if it would be long.
func changes(out *bytes.Buffer, minor int, before, now facts) {
	lines := make(map[string][]string)
	for of, f := range now {
		kind, name, _ := strings.Cut(of, " ")
		if old, ok := before[of]; !ok || old != f {
			head := strings.TrimSpace(kind + " " + f.is)
			lines[head] = append(lines[head], strings.TrimSuffix(name+"="+f.of, "="))
		}
	}
	for of := range before {
		kind, name, _ := strings.Cut(of, " ")
		if _, ok := now[of]; !ok {
			lines[kind+" removed"] = append(lines[kind+" removed"], name)
		}
	}
	for _, head := range slices.Sorted(maps.Keys(lines)) {
		start := fmt.Sprintf("1.%d %s:", minor, head)
		line := start
		for _, entry := range slices.Sorted(slices.Values(lines[head])) {
			if len(line)+1+len(entry) > 140 && line != start {
				fmt.Fprintln(out, line)
				line = start
			}
			line += " " + entry
		}
		fmt.Fprintln(out, line)
	}
}

// source is the source of one release.
type source struct {
	version  string
	minor    int
	root     string // the directory of Kubernetes' module
	mod      string // its go.mod
	packages map[string]*pkg
}

type pkg struct {
	path  string
	files []file
	decls map[string]decl
}

type file struct {
	*pkg
	syntax  *ast.File
	imports map[string]string // path by local name
}

// A decl is the value of a constant or the definition of a type.
type decl struct {
	file
	expr ast.Expr
}

// dir finds the directory of a package in the module that Kubernetes' go.mod names; ""
// for packages of Go.
func (s *source) dir(path string) string {
	if below, ok := strings.CutPrefix(path, "k8s.io/kubernetes"); ok {
		return s.root + below
	}
	for module := path; module != "."; module = filepath.Dir(module) {
		if found := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module) + ` (v\S+)`).FindStringSubmatch(s.mod); found != nil {
			// Kubernetes' own modules are released with it.
			version := strings.Replace(found[1], "v0.0.0", "v0."+strings.TrimPrefix(s.version, "1."), 1)
			return download(module+"@"+version) + strings.TrimPrefix(path, module)
		}
	}
	return ""
}

// download downloads a module, if the module cache does not have it, and returns its
// directory.
func download(module string) string {
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	var found struct{ Dir string }
	if err != nil || json.Unmarshal(out, &found) != nil {
		log.Fatalf("downloading %s: %v\n%s", module, err, out)
	}
	return found.Dir
}

// load parses the files of a package for Linux. It is empty if this release does not have
// the package.
func (s *source) load(path string) *pkg {
	if p, ok := s.packages[path]; ok {
		return p
	}
	p := &pkg{path: path, decls: make(map[string]decl)}
	s.packages[path] = p
	context := build.Default
	context.GOOS, context.GOARCH = "linux", "amd64"
	dir := s.dir(path)
	found, err := context.ImportDir(dir, 0)
	if err != nil {
		return p
	}
	for _, base := range found.GoFiles {
		syntax, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, base), nil, parser.SkipObjectResolution)
		if err != nil {
			log.Fatal(err)
		}
		f := file{p, syntax, make(map[string]string)}
		p.files = append(p.files, f)
		for _, i := range syntax.Imports {
			to, _ := strconv.Unquote(i.Path.Value)
			local := filepath.Base(to)
			if i.Name != nil {
				local = i.Name.Name
			}
			f.imports[local] = to
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, id := range n.Names {
					if i < len(n.Values) {
						p.decls[id.Name] = decl{f, n.Values[i]}
					}
				}
			case *ast.TypeSpec:
				p.decls[n.Name.Name] = decl{f, n.Type}
			}
			_, isFunc := n.(*ast.FuncDecl)
			return !isFunc
		})
	}
	return p
}

// find finds the declaration of NAME or PACKAGE.NAME, or of what a pointer or a list is of.
func (s *source) find(f file, e ast.Expr) (d decl, ok bool) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return s.find(f, e.X)
	case *ast.ArrayType:
		return s.find(f, e.Elt)
	case *ast.Ident:
		d, ok = f.decls[e.Name]
	case *ast.SelectorExpr:
		if x, isName := e.X.(*ast.Ident); isName {
			d, ok = s.load(f.imports[x.Name]).decls[e.Sel.Name]
		}
	}
	return d, ok
}

// text is the value of a string expression.
func (s *source) text(f file, e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		t, err := strconv.Unquote(e.Value)
		return t, err == nil
	case *ast.CallExpr: // a conversion, or version.MustParse
		if len(e.Args) == 1 {
			return s.text(f, e.Args[0])
		}
	}
	if d, ok := s.find(f, e); ok {
		return s.text(d.file, d.expr)
	}
	return "", false
}

// last is the last word of a name.
func last(e ast.Expr) string {
	name := types.ExprString(e)
	return name[strings.LastIndexByte(name, '.')+1:]
}

const logs = "k8s.io/component-base/logs/api/v1"

// gatePackages are the packages that register feature gates in the kubelet.
var gatePackages = []string{
	"k8s.io/kubernetes/pkg/features",
	"k8s.io/apiserver/pkg/features",
	"k8s.io/apiextensions-apiserver/pkg/features",
	logs,
	"k8s.io/component-base/metrics/features",
	"k8s.io/component-base/zpages/features",
	"k8s.io/client-go/features",
}

// gates reads the maps of gates to their specifications and to the gates that they need.
func (s *source) gates(into facts) {
	into["gate AllAlpha"], into["gate AllBeta"] = fact{is: "alpha"}, fact{is: "beta"}
	needs := make(map[string][]string)
	for _, path := range gatePackages {
		// Before 1.30, only environment variables set client-go's gates.
		if strings.HasPrefix(path, "k8s.io/client-go") && s.minor < 30 {
			continue
		}
		for _, f := range s.load(path).files {
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				lit, ok := n.(*ast.CompositeLit)
				if !ok {
					return true
				}
				m, ok := lit.Type.(*ast.MapType)
				if !ok || last(m.Key) != "Feature" {
					return true
				}
				for _, e := range lit.Elts {
					entry := e.(*ast.KeyValueExpr)
					gate, ok := s.text(f, entry.Key)
					list, isList := entry.Value.(*ast.CompositeLit)
					if !ok || !isList {
						continue // the zero key of a converted map
					}
					specs := list.Elts
					if last(m.Value) == "FeatureSpec" {
						specs = []ast.Expr{list}
					}
					for _, e := range specs {
						if stage := s.stage(f, e); stage != "" {
							into["gate "+gate] = fact{is: stage}
						} else if need, ok := s.text(f, e); ok {
							needs[gate] = append(needs[gate], need)
						}
					}
				}
				return false
			})
		}
	}
	for gate, list := range needs {
		if f, ok := into["gate "+gate]; ok {
			slices.Sort(list)
			into["gate "+gate] = fact{f.is, strings.Join(slices.Compact(list), ",")}
		}
	}
}

// stage is a specification in words; "" if it is not for this release. A kubelet alone
// is compatible with the minor version before its own, and specifications that ask for
// more do not hold for it.
func (s *source) stage(f file, e ast.Expr) string {
	lit, ok := e.(*ast.CompositeLit)
	if !ok {
		return ""
	}
	var stage, on, locked string
	for _, e := range lit.Elts {
		field, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		set := last(field.Value)
		if d, ok := s.find(f, field.Value); ok && set != "true" {
			set = cmp.Or(last(d.expr), set) // a constant
		}
		text, _ := s.text(f, field.Value)
		_, digits, _ := strings.Cut(text, ".")
		minor, _ := strconv.Atoi(digits)
		switch key := last(field.Key); {
		case key == "Version" && minor > s.minor, key == "MinCompatibilityVersion" && minor >= s.minor:
			return ""
		case key == "PreRelease":
			stage = strings.ToLower(last(field.Value))
		case key == "Default" && set == "true":
			on = " on"
		case key == "LockToDefault" && set == "true":
			locked = " locked"
		}
	}
	return stage + on + locked
}

// fields reads the fields of the configuration. It returns their paths in the file by
// their paths in Go.
func (s *source) fields(into facts) map[string]string {
	byGoPath := make(map[string]string)
	s.fieldsOf(s.load("k8s.io/kubelet/config/v1beta1").decls["KubeletConfiguration"], "", "", byGoPath)
	for _, path := range byGoPath {
		into["field "+path] = fact{}
	}
	return byGoPath
}

func (s *source) fieldsOf(d decl, goPath, path string, into map[string]string) {
	list, ok := d.expr.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range list.Fields.List {
		if field.Tag == nil {
			continue
		}
		tag, _ := strconv.Unquote(field.Tag.Value)
		key, options, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		inner, _ := s.find(d.file, field.Type)
		if strings.Contains(options, "inline") || key == "" && len(field.Names) == 0 {
			s.fieldsOf(inner, goPath, path, into)
		} else if key != "" && key != "-" {
			into[goPath+field.Names[0].Name] = path + key
			s.fieldsOf(inner, goPath+field.Names[0].Name+".", path+key+".", into)
		}
	}
}

// kinds are the flag types with a special syntax, by their constructors.
var kinds = map[string]string{
	"NewMapStringString": "map", "NewMapStringStringNoSplit": "map", "NewLangleSeparatedMapStringString": "thresholds",
	"NewMapStringBool": "gates", "NewColonSeparatedMultimapStringString": "headers", "IPVar": "ip", "IPPortVar": "ip:port",
	"ReservedMemoryVar": "reserved-memory", "RegisterWithTaintsVar": "taints", "bindableNodeLabels": "labels",
	"VerbosityLevelPflag": "int32", "InfoBufferSize": "quantity", "VModuleConfigurationPflag": "vmodule", "stringslice": "strings",
}

// switches are the flags of cadvisor, defined in its own packages, that take no
// value.
var switches = map[string]string{"enable-load-reader": "bool", "log-cadvisor-usage": "bool", "storage-driver-secure": "bool"}

// flags reads the flags that the kubelet's command registers. Its packages call the
// flag set's methods with the name as a literal or a constant.
func (s *source) flags(into facts, fields map[string]string) {
	into["flag help"], into["flag version"] = fact{is: "bool"}, fact{is: "optional"}
	// The options of the container runtime were in the second until 1.35.
	for _, path := range []string{"k8s.io/kubernetes/cmd/kubelet/app/options", "k8s.io/kubernetes/pkg/kubelet/config", logs} {
		for _, f := range s.load(path).files {
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					return path != logs || n.Name.Name == "addFlags"
				case *ast.CallExpr:
					s.call(f, n, into, fields)
				}
				return true
			})
		}
	}
}

func (s *source) call(f file, call *ast.CallExpr, into facts, fields map[string]string) {
	method := last(call.Fun)
	var args [3]string
	for i := range min(len(args), len(call.Args)) {
		args[i], _ = s.text(f, call.Args[i])
	}
	kind, isVar := strings.CutSuffix(strings.TrimSuffix(method, "P"), "Var")
	switch {
	case isVar && args[1] != "" && strings.HasPrefix(types.ExprString(call.Fun), "fs."):
		kind, field := target(call.Args[0], strings.ToLower(kind))
		if f.path == logs {
			field = "Logging." + field
		}
		into["flag "+args[1]] = fact{kind, fields[field]}
	case method == "MarkDeprecated":
		flag := into["flag "+args[0]]
		flag.is += " deprecated"
		if use := regexp.MustCompile(`--[a-z-]+`).FindAllString(args[1], -1); use != nil {
			flag.is += "; use " + strings.Join(use, " or ")
		}
		into["flag "+args[0]] = flag
	case args[2] != "" && slices.Contains([]string{"register", "registerDeprecated", "pflagRegister"}, method):
		name := strings.ReplaceAll(args[2], "_", "-")
		flag := fact{is: cmp.Or(switches[name], "string")}
		if method == "registerDeprecated" {
			flag.is += " deprecated"
		}
		into["flag "+name] = flag
	}
}

// target is the type of a flag and the field that it sets, by its path in Go: the part
// after the variable c.
func target(e ast.Expr, kind string) (string, string) {
	var text strings.Builder
	printer.Fprint(&text, token.NewFileSet(), e)
	for _, word := range regexp.MustCompile(`\w+`).FindAllString(text.String(), -1) {
		kind = cmp.Or(kind, kinds[word])
	}
	field := regexp.MustCompile(`\bc\.([\w.]*)`).FindStringSubmatch(text.String() + " c. ")
	return cmp.Or(kinds[kind], kind, "string"), strings.ReplaceAll(field[1], ".Duration", "")
}
