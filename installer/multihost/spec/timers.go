package spec

import (
	"cmp"
	"path"
	"regexp"
	"strings"
	"time"

	"airlift/internal/documents/strict"
)

// Defaults of the timer for backups.
const (
	defaultEvery = 24 * time.Hour
	defaultKeep  = 8 // as of etcd snapshot
)

func (r *reader) renewal(in *certificates) *Renewal {
	if in == nil {
		return nil
	}
	if r.Lines["certificates.autoRenew"] == 0 {
		r.Add(r.Lines["certificates"], "write autoRenew: true, or false to remove the timer", "certificates has no autoRenew")
	}
	return &Renewal{On: in.AutoRenew, TimeZone: in.TimeZone}
}

func (r *reader) backups(in *backups) *Backups {
	if in == nil {
		return nil
	}
	to := &Backups{On: in.Enabled == nil || *in.Enabled, Directory: in.Directory, Every: defaultEvery, Keep: cmp.Or(in.Keep, defaultKeep), TimeZone: cmp.Or(in.TimeZone, "UTC"), Recipients: in.Recipients}
	if d, err := time.ParseDuration(in.Every); err == nil {
		to.Every = d
	}
	if to.On && r.Lines["backups.directory"] == 0 {
		r.Add(r.Lines["backups"], "write directory: with a directory of the control planes; or enabled: false to remove the timer", "backups has no directory")
	}
	return to
}

// hostDirectory is a directory of a control plane. systemd replaces % and $ in a unit.
func hostDirectory(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	switch {
	case !path.IsAbs(text):
		return "", "is not an absolute path", "write a directory of the control planes, such as /mnt/backup"
	case strings.ContainsAny(text, "%$\"\\\n"):
		return "", "has characters that are not allowed in a systemd unit", "choose another path"
	}
	return path.Clean(text), "", ""
}

// interval is one of which systemd catches up a missed time: it divides an hour or a day, or is a week.
func interval(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	const day = 24 * time.Hour
	d, err := time.ParseDuration(text)
	divides := func(whole, unit time.Duration) bool { return d >= unit && whole%d == 0 && d%unit == 0 }
	if err != nil || d != 7*day && !divides(day, time.Hour) && !divides(time.Hour, time.Minute) {
		return "", "is not an interval for backups: it must divide an hour or a day, or be a week", "for example: 15m, 1h, 6h, 24h or 168h"
	}
	return text, "", ""
}

var agePublic = regexp.MustCompile(`^age1[0-9a-z]+$`)

func recipient(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	if !agePublic.MatchString(text) {
		return "", "is not a public key of age", "write age1…, as age-keygen prints it"
	}
	return text, "", ""
}
