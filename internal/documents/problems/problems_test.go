package problems_test

import (
	"testing"

	"airlift/internal/documents/problems"
	"airlift/internal/fault"
)

func TestErr(t *testing.T) {
	l := &problems.List{File: "a.yaml"}
	if err := l.Err(); err != nil {
		t.Error(err)
	}
	l.Add(7, "write %", "%q is wrong", "x")
	if err := l.Err(); err.Error() != `a.yaml:7: "x" is wrong` || fault.Hint(err) != "write %" || fault.ExitCode(err) != fault.Usage {
		t.Errorf("%v, hint %s", err, fault.Hint(err))
	}
	l.AddIn("b.yaml", 1, "", "in another file")
	l.Add(3, "", "before")
	l.Add(3, "", "before") // the same problem is printed once
	want := "a.yaml has 3 errors:\n  a.yaml:3: before\n  a.yaml:7: \"x\" is wrong\n    (write %)\n  b.yaml:1: in another file"
	if err := l.Err(); err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}
