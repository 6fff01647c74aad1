package spec

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"airlift/internal/documents"
	"airlift/internal/documents/problems"
	"airlift/internal/fault"
)

// maxSize is the maximum size of cluster.yaml and of a file with kubeadm's documents, in bytes. A larger one is another
// file by mistake.
const maxSize = 4 << 20

// A reader reads one file and collects all of its problems.
type reader struct {
	problems.List
	dir      string // absolute; paths in the file are relative to it
	relative string // a part of hints
	lines    map[string]int
	warnings []string
	digest   hash.Hash
	kubeadm  kubeadm
}

// Read reads cluster.yaml with the files that it names, or standard input for "-". The error (fault.Usage) lists
// everything that is wrong, each with its line.
func Read(path string) (*Cluster, error) {
	r := &reader{List: problems.List{File: path}, lines: map[string]int{}, digest: sha256.New(), relative: "; it is relative to the directory of " + path}
	dir := filepath.Dir(path)
	if path == "-" {
		r.File, dir, r.relative = "standard input", ".", ""
	}
	var err error
	if r.dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	data, err := load(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, "give the file with -f; to print an example: ./install cluster example")
	}
	c := r.read(data)
	if err := r.Err(); err != nil {
		return nil, err
	}
	c.Warnings, c.Digest = r.warnings, hex.EncodeToString(r.digest.Sum(nil))
	return c, nil
}

func load(path string) ([]byte, error) {
	in := io.Reader(os.Stdin)
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxSize+1))
	if err == nil && len(data) > maxSize {
		err = fmt.Errorf("%q is larger than %d MiB", path, maxSize>>20)
	}
	return data, err
}

// read returns the cluster, which is complete if there is no problem.
func (r *reader) read(data []byte) *Cluster {
	r.addToDigest("", data)
	list, errs := documents.Read(data)
	list = slices.DeleteFunc(list, documents.Document.Empty)
	if len(list) == 0 && len(errs) == 0 {
		r.Add(1, "to print an example: ./install cluster example", "the file is empty")
		return nil
	}
	if len(errs) > 0 && (len(list) == 0 || valueOf(list[0].Node, "kind").text != kind) {
		r.addKubeadm(r.File, nil, errs) // the first document may be missing
		return nil
	}
	own := list[0]
	if !r.isCluster(own) {
		return nil
	}
	var doc document
	var value any
	d := json.NewDecoder(bytes.NewReader(own.JSON))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		r.Add(own.Line, "", "%v", err)
		return nil
	}
	r.decode(reflect.ValueOf(&doc).Elem(), "", value, place{"", own.Node, own.Line})
	r.addKubeadm(r.File, list[1:], errs)
	return r.cluster(&doc)
}

// isCluster checks apiVersion and kind, without which nothing else makes sense.
func (r *reader) isCluster(d documents.Document) bool {
	known := r.Len()
	for _, f := range [][2]string{{"apiVersion", apiVersion}, {"kind", kind}} {
		key, value := documents.Field(d.Node, f[0])
		switch {
		case key == nil:
			r.Add(d.Line, fmt.Sprintf("write %s: %s; to print an example: ./install cluster example", f[0], f[1]), "the file has no %s", f[0])
		case value.Value != f[1]:
			r.Add(key.Line, fmt.Sprintf("write %s: %s in the first document", f[0], f[1]), "%s %q is not supported", f[0], value.Value)
		}
	}
	return r.Len() == known
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

// line is the line of a value at a path, or of what it is missing in.
func (r *reader) line(format string, args ...any) int {
	path := fmt.Sprintf(format, args...)
	for ; path != "" && r.lines[path] == 0; path = path[:max(0, strings.LastIndexAny(path, ".["))] {
	}
	return cmp.Or(r.lines[path], 1)
}
