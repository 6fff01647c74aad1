package apirules

import (
	"bufio"
	_ "embed"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// fieldsText lists the fields that not all versions have: the type, the field, and the first and the
// last minor version with it. A test compares it with the schemas in client-go of all versions, and
// writes it with -update.
//
//go:embed fields.txt
var fieldsText string

type versions struct{ first, last int }

var fieldVersions = sync.OnceValue(func() map[string]versions {
	all := map[string]versions{}
	for lines := bufio.NewScanner(strings.NewReader(fieldsText)); lines.Scan(); {
		var name, field string
		var v versions
		if _, err := fmt.Sscan(lines.Text(), &name, &field, &v.first, &v.last); err != nil {
			panic(err) // the text is compiled in
		}
		all[name+" "+field] = v
	}
	return all
})

// versionsOf returns the versions with a field of a type in k8s.io/api, if not all have it.
func versionsOf(t reflect.Type, field string) (versions, bool) {
	name := strings.ReplaceAll(strings.TrimPrefix(t.PkgPath(), "k8s.io/api/"), "/", ".") + "." + t.Name()
	v, ok := fieldVersions()[name+" "+field]
	return v, ok
}
