package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// firewalldBarriers asks firewalld what its zones accept.
func (s *subject) firewalldBarriers(ctx context.Context, needs []need) ([]barrier, error) {
	if _, err := s.run(ctx, "firewall-cmd", "--state"); err != nil {
		return nil, nil // it is not installed, or does not run
	}
	standard, err := s.run(ctx, "firewall-cmd", "--get-default-zone")
	if err != nil {
		return nil, fmt.Errorf("asking firewalld for its default zone: %w", err)
	}
	all, err := s.run(ctx, "firewall-cmd", "--list-all-zones")
	if err != nil {
		return nil, fmt.Errorf("asking firewalld for its zones: %w", err)
	}
	zones := sections(string(all))
	zoneOf := func(name string) (zone string, listed bool) {
		for zone, fields := range zones {
			if slices.Contains(fields["interfaces"], name) {
				return zone, true
			}
		}
		return strings.TrimSpace(string(standard)), false
	}
	public, listed := zoneOf(s.Config.Facts.Interface)
	pods, _ := zoneOf(podBridge)
	rules := map[string][]packetRule{}
	var ofSources []packetRule // of zones for some sources, which may be this cluster's hosts
	for zone, fields := range zones {
		if zone == public || zone == pods || len(fields["sources"]) > 0 {
			if rules[zone], err = s.zoneRules(ctx, fields); err != nil {
				return nil, err
			}
		}
		if len(fields["sources"]) > 0 {
			ofSources = append(ofSources, rules[zone]...)
		}
	}
	b := barrier{name: "firewalld, zone " + public}
	for _, n := range needs {
		zone, known := zoneOf(n.in)
		applies := func(r packetRule) bool { return r.appliesTo(n) }
		passes := n.in == "lo" || slices.ContainsFunc(ofSources, applies)
		if n.out != "" {
			passes = passes || known || slices.Contains(zones[zone]["target"], "ACCEPT")
		} else {
			passes = passes || slices.ContainsFunc(rules[zone], applies)
		}
		if !passes {
			b.dropped = append(b.dropped, n)
		}
	}
	b.open = func(list []need) (commands []string) {
		open, trust := []string{"firewall-cmd --permanent"}, []string{"firewall-cmd --permanent --zone=trusted"}
		if listed {
			open[0] += " --zone=" + public
		}
		for _, n := range list {
			switch {
			case n.from == anySource:
				open = appendNew(open, fmt.Sprintf("--add-port=%d/%s", n.port, n.protocol))
			case n.out != "":
				trust = appendNew(trust, "--add-interface="+n.in, "--add-interface="+n.out)
			default:
				trust = appendNew(trust, "--add-interface="+n.in)
			}
		}
		for _, words := range [][]string{open, trust} {
			if len(words) > 1 {
				commands = append(commands, strings.Join(words, " "))
			}
		}
		return append(commands, "firewall-cmd --reload")
	}
	return []barrier{b}, nil
}

// zoneRules returns what a zone accepts.
func (s *subject) zoneRules(ctx context.Context, zone map[string][]string) (rules []packetRule, err error) {
	if slices.Contains(zone["target"], "ACCEPT") || slices.Contains(zone["rich rules"], "accept") { // from sources that may be this cluster's hosts
		return []packetRule{{}}, nil
	}
	add := func(fields map[string][]string) {
		if len(fields["protocols"]) > 0 {
			rules = append(rules, packetRule{protocols: fields["protocols"]})
		}
		for _, p := range fields["ports"] {
			number, protocol, _ := strings.Cut(p, "/")
			rules = append(rules, packetRule{protocols: []string{protocol}, ports: [][2]int{portRange(number, "-")}})
		}
	}
	add(zone)
	services := slices.Clone(zone["services"])
	for i := 0; i < len(services); i++ { // more services may be included
		info, err := s.run(ctx, "firewall-cmd", "--info-service="+services[i])
		if err != nil {
			return nil, fmt.Errorf("asking firewalld for its service %s: %w", services[i], err)
		}
		service := sections(string(info))[services[i]]
		add(service)
		services = appendNew(services, service["includes"]...)
	}
	return rules, nil
}

// sections reads zones or services that firewall-cmd prints: for each name, the words of its fields.
func sections(text string) map[string]map[string][]string {
	fields, field := map[string][]string{}, ""
	all := map[string]map[string][]string{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case len(words) == 0:
		case strings.HasPrefix(line, "\t"): // more of the last field
			fields[field] = append(fields[field], words...)
		case strings.HasPrefix(line, " "):
			field = key
			fields[field] = strings.Fields(value)
		default:
			fields = map[string][]string{}
			all[words[0]] = fields
		}
	}
	return all
}
