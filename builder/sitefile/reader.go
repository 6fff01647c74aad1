package sitefile

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"airlift/internal/documents"
	"airlift/internal/documents/problems"
	"airlift/internal/documents/strict"
	"airlift/internal/fault"
)

// A reader reads one file and collects all of its problems, so that the user can correct them
// at once.
type reader struct {
	strict.Decoder
	document
	given   func(field string) bool
	written map[string]string // paths in the file, by the path that is opened
	unread  problems.List     // fields without a value, or with one that could not be read
}

// resolve returns a path that is relative to the file's directory.
func (r *reader) resolve(path string) string {
	opened := filepath.Clean(path)
	if !filepath.IsAbs(path) {
		opened = filepath.Join(filepath.Dir(r.List.File), path)
	}
	r.written[opened] = path
	return opened
}

// read reads the document, without the fields that the command line gives. It returns an error if there is no document. Fields
// that cannot be read are problems.
func (r *reader) read(path string) error {
	r.Decoder = strict.Decoder{List: &problems.List{File: path}, Lines: strict.Lines{}, EmptyFields: true, YAML12: true}
	data, err := strict.Load(path)
	if err != nil {
		return fault.Wrap(err, fault.Usage, `give the file with --file; "bundle init" writes an example`)
	}
	list, errs := documents.Read(data)
	list = slices.DeleteFunc(list, documents.Document.Empty)
	r.AddErrors("", errs)
	switch {
	case len(errs) > 0:
		return r.Err()
	case len(list) == 0:
		r.Add(1, "begin with the lines apiVersion: "+APIVersion+" and kind: "+Kind, "the file is empty")
	case len(list) > 1:
		r.Add(list[1].Line, "write each bundle in its own file", "the file has a second document")
	default:
		if r.Document(&r.document, list[0], ""); len(r.Problems) == 0 {
			r.Head(list[0], APIVersion, Kind, example)
		}
	}
	r.leaveOut(reflect.ValueOf(&r.document).Elem(), "")
	r.leaveOut(reflect.ValueOf(&r.Versions).Elem(), "componentVersions.")
	r.unread.Problems = slices.Clone(r.Problems)
	return nil
}

func (r *reader) leaveOut(fields reflect.Value, path string) {
	for name, f := range strict.Fields(fields.Type()) {
		if r.given(path + name) {
			fields.FieldByIndex(f.Index).SetZero()
			delete(r.Lines, path+name)
		}
	}
}

// refuse adds a problem at a value, or at what it is missing in.
func (r *reader) refuse(path, hint, format string, args ...any) {
	if !r.unread.Has(path) {
		r.Refuse(strict.Place{Path: path, Line: r.Lines.Nearest("%s", path)}, hint, format, args...)
	}
}

func item(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// choose refuses a value that is not allowed.
func (r *reader) choose(path, name, value string, allowed []string) {
	if value != "" && !slices.Contains(allowed, value) {
		r.refuse(path, "write one of "+strings.Join(allowed, ", "), "%s %q is not supported", name, value)
	}
}

// refuseTwice refuses a value that is in a list twice.
func (r *reader) refuseTwice(path, what string, list []string) {
	for i, value := range list {
		if first := slices.Index(list, value); first < i {
			r.refuse(item(path, i), "remove one of them", "the %s %q is written twice, first at line %d", what, value, r.Lines[item(path, first)])
		}
	}
}
