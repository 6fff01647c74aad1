package patches

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"airlift/internal/documents"
	"airlift/internal/documents/problems"
	"airlift/internal/fault"
)

// Load reads a directory of patches, in the alphabetical order in which they are
// applied. Files without a known target are left out with a warning, as in
// kubeadm. The error (fault.Usage), a problems.Wrong, lists everything that is wrong in the other
// files. An empty dir means no patches.
func Load(dir string) (set *Set, warnings []string, err error) {
	if dir == "" {
		return nil, nil, nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, nil, fault.New(fault.Usage, "reading the patches: %w", err)
	}
	if !info.IsDir() {
		return nil, nil, fault.New(fault.Usage, "reading the patches: %q is not a directory", dir).Hint("put the patch into a directory and give the directory")
	}
	set = &Set{dir: dir}
	wrong, texts := &problems.Wrong{}, []string{}
	refuse := func(p problems.Problem, place string) {
		texts = append(texts, fmt.Sprintf("%s: %s", p.File, strings.TrimPrefix(place+": "+p.String(), ": ")))
		p.File, p.Line = filepath.Join(dir, p.File), max(p.Line, 1)
		wrong.Problems = append(wrong.Problems, p)
	}
	hint := "correct the file"
	root := os.DirFS(dir)
	err = fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		target, kind, ignored, err := parseName(entry.Name())
		if err != nil {
			hint = "name a patch file TARGET[SUFFIX][+strategic|+merge|+json].yaml or .json"
			refuse(problems.Problem{File: file, Text: err.Error()}, "")
			return nil
		}
		if ignored != "" {
			warnings = append(warnings, fmt.Sprintf("the patch file %q is not used: %s", file, ignored))
			return nil
		}
		data, err := fs.ReadFile(root, file)
		if err != nil {
			refuse(problems.Problem{File: file, Text: err.Error()}, "")
			return nil
		}
		list, errs := documents.Read(data)
		for _, e := range errs {
			refuse(problems.Problem{File: file, Line: e.Line, Text: e.Text}, fmt.Sprintf("document %d: line %d", e.Document, e.Line))
		}
		list = slices.DeleteFunc(list, documents.Document.Empty)
		if len(errs)+len(list) == 0 {
			warnings = append(warnings, fmt.Sprintf("the patch file %q is not used: it is empty", file))
		}
		for i, d := range list {
			p := patch{file: file, document: i + 1, target: target, kind: kind, data: d}
			for _, wrong := range p.check() {
				place := fmt.Sprintf("document %d", p.document)
				if wrong.Line > 0 {
					place += fmt.Sprintf(": line %d", wrong.Line)
				}
				wrong.File, wrong.Line = file, cmp.Or(wrong.Line, d.Line)
				refuse(wrong, place)
			}
			set.patches = append(set.patches, p)
		}
		return nil
	})
	if err != nil {
		return nil, warnings, fault.New(fault.Usage, "reading the patches in %q: %w", dir, err)
	}
	if len(texts) > 0 {
		wrong.Text = fmt.Sprintf("the patches in %q are not valid:\n  - %s", dir, strings.Join(texts, "\n  - "))
		return nil, warnings, fault.Wrap(wrong, fault.Usage, hint)
	}
	return set, warnings, nil
}

// Target returns what a file with this name patches; "" if it is no patch.
func Target(name string) string {
	target, _, _, _ := parseName(name)
	return target
}

// parseName splits a file name into target and patch type. ignored is why the
// file is not a patch; a known target with an unknown type is an error.
func parseName(name string) (target, kind, ignored string, err error) {
	ext := filepath.Ext(name)
	if ext != ".yaml" && ext != ".json" {
		return "", "", "its name does not end in .yaml or .json", nil
	}
	known := slices.Sorted(maps.Keys(targets))
	i := slices.IndexFunc(known, func(t string) bool { return strings.HasPrefix(name, t) })
	if i < 0 {
		return "", "", "its name must start with one of " + strings.Join(known, ", "), nil
	}
	target = known[i]
	// The suffix only orders the files; it ends at the first plus or dot.
	rest := strings.TrimPrefix(name, target)
	rest = rest[strings.IndexAny(rest, "+."):]
	if rest[0] == '.' {
		return target, "strategic", "", nil
	}
	kind, _, _ = strings.Cut(rest[1:], ".")
	if kind != "strategic" && kind != "merge" && kind != "json" {
		return "", "", "", fmt.Errorf("unknown patch type %q: use strategic, merge or json", kind)
	}
	return target, kind, "", nil
}
