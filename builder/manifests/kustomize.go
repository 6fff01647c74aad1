package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/kio"

	"airlift/internal/documents"
	"airlift/internal/fault"
)

// isKustomization reports whether a file has the name of a kustomization.
func isKustomization(name string) bool {
	return slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(name))
}

// kustomizationIn returns the path of the directory's kustomization, or "".
func kustomizationIn(dir string) string {
	for _, base := range konfig.RecognizedKustomizationFileNames() {
		name := filepath.Join(dir, base)
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			return name
		}
	}
	return ""
}

// readKustomization returns the objects that "kustomize build" prints for the directory, in
// that order. Kustomize could download or clone what a kustomization refers to, so such
// references are refused before it runs.
func readKustomization(dir string) ([]*Object, error) {
	if err := (&localOnly{seen: map[string]bool{}}).directory(dir); err != nil {
		return nil, err
	}
	options := krusty.MakeDefaultOptions()
	// The default of the command: the kustomization's sortOptions, or kustomize's own order.
	options.Reorder = krusty.ReorderOptionUnspecified
	resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fault.New(fault.Usage, "kustomization %q: %w", dir, err).Hint("see what kustomize reports: kubectl kustomize " + dir)
	}
	var objects []*Object
	for _, r := range resources.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			return nil, fmt.Errorf("kustomization %q: encoding %s: %w", dir, r.CurId(), err)
		}
		more, err := Decode(dir, text)
		if err != nil {
			return nil, err
		}
		for _, o := range more {
			o.Line = 0
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

// remote matches what kustomize downloads or clones, also if a local file has that name.
// Source: NewRepoSpecFromURL and IsRemoteFile in sigs.k8s.io/kustomize/api v0.21.2.
var remote = regexp.MustCompile(`(?i)(^|=)((git::)?(ssh|https?|file)://|git::|github\.com[/:]|[a-z][a-z0-9-]*@[^/]+[:/])`)

// referring are the fields of a kustomization, and of the configuration of a generator or
// transformer, that refer to files and directories.
var referring = []string{
	"bases", "components", "configurations", "crds", "env", "envs", "files", "generators", "patchesStrategicMerge",
	"path", "resources", "targetFilePath", "transformers", "validators", "valuesFile", "additionalValuesFiles",
}

// data are the fields whose files kustomize copies unchanged.
var data = []string{"env", "envs", "files", "valuesFile", "additionalValuesFiles"}

// localOnly looks for references to other machines in a kustomization and everything that
// it refers to.
type localOnly struct{ seen map[string]bool }

// directory looks at the kustomization of a directory. As in kustomize, paths in it begin at the
// directory that a link leads to.
func (l *localOnly) directory(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	name := kustomizationIn(dir)
	if name == "" || l.seen[name] {
		return nil
	}
	l.seen[name] = true
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	list, err := readAsKustomize(name, content)
	if err == nil && len(list) > 1 {
		err = fault.New(fault.Usage, "%s: kustomize reads only the first document of this file", position(name, list[1].Line)).Hint("move it to another directory")
	}
	if err != nil {
		return err
	}
	return l.look(name, list)
}

// look looks at the documents of a kustomization, or of the configuration of a generator or a transformer.
func (l *localOnly) look(name string, list []documents.Document) error {
	for _, d := range list {
		if err := l.lookAt(name, d); err != nil {
			return err
		}
	}
	return nil
}

func (l *localOnly) lookAt(name string, d documents.Document) (err error) {
	var value map[string]any
	if json.Unmarshal(d.JSON, &value) != nil {
		return nil // kustomize reports it better
	}
	for field := range value {
		if isOneOf([]string{"helmCharts", "helmChartInflationGenerator"}, field) {
			return fault.New(fault.Usage, "%q renders a Helm chart, which would be downloaded", name).Hint("list the chart as a chart")
		}
	}
	walk(nil, value, func(p path, v any) bool {
		s, ok := v.(string)
		fields, _ := v.(map[string]any)
		one, other := sameField(fields)
		switch {
		case err == nil && other != "" && (len(p) == 0 || !p.endsInKey()): // not in labels
			err = fault.New(fault.Usage, "%s: %s and %s are the same field for kustomize, which uses one of them", position(name, fieldLine(d.Node, other, d.Line)), one, other).Hint("remove one of them")
		case err != nil || !ok:
		case isOneOf(referring, p.key()):
			err = l.reference(name, p, s)
		case p.key() == "patch": // of objects, in the kustomization itself
			_, err = readAsKustomize(name+": "+p.String(), []byte(s))
		}
		return err == nil
	})
	return err
}

// readAsKustomize returns the documents of a file. kustomize has its own reader: what it would
// ignore is an error.
func readAsKustomize(name string, content []byte) ([]documents.Document, error) {
	list, errs := documents.Read(content)
	if len(errs) > 0 {
		return nil, unreadable(name, content, errs[0])
	}
	list = slices.DeleteFunc(list, documents.Document.Empty)
	nodes, err := (&kio.ByteReader{Reader: bytes.NewReader(content), OmitReaderAnnotations: true, DisableUnwrapping: true}).Read()
	if err == nil && len(nodes) < len(list) {
		return nil, fault.New(fault.Usage, "%s: kustomize does not read this document", position(name, list[len(nodes)].Line)).Hint("put a line with --- before each object")
	}
	return list, nil
}

// isOneOf does not compare the case of fields, as kustomize.
func isOneOf(fields []string, name string) bool {
	return slices.ContainsFunc(fields, func(field string) bool { return strings.EqualFold(field, name) })
}

// sameField returns two names that differ only in their case, or nothing.
func sameField(fields map[string]any) (one, other string) {
	seen := map[string]string{}
	for _, name := range sortedKeys(fields) {
		folded := strings.ToLower(name)
		if seen[folded] != "" {
			return seen[folded], name
		}
		seen[folded] = name
	}
	return "", ""
}

func (l *localOnly) reference(name string, p path, s string) error {
	if strings.Contains(s, "\n") {
		list, err := readAsKustomize(name, []byte(s))
		if err != nil {
			return err
		}
		return l.look(name, list)
	}
	if remote.MatchString(s) {
		return fault.New(fault.Usage, "%q: %s %q is not on this machine", name, p, s).Hint("copy it next to the kustomization and write the path of the copy")
	}
	local := filepath.Join(filepath.Dir(name), s)
	info, err := os.Stat(local)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // kustomize reports it, or it is the KEY=PATH of a file
	case err != nil:
		return err
	case info.IsDir():
		return l.directory(local)
	case l.seen[local] || isOneOf(data, p.key()):
		return nil
	}
	l.seen[local] = true
	content, err := os.ReadFile(local)
	if err != nil {
		return err
	}
	list, err := readAsKustomize(local, content)
	if err != nil {
		return err
	}
	if len(list) > 1 && readsOne(p, list) {
		return fault.New(fault.Usage, "%s: kustomize reads only the first document of this file", position(local, list[1].Line)).Hint("move it to another file, or join the documents")
	}
	// In a file with objects, only configurations of kustomize's own generators and transformers refer to others.
	return l.look(local, slices.DeleteFunc(list, func(d documents.Document) bool {
		var header struct{ APIVersion string }
		return json.Unmarshal(d.JSON, &header) != nil || header.APIVersion != "builtin"
	}))
}

// readsOne reports whether kustomize reads only the first document of a file that this field refers to:
// replacements, configurations and JSON patches.
func readsOne(p path, list []documents.Document) bool {
	field, _ := p[0].(string)
	return slices.Contains([]string{"replacements", "configurations", "crds"}, field) ||
		strings.HasPrefix(field, "patches") && slices.ContainsFunc(list, func(d documents.Document) bool { return d.JSON[0] == '[' })
}
