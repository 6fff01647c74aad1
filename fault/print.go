package fault

import (
	"fmt"
	"io"
)

// Print writes err for a user: an "error:" line and, if the error has a hint, a "hint:"
// line. It prints nothing for a nil err.
func Print(w io.Writer, err error) {
	if err == nil {
		return
	}
	fmt.Fprintf(w, "error: %v\n", err)
	if hint := Hint(err); hint != "" {
		fmt.Fprintf(w, "hint: %s\n", hint)
	}
}
