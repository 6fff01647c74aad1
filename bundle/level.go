package bundle

import (
	"fmt"
	"os/exec"
	"strings"

	"airlift/internal/fault"
)

// A Level is a compression level. The zero value is the default.
type Level int

const (
	Default Level = iota // the built-in encoder
	Fastest              // faster and larger, for tests
	Best                 // the zstd command: smaller, slower to build and to import
)

var levelNames = map[Level]string{Default: "default", Fastest: "fastest", Best: "best"}

// Levels lists the names of the levels, the fastest first.
func Levels() []string { return []string{"fastest", "default", "best"} }

// ParseLevel returns the level with this name.
func ParseLevel(name string) (Level, error) {
	for l, n := range levelNames {
		if n == name {
			return l, nil
		}
	}
	return 0, fault.New(fault.Usage, "unknown compression %q", name).Hint("choose one of " + strings.Join(Levels(), ", "))
}

// Name is the name that ParseLevel accepts.
func (l Level) Name() string { return levelNames[l] }

// Check reports whether this machine can use the level.
func (l Level) Check() error {
	if l != Best {
		return nil
	}
	_, err := exec.LookPath(zstdCommand)
	return fault.Wrap(err, fault.Failure, "install zstd, or use --compression default")
}

// String describes how the level compresses.
func (l Level) String() string {
	if l == Best {
		return fmt.Sprintf("best, with '%s'", strings.Join(append([]string{zstdCommand}, bestArguments(MaxWindow)...), " "))
	}
	return l.Name()
}
