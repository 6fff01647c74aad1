package manual

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"io"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
)

var (
	//go:embed style.css
	style string
	//go:embed search.js
	script string
)

// HTML writes all pages as one file, for a browser without a network. Its policy lets the browser load nothing else.
// Without scripts, all pages follow each other.
func HTML(out io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Airlift</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<link rel="icon" href="data:,">
<style>
%s</style><script>document.documentElement.className = "js"</script></head><body>
<header><button id="menu" aria-label="Pages">☰</button><b>Airlift</b><input id="search" type="search" placeholder="Search  ( / )" aria-label="Search" autocomplete="off"></header>
<nav>
`, style)
	pages := Pages()
	for _, book := range Books {
		fmt.Fprintf(&b, "<h2>%s</h2>\n", book.Title)
		for _, group := range book.Groups {
			fmt.Fprintf(&b, "<h3>%s</h3><ul>\n", group.Title)
			for _, p := range pages[:len(group.Pages)] {
				fmt.Fprintf(&b, "<li><a href=\"#%s\">%s</a></li>\n", p.Name(), p.Short)
			}
			b.WriteString("</ul>\n")
			pages = pages[len(group.Pages):]
		}
	}
	b.WriteString("</nav>\n<main><div id=\"results\"></div>\n")
	for _, p := range Pages() {
		text, err := p.html()
		if err != nil {
			return fmt.Errorf("converting %s: %w", p.Path, err)
		}
		developers := ""
		if p.Developers {
			developers = " data-developers"
		}
		fmt.Fprintf(&b, "<div class=\"page\" id=\"%s\" data-short=\"%s\" data-title=\"%s\"%s>\n<article>\n%s</article>\n%s</div>\n",
			p.Name(), p.Short, html.EscapeString(p.plainTitle()), developers, text, onThisPage(text))
	}
	fmt.Fprintf(&b, "</main><script>\n%s</script></body></html>\n", script)
	_, err := out.Write(b.Bytes())
	return err
}

// onThisPage returns the list of the headings of a page, nothing for a page without.
func onThisPage(text string) string {
	var list strings.Builder
	for _, m := range regexp.MustCompile(`<h([23]) id="([^"]*)">(.*?)</h[23]>`).FindAllStringSubmatch(text, -1) {
		class := ""
		if m[1] == "3" {
			class = ` class="sub"`
		}
		fmt.Fprintf(&list, "<li%s><a href=\"#%s\">%s</a></li>\n", class, m[2], tag.ReplaceAllString(m[3], ""))
	}
	if list.Len() == 0 {
		return ""
	}
	return "<aside><details><summary>On this page</summary><ul>\n" + list.String() + "</ul></details></aside>\n"
}

var (
	anchor = regexp.MustCompile(` id="([^"]*)"`)
	href   = regexp.MustCompile(` href="([^"]*)"`)
	block  = regexp.MustCompile(`(?s)<pre><code class="language-(sh|yaml)">(.*?)</code></pre>`)
	syntax = map[string]*regexp.Regexp{ // comment, string, flag or key
		"sh":   regexp.MustCompile(`(?m)((?:^|[ \t])#.*$)|(&quot;.*?&quot;|'[^'\n]*')|(\B--?[A-Za-z][\w-]*)`),
		"yaml": regexp.MustCompile(`(?m)((?:^|[ \t])#.*$)|(&quot;.*?&quot;|'[^'\n]*')|([\w./-]+:(?:[ \t]|$))`),
	}
)

// html converts a page. Its anchors get the page's name, because other pages have the same headings.
func (p Page) html() (string, error) {
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	var out bytes.Buffer
	if err := markdown.Convert([]byte(p.text), &out); err != nil {
		return "", err
	}
	text := anchor.ReplaceAllString(out.String(), ` id="`+p.Name()+`--$1"`)
	text = strings.NewReplacer("<table>", `<div class="table"><table>`, "</table>", "</table></div>").Replace(text)
	text = block.ReplaceAllStringFunc(text, highlight)
	return href.ReplaceAllStringFunc(text, func(attribute string) string {
		target := href.FindStringSubmatch(attribute)[1]
		to, ok := p.follow(target)
		if !ok {
			return attribute
		}
		if _, heading, _ := strings.Cut(target, "#"); heading != "" {
			return ` href="#` + to.Name() + "--" + heading + `"`
		}
		return ` href="#` + to.Name() + `"`
	}), nil
}

// highlight marks comments, strings, and the flags or keys of a block of code.
func highlight(code string) string {
	m := block.FindStringSubmatch(code)
	marked := syntax[m[1]].ReplaceAllStringFunc(m[2], func(text string) string {
		for i, part := range syntax[m[1]].FindStringSubmatch(text)[1:] {
			if part != "" {
				return `<span class="` + "csk"[i:i+1] + `">` + text + `</span>`
			}
		}
		return text
	})
	return `<pre><code class="language-` + m[1] + `">` + marked + `</code></pre>`
}
