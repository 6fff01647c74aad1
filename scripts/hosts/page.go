package main

import (
	_ "embed"
	"strings"

	"airlift/scripts/results"
)

// page is docs/hosts.md without the rows of its table, which replace the line ROWS.
//
//go:embed page.md
var page string

// writePage writes the page with the result of every row.
func writePage(path string, rows []row, record *results.Record) error {
	var table strings.Builder
	for _, r := range rows {
		result := record.Of(r.Name).String()
		if r.NotHere != "" {
			result = "not run: " + r.NotHere
		}
		table.WriteString("| `" + r.Name + "` | " + r.About + " | " + result + " |\n")
	}
	return results.Replace(path, []byte(strings.Replace(page, "ROWS\n", table.String(), 1)))
}
