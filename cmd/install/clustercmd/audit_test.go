package clustercmd

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestAudit: the results of the hosts are one table. Hosts with the same result share a line, the worst verdict counts, a host that is
// off is named, and nothing stays on the hosts.
func TestAudit(t *testing.T) {
	c := newConsole(t)
	c.want(0, nil, "", "apply", "--yes")
	before := c.w.State()
	result := func(id, verdict, found string) string {
		return `{"id":"` + id + `","verdict":"` + verdict + `","title":"t` + id + `","place":"node","automated":true,"found":"` + found + `","want":"w","fix":"f","stig":[]}`
	}
	report := func(counts string, results ...string) string {
		return `{"role":"worker","kubernetes":"v1.37.1","counts":{` + counts + `},"results":[` + strings.Join(results, ",") + `],"unread":[]}`
	}
	passed := report("", result("4.1.1", "passed", "600"), result("4.1.2", "passed", "root:root"))
	failed := report(`"failed":1`, result("4.1.1", "failed", "<644>"), result("4.1.2", "passed", "root:root"))
	for name, text := range map[string]string{"cp1": passed, "cp2": failed, "cp3": failed, "w1": passed, "w2": passed} {
		c.w.Hosts[name].Audit = text
	}
	c.want(1, []string{"2 checks: 1 failed, 0 to be judged, 0 by design, 0 not applicable, 1 passed", "FAILED (1)\n  4.1.1   t4.1.1 (automated)\n          on: cp2, cp3\n          found: <644>\n", "fix: f", "PASSED (1)\n  4.1.2\n", "hint: "}, "", "audit")
	c.want(1, []string{"The page is "}, "", "audit", "--html", c.path("a.html"))
	page, err := os.ReadFile(c.path("a.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<strong>cp2, cp3</strong> &lt;644&gt;", "Signatures", "CIS Kubernetes Benchmark"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	c.want(1, []string{`"counts"`, `"failed": 1`}, "", "audit", "-o", "json")
	if now := c.w.State(); now != before {
		t.Errorf("the audit changed hosts:\n%s\nbefore:\n%s", now, before)
	}
	c.w.Hosts["cp2"].Audit, c.w.Hosts["cp3"].Audit = passed, passed
	c.want(0, []string{"2 checks: 0 failed"}, "", "audit")
	c.w.Hosts["cp2"].Audit = "nonsense"
	c.want(1, []string{"cp2: not audited: "}, "", "audit")
	c.w.Hosts["cp2"].Audit, c.w.Hosts["w2"].Off = passed, errors.New("no route to host")
	c.want(1, []string{"w2: not audited: ", "no route to host"}, "", "audit")
	c.want(2, []string{"choose a file in an existing directory"}, "", "audit", "--html", c.path("no/a.html"))
}
