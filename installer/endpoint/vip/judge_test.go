package vip

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"airlift/installer/etcd"
	"airlift/internal/fault"
)

// TestJudge: each fact that decides about the address, beginning from a holder without any problem.
func TestJudge(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	silent := errors.New("etcd does not answer")
	for _, c := range []struct {
		name   string
		change func(*facts)
		held   bool // whether a holder keeps the address
		free   bool // whether another host takes it
	}{
		{"leader with a ready API server", func(*facts) {}, true, true},
		{"another leader", func(f *facts) { f.role.Leader = 2; f.elected = ago(linger) }, false, false},
		{"another leader, just elected", func(f *facts) { f.role.Leader = 2; f.elected = now }, true, false},
		{"another leader, just elected, that announced the address", func(f *facts) { f.role.Leader = 2; f.elected = ago(2); f.foreign = now }, false, false},
		{"another leader, just elected, and no API server here", func(f *facts) { f.role.Leader = 2; f.elected = now; f.api.ready = false }, false, false},
		{"no leader", func(f *facts) { f.role.Leader = 0; f.elected = now }, false, false},
		{"etcd stalls for a moment", func(f *facts) { f.roleErr = silent; f.confirmed = ago(staleAfter) }, true, false},
		{"etcd stalls for two seconds", func(f *facts) { f.roleErr = silent; f.confirmed = ago(2 * time.Second) }, true, false},
		{"etcd stalls for long", func(f *facts) { f.roleErr = silent; f.confirmed = ago(grace) }, false, false},
		{"etcd stalls, and another host announces", func(f *facts) { f.confirmed = ago(2 * time.Second); f.foreign = ago(time.Millisecond) }, false, false},
		{"the only etcd stalls for long", func(f *facts) { f.confirmed = ago(time.Minute); f.role.Members = f.role.Members[:1] }, true, true},
		{"another host announces, the leader is certain", func(f *facts) { f.foreign = now }, true, true},
		{"no carrier", func(f *facts) { f.carrier = errors.New("down") }, false, false},
		{"API server not asked yet", func(f *facts) { f.api = apiServer{} }, true, false},
		{"API server not ready, others unknown", func(f *facts) { f.api.ready = false }, true, false},
		{"no API server is ready", func(f *facts) { f.api.ready = false; f.alone = true }, true, true},
		{"handed over", func(f *facts) { f.away = now.Add(1) }, true, false},
		{"handed over, nobody else is ready", func(f *facts) { f.away = now.Add(1); f.alone = true }, true, true},
	} {
		for _, held := range []bool{true, false} {
			f := facts{role: etcd.Role{Self: 1, Leader: 1, Members: []etcd.Member{{ID: 1}, {ID: 2}, {ID: 3}}}, confirmed: ago(100 * time.Millisecond), elected: ago(time.Minute), held: held, taken: ago(time.Minute)}
			f.api.answer(nil)
			c.change(&f)
			want := c.free
			if held {
				want = c.held
			}
			if hold, reason := f.judge(now); hold != want || reason == "" {
				t.Errorf("%s, held %t: %t (%s)", c.name, held, hold, reason)
			}
		}
	}
}

// TestAPIServer: a server that ended is not ready at once; one that does not answer, after three
// questions.
func TestAPIServer(t *testing.T) {
	refused, late := fmt.Errorf("dialing: %w", syscall.ECONNREFUSED), errors.New("deadline exceeded")
	for _, c := range []struct {
		answers []error
		want    bool
	}{
		{nil, false},
		{[]error{nil}, true},
		{[]error{late}, false},
		{[]error{nil, refused}, false},
		{[]error{nil, late, late}, true},
		{[]error{nil, late, late, nil, late, late}, true},
		{[]error{nil, late, late, late}, false},
		{[]error{nil, late, late, late, nil}, true},
	} {
		var s apiServer
		for _, err := range c.answers {
			s.answer(err)
		}
		if s.ready != c.want {
			t.Errorf("%v: %t", c.answers, s.ready)
		}
	}
}

func TestVacant(t *testing.T) {
	now := time.Now()
	long := now.Add(-time.Minute)
	for _, c := range []struct {
		name   string
		change func(*facts)
		want   bool
	}{
		{"nobody announces", func(*facts) {}, true},
		{"another host announces", func(f *facts) { f.foreign = now }, false},
		{"the leader is new", func(f *facts) { f.elected = now }, false},
		{"this host is the leader", func(f *facts) { f.role.Leader = 1 }, false},
		{"there is no leader", func(f *facts) { f.role.Leader = 0 }, false},
		{"the API server is not ready", func(f *facts) { f.api.ready = false }, false},
		{"this host gave it away", func(f *facts) { f.away = now.Add(1) }, false},
	} {
		f := facts{role: etcd.Role{Self: 1, Leader: 2}, elected: long, foreign: long}
		f.api.answer(nil)
		c.change(&f)
		if f.vacant(now) != c.want {
			t.Errorf("%s: %t", c.name, !c.want)
		}
	}
}

func TestAddressesOfOptions(t *testing.T) {
	for list, want := range map[string]bool{
		"": false, "10.0.0.9": true, "fd00::9": true, "10.0.0.9 fd00::9": true, "10.0.0.9 10.0.0.8": false, "fd00::9 fd00::8": false,
		"127.0.0.1": false, "0.0.0.0": false, "224.0.0.1": false, "fe80::1": false, "fd00::9%eth0": false, "::ffff:10.0.0.9": false,
	} {
		var o Options
		for _, a := range strings.Fields(list) {
			o.Addresses = append(o.Addresses, netip.MustParseAddr(a))
		}
		_, err := New(o)
		if (err == nil) != want || err != nil && (fault.Hint(err) == "" || fault.ExitCode(err) != fault.Usage) {
			t.Errorf("%q: %v", list, err)
		}
	}
}
