package run

import (
	"fmt"
	"strings"

	"airlift/internal/fault"
)

// A failure is the error of one host.
type failure struct {
	Host string
	Err  error
}

// failures are the errors of hosts, in the order of cluster.yaml.
type failures []failure

// Error lists every host with its error and its hint.
func (f failures) Error() string { return fmt.Sprintf("%d hosts failed:%s", len(f), f.list()) }

func (f failures) list() string {
	var b strings.Builder
	for _, one := range f {
		fmt.Fprintf(&b, "\n  %s: %s", one.Host, indent(one.Err.Error()))
		if hint := fault.Hint(one.Err); hint != "" {
			fmt.Fprintf(&b, "\n      hint: %s", indent(hint))
		}
	}
	return b.String()
}

// Unwrap returns the errors.
func (f failures) Unwrap() (errs []error) {
	for _, one := range f {
		errs = append(errs, one.Err)
	}
	return errs
}

// hosts returns the names of the hosts that failed.
func (f failures) hosts() (names []string) {
	for _, one := range f {
		names = append(names, one.Host)
	}
	return names
}

func indent(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ") }

// fault returns the failures with the exit code of the worst; nil if there is none. A single one keeps its own hint.
func (f failures) fault() error {
	switch len(f) {
	case 0:
		return nil
	case 1:
		err := f[0].Err
		if prefix := f[0].Host + " ("; !strings.HasPrefix(err.Error(), prefix) && !strings.HasPrefix(err.Error(), f[0].Host+":") {
			err = fmt.Errorf("%s: %w", f[0].Host, err)
		}
		return fault.Wrap(err, fault.ExitCode(f[0].Err), fault.Hint(f[0].Err))
	}
	return &siteError{f, f.worst()}
}

// severity has the exit codes, the worst last.
var severity = []fault.Code{fault.Usage, fault.Preflight, fault.Bundle, fault.Interrupted, fault.Failure}

func (f failures) worst() (code fault.Code) {
	rank := -1
	for _, one := range f {
		for i, c := range severity {
			if c == fault.ExitCode(one.Err) && i > rank {
				code, rank = c, i
			}
		}
	}
	if rank < 0 {
		return fault.Failure
	}
	return code
}

// A siteError is an error of several hosts. Their hints are in its text, so it has none.
type siteError struct {
	failures
	code fault.Code
}

// As makes it a fault with the code, and without the hint of one host.
func (e *siteError) As(target any) bool {
	f, ok := target.(**fault.Fault)
	if ok {
		*f = fault.New(e.code, "%s", e.Error())
	}
	return ok
}
