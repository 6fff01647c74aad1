package status

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"airlift/installer/loadbalancer"
	"airlift/installer/loadbalancer/agent"
)

// TestWarnOfAddresses: each state of the load balancer that keeps clients from a Service is one warning, and a state without that has none.
func TestWarnOfAddresses(t *testing.T) {
	now, a := time.Unix(10000, 0), netip.MustParseAddr("10.0.0.9")
	pools := loadbalancer.Pools{"default": {{First: a, Last: a}}}
	table := loadbalancer.Table{Entries: []loadbalancer.Entry{{Address: a, Service: "default/web", Node: "n1"}}}
	service := func(name string, age time.Duration, problem string, addresses ...netip.Addr) agent.ServiceState {
		return agent.ServiceState{Name: name, Created: now.Add(-age), Problem: problem, Addresses: addresses}
	}
	full := `the pool "default" has no free IPv4 address`
	for name, c := range map[string]struct {
		state agent.State
		want  string // name and parts
		parts []string
	}{
		"all is well":               {agent.State{Pools: pools, Table: table, Services: []agent.ServiceState{service("default/web", time.Hour, "", a)}}, "", nil},
		"it is new":                 {agent.State{Pools: pools, Services: []agent.ServiceState{service("default/web", time.Minute, full)}}, "", nil},
		"there are no pools":        {agent.State{Services: []agent.ServiceState{service("default/web", time.Hour, "")}}, "", nil},
		"one family has no more":    {agent.State{Pools: pools, Table: table, Services: []agent.ServiceState{service("default/web", time.Hour, full, a)}}, "", nil},
		"the pool is full":          {agent.State{Pools: pools, Services: []agent.ServiceState{service("shop/web", time.Hour, full)}}, NoServiceAddress, []string{"shop/web (" + full + ")", "kubectl describe service web -n shop"}},
		"no node decides":           {agent.State{Pools: pools, Services: []agent.ServiceState{service("shop/web", time.Hour, "")}}, NoServiceAddress, []string{"no node has decided"}},
		"the pools are refused":     {agent.State{Refused: errors.New("10.0.0.1 has\n10.0.0.1"), Services: []agent.ServiceState{service("shop/web", time.Hour, "")}}, PoolsRefused, []string{"10.0.0.1 has 10.0.0.1", "kubectl edit configmap pools"}},
		"nobody can decide":         {agent.State{Pools: pools, Damaged: errors.New("reading the annotation"), Services: []agent.ServiceState{service("shop/web", time.Hour, "")}}, AssignmentsDamaged, []string{"reading the annotation", "kubectl delete lease assignments"}},
		"another host has it":       {agent.State{Pools: pools, Table: table, Conflicts: map[netip.Addr]string{a: "02:00:00:00:00:01"}}, AddressInUse, []string{"02:00:00:00:00:01", "10.0.0.9", "default/web"}},
		"an old conflict, no entry": {agent.State{Pools: pools, Conflicts: map[netip.Addr]string{a: "02:00:00:00:00:01"}}, "", nil},
	} {
		var r result
		r.warnOfAddresses(&c.state, now)
		if len(r.problems) > 0 || (c.want == "") != (len(r.warnings) == 0) || len(r.warnings) > 1 || c.want != "" && r.warnings[0].Name != c.want {
			t.Errorf("%s: %+v, want %q", name, r, c.want)
			continue
		}
		for _, part := range c.parts {
			if !strings.Contains(r.warnings[0].Message+r.warnings[0].Fix, part) {
				t.Errorf("%s: %q is not in %+v", name, part, r.warnings[0])
			}
		}
	}
	var many agent.State
	many.Pools = pools
	for i := range 10 {
		many.Services = append(many.Services, service(fmt.Sprint("default/s", i), time.Hour, full))
	}
	var r result
	if r.warnOfAddresses(&many, now); len(r.warnings) != 1 || !strings.Contains(r.warnings[0].Message, "and 7 more") {
		t.Errorf("%+v", r)
	}
}
