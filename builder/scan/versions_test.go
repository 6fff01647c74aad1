package scan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/mod/semver"

	"airlift/scripts/fixtures/rig"
)

// TestDebianVersions: generated versions have the order that dpkg has.
func TestDebianVersions(t *testing.T) {
	rig.Tool(t, "dpkg")
	random := rand.New(rand.NewPCG(1, 2))
	some := func(from string, least, most int) string {
		var b strings.Builder
		for range least + random.IntN(most-least+1) {
			b.WriteByte(from[random.IntN(len(from))])
		}
		return b.String()
	}
	next := func() string {
		v := ""
		if random.IntN(4) == 0 {
			v = some("0123", 1, 1) + ":"
		}
		v += some("0129", 1, 2) + some("019.+~ab", 0, 5)
		if random.IntN(3) > 0 {
			v += "-" + some("0129", 1, 1) + some("01+~bdu.", 0, 4)
		}
		return v
	}
	for n := range 400 {
		a, b := next(), next()
		if n%3 == 0 { // nearly equal ones
			b = a + some("0~+a.", 0, 1)
		}
		want := 1
		for _, c := range []struct {
			operator string
			result   int
		}{{"lt", -1}, {"eq", 0}} {
			if exec.Command("dpkg", "--compare-versions", a, c.operator, b).Run() == nil {
				want = c.result
			}
		}
		if got, err := compare("Debian:12", a, b); err != nil || got != want {
			t.Errorf("%s and %s: %d, dpkg has %d, %v", a, b, got, want, err)
		}
	}
}

func TestLongNumbers(t *testing.T) {
	if _, err := compare("Debian:12", "1.0+20240101123456789012", "1.0+20240101123456789013"); err == nil {
		t.Error("the library cuts these numbers")
	}
	if got, err := compare("Debian:12", "1.0+202401011234567890", "1.0+202401011234567891"); err != nil || got != -1 {
		t.Errorf("%d, %v", got, err)
	}
}

// TestRanges: whether a version is affected follows from the events before it, in each ecosystem. The oracle applies events to all
// versions in their order, and knows nothing of comparisons.
func TestRanges(t *testing.T) {
	lines := map[string][]string{
		"Go":          {"0.9.0", "1.0.0-rc.1", "1.0.0", "1.0.1-0.20240102030405-abcdefabcdef", "1.0.1", "1.9.0", "1.10.0"},
		"Debian:12":   {"1.0~rc1-1", "1.0-1", "1.0-1+deb12u1", "1.0-2", "1.9-1", "1.10-1", "1:0.1-1"},
		"Alpine:v3.9": {"1.0_rc1-r0", "1.0-r0", "1.0-r1", "1.0_p1-r0", "1.9-r0", "1.10-r0", "2.0-r0"},
	}
	random := rand.New(rand.NewPCG(3, 4))
	for ecosystem, versions := range lines {
		for range 500 {
			r := affectedRange{Type: "ECOSYSTEM"}
			at := map[int]event{}
			if random.IntN(2) == 0 {
				r.Events = append(r.Events, event{Introduced: "0"})
			}
			zero := len(r.Events) > 0
			for i := range versions {
				var e event
				switch random.IntN(6) {
				case 0:
					e.Introduced = versions[i]
				case 1:
					e.Fixed = versions[i]
				case 2:
					e.LastAffected = versions[i]
				default:
					continue
				}
				at[i], r.Events = e, append(r.Events, e)
			}
			random.Shuffle(len(r.Events), func(i, j int) { r.Events[i], r.Events[j] = r.Events[j], r.Events[i] })
			affected := zero
			for i, v := range versions {
				if at[i].Introduced != "" {
					affected = true
				}
				if at[i].Fixed != "" {
					affected = false
				}
				fixed := ""
				for j := i + 1; j < len(versions) && fixed == ""; j++ {
					fixed = at[j].Fixed
				}
				in, got, err := r.judge(ecosystem, v)
				if err != nil || in != affected || in && strings.Join(got, " ") != fixed {
					t.Fatalf("%s %s: %v, fixed in %q, want %v, %q: %v\n%+v", ecosystem, v, in, got, affected, fixed, err, r.Events)
				}
				if at[i].LastAffected != "" {
					affected = false
				}
			}
		}
	}
}

func TestLimits(t *testing.T) {
	r := affectedRange{Events: []event{{Introduced: "0"}, {Limit: "2.0.0"}, {Limit: "1.0.0"}}}
	for version, want := range map[string]bool{"1.9.0": true, "2.0.0": false, "0.1.0": true} {
		if in, _, err := r.judge("Go", version); err != nil || in != want {
			t.Errorf("%s: %v, %v", version, in, err)
		}
	}
}

