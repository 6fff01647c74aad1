package fault

import "strings"

// Nearest returns the candidate that was most likely meant by what somebody
// wrote, for a hint: the one it begins, or that differs from it by no more
// than a slip. It is "" when none does. Upper and lower case are the same.
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

// distance is Levenshtein's: how many letters to add, drop or change.
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
