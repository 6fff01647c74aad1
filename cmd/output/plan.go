package output

import (
	"github.com/spf13/pflag"

	"airlift/internal/fault"
)

// A PlanExit is the flag --detailed-exitcode, which all plans have: a plan is no failure, and only scripts ask for more.
type PlanExit bool

// Bind adds the flag.
func (e *PlanExit) Bind(f *pflag.FlagSet) {
	f.BoolVar((*bool)(e), "detailed-exitcode", false, "exit with 5 if there is something to do, instead of 0")
}

// Code returns the error that a plan ends with. Its text has said what there is to do, and why not.
func (e PlanExit) Code(err error) error {
	if !bool(e) && fault.ExitCode(err).IsOutcome() {
		return nil
	}
	return err
}

// Work returns the error of a plan that has something to do.
func (e PlanExit) Work() error {
	return e.Code(fault.New(fault.Work, "there is something to do"))
}
