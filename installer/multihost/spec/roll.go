package spec

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"airlift/installer/config"
)

const defaultLimit = "1"

// rollGroups returns the groups, and the default groups of roles that hosts without a group need.
func (r *reader) rollGroups(doc *document, hosts []Host) (list []Group) {
	for i := range doc.Groups {
		in := &doc.Groups[i]
		r.checkMembers(in, doc, hosts)
		soak, _ := time.ParseDuration(in.Roll.Soak)
		to := GroupRoll{MaxUnavailable: cmp.Or(in.Roll.MaxUnavailable, defaultLimit), Soak: soak, Pause: in.Roll.Pause, Check: in.Roll.Check}
		if in.Roll.Window != nil {
			to.Window = r.window(in.at+".roll.window", in.Roll.Window)
		}
		r.checkCommand(in.at+".roll.check", to.Check)
		list = append(list, Group{in.Name, to})
	}
	for _, name := range []string{ControlPlane, Worker} {
		known := slices.ContainsFunc(list, func(g Group) bool { return g.Name == name })
		if !known && slices.ContainsFunc(hosts, func(h Host) bool { return h.Group == name }) {
			list = append(list, Group{name, GroupRoll{MaxUnavailable: defaultLimit}})
		}
	}
	return list
}

// checkCommand makes the path of a command absolute. A name without a slash is looked for in PATH.
func (r *reader) checkCommand(at string, command []string) {
	switch {
	case command == nil:
	case len(command) == 0:
		r.Add(r.Lines[at], "write a command and its arguments, or remove the line", "%s is empty", at)
	case strings.Contains(command[0], "/"):
		path, why, hint := r.path(command[0])
		if why != "" {
			r.Add(r.Lines[at+"[0]"], hint, "%s[0] %q %s", at, command[0], why)
		}
		command[0] = path
	}
}

// checkMembers checks that all hosts of a group have one role: control planes always roll one by one and before workers.
func (r *reader) checkMembers(g *group, doc *document, hosts []Host) {
	role, mixed := "", false
	for i, h := range hosts {
		if h.Group != g.Name || h.Role == "" {
			continue
		}
		if role = cmp.Or(role, h.Role); h.Role != role && !isRole(g.Name) {
			mixed = true
			r.Add(r.Lines.Nearest("%s.group", doc.Hosts[i].at), "write a group of its own for each role", "the group %q has a %s, and %q is a %s", g.Name, role, h.Name, h.Role)
		}
	}
	if role == "" && g.Name != "" {
		r.warn(r.Lines[g.at], "the group %q has no hosts", g.Name)
	}
	if at := g.at + ".roll.maxUnavailable"; role == ControlPlane && !mixed && cmp.Or(g.Roll.MaxUnavailable, defaultLimit) != defaultLimit {
		r.Add(r.Lines[at], "remove the line", "%s: control planes change one by one", at)
	}
}

func (r *reader) window(at string, in *window) *Window {
	w := &Window{Zone: time.UTC, End: 24 * time.Hour}
	if len(in.Days) == 0 && in.StartTime+in.EndTime == "" && r.Lines[at+".startTime"]+r.Lines[at+".endTime"] == 0 {
		r.Add(r.Lines[at], "write days, or startTime and endTime", "%s has no time", at)
	}
	for _, name := range in.Days {
		for d := range time.Saturday + 1 {
			if d.String() == name {
				w.Days = append(w.Days, d)
			}
		}
	}
	if d, err := time.ParseDuration(in.StartTime); err == nil {
		w.Start = d
	}
	if d, err := time.ParseDuration(in.EndTime); err == nil {
		w.End = d
	}
	if w.Start%(24*time.Hour) == w.End%(24*time.Hour) && (w.Start != 0 || w.End != 24*time.Hour) {
		r.Add(r.Lines[at], "write another endTime; without both, the window is the whole day", "%s begins when it ends", at)
	}
	if zone, err := time.LoadLocation(in.TimeZone); err == nil {
		w.Zone = zone
	}
	return w
}

func (r *reader) roll(doc *document, c *Cluster) Roll {
	in := doc.Roll
	to := Roll{Order: in.Order, Drain: in.Drain == nil || *in.Drain, DrainTimeout: config.DrainTimeout, Undo: in.Undo}
	if d, err := time.ParseDuration(in.DrainTimeout); err == nil {
		to.DrainTimeout = d
	}
	if to.DrainTimeout == 0 {
		r.Add(r.Lines["roll.drainTimeout"], "write 10m, or drain: false", "roll.drainTimeout is 0")
	}
	workers := ""
	for i, name := range in.Order {
		line := r.Lines[fmt.Sprintf("roll.order[%d]", i)]
		ofRole := func(role string) bool {
			return slices.ContainsFunc(c.Hosts, func(h Host) bool { return h.Group == name && h.Role == role })
		}
		switch {
		case name == "":
		case !isRole(name) && !slices.ContainsFunc(c.Groups, func(g Group) bool { return g.Name == name || g.Name == "" }):
			r.Add(line, hintGroup, "there is no group %q", name)
		case ofRole(ControlPlane) && workers != "":
			r.Add(line, "write the control planes first: a kubelet must not be newer than the API server",
				"roll.order has the control planes %q after the workers %q", name, workers)
		case ofRole(Worker):
			workers = name
		}
	}
	return to
}

func (r *reader) endpoint(doc *document, hosts []Host) Endpoint {
	in := doc.Endpoint
	e := Endpoint{VIP: addresses(in.VIP), Balancer: in.Balancer, Address: in.Address}
	r.checkFamilies("endpoint.vip", e.VIP)
	if r.Lines["endpoint.vip"] != 0 && r.Lines["endpoint.address"] != 0 {
		r.Add(r.Lines["endpoint.address"], "remove one of them", "endpoint has both vip and address")
	}
	for _, vip := range e.VIP {
		for _, h := range hosts {
			if ip, _ := netip.ParseAddr(h.SSH.Address); ip == vip || slices.Contains(h.NodeIP, vip) {
				r.Add(r.Lines["endpoint.vip"], "write a free address in the subnet of the control planes", "endpoint.vip %s is an address of the host %q", vip, h.Name)
			}
		}
	}
	return e
}
