package ledger

import (
	"encoding/json"
	"os"
	"slices"
	"time"

	"airlift/installer/host/filesystem"
)

// runsPath lists the last commands that changed this host. It is next to the
// ledger: without a ledger there is no list, and reset removes both.
const runsPath = StateDir + "/runs.json"

// maxRuns is how many runs are kept. The last run of each command is kept longer: a backup
// every hour does not push the last upgrade out of the list.
const maxRuns = 20

// A Run is one command that changed this host, or began to.
type Run struct {
	Command string    `json:"command"` // without flags and arguments, which may be secrets: "init"
	Version string    `json:"version"` // the Kubernetes version of its bundle
	Began   time.Time `json:"began"`
	// File is the path of the bundle file that it used, and Bundle its ID; missing if it needed none.
	File   string `json:"file,omitempty"`
	Bundle string `json:"bundle,omitempty"`
	// Seconds is how long it took. It is missing, like the exit code, for a
	// run that was killed or has not ended yet.
	Seconds  float64 `json:"seconds,omitempty"`
	ExitCode *int    `json:"exitCode,omitempty"`
	Error    string  `json:"error,omitempty"` // the first line
}

// Ended reports whether the run ended, with or without an error.
func (r Run) Ended() bool { return r.ExitCode != nil }

// BeginRun records that a command begins to change this host. On a host without
// a ledger it is recorded with the ledger's first entry, so that a refused
// command leaves nothing. The host must be locked.
func (r *Records) BeginRun(run Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run = &run
	if r.document.used() {
		r.writeRun()
	}
}

// EndRun records how the command ended. It writes nothing if the host has no
// list of runs: nothing was installed, or reset has removed it. The record is
// only for people, so a list that cannot be written is not an error.
func (r *Records) EndRun(now time.Time, exitCode int, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.run == nil {
		return
	}
	r.run.Seconds, r.run.ExitCode, r.run.Error = now.Sub(r.run.Began).Seconds(), &exitCode, message
	if _, err := os.Lstat(r.root.Path(runsPath)); err == nil {
		r.writeRun()
	}
	r.run = nil
}

// writeRun adds the current run to the list, or replaces its record there. The
// caller holds r.mu.
func (r *Records) writeRun() {
	if r.inMemory {
		return
	}
	list, err := r.Runs()
	if err != nil {
		list = nil // a damaged list is replaced
	}
	if n := len(list); n > 0 && list[n-1].Began.Equal(r.run.Began) {
		list = list[:n-1]
	}
	list = append(list, *r.run)
	data, err := json.MarshalIndent(newest(list), "", "  ")
	if err != nil {
		return
	}
	if place, err := r.root.Place(runsPath); err == nil {
		_ = filesystem.Replace(place, append(data, '\n'), 0o600)
	}
}

// newest returns maxRuns of the runs: without the oldest that have a later run of the same command.
func newest(list []Run) []Run {
	for len(list) > maxRuns {
		i := slices.IndexFunc(list, func(r Run) bool {
			last := len(list) - 1
			for list[last].Command != r.Command {
				last--
			}
			return !list[last].Began.Equal(r.Began)
		})
		list = slices.Delete(list, max(0, i), max(0, i)+1)
	}
	return list
}

// Runs lists the last commands that changed this host, oldest first.
func (r *Records) Runs() (list []Run, err error) {
	_, err = r.root.ReadState(runsPath, &list, "the next command that changes this host replaces it")
	return list, err
}
