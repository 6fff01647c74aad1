package scan

import (
	"fmt"
	"html"
	"strings"

	"airlift/internal/fault"
)

// style is for screens of all widths, light and dark, and for A4. A severity is always a word, too.
const style = `:root{--bg:#f6f7f9;--panel:#fff;--text:#1b1f24;--soft:#59636e;--edge:#d5dae1;--good:#1a7f37;--odd:#9a6700;--bad:#c5221f;--oddbg:#fff4d6}
@media (prefers-color-scheme:dark){:root{--bg:#0f1318;--panel:#171c23;--text:#e6e9ee;--soft:#9aa5b1;--edge:#303843;--good:#4cc36a;--odd:#e0b03c;--bad:#ff7b72;--oddbg:#352a0d}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1120px;padding:0 1.25rem 2rem;background:var(--bg);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;overflow-wrap:anywhere}
header{padding:1.75rem 0 1rem}
h1{margin:0;font-size:1.9rem;line-height:1.2}
h2{margin:0 0 .75rem;font-size:1.15rem}
p{margin:.25rem 0}
.kind,dt,footer,small{color:var(--soft)}
.kind{margin:0;font-size:.8rem;letter-spacing:.06em;text-transform:uppercase}
.verdict{font-weight:600}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;margin:1rem 0 0}
dd{margin:0}
section{margin:1rem 0;padding:1.1rem 1.25rem;background:var(--panel);border:1px solid var(--edge);border-radius:.6rem}
#warnings{background:var(--oddbg);border-color:var(--odd)}
table{width:100%;border-collapse:collapse;font-size:.9rem}
th{text-align:left;white-space:nowrap;font-weight:600;color:var(--soft);font-size:.8rem}
th,td{padding:.4rem .6rem .4rem 0;border-bottom:1px solid var(--edge);vertical-align:top}
tbody tr:last-child td{border-bottom:0}
ul{margin:0;padding-left:1.2rem}
.critical,.high{color:var(--bad);font-weight:600}.medium,.unknown{color:var(--odd);font-weight:600}.low,.none{color:var(--good);font-weight:600}
footer{padding:.5rem 0;font-size:.85rem}
@media screen and (max-width:700px){
body{padding:0 .75rem 1.5rem}
section{padding:.9rem}
thead{display:none}
table,tbody,tr,td{display:block;width:100%}
tr{padding:.4rem 0;border-bottom:1px solid var(--edge)}
td{padding:.1rem 0;border:0}
dl{grid-template-columns:1fr}
}
@page{size:A4;margin:14mm}
@media print{
:root{--bg:#fff;--panel:#fff;--text:#000;--soft:#444;--edge:#bbb;--good:#1a7f37;--odd:#9a6700;--bad:#c5221f;--oddbg:#fff4d6}
body{max-width:none;padding:0;font-size:10pt}
tr,li{break-inside:avoid}
h2{break-after:avoid}
}
`

// A page is HTML. html/template would keep every method of every type in the executable.
type page struct{ strings.Builder }

// add adds HTML. Strings in args are escaped, values of the type markup are not.
func (p *page) add(format string, args ...any) {
	for i, a := range args {
		switch a := a.(type) {
		case string:
			args[i] = html.EscapeString(fault.Printable(a))
		case markup:
			args[i] = string(a)
		}
	}
	fmt.Fprintf(p, format, args...)
}

type markup string

// HTML returns the report as one page without scripts, that needs nothing from a network.
func (r *Report) HTML() []byte {
	p := &page{}
	p.add(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s: known vulnerabilities</title>
<style>
%s</style></head><body>
<header><p class="kind">Known vulnerabilities</p><h1>%s</h1><p class="verdict">%s</p>
<dl>
`, r.File, markup(style), r.File, r.Summary())
	for _, h := range append(r.header()[1:], [2]string{"sha256 of the contents", r.EntriesSHA256}) {
		p.add("<dt>%s</dt><dd>%s</dd>\n", h[0], h[1])
	}
	p.add("</dl></header>\n<main>\n")
	p.list("warnings", "Warnings", r.Warnings)
	var open, closed []Vulnerability
	for _, v := range r.Vulnerabilities {
		if v.Open() {
			open = append(open, v)
		} else {
			closed = append(closed, v)
		}
	}
	p.table("vulnerable", "Vulnerable", open)
	p.table("closed", "Without effect", closed)
	if c := r.Changes; c != nil {
		p.table("fixed", "Fixed since "+c.Base, c.Fixed)
		p.table("brought", "New since "+c.Base, c.Brought)
	}
	p.list("unjudged", "Not judged", r.NotJudged)
	p.add("</main>\n<footer>A database knows what was published before its date. Software without a package database and without Go's build information is not in this report.</footer>\n</body></html>\n")
	return []byte(p.String())
}

func (p *page) list(id, title string, texts []string) {
	if len(texts) == 0 {
		return
	}
	p.add("<section id=\"%s\"><h2>%s</h2><ul>\n", id, title)
	for _, text := range texts {
		p.add("<li>%s</li>\n", text)
	}
	p.add("</ul></section>\n")
}

func (p *page) table(id, title string, list []Vulnerability) {
	p.add("<section id=\"%s\"><h2>%s</h2>\n", id, title)
	if len(list) == 0 {
		p.add("<p>None.</p></section>\n")
		return
	}
	p.add("<table><thead><tr><th>Severity</th><th>Vulnerability</th><th>Packages and places</th></tr></thead><tbody>\n")
	for _, v := range list {
		p.add("<tr><td class=\"%s\">%s</td><td>%s<br><small>%s</small></td><td>", string(v.Severity.Level), v.Severity.label(), v.title(), v.Summary)
		for _, part := range v.parts(true) {
			p.add("<p>%s", part.what)
			if part.state != "" {
				p.add("<br>%s", part.state)
			}
			p.add("<br><small>%s</small></p>", part.where)
		}
		p.add("</td></tr>\n")
	}
	p.add("</tbody></table></section>\n")
}
