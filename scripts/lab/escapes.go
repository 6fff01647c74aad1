package lab

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"text/template"
)

//go:embed watch.nft
var watchRules string

var watchTemplate = template.Must(template.New("watch.nft").
	Funcs(template.FuncMap{"join": func(list []string, sep string) string { return strings.Join(list, sep) }}).
	Parse(watchRules))

// Counts has the packets that the hosts of a lab sent since it was started.
type Counts struct {
	Inside  uint64 // to an address of a host; for IPv6, to the prefix of the hosts
	Link    uint64 // multicast and broadcast that routers do not forward
	Cluster uint64 // to Service or pod addresses, unanswered here: the default ranges of both families

	// Escaped packets had any other destination. The switch dropped them.
	Escaped   uint64
	Offenders []Offender // a sample of them

	// NoRoute counts what a host could not send because its kernel had no route: connection
	// attempts and forwarded packets. It includes harmless probes: a resolver tries to
	// connect to an address to find its own.
	NoRoute uint64
}

// String is the report that labctl and the demo print.
func (c Counts) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "packets that tried to leave: %d\n", c.Escaped)
	for _, o := range c.Offenders {
		fmt.Fprintf(&b, "  %s\n", o)
	}
	fmt.Fprintf(&b, "between hosts: %d, link-local: %d, to cluster addresses: %d, without a route: %d",
		c.Inside, c.Link, c.Cluster, c.NoRoute)
	return b.String()
}

// Offender is a flow of packets that tried to leave.
type Offender struct {
	Source, Destination string
	Protocol            string // "tcp", "arp", …
	Port                int    // 0 if the protocol has none
	Packets             uint64
}

func (o Offender) String() string {
	port := ""
	if o.Port != 0 {
		port = " port " + strconv.Itoa(o.Port)
	}
	return fmt.Sprintf("%s to %s, %s%s: %d packets", o.Source, o.Destination, o.Protocol, port, o.Packets)
}

// watch starts counting.
func (l *Lab) watch(ctx context.Context) error {
	var data struct {
		Hosts, Cluster, Cluster6 []string
		Hosts6                   string
	}
	data.Hosts6, data.Cluster6 = hostPrefix6, clusterPrefixes6
	for _, a := range l.hostAddrs() {
		data.Hosts = append(data.Hosts, a.String())
	}
	for _, p := range clusterPrefixes {
		data.Cluster = append(data.Cluster, p.String())
	}
	var rules strings.Builder
	if err := watchTemplate.Execute(&rules, data); err != nil {
		return err
	}
	return l.nft(ctx, rules.String())
}

// Escapes returns the packets that tried to leave the hosts' network.
func (l *Lab) Escapes(ctx context.Context) (Counts, error) {
	listing, err := output(ctx, "ip", "netns", "exec", l.switchNamespace(), "nft", "--json", "--numeric-protocol", "list", "table", "bridge", "escapes")
	if err != nil {
		return Counts{}, fmt.Errorf("counting escapes: %w", err)
	}
	c, err := parseWatch([]byte(listing))
	if err != nil {
		return Counts{}, fmt.Errorf("counting escapes: %w", err)
	}
	for _, h := range l.Hosts {
		n, err := h.noRoute(ctx)
		if err != nil {
			return Counts{}, fmt.Errorf("counting escapes: %w", err)
		}
		c.NoRoute += n
	}
	return c, nil
}

// parseWatch reads nft's JSON listing of watch.nft.
func parseWatch(listing []byte) (Counts, error) {
	var doc struct {
		Nftables []struct {
			Counter *struct {
				Name    string
				Packets uint64
			}
			Set *struct {
				Name string
				Elem []json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(listing, &doc); err != nil {
		return Counts{}, err
	}
	var c Counts
	for _, item := range doc.Nftables {
		if item.Counter != nil {
			switch n := item.Counter.Packets; item.Counter.Name {
			case "inside":
				c.Inside += n
			case "link":
				c.Link += n
			case "cluster":
				c.Cluster += n
			default:
				c.Escaped += n
			}
		}
		if item.Set == nil {
			continue
		}
		for _, raw := range item.Set.Elem {
			o, ok, err := parseOffender(item.Set.Name, raw)
			if err != nil {
				return Counts{}, err
			}
			if ok {
				c.Offenders = append(c.Offenders, o)
			}
		}
	}
	return c, nil
}

// parseOffender parses an element of a set of dropped packets; the sets of allowed addresses
// have elements of another form.
func parseOffender(set string, raw json.RawMessage) (o Offender, ok bool, err error) {
	var e struct {
		Elem struct {
			Val     struct{ Concat []any }
			Counter struct{ Packets uint64 }
		}
	}
	if json.Unmarshal(raw, &e) != nil || len(e.Elem.Val.Concat) < 2 {
		return o, false, nil
	}
	field := e.Elem.Val.Concat
	o = Offender{Source: fmt.Sprint(field[0]), Destination: fmt.Sprint(field[1]), Packets: e.Elem.Counter.Packets}
	switch {
	case set == "arps":
		o.Protocol = "arp"
	case len(field) >= 3:
		o.Protocol = protocolName(fmt.Sprint(field[2]))
	}
	if len(field) == 4 {
		o.Port, err = strconv.Atoi(fmt.Sprint(field[3]))
	}
	return o, err == nil, err
}

// protocolName names the protocols that a host is likely to send.
func protocolName(number string) string {
	switch number {
	case "1":
		return "icmp"
	case "6":
		return "tcp"
	case "17":
		return "udp"
	case "58":
		return "icmpv6"
	}
	return "protocol " + number
}

// noRoute returns how often the host's kernel found no route, since the host was created.
func (h *Host) noRoute(ctx context.Context) (uint64, error) {
	past, err := os.ReadFile(h.countersFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	total := parseNoRoute(string(past))
	ns := h.network()
	if _, err := os.Stat(ns); err != nil {
		return total, nil // powered off
	}
	now, err := output(ctx, "nsenter", "--net="+ns, "cat", "/proc/net/snmp", "/proc/net/netstat", "/proc/net/snmp6")
	return total + parseNoRoute(now), err
}

// noRouteCounters are the kernel's counters of packets without a route, from processes of the
// host and forwarded from its pods.
var noRouteCounters = map[string]bool{
	"Ip:OutNoRoutes": true, "IpExt:InNoRoutes": true, // /proc/net/snmp, /proc/net/netstat
	"Ip6OutNoRoutes": true, "Ip6InNoRoutes": true, // /proc/net/snmp6
}

// parseNoRoute sums noRouteCounters in the kernel's listings. snmp and netstat have a line of
// names and a line of numbers with the same prefix; snmp6 has a name and a number per line.
func parseNoRoute(listing string) (sum uint64) {
	var names []string
	for line := range strings.Lines(listing) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && noRouteCounters[fields[0]]:
			n, _ := strconv.ParseUint(fields[1], 10, 64)
			sum += n
		case len(fields) == len(names) && fields[0] == names[0]:
			for i, name := range names[1:] {
				if n, err := strconv.ParseUint(fields[i+1], 10, 64); err == nil && noRouteCounters[names[0]+name] {
					sum += n
				}
			}
			names = nil
		default:
			names = fields
		}
	}
	return sum
}
