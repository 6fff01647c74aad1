package overview

import (
	"fmt"
	"io"
	"strings"
	"time"

	"airlift/installer/audit"
	"airlift/installer/host/filesystem"
)

// ShowAudit writes the page of an audit to a file and prints its summary, or without a file prints the audit: value by show, or as text
// if show is nil.
func ShowAudit(out io.Writer, s *audit.Site, file string, show func(io.Writer, any) error, value any) error {
	switch {
	case file != "":
		if err := filesystem.WriteOutput(file, AuditPage(s, time.Now()), 0o600); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "%s\nThe page is %s. Open it in a browser. Look at it before you send it.\n", s.Summary(), file)
		return err
	case show != nil:
		return show(out, value)
	}
	s.Write(out)
	return nil
}

// auditStyle is what the page of an audit has more than a report: lines to write on.
const auditStyle = `.sign{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(14rem,100%),1fr));gap:2.2rem 1.2rem;margin-top:2rem}
.sign div{border-top:1px solid var(--text);padding-top:.2rem;color:var(--soft);font-size:.8rem}
.decide{white-space:nowrap;color:var(--soft);font-size:.8rem}
`

var auditTitles = map[audit.Verdict]string{
	audit.Failed: "Failed", audit.Judge: "To be judged by a person", audit.ByDesign: "By design", audit.NotApplicable: "Not applicable", audit.Passed: "Passed",
}

// AuditPage returns the page of an audit: one file without scripts, to be printed and signed.
func AuditPage(s *audit.Site, at time.Time) []byte {
	p := &page{}
	p.begin(s.Name+": audit", style+auditStyle)
	state := "bad"
	if s.Passed() {
		state = "good"
	}
	p.add(`<header><p class="kind">%s</p><h1>%s</h1><p class="verdict %s">%s</p><p class="time">%s</p></header>
<main>
<dl class="tiles">
`, s.Benchmark, s.Name, state, s.Summary(), at.UTC().Format("2006-01-02 15:04 UTC"))
	for _, v := range audit.Verdicts {
		class := ""
		if v == audit.Failed && s.Counts[v] > 0 {
			class = "bad"
		}
		p.add("<div class=\"%s\"><dt>%s</dt><dd>%d</dd></div>\n", class, auditTitles[v], s.Counts[v])
	}
	p.add("</dl>\n<section id=\"hosts\"><h2>Hosts</h2>\n")
	var rows [][]markup
	for _, h := range s.Hosts {
		if h.Report == nil {
			rows = append(rows, append(cells(h.Name, "", ""), markup(`<b class="bad">not audited:</b> `+esc(h.Error))))
			continue
		}
		note := strings.Join(append(append([]string{}, h.Report.Unread...), h.Report.Left), " ")
		rows = append(rows, cells(h.Name, h.Report.Role, h.Report.Kubernetes, strings.TrimSpace(note)))
	}
	p.table([]string{"Host", "Role", "Kubernetes", "Not judged there"}, rows)
	p.add("</section>\n")
	for _, v := range audit.Verdicts {
		p.verdict(s, v)
	}
	p.add("<section id=\"signatures\"><h2>Signatures</h2><div class=\"sign\">")
	for _, text := range []string{"Operator: name", "Date", "Signature", "Auditor: name", "Date", "Signature"} {
		p.add("<div>%s</div>", text)
	}
	p.add("</div></section>\n</main>\n<footer>Secrets are redacted. Names, addresses and paths are not.</footer>\n</body></html>\n")
	return []byte(p.String())
}

// verdict writes the checks with a verdict.
func (p *page) verdict(s *audit.Site, v audit.Verdict) {
	p.add("<section id=\"%s\"><h2>%s</h2>\n", strings.ReplaceAll(string(v), " ", "-"), auditTitles[v])
	checks := s.Of(v)
	if len(checks) == 0 {
		p.empty("None.")
		p.add("</section>\n")
		return
	}
	columns := []string{"Check", "Title", "Found", "Wanted"}
	if v == audit.Judge {
		columns = append(columns, "Decision")
	}
	var rows [][]markup
	for _, groups := range checks {
		for _, g := range groups {
			found := esc(g.Found)
			if len(s.Hosts) > 1 {
				found = "<strong>" + esc(strings.Join(g.Hosts, ", ")) + "</strong> " + found
			}
			if g.Reason != "" {
				found += ` <span class="why">` + esc(g.Reason) + "</span>"
			}
			if g.Fix != "" {
				found += "<br><code>" + esc(g.Fix) + "</code>"
			}
			title := esc(g.Title)
			if g.Automated {
				title += " <small>automated</small>"
			}
			if len(g.STIG) > 0 {
				title += " <small>" + esc(strings.Join(g.STIG, " ")) + "</small>"
			}
			row := []markup{markup(esc(g.ID)), markup(title), markup(found), markup(esc(g.Want))}
			if v == audit.Judge {
				row = append(row, `<span class="decide">☐ accepted<br>☐ to be fixed</span>`)
			}
			rows = append(rows, row)
		}
	}
	p.table(columns, rows)
	p.add("</section>\n")
}
