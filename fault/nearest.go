package fault

import "strings"

// Nearest returns the candidate that the user probably meant, for a hint: one that begins
// with written, or one with few typing errors. It returns "" if there is none. It ignores
// case.
func Nearest(written string, candidates []string) string {
	best, least := "", 1+min(3, len(written)/3)
	for _, c := range candidates {
		if len(written) > 3 && strings.HasPrefix(strings.ToLower(c), strings.ToLower(written)) {
			return c
		}
		if d := distance(strings.ToLower(written), strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance is the Levenshtein distance: the number of letters to add, drop or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
