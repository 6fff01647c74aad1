package manual

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
)

// style makes the page readable without anything from a network.
const style = `body{max-width:60em;margin:2em auto;padding:0 1em;font:16px/1.5 sans-serif}
pre{background:#f4f4f4;padding:.7em;overflow-x:auto}code{background:#f4f4f4}
table{border-collapse:collapse}td,th{border:1px solid #bbb;padding:.2em .5em;text-align:left;vertical-align:top}
article{border-top:2px solid #888;margin-top:3em}`

// HTML writes all pages as one page, for a browser without a network.
func HTML(out io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Airlift</title><style>\n%s\n</style></head><body>\n<nav><ul>\n", style)
	pages := Pages()
	for _, p := range pages {
		fmt.Fprintf(&b, "<li><a href=\"#%s\">%s</a></li>\n", p.Name(), html.EscapeString(strings.ReplaceAll(p.Title, "`", "")))
	}
	b.WriteString("</ul></nav>\n")
	for _, p := range pages {
		text, err := p.html()
		if err != nil {
			return fmt.Errorf("converting %s: %w", p.Path, err)
		}
		fmt.Fprintf(&b, "<article id=\"%s\">\n%s</article>\n", p.Name(), text)
	}
	b.WriteString("</body></html>\n")
	_, err := out.Write(b.Bytes())
	return err
}

var (
	anchor = regexp.MustCompile(` id="([^"]*)"`)
	href   = regexp.MustCompile(` href="([^"]*)"`)
)

// html converts a page. Its anchors get the page's name, because other pages have the same headings.
func (p Page) html() (string, error) {
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	var out bytes.Buffer
	if err := markdown.Convert([]byte(p.text), &out); err != nil {
		return "", err
	}
	text := anchor.ReplaceAllString(out.String(), ` id="`+p.Name()+`--$1"`)
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
