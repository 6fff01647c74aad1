package progress

import "time"

// Kinds of events.
const (
	Step    = "step"    // a step begins
	Note    = "note"    // a line about it
	Warning = "warning" // a line that the user should read
	Done    = "done"    // the last event of a command that succeeded; its text is the summary
	Error   = "error"   // the last event of a command that failed
)

// An Event is what a command prints with --progress json, one JSON object per line. Fields are only added.
type Event struct {
	Time time.Time `json:"time"`
	Kind string    `json:"event"`
	// Host is the host of an event of a command for several hosts. Their done and error are not the last event.
	Host string `json:"host,omitempty"`
	// Step is the name of a step, Number counts from 1, Of is the number of steps.
	Step   string `json:"step,omitempty"`
	Number int    `json:"number,omitempty"`
	Of     int    `json:"of,omitempty"`
	Text   string `json:"text,omitempty"`
	// Code is the exit code of an error, Hint what to do.
	Code int    `json:"code,omitempty"`
	Hint string `json:"hint,omitempty"`
}
