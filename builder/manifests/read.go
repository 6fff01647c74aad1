package manifests

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"airlift/internal/fault"
)

// Read returns the objects in name. This is a file, a directory, or a directory with a
// kustomization. The files of a directory are those with the extensions yaml, yml and json, in
// small letters or capitals, also in its subdirectories, sorted by path. Names that begin with a
// dot are ignored. Links to files are followed; a link to a directory is an error.
func Read(name string) ([]*Object, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, "give a file or a directory with Kubernetes manifests")
	}
	if !info.IsDir() && isKustomization(name) {
		name = filepath.Dir(name)
		info, err = os.Stat(name)
		if err != nil {
			return nil, err
		}
	}
	var objects []*Object
	switch {
	case !info.IsDir():
		objects, err = readFile(name)
	case kustomizationIn(name) != "":
		objects, err = readKustomization(name)
	default:
		objects, err = readDirectory(name)
	}
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return nil, fault.New(fault.Usage, "%q has no Kubernetes objects", name).Hint("give a file or a directory with Kubernetes manifests")
	}
	return objects, Unique(objects)
}

func readFile(name string) ([]*Object, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return Decode(name, content)
}

func readDirectory(dir string) ([]*Object, error) {
	var names []string
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != dir && strings.HasPrefix(entry.Name(), ".") && entry.IsDir():
			return filepath.SkipDir
		case entry.IsDir() || strings.HasPrefix(entry.Name(), "."):
		case entry.Type()&fs.ModeSymlink != 0 && isDirectory(name):
			return fault.New(fault.Usage, "%q is a link to a directory, which is not followed", name).
				Hint("list the directory that the link leads to, or replace the link by a copy")
		case slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name))):
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var objects []*Object
	for _, name := range names {
		if isKustomization(name) {
			return nil, fault.New(fault.Usage, "%q is a kustomization, but %q is not", filepath.Dir(name), dir).
				Hint("give " + filepath.Dir(name) + " itself, or only directories without a kustomization")
		}
		more, err := readFile(name)
		if err != nil {
			return nil, err
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

func isDirectory(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// noKindHint explains a document that is not an object.
func noKindHint(file string, content map[string]any) string {
	switch base := filepath.Base(file); {
	case base == "Chart.yaml" || base == "values.yaml":
		return "this is a file of a Helm chart: list its directory as a chart"
	case content["services"] != nil:
		return "this looks like a file of Docker Compose: write Kubernetes objects"
	}
	return "write apiVersion, kind and metadata.name, or move the file to another directory"
}
