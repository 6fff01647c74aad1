package manifests

import "fmt"

// newPositioned names the object and the field that err is about.
func newPositioned(o *Object, field path, err error) error {
	return fmt.Errorf("%s: %s: %s: %w", o.Position(), o, field, err)
}
