package plan

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"airlift/installer/backup/target"
)

// Names of the timers of a control plane.
const (
	renewalTimer = "airlift-certs-renew"
	backupTimer  = "airlift-backup"
)

// renewal gives a control plane the timer that renews certificates, or removes it.
func (s *site) renewal(h host) *Action {
	if s.Spec.Renewal == nil {
		return nil
	}
	return timer(h, Renewal, renewalTimer, "the renewal of certificates differs", s.renewalCommand())
}

// backups gives a control plane the timer that writes backups, or removes it.
func (s *site) backups(h host) *Action {
	if s.Spec.Backups == nil {
		return nil
	}
	command := s.backupsCommand()
	if b := s.Spec.Backups; b.Target != "" && command != nil {
		command = append(command, target.Mark(b.Digest))
	}
	return timer(h, Backups, backupTimer, "the schedule of backups differs", command)
}

// ReadsTarget reports whether a command of an action reads the credentials of the target of backups, on standard input. They are not
// written to a file, which a driver that is killed would leave on the host.
func (a Action) ReadsTarget() bool {
	return a.Verb == Backups && slices.ContainsFunc(a.Commands, func(c []string) bool { return slices.Contains(c, "--target-config") })
}

// timer sets a timer by a command, or removes it if there is none.
func timer(h host, verb, name, why string, command []string) *Action {
	wanted, has := strings.Join(command, " "), ""
	if !h.isNew() {
		has = h.Node.Timers[name]
	}
	if has == wanted {
		return nil
	}
	a := &Action{Host: h.Name, Verb: verb, Why: why, Effect: None}
	if has != "" {
		a.Changes = append(a.Changes, "-"+has)
	}
	if wanted != "" {
		a.Changes = append(a.Changes, "+"+wanted)
	}
	return a
}

// renewalCommand is the command that sets the timer, nil for no timer. It is also what the host reports of the timer.
func (s *site) renewalCommand() []string {
	r := s.Spec.Renewal
	switch {
	case !r.On:
		return nil
	case r.TimeZone == "":
		return []string{"certs", "auto"}
	}
	return []string{"certs", "auto", "--time-zone", r.TimeZone}
}

// backupsCommand is as renewalCommand.
func (s *site) backupsCommand() []string {
	b := s.Spec.Backups
	if !b.On {
		return nil
	}
	command := []string{"etcd", "snapshot", cmp.Or(b.Target, b.Directory), "--every", b.Every.String(), "--keep", strconv.Itoa(b.Keep), "--time-zone", b.TimeZone}
	for _, r := range b.Recipients {
		command = append(command, "--recipient", r)
	}
	return command
}
