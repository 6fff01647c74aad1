//go:build e2e

package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"airlift/scripts/lab"
	"airlift/scripts/site"
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
	// refused is what preflight reports on each host as it was prepared: then init and join
	// exit with 3, or with refusedCode. Afterwards fix runs on each host. Without it the row
	// ends there.
	refused     []string
	refusedCode int
	fix         string

	// init and join are additional flags; HOST1 and HOST2 stand for the host's address.
	init, join []string
	// state is what reset must restore, in addition to what untouched lists: the output of
	// this script.
	state string
	// check is asserted on the running cluster.
	check func(t *testing.T, s *site.Site)
}

// hostRows is the table, one list per kind of difference.
func hostRows() []hostRow {
	return slices.Concat(plainRows, systemRows)
}

// plainRows are hosts as the lab makes them, to compare the other rows with.
var plainRows = []hostRow{
	{name: "plain", about: "nothing special: no default route, no firewall, empty resolv.conf", ci: true},
}

// listHosts prints the rows for scripts/hosts.
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
		contains(t, install(t, control, code, row.args(s, control, "init", row.init)...), append(row.refused, "hint: ")...)
		contains(t, install(t, worker, code, "preflight", "join"), row.refused...)
		row.same(t, s, bare)
		if row.fix == "" {
			return
		}
		row.onEach(t, s, row.fix)
		bare = row.listing(t, s)
	}

	out := install(t, control, 0, row.args(s, control, "init", row.init)...)
	join, err := site.JoinArgs(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			diagnose(t, s)
		}
	})
	install(t, worker, 0, row.args(s, worker, "", append(join, row.join...))...)
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
		install(t, h, 0, "reset", "--force")
	}
	row.same(t, s, bare)
}

// args is a command of the installer with a row's flags.
func (row hostRow) args(s *site.Site, h *lab.Host, command string, flags []string) []string {
	var args []string
	if command != "" {
		args = append(args, command)
	}
	replace := strings.NewReplacer("HOST1", s.Hosts[0].Addr.String(), "HOST2", s.Hosts[1].Addr.String())
	for _, f := range flags {
		args = append(args, replace.Replace(f))
	}
	return args
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
// and running services.
func (row hostRow) listing(t *testing.T, s *site.Site) []string {
	t.Helper()
	const more = `
		cat /etc/hosts /etc/resolv.conf
		systemctl list-units --no-legend --plain --type service --state running | awk '{print $1}' | grep -v -e '^user@' -e '^systemd-'
		if command -v nft >/dev/null; then nft --stateless list ruleset; fi
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
