package main

import (
	"testing"

	"airlift/installer/flow/initcluster"
	"airlift/installer/flow/join"
	"airlift/installer/flow/reset"
	"airlift/installer/flow/site"
	"airlift/installer/flow/upgrade"
	"airlift/installer/workflow"
)

// A step whose work has two parts has both, and nothing else: then no command can write anything that its dry
// run and its plan do not know.
func TestStepsHaveOneKindOfWork(t *testing.T) {
	var check func(parent string, steps []workflow.Step)
	check = func(parent string, steps []workflow.Step) {
		for _, s := range steps {
			if (s.Desired == nil) != (s.Apply == nil) || s.Desired != nil && (s.Run != nil || s.Reads) || s.Run == nil && s.Desired == nil && len(s.Steps) == 0 {
				t.Errorf("%s%s: Run %t, Desired %t, Apply %t, Reads %t", parent, s.Name, s.Run != nil, s.Desired != nil, s.Apply != nil, s.Reads)
			}
			check(parent+s.Name+"/", s.Steps)
		}
	}
	for command, steps := range map[string][]workflow.Step{
		"init": initcluster.Phases(), "join (worker)": join.Phases(false), "join (control plane)": join.Phases(true),
		"upgrade apply": upgrade.ApplyPhases(), "upgrade node": upgrade.NodePhases(), "reset": reset.Phases(), "apply": site.ApplyPhases(),
	} {
		check(command+" ", steps)
	}
}
