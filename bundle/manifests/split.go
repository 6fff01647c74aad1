package manifests

import "airlift/documents"

// A document is a part of a text.
type document struct{ text []byte }

// split returns the documents of a text in an object. The last one is no YAML if a part of the
// text cannot be read.
func split(content []byte) (list []document) {
	read, errs := documents.Read(content)
	for _, d := range read {
		list = append(list, document{d.Text})
	}
	if len(errs) > 0 {
		list = append(list, document{[]byte("[")})
	}
	return list
}
