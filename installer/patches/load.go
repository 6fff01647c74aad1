package patches

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"airlift/fault"
)

// Load reads a directory of patches, in the alphabetical order in which they are
// applied. Files without a known target are left out with a warning, as in
// kubeadm. The error (fault.Usage) lists everything that is wrong in the other
// files. An empty dir means no patches.
func Load(dir string) (set *Set, warnings []string, err error) {
	if dir == "" {
		return nil, nil, nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, nil, fault.New(fault.Usage, "", "reading the patches: %w", err)
	}
	if !info.IsDir() {
		return nil, nil, fault.New(fault.Usage, "put the patch into a directory and give the directory", "reading the patches: %q is not a directory", dir)
	}
	set = &Set{}
	var problems []string
	root := os.DirFS(dir)
	err = fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		target, kind, ignored, err := parseName(entry.Name())
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", file, err))
			return nil
		}
		if ignored != "" {
			warnings = append(warnings, fmt.Sprintf("the patch file %q is not used: %s", file, ignored))
			return nil
		}
		data, err := fs.ReadFile(root, file)
		if err != nil {
			problems = append(problems, err.Error())
			return nil
		}
		documents, err := split(data)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", file, err))
		}
		if err == nil && len(documents) == 0 {
			warnings = append(warnings, fmt.Sprintf("the patch file %q is not used: it is empty", file))
		}
		for i, document := range documents {
			p := patch{file: file, document: i + 1, target: target, kind: kind, data: document}
			if err := p.check(); err != nil {
				problems = append(problems, fmt.Sprintf("%s: document %d: %v", file, p.document, err))
				continue
			}
			set.patches = append(set.patches, p)
		}
		return nil
	})
	if err != nil {
		return nil, warnings, fault.New(fault.Usage, "", "reading the patches in %q: %w", dir, err)
	}
	if len(problems) > 0 {
		return nil, warnings, fault.New(fault.Usage, "name a patch file TARGET[SUFFIX][+strategic|+merge|+json].yaml or .json",
			"the patches in %q are not valid:\n  - %s", dir, strings.Join(problems, "\n  - "))
	}
	return set, warnings, nil
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

// split returns the non-empty documents of a file as JSON.
func split(data []byte) (documents [][]byte, err error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		if document = bytes.TrimSpace(document); len(document) == 0 {
			continue
		}
		asJSON, err := yaml.YAMLToJSONStrict(document) // no key twice
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if string(asJSON) != "null" { // nothing but comments
			documents = append(documents, asJSON)
		}
	}
}
