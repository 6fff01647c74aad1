package model

import "testing"

// TestSeeds: hosts boot from one seed in any order, and lose their power before any change. Site.checkSeeds has the rules.
func TestSeeds(t *testing.T) {
	prints(t, Sequence{
		{Name: seedBoots, Host: 3}, {Name: seedBoots, Host: 4}, {Name: seedBoots, Host: 1}, {Name: seedBoots, Host: 2}, {Name: seedDone, Host: 1},
	}, "it ends: <nil>")
}
