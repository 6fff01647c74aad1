package spec

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	backuptarget "airlift/installer/backup/target"
	"airlift/internal/documents/problems"
	"airlift/internal/documents/strict"
	"airlift/internal/fault"
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
	switch target, config := r.Lines["backups.target"], r.Lines["backups.targetConfig"]; {
	case !to.On:
	case r.Lines["backups.directory"] != 0 && target != 0:
		r.Add(target, "remove one of them", "backups has a directory and a target")
	case target == 0 && config != 0:
		r.Add(config, "write target: with the URL; or remove the line", "backups has targetConfig and no target")
	case target != 0 && config == 0:
		r.Add(target, "write targetConfig: with a file of this machine that has the credentials: ./install docs backup", "backups has a target and no targetConfig")
	case target != 0 && len(in.Recipients) == 0:
		r.Add(target, "write recipients: with public keys of age; age-keygen -o key.txt creates a pair", "backups for a target must be encrypted, and backups has no recipients")
	case target != 0:
		r.readTarget(in, to)
	case r.Lines["backups.directory"] == 0:
		r.Add(r.Lines["backups"], "write directory: with a directory of the control planes, or target: with a URL; or enabled: false to remove the timer", "backups has no directory and no target")
	}
	return to
}

// readTarget checks the credentials of the target, and computes their digest, which is slow.
func (r *reader) readTarget(in *backups, to *Backups) {
	a, err := backuptarget.ParseURL(in.Target)
	if err != nil || in.Config == "" {
		return // a rule has refused it
	}
	c, err := backuptarget.Load(in.Config, a)
	if wrong := (*problems.Wrong)(nil); errors.As(err, &wrong) {
		r.Problems = append(r.Problems, wrong.Problems...)
		return
	}
	if err != nil {
		r.Add(r.Lines["backups.targetConfig"], fault.Hint(err), "backups.targetConfig cannot be used: %v", err)
		return
	}
	to.Target, to.Config, to.Digest = a.String(), in.Config, backuptarget.Digest(a.String(), c.Data())
}

// Credentials reads the file with the credentials of the target.
func (b *Backups) Credentials() ([]byte, error) {
	a, err := backuptarget.ParseURL(b.Target)
	if err != nil {
		return nil, err
	}
	c, err := backuptarget.Load(b.Config, a)
	if err != nil {
		return nil, fmt.Errorf("backups.targetConfig in cluster.yaml: %w", err)
	}
	return c.Data(), nil
}

func backupTarget(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	a, err := backuptarget.ParseURL(text)
	if err != nil {
		return "", "is not the URL of a target", fault.Hint(err)
	}
	return a.String(), "", ""
}

// targetConfig is a file with secrets, which is no part of the digest: the digest is in plans.
func targetConfig(r *reader, text string, _ strict.Place) (set, why, hint string) {
	return r.path(text)
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
