package documents_test

import (
	"strings"
	"testing"
)

// What Read accepts has the values that kubectl's decoder reads.
func FuzzRead(f *testing.F) {
	for _, object := range clean {
		for _, joint := range joints {
			f.Add([]byte(strings.ReplaceAll(object, "%[1]s", "a") + joint + "b: 1\n"))
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		compare(t, string(stream), nil)
	})
}
