package fault

import (
	"fmt"
	"io"
)

// Print writes err as both commands show it to a person: an "error:" line,
// and a "hint:" line where the error carries one. A nil err prints nothing.
func Print(w io.Writer, err error) {
	if err == nil {
		return
	}
	fmt.Fprintf(w, "error: %v\n", err)
	if hint := Hint(err); hint != "" {
		fmt.Fprintf(w, "hint: %s\n", hint)
	}
}
