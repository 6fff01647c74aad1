package manual

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// longest is the width of prose on a wide terminal, because longer lines are hard to read. Tables may be wider.
const longest = 100

var (
	item      = regexp.MustCompile(`^( *)(?:[-*]|[0-9]+\.) `)
	delimiter = regexp.MustCompile(`^\|(?: *:?-+:? *\|)+$`)
)

// fit wraps the text of a page to the width of a terminal: paragraphs between words, tables within their cells. Code
// keeps its lines.
func fit(text string, width int) string {
	var out strings.Builder
	var paragraph string
	var table [][]string
	end := func() {
		if paragraph != "" {
			indent := strings.Repeat(" ", len(item.FindString(paragraph)))
			for i, line := range wrap(paragraph, min(width, longest)-len(indent)) {
				if i > 0 {
					line = indent + line
				}
				out.WriteString(line + "\n")
			}
		}
		fitTable(&out, table, width)
		paragraph, table = "", nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "|"):
			if paragraph != "" {
				end()
			}
			if !delimiter.MatchString(line) {
				table = append(table, cells(line))
			}
		case line == "", strings.HasPrefix(line, "    "), strings.HasPrefix(line, "#"):
			end()
			out.WriteString(line + "\n")
		case table != nil, item.MatchString(line), paragraph == "":
			end()
			paragraph = line
		default:
			paragraph += " " + strings.TrimSpace(line)
		}
	}
	end()
	return out.String()
}

// cells returns the cells of a row. A bar after a backslash is text.
func cells(row string) []string {
	row = strings.ReplaceAll(strings.Trim(row, " |"), `\|`, "\x00")
	cells := strings.Split(row, "|")
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(strings.TrimSpace(c), "\x00", "|")
	}
	return cells
}

func fitTable(out *strings.Builder, rows [][]string, width int) {
	if len(rows) == 0 {
		return
	}
	var natural []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(natural) {
				natural = append(natural, 1)
			}
			natural[i] = max(natural[i], utf8.RuneCountInString(cell))
		}
	}
	const gap = 2
	widths := share(natural, width-gap*(len(natural)-1))
	wrapped := false
	for n, row := range rows {
		lines := make([][]string, len(row))
		height := 1
		for i, cell := range row {
			lines[i] = wrap(cell, widths[i])
			height = max(height, len(lines[i]))
		}
		if n > 1 && (wrapped || height > 1) {
			out.WriteString("\n") // between rows with several lines
		}
		wrapped = height > 1
		for h := range height {
			var line strings.Builder
			for i := range row {
				text := ""
				if h < len(lines[i]) {
					text = lines[i][h]
				}
				line.WriteString(text + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+gap))
			}
			out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		}
		if n == 0 {
			out.WriteString(strings.Repeat("─", min(width, sum(widths)+gap*(len(widths)-1))) + "\n")
		}
	}
}

// share divides a width among columns: the narrow ones get what they need, the others equal parts of the rest.
func share(natural []int, width int) []int {
	widths, narrowFirst := make([]int, len(natural)), make([]int, len(natural))
	for i := range natural {
		narrowFirst[i] = i
	}
	slices.SortStableFunc(narrowFirst, func(a, b int) int { return natural[a] - natural[b] })
	for done, i := range narrowFirst {
		widths[i] = min(natural[i], max(1, width/(len(natural)-done)))
		width -= widths[i]
	}
	return widths
}

func sum(numbers []int) (n int) {
	for _, number := range numbers {
		n += number
	}
	return n
}

// wrap breaks a text between words, and a word that is longer than the width within it.
func wrap(text string, width int) (lines []string) {
	width = max(width, 1)
	line := ""
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		} else if lines == nil {
			line = indent
		}
		for letters := []rune(line + word); ; letters = letters[width:] {
			if len(letters) <= width {
				line = string(letters)
				break
			}
			lines = append(lines, string(letters[:width]))
		}
	}
	return append(lines, line)
}
