package spec_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"airlift/installer/multihost/spec"
)

const rangeHead = "apiVersion: airlift/v1\nkind: Cluster\nname: a\nhosts:\n- {name: cp, role: control-plane, address: 192.0.2.1}\n"

// A range stands for the hosts that a person would write one by one.
func TestRangesAreHostsInStep(t *testing.T) {
	path := directory(t, "")
	write := func(t *rapid.T, text string) *spec.Cluster {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := spec.Read(path)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for i := range c.Hosts {
			c.Hosts[i].Line = 0
		}
		c.Digest, c.Warnings = "", nil
		return c
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "hosts")
		from, address, digits := rapid.IntRange(0, 120).Draw(t, "from"), rapid.IntRange(1, 200).Draw(t, "address"), rapid.IntRange(1, 4).Draw(t, "digits")
		if digits == 1 && len(fmt.Sprint(from)) > 1 {
			digits = len(fmt.Sprint(from))
		}
		sign := rapid.SampledFrom([]string{":", "-"}).Draw(t, "sign")
		suffix := rapid.SampledFrom([]string{"", ".example", "-a"}).Draw(t, "suffix")
		span := func(first, digits int) string { return fmt.Sprintf("[%0*d%s%d]", digits, first, sign, first+n-1) }
		rest := "group: g, labels: {a: b}"
		short, long := rangeHead, rangeHead
		short += fmt.Sprintf("- {name: \"w%s%s\", role: worker, address: \"10.0.0.%s\", nodeIP: \"fd00::%s\", %s}\n", span(from, digits), suffix, span(address, 1), span(address, 1), rest)
		first := fmt.Sprintf("%0*d", digits, from)
		for i := range n {
			number := fmt.Sprint(from + i)
			if first[0] == '0' {
				number = fmt.Sprintf("%0*d", len(first), from+i)
			}
			long += fmt.Sprintf("- {name: w%s%s, role: worker, address: 10.0.0.%d, nodeIP: \"fd00::%d\", %s}\n", number, suffix, address+i, address+i, rest)
		}
		const groups = "groups:\n- {name: g, labels: {c: d}, taints: [\"x:NoSchedule\"]}\n"
		got, want := write(t, short+groups), write(t, long+groups)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\ngot  %+v\nwant %+v", short, got, want)
		}
	})
}

// The hosts of a range are written in one line, and a mistake in it is one error.
func TestMistakesInRanges(t *testing.T) {
	for _, c := range []struct {
		hosts string
		line  int
		want  string
	}{
		{`- {name: "w[1:3]", role: worker, address: 10.0.0.1}`, 6, "hosts[1].address has 1, and hosts[1].name has 3"},
		{`- {name: "w[1:3]", role: worker, ssh: {address: "10.0.0.[1-2]"}}`, 6, "hosts[1].ssh.address has 2, and hosts[1].name has 3"},
		{`- {name: "w[1:3]", role: worker, group: none}`, 6, `there is no group "none"`},
		{`- {name: "w[1:3]", role: worker, ssh: {hostKey: "SHA256:jdDmF7CksBRxZ6NK0ssUWrd9CF9Ac7MGmXnj0JmiIRg"}}`, 6, "hosts[1].ssh.hostKey is one key for 3 hosts"},
		{"- {name: \"w[1:5]\", role: worker}\n- {name: \"w[3:8]\", role: worker}", 7, "the host in line 6 has the name w3, too"},
		{"- {name: \"w[1:5]\", role: worker, address: \"10.0.0.[1:5]\"}\n- {name: \"v[3:8]\", role: worker, address: \"10.0.0.[3:8]\"}", 7, "the host in line 6 has the SSH address 10.0.0.3:22, too"},
	} {
		one(t, directory(t, rangeHead+c.hosts+"\n"), c.line, c.want, "")
	}
}

// Only hosts have ranges.
func TestRangesElsewhereAreErrors(t *testing.T) {
	for _, text := range []string{"endpoint: {vip: \"10.0.0.[1-2]\"}", "ssh: {jump: [{address: \"10.0.0.[1-2]\"}]}"} {
		_, err := spec.Read(directory(t, rangeHead+text+"\n"))
		if err == nil || !strings.Contains(err.Error(), filepath.Base("cluster.yaml")+":6: ") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