// TestDoubt: a version that cannot be compared counts as affected, with the reason.
func TestDoubt(t *testing.T) {
	a := affected{Ranges: []affectedRange{{Type: "SEMVER", Events: []event{{Introduced: "0"}, {Fixed: "not a version"}}}}}
	a.Package.Ecosystem = "Go"
	if v := a.judge("1.0.0", false); !v.affected || !strings.Contains(v.doubt, "not a version") {
		t.Errorf("%+v", v)
	}
	a.Ranges[0].Type = "GIT"
	if v := a.judge("1.0.0", false); !v.affected || v.doubt == "" {
		t.Errorf("%+v", v)
	}
	a.Versions = []string{"v1.0.0"}
	if v := a.judge("1.0.0", false); !v.affected || v.doubt != "" {
		t.Errorf("%+v", v)
	}
	if v := a.judge("1.0.1", false); v.affected {
		t.Errorf("%+v", v)
	}
}

// TestPublishedForms: parts of the records that the Go vulnerability database publishes (here with other names): packages of one platform, and ranges of
// releases. A part in another form is left out, and the record counts.
func TestPublishedForms(t *testing.T) {
	for text, want := range map[string][3]bool{ // affected: the module's version, a fixed release, a release before that
		`{"imports": [{"path": "x/windows", "goos": ["windows"]}]}`:                                                                     {false, false, false},
		`{"imports": [{"path": "x", "goarch": ["ppc64le"], "symbols": ["F"]}, {"path": "y", "goos": ["darwin"], "goarch": ["amd64"]}]}`: {false, false, false},
		`{"imports": [{"path": "x/windows", "goos": ["windows"]}, {"path": "x"}]}`:                                                      {true, true, true},
		`{"imports": [{"path": "x", "goos": ["windows", "linux"], "goarch": ["amd64"]}]}`:                                               {true, true, true},
		`{"imports": "all", "custom_ranges": 7, "urgency": ["low"]}`:                                                                    {true, true, true},
		`{"custom_ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.12.1"}]}]}`:                              {true, false, true},
		`{"custom_ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "1.0.0"}, {"fixed": "1.9.0"}, {"introduced": "1.11.0"}]}]}`: {true, true, true},
		`[]`: {true, true, true},
	} {
		var a affected
		record := `{"package": {"ecosystem": "Go", "name": "example.com/x"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}], "ecosystem_specific": ` + text + `}`
		if err := json.Unmarshal([]byte(record), &a); err != nil {
			t.Fatal(err)
		}
		hit := func(version string, released bool) bool {
			return !a.Ecosystem.elsewhere("linux/amd64") && a.judge(version, released).affected
		}
		if got := [3]bool{hit("0.0.0-20240102030405-abcdefabcdef", false), hit("1.12.2", true), hit("1.11.5", true)}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
		if a.Ecosystem.elsewhere("") {
			t.Errorf("%s: elsewhere without a platform", text)
		}
	}
}

// TestToolchain: each version of Go is semantic, in Go's own order.
func TestToolchain(t *testing.T) {
	for got, want := range map[string]string{"go1.26": "1.26.0", "go1.26.5": "1.26.5", "go1.27rc2": "1.27.0-rc.2", "go1.26.5-vendor": "1.26.5", "devel": ""} {
		item := module("stdlib", got)
		if v, _ := moduleVersion([]*Item{item}); v != want || v != "" && !semver.IsValid("v"+v) {
			t.Errorf("%s: %q", got, v)
		}
	}
}

// TestScores are examples that FIRST publishes with their scores: https://www.first.org/cvss/v3.1/examples
func TestScores(t *testing.T) {
	for vector, want := range map[string]Severity{
		"CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N":                    {Level: Medium, Score: 6.1},
		"CVSS:3.1/AV:N/AC:L/PR:L/UI:N/S:C/C:L/I:L/A:N":                    {Level: Medium, Score: 6.4},
		"CVSS:3.1/AV:N/AC:H/PR:N/UI:R/S:U/C:L/I:N/A:N":                    {Level: Low, Score: 3.1},
		"CVSS:3.0/AV:L/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H":                    {Level: High, Score: 8.4},
		"CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H":                    {Level: Critical, Score: 9.8},
		"CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:N":                    {Level: None},
		"AV:N/AC:L/Au:N/C:N/I:N/A:C":                                      {Level: High, Score: 7.8},
		"CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:H/SI:H/SA:H": {Level: Critical, Score: 10},
	} {
		want.Vector = vector
		if got := ratingOf("CVSS_V3", vector); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if got := ratingOf("CVSS_V3", "CVSS:3.1/AV:N"); got.Level != Unknown {
		t.Errorf("%+v", got)
	}
	if fmt.Sprint(worded("MODERATE"), worded("?")) != fmt.Sprint(Severity{Level: Medium}, Severity{Level: Unknown}) {
		t.Error(worded("MODERATE"))
	}
}
