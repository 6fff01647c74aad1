package lab

import "testing"

func TestParseWatch(t *testing.T) {
	const listing = `{"nftables": [{"metainfo": {"version": "1.0.6"}},
{"counter": {"family": "bridge", "name": "inside", "table": "escapes", "handle": 2, "packets": 40, "bytes": 3360}},
{"counter": {"family": "bridge", "name": "link", "packets": 3, "bytes": 1}},
{"counter": {"family": "bridge", "name": "cluster", "packets": 2, "bytes": 1}},
{"counter": {"family": "bridge", "name": "escaped_ipv4", "packets": 5, "bytes": 1}},
{"counter": {"family": "bridge", "name": "escaped_other", "packets": 1, "bytes": 1}},
{"set": {"family": "bridge", "name": "hosts", "type": "ipv4_addr", "elem": ["10.77.0.11", "10.77.0.12"]}},
{"set": {"family": "bridge", "name": "cluster", "type": "ipv4_addr", "flags": ["interval"], "elem": [{"prefix": {"addr": "10.96.0.0", "len": 12}}]}},
{"set": {"family": "bridge", "name": "packets6", "type": ["ipv6_addr", "ipv6_addr", "inet_proto"]}},
{"set": {"family": "bridge", "name": "flows", "elem": [{"elem": {"val": {"concat": ["10.77.0.11", "192.0.2.1", 6, 443]}, "counter": {"packets": 5, "bytes": 300}}}]}},
{"set": {"family": "bridge", "name": "arps", "elem": [{"elem": {"val": {"concat": ["10.77.0.11", "10.77.0.1"]}, "counter": {"packets": 3, "bytes": 84}}}]}}]}`
	c, err := parseWatch([]byte(listing))
	if err != nil {
		t.Fatal(err)
	}
	if c.Inside != 40 || c.Link != 3 || c.Cluster != 2 || c.Escaped != 6 {
		t.Errorf("counts: %+v", c)
	}
	want := []Offender{
		{"10.77.0.11", "192.0.2.1", "tcp", 443, 5},
		{"10.77.0.11", "10.77.0.1", "arp", 0, 3},
	}
	if len(c.Offenders) != len(want) {
		t.Fatalf("offenders: %v", c.Offenders)
	}
	for i := range want {
		if c.Offenders[i] != want[i] {
			t.Errorf("offender %v, want %v", c.Offenders[i], want[i])
		}
	}
}

func TestParseNoRouteAddsUpBoots(t *testing.T) {
	const boot = `Ip: Forwarding DefaultTTL OutNoRoutes FragFails
Ip: 2 64 3 0
Icmp: InMsgs OutMsgs
Icmp: 7 8
TcpExt: SyncookiesSent
TcpExt: 0
IpExt: InNoRoutes InTruncatedPkts
IpExt: 20 0
Ip6InReceives                   	5
Ip6InNoRoutes                   	100
Ip6OutNoRoutes                  	1000
`
	if got := parseNoRoute(boot + boot); got != 2*1123 {
		t.Errorf("sum = %d", got)
	}
	if got := parseNoRoute(""); got != 0 {
		t.Errorf("sum of nothing = %d", got)
	}
}
