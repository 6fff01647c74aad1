package adoption

import (
	"io/fs"
	"math/rand/v2"
)

// Marks are the texts of all marks, by maker.
func Marks() map[string][]string {
	all := map[string][]string{}
	for _, m := range makers {
		for _, k := range m.marks {
			all[m.name] = append(all[m.name], k.String())
		}
	}
	return all
}

// RefusedMakers are the makers whose nodes cannot be adopted.
func RefusedMakers() (names []string) {
	for _, m := range makers {
		if m.reason != "" {
			names = append(names, m.name)
		}
	}
	return names
}

// Adoptable reports whether nothing was refused.
func (r Report) Adoptable() bool { return len(r.Refusals) == 0 }

// Shuffle puts the tables of makers, marks and checks in another order, and returns a function that restores them.
func Shuffle(r *rand.Rand) (restore func()) {
	oldMakers, oldChecks := makers, checks
	makers, checks = append([]maker{}, makers...), append([]func(*view){}, checks...)
	r.Shuffle(len(makers), func(i, j int) { makers[i], makers[j] = makers[j], makers[i] })
	r.Shuffle(len(checks), func(i, j int) { checks[i], checks[j] = checks[j], checks[i] })
	for i := range makers {
		makers[i].marks = append([]mark{}, makers[i].marks...)
		r.Shuffle(len(makers[i].marks), func(a, b int) {
			makers[i].marks[a], makers[i].marks[b] = makers[i].marks[b], makers[i].marks[a]
		})
	}
	return func() { makers, checks = oldMakers, oldChecks }
}

// RPMHolds is rpmHolds.
var RPMHolds = rpmHolds

// Rooted returns a file system whose links stay below its root.
func Rooted(files fs.FS) fs.FS { return rooted{files} }
