package overview

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/audit"
	"airlift/scripts/fixtures/browser"
)

// audited is a site with all checks of the benchmark and all verdicts, on hosts with odd names.
func audited(hosts int) *audit.Site {
	var list []audit.HostReport
	for i := range hosts {
		r := &audit.Report{Role: "control-plane", Kubernetes: "v1.37.1", Unread: []string{"the API server: " + secrets[0]}}
		for j, c := range audit.Checks() {
			r.Results = append(r.Results, audit.Result{
				ID: c.ID, Verdict: audit.Verdicts[j%len(audit.Verdicts)], Title: c.Title, Place: c.Place, Automated: c.Automated, STIG: c.STIG, Want: c.Want,
				Found: fmt.Sprintf("<b>%s %s %s", names[i], secrets[2], strings.Repeat("long-", 40)), Reason: "because <i>", Fix: "chmod 600 " + strings.Repeat("/etc/kubernetes/", 9),
			})
		}
		list = append(list, audit.HostReport{Name: names[i], Report: r})
	}
	return audit.NewSite("<script>", append(list, audit.HostReport{Name: "w9", Error: "no route to host"}))
}

// TestAuditPage: the page has every check once at least, no markup of a host, no secret, and lines to sign.
func TestAuditPage(t *testing.T) {
	for _, hosts := range []int{1, len(names)} {
		page := string(AuditPage(audited(hosts), now))
		for _, c := range audit.Checks() {
			if !strings.Contains(page, `<td data-column="Check">`+c.ID+`</td>`) {
				t.Errorf("%s is missing", c.ID)
			}
		}
		for _, secret := range []string{secrets[0], secrets[2], "<script", "<b>", "<i>", "<img"} {
			if strings.Contains(page, secret) {
				t.Errorf("the page has %q", secret)
			}
		}
		for _, want := range []string{"Signature", "not audited:", "2026-11-29 15:00 UTC", "accepted", "131 checks"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page has no %q", want)
			}
		}
	}
}

// TestBrowserAudit: the page is as wide as the window, asks nobody for anything, and has no script.
func TestBrowserAudit(t *testing.T) {
	b := browser.Start(t)
	file := filepath.Join(t.TempDir(), "audit.html")
	if err := os.WriteFile(file, AuditPage(audited(3), now), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, width := range browser.Widths {
		b.Open(file, width)
		var rows int
		b.Eval(`document.querySelectorAll("td[data-column=Check]").length + document.querySelectorAll("script, img, link").length * 1000`, &rows)
		if rows < 131 || rows >= 1000 {
			t.Errorf("%d pixels: %d rows", width, rows)
		}
		if list := b.Overflow(); len(list) > 0 {
			t.Errorf("%d pixels: %q", width, list)
		}
		if list := b.Elsewhere(); len(list) > 0 {
			t.Errorf("%d pixels: requests: %q", width, list)
		}
		b.Screenshot("../../../..", fmt.Sprintf("audit-%d", width))
	}
}
