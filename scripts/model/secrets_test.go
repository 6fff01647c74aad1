package model

import (
	"slices"
	"testing"
)

// TestSecrets: Secrets are encrypted from the beginning, or later; the key is replaced and taken away, with one and with several control
// planes, also with one that joins in between. A backup from before a rotation is restored with its own key, and reset leaves no key.
// At each command, each API server can read each Secret (Site.readsAll), and no key is anywhere else (Host.findLeaks).
func TestSecrets(t *testing.T) {
	planes := Sequence{{Name: initEncrypted, Host: 1, Again: true}, {Name: "join --control-plane", Host: 2}}
	round := Sequence{{Name: secretsRotate, Host: 1}, {Name: secretsRotate, Host: 1}, {Name: reconfigureNode, Host: 2}}
	prints(t, slices.Concat(planes, round, round, Sequence{{Name: "join --control-plane", Host: 3}}, round, Sequence{{Name: reconfigureNode, Host: 3}, {Name: secretsRotate, Host: 3}}),
		"encrypt-secrets, and again: <nil>", "rotate: [^=]*these control planes", "reconfigure node: <nil>", "rotate: [^=]*these control planes", "reconfigure node: <nil>",
		"join --control-plane: <nil>", "rotate: <nil>", "All Secrets in etcd are stored as wanted", "reconfigure node: <nil>", "reconfigure node: <nil>", "rotate: [^=]*host1")
	prints(t, slices.Concat(planes, Sequence{{Name: secretsRotate, Host: 1}, {Name: reconfigureUndo, Host: 1}, {Name: reconfigureNode, Host: 2}, {Name: secretsRotate, Host: 1}}),
		"rotate: [^=]*these control planes", "undo: <nil>", "reconfigure node: <nil>", "rotate: [^=]*these control planes")
	prints(t, Sequence{
		{Name: initEncrypted, Host: 1}, {Name: "etcd snapshot", Host: 1}, {Name: secretsRotate, Host: 1},
		{Name: "reset", Host: 1}, {Name: "etcd restore", Host: 1}, {Name: secretsRotate, Host: 1}, {Name: "reset", Host: 1, Again: true},
	}, "snapshot: <nil>", "rotate: <nil>", "100 %", "reset: <nil>", "restore: <nil>", "rotate: <nil>", "100 %", "reset, and again: <nil>")
	prints(t, Sequence{{Name: "init", Host: 1}, {Name: secretsRotate, Host: 1}, {Name: secretsEnable, Host: 1, Again: true}, {Name: secretsRotate, Host: 1}, {Name: secretsDisable, Host: 1, Again: true}, {Name: secretsEnable, Host: 1}},
		"rotate: [^=]*Secrets are not encrypted", "enable, and again: <nil>", "rotate: <nil>", "disable, and again: <nil>", "enable: <nil>", "100 %")
}

// TestSecretsKilled: each command is killed at a change, and continued.
func TestSecretsKilled(t *testing.T) {
	for n := 1; n < 150; n += 13 {
		prints(t, Sequence{{Name: initEncrypted, Host: 1, Crash: n}, {Name: secretsRotate, Host: 1, Crash: n}, {Name: secretsDisable, Host: 1, Crash: n}, {Name: secretsEnable, Host: 1, Crash: n}},
			"rotate[^=]*: <nil>", "disable[^=]*: <nil>", "enable[^=]*: <nil>")
	}
}
