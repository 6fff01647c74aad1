package manual

import (
	"html"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"

	"airlift/internal/fault"
)

// search.js has the same index and the same ranking for the HTML page. A test compares both in a browser.

// A Section is a heading of a page with the text below it.
type Section struct {
	Page    Page
	Anchor  string // id of the element: "backup--restore"
	Heading string
	Lines   []string

	counts map[string]float64 // how much each word of the text counts
	length float64
}

// A Result is a section that a search found.
type Result struct {
	*Section
	Line  string // the line with most of the words
	score float64
}

var (
	heading  = regexp.MustCompile(`<h[1-4] id="([^"]*)">(.*?)</h[1-4]>`)
	tag      = regexp.MustCompile(`<[^>]*>`)
	cellEnd  = regexp.MustCompile(`</t[dh]>\n<t[dh][^>]*>`)
	hump     = regexp.MustCompile(`([a-z])([A-Z])`)
	word     = regexp.MustCompile(`[a-z0-9]+`)
	sections = sync.OnceValues(readSections)
)

// noise are words of a question that say nothing about its answer.
var noise = strings.Fields("a an and can do for how i in is it much my of on or the to what which with")

// What a word counts in a heading, where it is less if others are there, and in the title of its page. A page for developers counts half.
const (
	inHeading  = 12
	inTitle    = 3
	developers = 0.5
)

func readSections() (all []*Section, err error) {
	for _, p := range Pages() {
		text, err := p.html()
		if err != nil {
			return nil, err
		}
		at := heading.FindAllStringSubmatchIndex(text, -1)
		for i, m := range at {
			end := len(text)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			s := &Section{Page: p, Anchor: text[m[2]:m[3]], Heading: plain(text[m[4]:m[5]]), counts: map[string]float64{}}
			for line := range strings.Lines(plain(cellEnd.ReplaceAllString(text[m[1]:end], "  "))) {
				if line = strings.TrimSpace(line); line != "" {
					s.Lines = append(s.Lines, line)
				}
				for _, w := range words(line) {
					s.counts[w]++
					s.length++
				}
			}
			title := words(s.Heading)
			for _, w := range title {
				s.counts[w] += inHeading / math.Sqrt(float64(len(title)))
			}
			for _, w := range words(p.Short + " " + p.plainTitle()) {
				s.counts[w] += inTitle
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// plain returns the text of HTML.
func plain(text string) string { return html.UnescapeString(tag.ReplaceAllString(text, "")) }

// words returns the words of a text in lower case. certSANs is two of them.
func words(text string) []string {
	return word.FindAllString(strings.ToLower(hump.ReplaceAllString(text, "$1 $2")), -1)
}

// wanted returns the words of a search, without plurals and without those that are in every question.
func wanted(query string) (found []string) {
	for _, w := range words(query) {
		if len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") {
			w = strings.TrimSuffix(w, "s")
		}
		if !slices.Contains(noise, w) && !slices.Contains(found, w) {
			found = append(found, w)
		}
	}
	return found
}

// matches reports whether a word of a text is one that a search wants: it, or from three letters on its beginning.
func matches(text, wanted string) bool {
	return text == wanted || len(wanted) >= 3 && strings.HasPrefix(text, wanted)
}

// Search returns the sections that have the words of the query, the best first. The measure is BM25.
func Search(query string) (results []Result, err error) {
	all, err := sections()
	if err != nil {
		return nil, err
	}
	query = strings.Join(wanted(query), " ")
	total := 0.0
	for _, s := range all {
		total += s.length
	}
	score, found := make([]float64, len(all)), make([]float64, len(all))
	for _, w := range strings.Fields(query) {
		counts, sectionsWith := make([]float64, len(all)), 0.0
		for i, s := range all {
			for text, n := range s.counts {
				if matches(text, w) {
					counts[i] += n
				}
			}
			if counts[i] > 0 {
				sectionsWith++
			}
		}
		for i, n := range counts {
			if n > 0 {
				found[i]++
				length := all[i].length * float64(len(all)) / total
				score[i] += math.Log(1+float64(len(all))/sectionsWith) * n / (n + 0.8 + 0.7*length)
			}
		}
	}
	for i, s := range all {
		if score[i] == 0 {
			continue
		}
		score[i] *= found[i] * found[i]
		if s.Page.Developers {
			score[i] *= developers
		}
		results = append(results, Result{s, s.line(query), score[i]})
	}
	slices.SortStableFunc(results, func(a, b Result) int {
		switch d := b.score - a.score; {
		case d > 1e-9:
			return 1
		case d < -1e-9:
			return -1
		}
		return 0
	})
	return results, nil
}

// line returns the first line of the section with most words of the query.
func (s *Section) line(query string) (best string) {
	most := -1
	for _, line := range s.Lines {
		n := 0
		for _, w := range strings.Fields(query) {
			if slices.ContainsFunc(words(line), func(text string) bool { return matches(text, w) }) {
				n++
			}
		}
		if n > most {
			best, most = line, n
		}
	}
	return best
}

// known returns a word of the manual that is like one of the query, for a search without a result.
func known(query string) string {
	all, _ := sections()
	candidates := map[string]bool{}
	for _, s := range all {
		for w := range s.counts {
			candidates[w] = len(w) > 3
		}
	}
	var list []string
	for w, ok := range candidates {
		if ok {
			list = append(list, w)
		}
	}
	slices.Sort(list)
	for _, w := range wanted(query) {
		if near := fault.Nearest(w, list); near != "" {
			return near
		}
	}
	return ""
}
