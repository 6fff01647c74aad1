package vm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A request of a client: from and until are in seconds.
type request struct {
	from, until float64
	code        string
}

func parseRequests(text string) (list []request, err error) {
	for line := range strings.Lines(text) {
		var r request
		if _, err := fmt.Sscan(line, &r.from, &r.until, &r.code); err != nil {
			return nil, fmt.Errorf("reading %q: %w", line, err)
		}
		list = append(list, r)
	}
	if len(list) == 0 {
		return nil, errors.New("no client asked")
	}
	return list, nil
}

// withoutAnswer returns how many requests failed, the longest time from an answer to the next one with a failure in between,
// and whether the last request had an answer.
func withoutAnswer(list []request) (failed int, longest float64, last bool) {
	answer := list[0].from
	last = true
	for _, r := range list {
		answered := r.code == "200"
		if !answered {
			failed++
		}
		if !answered || !last {
			longest = max(longest, r.until-answer)
		}
		if answered {
			answer = r.until
		}
		last = answered
	}
	return failed, longest, last
}

func TestWithoutAnswer(t *testing.T) {
	for _, c := range []struct {
		text    string
		failed  int
		longest float64
		last    bool
	}{
		{"1.0 1.1 200\n9.0 9.1 200\n", 0, 0, true},
		{"1.0 1.1 200\n2.0 4.0 000\n4.5 5.0 503\n5.5 5.6 200\n6.0 6.1 200\n", 2, 4.5, true},
		{"1.0 2.0 000\n3.0 4.0 200\n5.0 9.0 000\n", 2, 5, false},
	} {
		list, err := parseRequests(c.text)
		failed, longest, last := withoutAnswer(list)
		if err != nil || failed != c.failed || longest < c.longest-0.01 || longest > c.longest+0.01 || last != c.last {
			t.Errorf("%q: %d, %g, %t (%v)", c.text, failed, longest, last, err)
		}
	}
	for _, text := range []string{"", "1.0 200\n"} {
		if _, err := parseRequests(text); err == nil {
			t.Errorf("%q has no error", text)
		}
	}
}
