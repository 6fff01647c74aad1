package doctor

import (
	"fmt"
	"path"
	"strings"
)

// nodeUnits are the units that a node needs.
var nodeUnits = []string{"kubelet", "containerd", "airlift-endpoint", "airlift-registry", "airlift-registry-node", "airlift-serving", "airlift-service-route", "airlift-backup"}

// since is the time from which logs are gathered, in journalctl's format.
func (d *Doctor) since() string {
	return fmt.Sprintf("--since=@%d", d.began.Add(-d.Options.Since).Unix())
}

// units describes systemd's units.
func (d *Doctor) units() []source {
	list := []source{commands("units/all.txt", "systemctl is-system-running", "systemctl list-units --no-pager --all --failed", "systemctl list-units --no-pager --type=service",
		"systemctl list-timers --no-pager --all", "systemctl list-jobs --no-pager")}
	for _, name := range nodeUnits {
		unit := name + ".service"
		list = append(list, commands(path.Join("units", name+".txt"), "systemctl status --no-pager --lines=0 "+unit, "systemctl show "+unit, "systemctl cat --no-pager "+unit))
	}
	return list
}

// journals are the logs of the units and of the kernel.
func (d *Doctor) journals() []source {
	journal := "journalctl --no-pager --quiet --output=short-iso-precise --lines=20000 " + d.since()
	var list []source
	for _, name := range nodeUnits {
		list = append(list, commands(path.Join("journal", name+".txt"), journal+" --unit="+name+".service"))
	}
	return append(list,
		commands("journal/kernel.txt", journal+" --dmesg"),
		commands("journal/systemd.txt", strings.Replace(journal, "20000", "2000", 1)+" --priority=err _PID=1"), // other errors are the site's own
	)
}
