// Package documents reads streams of YAML and JSON as kubectl does, and loses nothing of them:
// every byte is in a document, in a comment, or in an error with its line.
//
// kubectl's decoder (YAMLOrJSONDecoder in k8s.io/apimachinery) ignores what follows the first
// value between two separators, and all but the last of repeated keys. Here both are errors.
package documents

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	sigsyaml "sigs.k8s.io/yaml"
)

// A Document is one value of a stream.
type Document struct {
	// Text is the document as it is written, without separators. Its lines end with \n.
	Text []byte
	// Begin is the first line of Text in the stream, from 1.
	Begin int
	// JSON is the value, as kubectl and kubeadm convert it. It is null if the document has only
	// comments.
	JSON []byte
	// Line is the line of the value in the stream.
	Line int
	// Node is the value with its lines in the stream, for messages. It is nil if the document
	// has only comments, or is JSON that no YAML parser can read.
	Node *Node
}

// Empty reports whether the document has only comments.
func (d Document) Empty() bool { return string(d.JSON) == "null" }

// An Error is the reason why a part of a stream cannot be read.
type Error struct {
	Line int
	// Document is the number of the document, from 1, and Begin its first line.
	Document, Begin int
	Text            string
}

func (e Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// Read returns the documents of a stream and everything that is wrong with it. Documents
// without a value and without comments are left out.
func Read(stream []byte) ([]Document, []Error) {
	if err := CheckEncoding(stream); err != nil {
		return nil, []Error{*err}
	}
	r := &reader{stream: stream, line: 1, names: map[string]string{}}
	r.readJSON()
	r.readYAML()
	return r.documents, r.errors
}

// ReadOne returns the value of a stream of at most one document as JSON: null if it has none.
func ReadOne(stream []byte) ([]byte, error) {
	documents, errs := Read(stream)
	if len(errs) > 0 {
		return nil, errs[0]
	}
	documents = slices.DeleteFunc(documents, Document.Empty)
	switch len(documents) {
	case 0:
		return []byte("null"), nil
	case 1:
		return documents[0].JSON, nil
	}
	return nil, Error{Line: documents[1].Line, Text: "there is a second document, but only one is read"}
}

// Unmarshal decodes a stream of at most one document.
func Unmarshal(stream []byte, into any) error {
	value, err := ReadOne(stream)
	if err != nil {
		return err
	}
	return json.Unmarshal(value, into)
}

// apiVersion is the version of the objects that Airlift stores.
const apiVersion = "airlift/v1"

// Encode returns an object of a kind of airlift/v1 as YAML.
func Encode(kind string, object any) ([]byte, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	fields["apiVersion"], fields["kind"] = json.RawMessage(strconv.Quote(apiVersion)), json.RawMessage(strconv.Quote(kind))
	return sigsyaml.Marshal(fields)
}

// Decode reads what Encode returns.
func Decode(data []byte, kind string, into any) error {
	var head struct{ APIVersion, Kind string }
	if err := Unmarshal(data, &head); err != nil {
		return err
	}
	if head.APIVersion != apiVersion || head.Kind != kind {
		return fmt.Errorf("it is %s, kind %s, and not %s, kind %s: another version of Airlift wrote it", head.APIVersion, head.Kind, apiVersion, kind)
	}
	return Unmarshal(data, into)
}
