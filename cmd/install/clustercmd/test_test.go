package clustercmd

import (
	"errors"
	"strings"
	"testing"
)

// TestTest: the first control plane that answers tests the cluster, and its result is printed. Nothing stays on the hosts.
func TestTest(t *testing.T) {
	c := newConsole(t)
	c.want(0, nil, "", "apply", "--yes")
	before := c.w.State()
	const passed = `{"passed":true,"seconds":24,"nodes":[{"name":"cp1","ready":true},{"name":"w1","ready":true,"cordoned":true}],"findings":[],"notes":["no volume"],"counts":[{"kind":"pod","passed":8,"failed":0}],"losses":[]}`
	const failed = `{"passed":false,"seconds":30,"nodes":[{"name":"cp1","ready":true}],"findings":[{"name":"tunnel","layer":"pod network","nodes":["w1"],"text":"cp1 -> w1: pods cannot reach each other","evidence":["cp1 -> w1: no answer"],"fix":"./install status","explains":3}],"notes":[],"counts":[],"losses":[]}`
	c.w.Hosts["cp1"].Test = passed
	c.want(0, []string{"cp1: testing the cluster", "2 nodes in 24 s: cp1, w1 (cordoned)", "pods               8 of 8", "note: no volume", "The cluster passed: 8 of 8."}, "", "test")
	c.want(0, []string{`"passed": true`}, "", "test", "-o", "json")
	c.w.Hosts["cp1"].Test = failed
	c.want(1, []string{"1. pod network: cp1 -> w1: pods cannot reach each other", "seen: cp1 -> w1: no answer", "and 2 more", "does not pass: 1 finding(s)", "hint: "}, "", "test")
	c.want(1, []string{`"name": "tunnel"`}, "", "test", "-o", "json")
	c.w.Hosts["cp1"].Test = "nonsense"
	c.want(1, []string{"error: "}, "", "test")
	c.w.Hosts["cp1"].Off, c.w.Hosts["cp2"].Test = errors.New("no route to host"), passed
	c.want(0, []string{"warning: cp1: ", "no route to host", "cp2: testing the cluster", "The cluster passed"}, "", "test")
	c.w.Hosts["cp1"].Off = nil
	c.w.Ends = map[string]int{"cp1": 9}
	c.want(9, []string{"cp1"}, "", "test")
	c.w.Ends = nil
	c.w.Hosts["cp1"].Test = strings.Replace(passed, `"losses"`, `"later":{"passed":false},"losses"`, 1) // it ends with 1: an error is no result
	c.want(1, []string{"error: "}, "", "test")
	if now := c.w.State(); now != before {
		t.Errorf("the test changed hosts:\n%s\nbefore:\n%s", now, before)
	}
}
