package bundle

import (
	"fmt"
	"os/exec"
	"strings"

	"airlift/fault"
)

// A Level says how hard to compress. The zero value is what users want.
type Level int

const (
	Default Level = iota // as small as the encoder of our own gets it
	Fastest              // quick and larger, for tests and trials
	Best                 // smaller still and slow, by the zstd program, and slower to import
)

// Levels are the levels by their names, from the quickest to the smallest.
func Levels() []string { return []string{"fastest", "default", "best"} }

// ParseLevel returns the level of a name.
func ParseLevel(name string) (Level, error) {
	switch name {
	case "fastest":
		return Fastest, nil
	case "default":
		return Default, nil
	case "best":
		return Best, nil
	}
	return 0, fault.New(fault.Usage, "choose one of "+strings.Join(Levels(), ", "), "unknown compression %q", name)
}

// Check says whether this machine can compress so.
func (l Level) Check() error {
	if l != Best {
		return nil
	}
	_, err := exec.LookPath(zstdProgram)
	return fault.Wrap(err, fault.Failure, "install zstd, which the best compression needs, or choose the default")
}

// String describes how the level compresses.
func (l Level) String() string {
	switch l {
	case Fastest:
		return "fastest"
	case Best:
		return fmt.Sprintf("best, by '%s'", strings.Join(append([]string{zstdProgram}, bestArguments(maxWindow)...), " "))
	}
	return "default"
}
