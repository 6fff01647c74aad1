package model

import "testing"

// TestPackages: packages of the distribution come with init, join and packages, also with those of another file, and go with reset, which leaves what
// the user has upgraded or needs. Site.beginPackages has the rules.
func TestPackages(t *testing.T) {
	prints(t, Sequence{
		{Name: packagesInstall, Host: 1, Again: true}, {Name: "init", Host: 1, Shown: true, Again: true}, {Name: "join", Host: 2}, {Name: "upgrade apply", Host: 1, File: 1}, {Name: packagesInstall, Host: 1, File: 1, Again: true},
		{Name: "upgrade node", Host: 2, File: 1}, {Name: packagesInstall, Host: 2, File: 1}, {Name: userPackage, Host: 1}, {Name: "upgrade undo", Host: 2}, {Name: packagesInstall, Host: 2, File: 2},
		{Name: "reset", Host: 2, Again: true}, {Name: userUpgrade, Host: 1}, {Name: packagesRemove, Host: 1, Again: true}, {Name: "reset", Host: 1, Again: true}, {Name: "init", Host: 1, File: 1},
	}, "packages, and again: <nil>", "init, after a dry run, and again: <nil>", "join: <nil>", "upgrade apply: <nil>", "an upgrade installs no packages: 2 packages", "packages, and again: <nil>",
		"upgrade node: <nil>", "packages: <nil>", "user: <nil>", "undo: <nil>", "packages: <nil>", "reset, and again: <nil>", "version: <nil>", "remove, and again: <nil>", "reset, and again: <nil>", "init: <nil>")
	for n := 2; n < 16; n += 3 {
		prints(t, Sequence{
			{Name: packagesInstall, Host: 1, Crash: n, Left: n%2 == 0}, {Name: "init", Host: 1}, {Name: packagesInstall, Host: 1, File: 1, Crash: n, Left: n%4 < 2}, {Name: "reset", Host: 1, Crash: n, Again: true},
		}, "init: <nil>", "reset[^=]*: <nil>")
	}
}
