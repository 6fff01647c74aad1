//go:build e2e

package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// kubeBenchDir has kube-bench, the command, and cfg, a directory, as a build of its repository leaves them.
var kubeBenchDir = flag.String("kube-bench", "", "the directory of a built kube-bench, to compare its verdicts")

// auditReport is what the audit of a host prints.
type auditReport struct {
	Role    string
	Counts  map[string]int
	Results []struct {
		ID, Verdict, Title, Found string
		Automated                 bool
	}
}

// audit runs the audit of a host.
func audit(t *testing.T, h *lab.Host) *auditReport {
	t.Helper()
	out, err := h.Output(t.Context(), site.Installer, "audit", "-o", "json")
	if code := exitCode(err); code > 1 { // manual checks fail
		t.Fatalf("%s: audit: %v", h.Name, err)
	}
	r := new(auditReport)
	if err := json.Unmarshal([]byte(out), r); err != nil {
		t.Fatalf("%s: %v: %.2000s", h.Name, err, out)
	}
	return r
}

// passes expects that no automated check fails and few are by design, and logs the table.
func (r *auditReport) passes(t *testing.T, host string) {
	t.Helper()
	automated, design := map[string]int{}, 0
	for _, c := range r.Results {
		if c.Verdict == "by design" {
			design++
		}
		if c.Automated {
			automated[c.Verdict]++
		}
		switch {
		case c.Verdict != "failed":
		case c.Automated:
			t.Errorf("%s: %s %s: %s", host, c.ID, c.Title, c.Found)
		default:
			t.Logf("%s: manual check %s %s: %s", host, c.ID, c.Title, c.Found)
		}
	}
	t.Logf("%s: all checks %v, automated ones %v", host, r.Counts, automated)
	if design > 5 {
		t.Errorf("%s: %d are by design", host, design)
	}
}

// kubeBench runs kube-bench on a host, if there is one, and expects its verdict on each automated check that both judge. It logs
// the other differences: docs/audit.md has the reasons.
func kubeBench(t *testing.T, h *lab.Host, ours *auditReport) {
	t.Helper()
	if *kubeBenchDir == "" {
		t.Log("NOT RUN: kube-bench, because -kube-bench names none")
		return
	}
	archive := filepath.Join(t.TempDir(), "kube-bench.tar")
	if out, err := exec.CommandContext(t.Context(), "tar", "-cf", archive, "-C", *kubeBenchDir, "kube-bench", "cfg").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer os.Remove(archive)
	if _, err := h.CopyIn(t.Context(), archive, "/root/kube-bench.tar", 0o600); err != nil {
		t.Fatal(err)
	}
	targets := "node"
	if ours.Role == "control-plane" {
		targets = "master,etcd,controlplane,node,policies"
	}
	out := run(t, h, "sh", "-c", "cd /root && tar -xf kube-bench.tar && KUBECONFIG=/etc/kubernetes/admin.conf ./kube-bench run --config-dir cfg --config cfg/config.yaml --benchmark cis-1.12 --targets "+targets+" --json 2>kube-bench.log; rm -r kube-bench.tar kube-bench cfg")
	var theirs struct {
		Controls []struct {
			Tests []struct {
				Results []struct {
					Number string `json:"test_number"`
					Status string `json:"status"`
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &theirs); err != nil {
		t.Fatalf("%v: %.2000s", err, out)
	}
	status, counts := map[string]string{}, map[string]int{}
	for _, c := range theirs.Controls {
		for _, test := range c.Tests {
			for _, r := range test.Results {
				status[r.Number] = r.Status
				counts[r.Status]++
			}
		}
	}
	automated := map[string]int{}
	for _, c := range ours.Results {
		their, judged := status[c.ID]
		if !judged {
			continue
		}
		verdict := fmt.Sprintf("%s: %s %s: %s, kube-bench: %s", h.Name, c.ID, c.Title, c.Verdict, their)
		switch same := c.Verdict == "passed" && their == "PASS" || c.Verdict == "failed" && their == "FAIL"; {
		case c.Automated:
			automated[their]++
			if !same {
				t.Error(verdict)
			}
		case !same:
			t.Log(verdict)
		}
	}
	t.Logf("%s: kube-bench: all checks %v, automated ones %v", h.Name, counts, automated)
}
