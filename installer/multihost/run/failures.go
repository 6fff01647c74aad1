package run

import (
	"fmt"
	"slices"
	"strings"

	"airlift/internal/fault"
)

// A failure is the error of one host.
type failure struct {
	Host string
	Err  error
}

// named returns the error with the name of the host, once.
func (f failure) named() error {
	if text := f.Err.Error(); strings.HasPrefix(text, f.Host+" (") || strings.HasPrefix(text, f.Host+":") {
		return f.Err
	}
	return fmt.Errorf("%s: %w", f.Host, f.Err)
}

// failures are the errors of several hosts, in the order of cluster.yaml. The hints are in its text.
type failures []failure

// Error lists every host with its error and its hint.
func (f failures) Error() string { return fmt.Sprintf("%d hosts failed:%s", len(f), f.list()) }

func (f failures) list() string {
	var b strings.Builder
	indent := func(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ") }
	for _, one := range f {
		fmt.Fprintf(&b, "\n  %s", indent(one.named().Error()))
		if hint := fault.Hint(one.Err); hint != "" {
			fmt.Fprintf(&b, "\n      hint: %s", indent(hint))
		}
	}
	return b.String()
}

// hosts returns the names of the hosts that failed.
func (f failures) hosts() (names []string) {
	for _, one := range f {
		names = append(names, one.Host)
	}
	return names
}

// severity has the exit codes, the worst last.
var severity = []fault.Code{fault.Waiting, fault.Usage, fault.Preflight, fault.Bundle, fault.Interrupted, fault.Failure}

// fault returns the failures with the exit code of the worst; nil if there is none. A single one keeps its own hint.
func (f failures) fault() error {
	rank := func(one failure) int { return slices.Index(severity, fault.ExitCode(one.Err)) }
	switch len(f) {
	case 0:
		return nil
	case 1:
		return fault.Wrap(f[0].named(), fault.ExitCode(f[0].Err), fault.Hint(f[0].Err))
	}
	worst := rank(slices.MaxFunc(f, func(a, b failure) int { return rank(a) - rank(b) }))
	if worst < 0 {
		return fault.Wrap(f, fault.Failure, "")
	}
	return fault.Wrap(f, severity[worst], "")
}
