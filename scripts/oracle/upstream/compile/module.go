package compile

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"airlift/scripts/oracle/upstream/components"
)

// module is the output of `go mod download -json` for a module version.
type module struct {
	Dir, GoMod, Info string
	Error            string
}

// origin is the part of a version's .info file for the version stamps. The proxy omits Hash for
// some modules.
type origin struct {
	Time   time.Time
	Origin struct{ Hash string }
}

func (b *Builder) download(ctx context.Context, modpath, version string) (module, origin, error) {
	var m module
	var o origin
	out, err := b.run(ctx, b.Cache, nil, "go", "mod", "download", "-json", modpath+"@"+version)
	if err != nil {
		return m, o, err
	}
	if err := json.Unmarshal(out, &m); err != nil {
		return m, o, fmt.Errorf("reading the output of go for %s@%s: %w", modpath, version, err)
	}
	info, err := os.ReadFile(m.Info)
	if err != nil {
		return m, o, err
	}
	if err := json.Unmarshal(info, &o); err != nil {
		return m, o, fmt.Errorf("reading %s: %w", m.Info, err)
	}
	return m, o, nil
}

// compileGo builds in a temporary module that requires the recipe's module. It starts with a copy
// of upstream's go.mod and go.sum, so that every dependency has upstream's version. go checks
// modules that are not in go.sum (the staging modules) against the checksum database.
func (b *Builder) compileGo(ctx context.Context, r components.Recipe, tools toolchain, out string) error {
	mod, from, err := b.download(ctx, r.Module, r.Version)
	if err != nil {
		return err
	}
	dir, err := b.tempDir("module")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := b.writeModule(ctx, r, mod, dir); err != nil {
		return fmt.Errorf("writing go.mod: %w", err)
	}
	if r.Main != "" {
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(r.Main), 0o644); err != nil {
			return err
		}
	}
	for name, path := range r.Files {
		data, err := os.ReadFile(filepath.Join(mod.Dir, path))
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644) // files in a module have no executable mode
		if filepath.Ext(name) == ".sh" {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(out, name), data, mode); err != nil {
			return err
		}
	}
	commit := from.Origin.Hash
	if commit == "" {
		commit = "unknown"
	}
	stamp := strings.NewReplacer("{commit}", commit, "{time}", from.Time.UTC().Format(time.RFC3339))
	for _, t := range r.Targets {
		args := []string{"build"}
		if t.Test {
			args = []string{"test", "-c"}
		}
		args = append(args, "-mod=mod", "-trimpath", "-buildvcs=false", "-ldflags", stamp.Replace(t.LDFlags))
		if t.Tags != "" {
			args = append(args, "-tags", t.Tags)
		}
		if t.PIE {
			args = append(args, "-buildmode=pie")
		}
		env := []string{"CGO_ENABLED=0"}
		if t.CGO {
			env = []string{"CGO_ENABLED=1"}
		}
		env = append(env, tools.env...)
		for _, call := range outputs(t, out) {
			if _, err := b.run(ctx, dir, env, "go", append(args[:len(args):len(args)], call...)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// outputs returns the last arguments of the calls of go build for a target: one call for all
// binaries if go chooses the right names, because it then links them in parallel, or else one
// call for each.
func outputs(t components.Target, out string) [][]string {
	together := []string{"-o", out + "/"}
	var apart [][]string
	named := true
	for name, pkg := range t.Packages {
		together = append(together, pkg)
		apart = append(apart, []string{"-o", filepath.Join(out, name), pkg})
		named = named && name == path.Base(pkg)
	}
	if named {
		return [][]string{together}
	}
	return apart
}

func (b *Builder) writeModule(ctx context.Context, r components.Recipe, mod module, dir string) error {
	gomod, err := os.ReadFile(mod.GoMod)
	if err != nil {
		return err
	}
	gosum, err := os.ReadFile(filepath.Join(mod.Dir, "go.sum"))
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"go.mod": gomod, "go.sum": gosum} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	text, err := b.run(ctx, dir, nil, "go", "mod", "edit", "-json")
	if err != nil {
		return err
	}
	var parsed struct {
		Require []struct{ Path string }
		Replace []struct {
			Old, New struct{ Path, Version string }
		}
	}
	if err := json.Unmarshal(text, &parsed); err != nil {
		return err
	}
	edit := []string{"mod", "edit", "-module=airlift.upstream/" + r.Name, "-require=" + r.Module + "@" + r.Version}
	for _, rep := range parsed.Replace {
		if rep.New.Version != "" {
			continue // a replacement by another module also applies here
		}
		old := rep.Old.Path
		if rep.Old.Version != "" {
			old += "@" + rep.Old.Version
		}
		edit = append(edit, "-dropreplace="+old)
		if r.Staging == "" {
			continue
		}
		edit = append(edit, "-replace="+old+"="+rep.Old.Path+"@"+r.Staging)
		if slices.Contains(parsed.Require, struct{ Path string }{rep.Old.Path}) {
			// Otherwise the binary would report v0.0.0. What is not required are samples.
			edit = append(edit, "-require="+rep.Old.Path+"@"+r.Staging)
		}
	}
	for path, version := range r.Replace {
		if !strings.Contains(version, "@") {
			version = path + "@" + version
		}
		edit = append(edit, "-replace="+path+"="+version)
	}
	for path, local := range r.Local {
		if err := b.writeLocal(ctx, filepath.Join(dir, path), path, local); err != nil {
			return err
		}
		edit = append(edit, "-replace="+path+"=./"+path)
	}
	_, err = b.run(ctx, dir, nil, "go", edit...)
	return err
}

// writeLocal writes a module into a directory.
func (b *Builder) writeLocal(ctx context.Context, dir, path string, local components.LocalModule) error {
	if local.Version != "" {
		mod, _, err := b.download(ctx, path, local.Version)
		if err != nil {
			return err
		}
		if err := os.CopyFS(dir, os.DirFS(mod.Dir)); err != nil {
			return err
		}
	}
	for name, text := range local.Files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compileC compiles a single-file C binary of the Kubernetes module.
func (b *Builder) compileC(ctx context.Context, r components.Recipe, tools toolchain, out string) error {
	mod, _, err := b.download(ctx, "k8s.io/kubernetes", r.Version)
	if err != nil {
		return err
	}
	for _, t := range r.Targets {
		for name := range t.Packages {
			bin := filepath.Join(out, name)
			args := append(strings.Fields(t.LDFlags), "-o", bin, filepath.Join(mod.Dir, r.Source))
			if _, err := b.run(ctx, out, nil, tools.cc, args...); err != nil {
				return err
			}
			if _, err := b.run(ctx, out, nil, tools.strip, bin); err != nil {
				return err
			}
		}
	}
	return nil
}
