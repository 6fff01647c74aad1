package scan

import (
	"cmp"
	"math"
	"slices"
	"strings"

	cvss20 "github.com/pandatix/go-cvss/20"
	cvss30 "github.com/pandatix/go-cvss/30"
	cvss31 "github.com/pandatix/go-cvss/31"
	cvss40 "github.com/pandatix/go-cvss/40"

	"airlift/internal/fault"
)

// A Level is a severity in one word.
type Level string

// The levels, from the highest. An unknown one counts as the highest for FailOn, because nobody knows better.
const (
	Critical Level = "critical"
	High     Level = "high"
	Medium   Level = "medium"
	Low      Level = "low"
	None     Level = "none"
	Unknown  Level = "unknown"
)

var order = []Level{Critical, High, Medium, Low, None, Unknown}

// Levels lists the levels for --fail-on.
func Levels() []string { return []string{string(Low), string(Medium), string(High), string(Critical)} }

// ParseLevel returns the level called name, for --fail-on.
func ParseLevel(name string) (Level, error) {
	if !slices.Contains(Levels(), name) {
		return "", fault.New(fault.Usage, "unknown severity %q", name).Hint(fault.Choose(name, "use one of", Levels()))
	}
	return Level(name), nil
}

// atLeast reports whether l is as severe as least, or may be.
func (l Level) atLeast(least Level) bool {
	return l == Unknown || slices.Index(order, l) <= slices.Index(order, least)
}

// A Severity is how bad a vulnerability is.
type Severity struct {
	Level  Level   `json:"level"`
	Score  float64 `json:"score,omitempty"`  // of CVSS
	Vector string  `json:"vector,omitempty"` // of CVSS
}

// compareTo orders severities: the worst first, and unknown ones last.
func (s Severity) compareTo(other Severity) int {
	return cmp.Or(cmp.Compare(slices.Index(order, s.Level), slices.Index(order, other.Level)), cmp.Compare(other.Score, s.Score))
}

// worst returns the worst severity of entries of a record.
func worst(list []rating) Severity {
	s := Severity{Level: Unknown}
	for _, r := range list {
		if one := ratingOf(r.Type, r.Score); one.compareTo(s) < 0 {
			s = one
		}
	}
	return s
}

// ratingOf returns the severity of an entry of a record.
func ratingOf(kind, score string) Severity {
	if !strings.HasPrefix(kind, "CVSS_") {
		return worded(score) // Ubuntu's
	}
	value, ok := base(score)
	if !ok {
		return Severity{Level: Unknown}
	}
	s := Severity{Level: None, Score: value, Vector: score}
	for _, l := range []struct {
		level Level
		from  float64
	}{{Critical, 9}, {High, 7}, {Medium, 4}, {Low, 0.1}} {
		if value >= l.from {
			s.Level = l.level
			break
		}
	}
	return s
}

// base returns the base score of a CVSS vector of any version.
func base(vector string) (float64, bool) {
	var score float64
	var err error
	switch {
	case strings.HasPrefix(vector, "CVSS:4.0/"):
		var v *cvss40.CVSS40
		if v, err = cvss40.ParseVector(vector); err == nil {
			score = v.Score()
		}
	case strings.HasPrefix(vector, "CVSS:3.1/"):
		var v *cvss31.CVSS31
		if v, err = cvss31.ParseVector(vector); err == nil {
			score = v.BaseScore()
		}
	case strings.HasPrefix(vector, "CVSS:3.0/"):
		var v *cvss30.CVSS30
		if v, err = cvss30.ParseVector(vector); err == nil {
			score = v.BaseScore()
		}
	default:
		var v *cvss20.CVSS20
		if v, err = cvss20.ParseVector(vector); err == nil {
			score = v.BaseScore()
		}
	}
	return math.Round(score*10) / 10, err == nil
}

// worded returns the severity for the word of a database, as GitHub's or Ubuntu's.
func worded(word string) Severity {
	switch l := Level(strings.ToLower(word)); l {
	case Critical, High, Medium, Low, None:
		return Severity{Level: l}
	case "moderate":
		return Severity{Level: Medium}
	case "negligible":
		return Severity{Level: Low}
	}
	return Severity{Level: Unknown}
}
