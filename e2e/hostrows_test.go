//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// A hostRow is a kind of host that users have. TestHosts takes it through init, join, a workload
// and reset; docs/hosts.md has its result. Scripts run on each host, in sh -e.
type hostRow struct {
	name  string // of the subtest, at most 18 characters
	about string // the row in docs/hosts.md: what the hosts are like
	ci    bool   // make e2e runs it; make hosts runs all
	// notHere is why the lab cannot run this row. Then the row is only documented.
	notHere string

	options lab.Options // without a name
	prepare string
	// refused is what init without flags reports on the host as it was prepared. Then it exits
	// with 3, or with refusedCode; with 3, preflight reports the same for join. Afterwards each
	// host runs fix, or the command that preflight prints as the fix of the check fixOf. Without
	// either the row ends there.
	refused     []string
	refusedCode int
	fix, fixOf  string

	// init and join are additional flags.
	init, join []string
	// environment is added to the environment of init, join and reset.
	environment []string
	// state is what reset must restore, in addition to what untouched lists: the output of
	// this script.
	state string
	// check is asserted on the running cluster.
	check func(t *testing.T, s *site.Site)
}

// hostRows is the table, one list per kind of difference.
func hostRows() []hostRow {
	return slices.Concat(plainRows, firewallRows, routeRows, nameRows, managerRows, systemRows)
}

// plainRows are hosts as the lab makes them, to compare the other rows with.
var plainRows = []hostRow{
	{name: "plain", about: "nothing special: no default route, no firewall, empty resolv.conf"},
}

// listHosts prints the rows for scripts/live.
var listHosts = flag.Bool("list-hosts", false, "print the rows of TestHosts as JSON, and run nothing")

func printHostRows() error {
	type row struct{ Name, About, NotHere string }
	rows := []row{}
	for _, r := range hostRows() {
		rows = append(rows, row{r.name, r.about, r.notHere})
	}
	return json.NewEncoder(os.Stdout).Encode(rows)
}

// notRunFile lists the rows that a run left out. make e2e prints it: go test prints nothing of a
// test that passes.
const notRunFile = "../out/hosts-not-run"

// TestHosts runs the rows of the table: those for CI, or those that -run names, as in
// -run TestHosts/firewalld. `make hosts` runs all.
func TestHosts(t *testing.T) {
	named := strings.Contains(flag.Lookup("test.run").Value.String(), "/")
	var leftOut []string
	for _, row := range hostRows() {
		t.Run(row.name, func(t *testing.T) {
			switch {
			case row.notHere != "":
				t.Skip("NOT RUN, the lab cannot: " + row.notHere)
			case !row.ci && !named:
				leftOut = append(leftOut, row.name)
				t.Skip("NOT RUN, make hosts does")
			}
			row.run(t)
		})
	}
	if len(leftOut) > 0 {
		text := fmt.Sprintf("NOT RUN: TestHosts left out %d of %d kinds of hosts, `make hosts` runs them: %s\n", len(leftOut), len(hostRows()), strings.Join(leftOut, ", "))
		if err := os.WriteFile(notRunFile, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}

func (row hostRow) run(t *testing.T) {
	row.options.Name = "h-" + row.name
	s := up(t, row.options)
	control, worker := s.Hosts[0], s.Hosts[1]
	row.onEach(t, s, row.prepare)
	bare := row.listing(t, s)

	if len(row.refused) > 0 {
		code := row.refusedCode
		if code == 0 {
			code = 3
		}
		contains(t, row.install(t, control, code, "init"), append(row.refused, "hint: ")...)
		if code == 3 {
			row.install(t, worker, code, "preflight", "join")
		}
		row.same(t, s, bare)
		switch {
		case row.fixOf != "":
			row.runFixes(t, control, "init")
			row.runFixes(t, worker, "join")
		case row.fix != "":
			row.onEach(t, s, row.fix)
		default:
			return
		}
		bare = row.listing(t, s)
	}

	t.Cleanup(func() {
		if t.Failed() {
			diagnose(t, s)
		}
	})
	out := row.install(t, control, 0, append([]string{"init"}, row.init...)...)
	join, err := site.JoinArgs(out)
	if err != nil {
		t.Fatal(err)
	}
	row.install(t, worker, 0, append(join, row.join...)...)
	systemIsUp(t, s, 2)
	pods, err := s.Deploy(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	answersAcrossHosts(t, s, pods)
	if row.check != nil {
		row.check(t, s)
	}
	for _, h := range []*lab.Host{worker, control} {
		row.install(t, h, 0, "reset", "--force")
	}
	row.same(t, s, bare)
}

// install runs the installer with the row's environment.
func (row hostRow) install(t *testing.T, h *lab.Host, wantCode int, args ...string) string {
	t.Helper()
	if len(row.environment) == 0 {
		return install(t, h, wantCode, args...)
	}
	var out bytes.Buffer
	argv := slices.Concat([]string{"env"}, row.environment, []string{site.Installer}, args)
	if code := exitCode(h.Exec(t.Context(), nil, &out, &out, argv...)); code != wantCode {
		t.Fatalf("%s: %s: exit code %d, want %d\n%s", h.Name, strings.Join(argv, " "), code, wantCode, out.String())
	}
	return out.String()
}

// runFixes runs the commands that preflight prints as fixes of the row's check.
func (row hostRow) runFixes(t *testing.T, h *lab.Host, role string) {
	t.Helper()
	report := preflightOf(t, h, preflightCase{role: role}, 3)
	for _, p := range slices.Concat(report.Errors, report.Warnings) {
		if p.Name == row.fixOf {
			t.Logf("%s: %s\n%s", h.Name, p.Message, p.Fix)
			run(t, h, "sh", "-ec", p.Fix)
		}
	}
}

func (row hostRow) onEach(t *testing.T, s *site.Site, script string) {
	t.Helper()
	if script == "" {
		return
	}
	for _, h := range s.Hosts {
		if out, err := h.Output(t.Context(), "sh", "-ec", script); err != nil {
			t.Fatalf("preparing: %v\n%s", err, out)
		}
	}
}

// listing is what a row requires to be the same after reset: files, rules, routes, mounts, units,
// and running services. NetworkManager-dispatcher ends by itself some seconds after it had work.
func (row hostRow) listing(t *testing.T, s *site.Site) []string {
	t.Helper()
	const more = `
		cat /etc/hosts /etc/resolv.conf
		systemctl list-units --no-legend --plain --type service --state running | awk '{print $1}' | grep -v -e '^user@' -e '^systemd-' -e '^NetworkManager-dispatcher'
		if command -v nft >/dev/null; then
			# iptables leaves its tables, with empty chains; iptables-save lists their rules.
			nft list tables | grep -v -E ' ip6? (filter|nat|mangle|raw|security)$' | while read -r table; do nft --stateless list $table; done
		fi
		true
	`
	var all []string
	for _, h := range s.Hosts {
		all = append(all, untouched(t, h)+run(t, h, "sh", "-c", more+row.state))
	}
	return all
}

func (row hostRow) same(t *testing.T, s *site.Site, before []string) {
	t.Helper()
	for i, after := range row.listing(t, s) {
		same(t, before[i], after)
	}
}
