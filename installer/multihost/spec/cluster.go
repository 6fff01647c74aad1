package spec

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"airlift/internal/documents/strict"
)

// cluster returns what the document means, with the values of groups and the defaults, and checks what depends on several
// values.
func (r *reader) cluster(doc *document) *Cluster {
	intact := len(r.Problems) == 0 // a value that is wrong would cause further errors
	c := &Cluster{Name: doc.Name, EmbeddedRegistry: len(doc.Hosts) > 1, Kubeadm: r.kubeadm.documentsText()}
	if doc.Registry != nil {
		c.EmbeddedRegistry = *doc.Registry
	}
	if doc.Name == "" && r.Lines["name"] == 0 {
		r.Add(r.Lines[""], "write name: with the name of the cluster, for example plant-7", "the file has no name")
	}
	r.checkJumps("ssh", doc.SSH.Jump)
	groups := r.groups(doc)
	doc.Hosts = r.expandHosts(doc.Hosts)
	for i := range doc.Hosts {
		c.Hosts = append(c.Hosts, r.host(doc, groups, i))
	}
	r.checkTwice(doc, c.Hosts)
	c.Groups = r.rollGroups(doc, c.Hosts)
	c.Endpoint = r.endpoint(doc, c.Hosts)
	c.Roll = r.roll(doc, c)
	c.Renewal, c.Backups = r.renewal(doc.Certificates), r.backups(doc.Backups)
	c.Registries = r.registries(doc.Registries)
	c.EncryptSecrets, c.Profile = doc.EncryptSecrets, doc.Profile
	r.checkEncryption(doc)
	if own := r.kubeadm.provider.text; c.Profile == Hardened && c.EncryptSecrets == nil && (own == "" || own == OwnKeys) {
		c.EncryptSecrets, c.EncryptsByProfile = new(true), true
	}
	r.checkKubeadm(doc, c)
	r.checkDocuments(c)
	if intact {
		r.checkControlPlanes(c)
	}
	return c
}

// groups returns the groups by their names.
func (r *reader) groups(doc *document) map[string]*group {
	groups := map[string]*group{}
	for i := range doc.Groups {
		g := &doc.Groups[i]
		g.at = fmt.Sprintf("groups[%d]", i)
		switch _, twice := groups[g.Name]; {
		case r.Lines[g.at+".name"] == 0:
			r.Add(r.Lines[g.at], "write name: with the name of the group", "%s has no name", g.at)
		case twice && g.Name != "":
			r.Add(r.Lines[g.at+".name"], "choose another name", "two groups have the name %q", g.Name)
		}
		groups[g.Name] = g
		r.checkJumps(g.at+".ssh", g.SSH.Jump)
	}
	return groups
}

func (r *reader) host(doc *document, groups map[string]*group, i int) Host {
	in, at := doc.Hosts[i], doc.Hosts[i].at
	if r.Lines[at+".name"] == 0 {
		r.Add(r.Lines[at], "write name: with the name of the node", "%s has no name", at)
	}
	if r.Lines[at+".role"] == 0 {
		r.Add(r.Lines[at], "write role: control-plane or role: worker", "%s has no role", at)
	}
	g, known := groups[cmp.Or(in.Group, in.Role)]
	if !known {
		g = &group{}
	}
	switch _, unnamed := groups[""]; {
	case in.Group == "" || in.Group == in.Role:
	case isRole(in.Group) && in.Role != "":
		r.Add(r.Lines[at+".group"], "remove the line, or write another group", "the group %q is for hosts with this role", in.Group)
	case !known && !unnamed:
		r.Add(r.Lines[at+".group"], hintGroup, "there is no group %q", in.Group)
	}
	h := Host{Name: in.Name, Role: in.Role, Group: cmp.Or(in.Group, in.Role), NodeIP: addresses(in.NodeIP), Line: r.Lines[at], NodeValues: in.NodeValues}
	inherit(&h.NodeValues, g.NodeValues)
	r.checkFamilies(at+".nodeIP", h.NodeIP)
	r.checkJumps(at+".ssh", in.SSH.Jump)
	h.SSH = r.ssh(at, &in, g, doc)
	h.Match = r.match(at, in)
	if h.Match != nil && len(h.NodeIP) > 0 && r.Lines[at+".address"]+r.Lines[at+".ssh.address"] == 0 {
		h.SSH.Address = h.NodeIP[0].String() // of a seeded host, which needs no SSH
	}
	return h
}

const hintGroup = "add it to groups, or write the name of another group"

// isRole reports whether a group is the default group of a role.
func isRole(group string) bool { return group == ControlPlane || group == Worker }

