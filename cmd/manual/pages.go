// Package manual prints the manual that both commands carry, as text or as one HTML page.
package manual

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"airlift"
	"airlift/internal/fault"
)

// A Page is a page of the manual.
type Page struct {
	Entry
	Title      string // its first heading
	Developers bool   // the page is in the book for developers
	text       string // Markdown
}

func (p Page) plainTitle() string { return strings.ReplaceAll(p.Title, "`", "") }

// Pages returns all pages, in the order of the books.
var Pages = sync.OnceValue(func() (pages []Page) {
	for i, book := range Books {
		for _, group := range book.Groups {
			for _, e := range group.Pages {
				data, err := airlift.Manual.ReadFile(e.Path)
				if err != nil {
					panic(err) // it is in memory, and a test reads all pages
				}
				text := folded.ReplaceAllString(comment.ReplaceAllString(string(data), ""), "")
				title, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(text), "# "), "\n")
				pages = append(pages, Page{e, title, i > 0, text})
			}
		}
	}
	return pages
})

// folded matches the tags around what a page hides on the web until a reader opens it.
var folded = regexp.MustCompile(`</?(?:details|summary|code)>`)

// comment matches comments for the tests of the documentation.
var comment = regexp.MustCompile(`(?m)^<!--[^\n]*-->\n`)

// Find returns a page by its name, or by the name of its file: "docs/backup.md".
func Find(name string) (Page, error) {
	wanted := strings.TrimSuffix(path.Base(strings.ToLower(name)), ".md")
	pages := Pages()
	i := slices.IndexFunc(pages, func(p Page) bool { return p.Name() == wanted })
	if i < 0 {
		var names []string
		for _, p := range pages {
			names = append(names, p.Name())
		}
		return Page{}, fault.New(fault.Usage, "there is no page %q", name).Hint(fault.Choose(name, "the pages are", names))
	}
	return pages[i], nil
}

var (
	link  = regexp.MustCompile(`\[([^\]]+)\]\(([^)\s]+)\)`)
	fence = regexp.MustCompile("^ *```")
)

// Text returns the page for a terminal: its Markdown, with the names of pages instead of links.
func (p Page) Text() string {
	var out, prose strings.Builder // prose is what precedes the next block of code: a link may have two lines
	end := func() {
		out.WriteString(link.ReplaceAllStringFunc(prose.String(), p.reference))
		prose.Reset()
	}
	code := false
	for line := range strings.Lines(p.text) {
		switch {
		case fence.MatchString(line):
			code = !code
			end()
		case code && strings.TrimSpace(line) != "":
			out.WriteString("    " + line)
		case code:
			out.WriteString("\n")
		default:
			prose.WriteString(line)
		}
	}
	end()
	return strings.TrimLeft(out.String(), "\n")
}

// reference returns the text of a link, and the page that it leads to.
func (p Page) reference(markdown string) string {
	m := link.FindStringSubmatch(markdown)
	text, target := m[1], m[2]
	switch to, ok := p.follow(target); {
	case ok && to.Path == p.Path, strings.EqualFold(text, target), strings.EqualFold(text, path.Base(to.Path)) && ok:
		return text
	case ok:
		return text + " (page " + to.Name() + ")"
	case strings.Contains(target, "://"):
		return text + " (" + target + ")"
	}
	return text
}

// follow returns the page of a link in this page.
func (p Page) follow(target string) (Page, bool) {
	file, _, _ := strings.Cut(target, "#")
	if file == "" {
		return p, true
	}
	at := path.Join(path.Dir(p.Path), file)
	for _, to := range Pages() {
		if to.Path == at {
			return to, true
		}
	}
	return Page{}, false
}
