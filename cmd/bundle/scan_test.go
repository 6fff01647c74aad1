package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// A Go database with one defect in cobra, which the installer of the bundle links, and one without effect.
const osvRecord = `{"id":"GO-2026-1","modified":"2026-11-28T10:00:00Z","aliases":["CVE-2026-1"],"summary":"a summary",
"severity":[{"type":"CVSS_V3","score":"CVSS:3.1/AV:N/AC:H/PR:N/UI:R/S:U/C:L/I:N/A:N"}],"affected":[{"package":{"ecosystem":"Go","name":"github.com/spf13/cobra"},
"ranges":[{"type":"SEMVER","events":[{"introduced":"0"},{"fixed":"99.0.0"}]}]}]}`

const siteVEX = `{"@context":"https://openvex.dev/ns/v0.2.0","author":"site","timestamp":"2026-11-28T10:00:00Z","statements":[{"vulnerability":{"name":"CVE-2026-1"},
"products":[{"@id":"pkg:golang/github.com/spf13/cobra"}],"status":"not_affected","justification":"vulnerable_code_not_present"}]}`

func TestScan(t *testing.T) {
	u := fakesites.New(t, "v1.29.15")
	s := newShell(t)
	self, err := os.Executable() // a binary that Go built from modules
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(s.dir, "installer")); err != nil {
		t.Fatal(err)
	}
	s.writeAll(map[string]string{"osv/Go/GO-2026-1.json": osvRecord, "site.vex.json": siteVEX})
	s.want(0, "", append(buildArgs(u), "--installer", "installer")...)
	s.want(0, "", append(buildArgs(u), "--out", "old")...)

	out, errs, code := s.run("scan", "install", "--db", "osv", "--html", "report.html", "--base", "old")
	has(t, "scan"+errs, out, "Vulnerable:\n  low 3.1", "CVE-2026-1 (GO-2026-1)", "a summary", "github.com/spf13/cobra ", ", fixed in 99.0.0", "in airlift install", "New since old:", "\n1 vulnerability: 1 low\n", "the newest of 2026-11-28")
	if code != 0 {
		t.Error(code)
	}
	if page := s.read("report.html"); !strings.Contains(page, "CVE-2026-1") {
		t.Error(page)
	}
	// The list is printed before the exit code.
	out, errs, code = s.run("scan", "install", "--db", "osv", "--fail-on", "low", "-o", "json")
	var r struct{ Vulnerabilities []struct{ ID string } }
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Vulnerabilities) != 1 || code != fault.Vulnerable || !strings.Contains(errs, "result: 1 vulnerabilities are low or worse") {
		t.Errorf("%d, %v: %s%s", code, err, out, errs)
	}
	if out, _, code := s.run("scan", "install", "--db", "osv", "--fail-on", "low", "-o", "yaml"); code != fault.Vulnerable || !strings.Contains(out, "id: CVE-2026-1") {
		t.Errorf("%d: %s", code, out)
	}
	s.want(0, "1 low", "scan", "install", "--db", "osv", "--fail-on", "medium")
	s.want(0, "not_affected: vulnerable_code_not_present, by site", "scan", "install", "--db", "osv", "--fail-on", "low", "--vex", "site.vex.json")

	s.want(fault.Usage, "--db is required", "scan", "install")
	s.want(fault.Usage, "unknown severity", "scan", "install", "--db", "osv", "--fail-on", "hihg")
	s.want(fault.Usage, "--fail-on is empty", "scan", "install", "--db", "osv", "--fail-on", "")
	s.want(fault.Bundle, "is not a bundle", "scan", "site.vex.json", "--db", "osv")
	s.writeAll(map[string]string{"other/GO-1.json": strings.Replace(osvRecord, `"Go"`, `"npm"`, 1)})
	s.want(fault.Failure, "the databases have no record for Go", "scan", "install", "--db", "other")
	before := s.read("old")
	s.want(fault.Usage, "", "scan", "install", "--db", "osv", "--html", "old")
	if s.read("old") != before {
		t.Error("the report replaced a bundle")
	}
}
