package model

import "testing"

// TestBackupsElsewhere: backups go to another machine, which fails in each way. They wait over an upgrade, the end of the timer, a reset and another
// cluster. After the loss of the host, another one gets the cluster back. Site.beginVault has the rules.
func TestBackupsElsewhere(t *testing.T) {
	on := func(names ...string) (list Sequence) {
		for _, name := range names {
			list = append(list, Command{Name: name, Host: 1})
		}
		return list
	}
	const fails = ": [^=]*(sending the backup|connecting) to"
	prints(t, append(on("init", backupsTimer, backupsRun, backupsRun, targetDown, backupsRun, targetSilent, backupsRun, targetFull, backupsRun, targetWrong, backupsRun, targetCuts, backupsRun, targetWorks, backupsRun,
		targetDown, backupsRun, "upgrade apply", backupsOff, targetWorks, backupsTimer, backupsElsewhere, backupsRun, targetDown, backupsRun, "reset", targetWorks, backupRestore, backupsTimer, hostLost),
		Command{Name: backupRestore, Host: 2}, Command{Name: backupOnce, Host: 2}, Command{Name: "reset", Host: 2}),
		"every 6h: <nil>", "runs: <nil>", "runs: <nil>", "runs"+fails, "runs"+fails, "runs"+fails, "runs"+fails, "runs"+fails, "runs: <nil>",
		"runs"+fails, "upgrade apply: <nil>", "off: <nil>", "URL --every 6h: <nil>", "OTHER-URL --every 6h: <nil>", "runs: <nil>", "runs"+fails, "reset: <nil>", "restore URL: <nil>", "every 6h: <nil>",
		"lost: <nil>", "restore URL: <nil>", "snapshot URL: <nil>", "reset: <nil>")
	for n := 1; n < 120; n += 17 {
		prints(t, Sequence{{Name: "init", Host: 1}, {Name: backupsTimer, Host: 1, Crash: n}, {Name: backupsRun, Host: 1, Crash: n}, {Name: backupsRun, Host: 1, Crash: n + 9, Left: true}, {Name: backupsRun, Host: 1}, {Name: backupsOff, Host: 1, Crash: n, Full: true}},
			"every 6h[^=]*: <nil>", "runs[^=]*: <nil>", "off[^=]*: <nil>")
	}
}
