package architecture

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"airlift/internal/hostpath"
)

// notOwned are the paths in the installer's source code that the site's own files may have.
var notOwned = map[string]string{
	"/etc/systemd/system/x":                               "units of the site and of timers, whose names are checked",
	"/usr/local/bin/x":                                    "binaries of the bundle, whose names are compared (builder/sitefile, installer/preflight)",
	"/usr/local/bin/kubelet":                              "the same",
	"/usr/local/bin/containerd":                           "the same",
	"/usr/local/sbin/runc":                                "the same",
	"/opt/cni/bin/x":                                      "the same",
	"/opt/containerd/bin":                                 "the site's plugins of containerd",
	"/opt/containerd/lib":                                 "the same",
	"/etc/containerd/conf.d/*.toml":                       "the site's configuration of containerd",
	"/etc/containerd/certs.d":                             "the site's registries",
	"/etc/containerd/certs.d/x":                           "the same; reset restores a file that a flag replaced",
	"/usr/libexec/kubernetes/kubelet-plugins/volume/exec": "the site's volume plugins",
	"/etc/cni/net.d/x":                                    "only read",
	"/etc/passwd":                                         "only read; systemd-sysusers and userdel write it",
	"/etc/group":                                          "the same",
	"/etc/os-release":                                     "only read",
	"/usr/lib/os-release":                                 "only read",
	"/etc/resolv.conf":                                    "only read",
	"/usr/share/zoneinfo":                                 "only read",
	"/usr/share/zoneinfo/x":                               "only read",
	"/etc/ssl/certs":                                      "mounted in containers, only read",
	"/etc/pki":                                            "the same",
	"/etc/pki/tls/certs":                                  "the same",
	"/etc/pki/ca-trust":                                   "the same",
	"/etc/ca-certificates":                                "the same",
	"/usr/share/ca-certificates":                          "the same",
	"/usr/local/share/ca-certificates":                    "the same",
	"/etc/coredns":                                        "in a container",
	"/etc/coredns/Corefile":                               "in a container",
	"/etc/kube-flannel/":                                  "in a container",
	"/opt/bin/flanneld":                                   "in a container",
	"/usr/local/bin/kube-proxy":                           "in a container",
	"/var/lib/kube-proxy":                                 "in a container",
	"/var/lib/kube-proxy/kubeconfig.conf":                 "in a container",
}

// onlyRead are packages that read files of many kinds, and write none.
var onlyRead = []string{"installer/adoption", "installer/audit", "installer/doctor", "installer/multihost/agent", "installer/preflight", "installer/redact"}

// onHost matches a path on a host, without the file systems of the kernel.
var onHost = regexp.MustCompile(`^/(etc|usr|var|opt|root)/[^\s%]+$`)

// TestOwnPaths reads the source code of the installer: every path in it, and every unit of a timer, is
// closed to the site's files, or is in notOwned.
func TestOwnPaths(t *testing.T) {
	found, unused := 0, map[string]bool{}
	for p := range notOwned {
		unused[p] = true
	}
	for p, at := range installerPaths(t) {
		found++
		delete(unused, p)
		if notOwned[p] == "" && hostpath.Owner(strings.TrimSuffix(p, "/")) == "" {
			t.Errorf("%s: %s is open to the site's own files: add it to package internal/hostpath or to notOwned", at, p)
		}
	}
	if found < 30 {
		t.Errorf("only %d paths were found", found)
	}
	for p := range unused {
		t.Errorf("notOwned has %s, which is not in the source code", p)
	}
}

// installerPaths returns the paths in the installer's source code and the places of their definitions.
func installerPaths(t *testing.T) map[string]token.Position {
	t.Helper()
	files, texts := token.NewFileSet(), constants{}
	var sources []*ast.File
	for _, p := range list(t) {
		dir := strings.TrimPrefix(p.ImportPath, "airlift/")
		if !isOnHost(dir) || slices.Contains(onlyRead, dir) {
			continue
		}
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(files, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, f)
			texts.add(f)
		}
	}
	paths := map[string]token.Position{}
	for _, f := range sources {
		add := func(text string, at ast.Node) bool {
			if is := onHost.MatchString(text); !is {
				return false
			}
			if _, known := paths[text]; !known {
				paths[text] = files.Position(at.Pos())
			}
			return true
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if timer, ok := n.(*ast.CompositeLit); ok {
				if name := texts.timer(f, timer); name != "" {
					add("/etc/systemd/system/"+name+".timer", n)
					add("/etc/systemd/system/"+name+".service", n)
				}
			}
			e, ok := n.(ast.Expr)
			return !ok || !add(texts.text(f.Name.Name, e), n)
		})
	}
	return paths
}

// constants are the constants and variables of all packages, by "package.name".
type constants map[string]ast.Expr

func (c constants) add(f *ast.File) {
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range g.Specs {
			if v, ok := s.(*ast.ValueSpec); ok {
				for i, value := range v.Values {
					c[f.Name.Name+"."+v.Names[i].Name] = value
				}
			}
		}
	}
}

// text returns the value of an expression in a package, with x for each part that is not constant;
// "" if it has no constant beginning.
func (c constants) text(in string, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ := strconv.Unquote(e.Value)
			return text
		}
	case *ast.Ident:
		return c.text(in, c[in+"."+e.Name])
	case *ast.SelectorExpr:
		if p, ok := e.X.(*ast.Ident); ok {
			return c.text(p.Name, c[p.Name+"."+e.Sel.Name])
		}
	case *ast.BinaryExpr:
		if begin := c.text(in, e.X); begin != "" {
			return begin + cmp.Or(c.text(in, e.Y), "x")
		}
	case *ast.CallExpr:
		s, ok := e.Fun.(*ast.SelectorExpr)
		if !ok || s.Sel.Name != "Join" || len(e.Args) == 0 {
			return ""
		}
		begin := c.text(in, e.Args[0])
		for _, arg := range e.Args[1:] {
			if begin != "" {
				begin = path.Join(begin, cmp.Or(c.text(in, arg), "x"))
			}
		}
		return begin
	}
	return ""
}

// timer returns the name of a host.Timer; "" for another value.
func (c constants) timer(f *ast.File, l *ast.CompositeLit) string {
	if t, ok := l.Type.(*ast.SelectorExpr); !ok || t.Sel.Name != "Timer" {
		return ""
	}
	for _, e := range l.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok && fieldName(kv) == "Name" {
			return c.text(f.Name.Name, kv.Value)
		}
	}
	return ""
}

func fieldName(kv *ast.KeyValueExpr) string {
	if name, ok := kv.Key.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}
