package fault

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
)

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

// Choose returns the hint for a word that is none of the candidates: the one that the user probably meant, or else all of them
// after text.
func Choose(written, text string, candidates []string) string {
	if near := Nearest(written, candidates); near != "" {
		return "did you mean " + near + "?"
	}
	return text + ": " + strings.Join(candidates, ", ")
}

// Similar returns up to n candidates that have words of written, as maxPods and podsPerCore have
// pods; those with the most common words come first.
func Similar(written string, candidates []string, n int) []string {
	wanted := words(written)
	common := map[string]int{}
	for _, c := range candidates {
		for _, word := range words(c) {
			if slices.Contains(wanted, word) {
				common[c]++
			}
		}
	}
	found := slices.Sorted(maps.Keys(common))
	slices.SortStableFunc(found, func(a, b string) int {
		return cmp.Or(common[b]-common[a], len(words(a))-len(words(b)), distance(written, a)-distance(written, b))
	})
	return found[:min(n, len(found))]
}

// words returns the words of a name in camel case, in lower case and without a plural's s.
func words(name string) (list []string) {
	for _, word := range word.FindAllString(name, -1) {
		list = append(list, strings.TrimSuffix(strings.ToLower(word), "s"))
	}
	return list
}

var word = regexp.MustCompile(`[A-Z]+(?:[a-z0-9]+)?|[a-z0-9]+`)

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