// inherit adds what several hosts share to the values of one: values that it does not have, names of a mapping, and items
// of a list that has each key once. An empty list inherits nothing.
func inherit[T any](own *T, shared T) {
	for _, f := range strict.Fields(reflect.TypeFor[T]()) {
		to, from := reflect.ValueOf(own).Elem().FieldByIndex(f.Index), reflect.ValueOf(shared).FieldByIndex(f.Index)
		switch list, isList := to.Interface().([]string); {
		case to.IsZero():
			to.Set(from)
		case to.Kind() == reflect.Map:
			for _, name := range from.MapKeys() {
				if !to.MapIndex(name).IsValid() {
					to.SetMapIndex(name, from.MapIndex(name))
				}
			}
		case isList && len(list) > 0 && keys[f.Tag.Get("is")] != nil:
			has := func(item string) bool { return hasKey(list, item, keys[f.Tag.Get("is")]) }
			to.Set(reflect.ValueOf(append(slices.DeleteFunc(slices.Clone(from.Interface().([]string)), has), list...)))
		}
	}
}

// addresses parses addresses that a rule checked; one that is wrong is left out.
func addresses(texts []string) (list []netip.Addr) {
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			list = append(list, a)
		}
	}
	return list
}

func (r *reader) checkFamilies(at string, list []netip.Addr) {
	if len(list) > 2 || len(list) == 2 && list[0].Is4() == list[1].Is4() {
		r.Add(r.Lines[at], "write one address, or one IPv4 and one IPv6 address", "%s has several addresses of a family", at)
	}
}

// checkTwice finds what two hosts cannot share.
func (r *reader) checkTwice(doc *document, hosts []Host) {
	type key struct{ what, value string }
	seen := map[key]Host{}
	refused := map[string]bool{} // of two ranges, one error is enough
	for i, h := range hosts {
		at := doc.Hosts[i].at
		refuse := func(what, value, field string) {
			o, twice := seen[key{what, value}]
			pair := fmt.Sprint(what, at, o.Line)
			switch {
			case !twice:
				seen[key{what, value}] = h
			case !refused[pair] && (what == "name" || o.Name != h.Name): // one error is enough
				refused[pair] = true
				r.Add(r.Lines.Nearest("%s.%s", at, field), "each host needs its own", "the host in line %[3]d has the %[1]s %[2]s, too", what, value, o.Line)
			}
		}
		if h.Name != "" {
			refuse("name", h.Name, "name")
		}
		if h.SSH.Address != "" {
			refuse("SSH address", route(h.SSH), r.whereAddress(at))
		}
		for _, ip := range h.NodeIP {
			refuse("nodeIP", ip.String(), "nodeIP")
		}
		if h.Match != nil {
			what, value := h.Match.field()
			refuse(what, value, "match")
		}
	}
}

// checkControlPlanes checks what depends on the number of control planes.
func (r *reader) checkControlPlanes(c *Cluster) {
	n := 0
	runsPods := false
	for _, h := range c.Hosts {
		if h.Role == ControlPlane {
			n++
		}
		runsPods = runsPods || h.Role == Worker || h.Taints != nil && len(h.Taints) == 0
	}
	at := r.Lines.Nearest("hosts")
	e := c.Endpoint
	switch {
	case len(c.Hosts) == 0:
		r.Add(at, "write hosts: with the hosts of the cluster", "the file has no hosts")
	case n == 0:
		r.Add(at, "write role: control-plane at one or three hosts", "no host is a control plane")
	case n > 1 && len(e.VIP) == 0 && !e.Balancer && e.Address == "":
		r.Add(cmp.Or(r.Lines["endpoint"], at), "write endpoint: with vip: and a free address in the subnet of the control planes, and balancer: true",
			"%d control planes need an endpoint", n)
	case n%2 == 0:
		r.warn(at, "%d control planes survive the loss of no more hosts than %d do: an odd number is better", n, n-1)
	}
	if n > 0 && !runsPods {
		r.warn(at, "no host runs pods of users: add a worker, or write taints: [] at control planes")
	}
}

// checkKubeadm compares kubeadm's documents with the same fields here.
func (r *reader) checkKubeadm(doc *document, c *Cluster) {
	name, e := r.kubeadm.name, r.kubeadm.endpoint
	if name.text != "" && name.text != doc.Name && doc.Name != "" {
		r.AddIn(name.file, name.line, "remove the line, or write the same name", "clusterName %q differs from name %q of the cluster", name.text, doc.Name)
	}
	switch own := doc.Endpoint.Address; {
	case e.text == "":
	case len(c.Endpoint.VIP) > 0:
		r.AddIn(e.file, e.line, "remove the line: the endpoint is endpoint.vip", "controlPlaneEndpoint cannot be together with endpoint.vip")
	case own != "" && own != e.text:
		r.AddIn(e.file, e.line, "remove the line, or write the same", "controlPlaneEndpoint %q differs from endpoint.address %q", e.text, own)
	default:
		c.Endpoint.Address = e.text
	}
}
