package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/remote"
	"airlift/internal/fault"
)

// plannedPatches begins the names of directories with the patches of a host while it finds out what a reconfiguration would change.
// They are not on a disk: a run that changes nothing leaves no trace there. The rest of a name is the process that removes the
// directory and when it began, so two drivers have two, and what a killed one has left is known, also if another process has its number.
const plannedPatches = "/run/airlift-planned-patches."

// withPatches precedes the commands that fill the directory from standard input, and the installer's command. A process began at the 22nd
// field of its stat; the second one, its name in brackets, may have blanks.
const withPatches = `umask 077
process() { set -- "$1" $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null); echo "$1.${21}"; }
for old in ` + plannedPatches + `*; do id=${old#` + plannedPatches + `}; test "$id" = "$(process "${id%%.*}")" || rm -rf "$old"; done
dir=` + plannedPatches + `$(process $$); rm -rf "$dir"
trap 'rm -rf "$dir"' EXIT; trap 'exit 130' INT TERM
mkdir "$dir" || exit
`

// Changes asks hosts what a reconfiguration would change there, and changes nothing. questions are those of plan.Questions.
func (s *Site) Changes(ctx context.Context, questions map[string]string) map[string]plan.ChangeAnswer {
	hosts := s.filter(func(h *Host) bool { return questions[h.Name] != "" && h.connection() != nil })
	answers, _ := Ask(ctx, s, "compare configuration", hosts, func(ctx context.Context, h *Host) (a plan.ChangeAnswer, err error) {
		a.Change, a.Err = h.change(ctx, questions[h.Name])
		return a, a.Err
	})
	return answers
}

// change asks what a verb would change on the host.
func (h *Host) change(ctx context.Context, verb string) (*facts.Change, error) {
	var document io.Reader
	var err error
	args := slices.Concat([]string{h.installer}, strings.Fields(verb), []string{"--plan", "-o", "json"})
	if verb == plan.Reconfigure {
		args = append(args, plan.ReconfigureFlags(h.site.Cluster, h.site.profile())...)
		if document, err = plan.ClusterDocuments(h.site.Cluster); err != nil {
			return nil, err
		}
	}
	if h.Patches != "" {
		if args, document, err = h.planWithPatches(args, document); err != nil {
			return nil, err
		}
	}
	out, err := h.answer(ctx, workTime, document, args...)
	exit := (*remote.ExitError)(nil)
	if err != nil && (!errors.As(err, &exit) || exit.Code != int(fault.Preflight)) {
		return nil, err
	}
	c := &facts.Change{}
	if json.Unmarshal(out, c) != nil || len(c.Nodes)+len(c.Refused) == 0 {
		if err == nil {
			err = errors.New("the host did not report what the configuration changes")
		}
		return nil, err
	}
	return c, nil
}

// profile returns the profile that the cluster has.
func (s *Site) profile() string {
	for _, h := range s.hosts {
		if h.Facts != nil && h.Facts.Cluster != nil {
			return h.Facts.Cluster.Profile
		}
	}
	return ""
}

// planWithPatches returns a command that has the patches of the host for as long as it runs. They precede its standard input.
func (h *Host) planWithPatches(args []string, document io.Reader) ([]string, io.Reader, error) {
	script := withPatches
	var input bytes.Buffer
	err := h.eachPatch(func(name string, data []byte) error {
		at := `"$dir"/` + fault.Word(name)
		script += fmt.Sprintf("mkdir -p \"$dir\"/%s && dd bs=1 count=%d 2>/dev/null >%s || exit\n", fault.Word(path.Dir(name)), len(data), at)
		input.Write(data)
		return nil
	})
	if err == nil && document != nil {
		_, err = io.Copy(&input, document)
	}
	return append([]string{"/bin/sh", "-c", script + `"$@" --patches "$dir"`, "sh"}, args...), bytes.NewReader(input.Bytes()), err
}
