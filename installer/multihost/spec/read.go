package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"airlift/installer/config"
	"airlift/installer/patches"
	"airlift/internal/documents"
	"airlift/internal/documents/problems"
	"airlift/internal/documents/strict"
	"airlift/internal/fault"
)

// A reader reads one file and collects all of its problems.
type reader struct {
	strict.Decoder
	dir      string // absolute; paths in the file are relative to it
	relative string // a part of hints
	warnings []string
	digest   hash.Hash
	kubeadm  kubeadm
	patches  map[string]*patches.Set // by directory
	target   *Target                 // nil: values of kubeadm's documents are not checked
}

// Read reads cluster.yaml with the files that it names, or standard input for "-". The error (fault.Usage), a problems.Wrong, lists
// everything that is wrong, each with its line.
func Read(path string) (*Cluster, error) { return read(path, nil) }

// Validate is Read, and also checks the values of kubeadm's documents and the patches, as the hosts do with a bundle.
func Validate(path string, target Target) (*Cluster, error) { return read(path, &target) }

// A Target checks values for a bundle. It is a parameter because the checks know hosts, and the command bundle, which reads cluster.yaml,
// does not.
type Target struct {
	CNI string
	// Checker returns the checks for a host with this address, "" for any host: configfile.Checker.
	Checker func(nodeIP string) Checker
}

// A Checker checks the values of kubeadm's documents.
type Checker interface {
	Values(f *config.File)
	Components(f *config.File, set *patches.Set)
	Found() (wrong []problems.Problem, warnings []string)
}

func read(path string, target *Target) (*Cluster, error) {
	r := &reader{digest: sha256.New(), relative: "; it is relative to the directory of " + path, patches: map[string]*patches.Set{}, target: target}
	r.List, r.Lines, r.Unknown, r.Check = &problems.List{File: path}, strict.Lines{}, r.unknown, r.check
	dir := filepath.Dir(path)
	if path == "-" {
		r.List.File, dir, r.relative = "standard input", ".", ""
	}
	var err error
	if r.dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	data, err := strict.Load(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, "give the file with -f; to print an example: "+example)
	}
	c := r.read(data)
	if err := r.Err(); err != nil {
		return nil, err
	}
	c.Warnings, c.Digest = r.warnings, hex.EncodeToString(r.digest.Sum(nil))
	return c, nil
}

// read returns the cluster, which is complete if there is no problem.
func (r *reader) read(data []byte) *Cluster {
	r.addToDigest("", data)
	list, errs := documents.Read(data)
	list = slices.DeleteFunc(list, documents.Document.Empty)
	if len(list) == 0 && len(errs) == 0 {
		r.Add(1, "to print an example: "+example, "the file is empty")
		return nil
	}
	if len(errs) > 0 && (len(list) == 0 || valueOf(list[0].Node, "kind").text != kind) {
		r.addKubeadm(r.List.File, nil, errs) // the first document may be missing
		return nil
	}
	if !r.Head(list[0], apiVersion, kind, example) {
		return nil
	}
	var doc document
	r.Document(&doc, list[0], "")
	r.addKubeadm(r.List.File, list[1:], errs)
	return r.cluster(&doc)
}

func (r *reader) warn(line int, format string, args ...any) {
	r.warnings = append(r.warnings, r.At(line)+": "+fmt.Sprintf(format, args...))
}

// addToDigest adds a file to the digest of the cluster, by its name in the file.
func (r *reader) addToDigest(name string, data []byte) {
	fmt.Fprintf(r.digest, "%d %s %d\n", len(name), name, len(data))
	r.digest.Write(data)
}

func (r *reader) addTree(dir string) error {
	root := os.DirFS(dir)
	return fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, name)
		r.addToDigest(name, data)
		return err
	})
}
