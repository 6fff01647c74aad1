package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// seen returns the facts that the plan depends on. The cluster has the name "".
func (s *site) seen() map[string]map[string]string {
	seen := map[string]map[string]string{}
	put := func(host, field string, value any) {
		text := fmt.Sprint(value)
		if text == "" || text == "false" || text == "[]" {
			return
		}
		if seen[host] == nil {
			seen[host] = map[string]string{}
		}
		seen[host][field] = text
	}
	for _, name := range s.Skip {
		put(name, "skipped", true)
	}
	for _, h := range s.hosts {
		putFields(put, h.Name, *h.Facts)
		if h.Node != nil {
			putFields(put, h.Name, *h.Node)
		}
		if h.Role == spec.ControlPlane && s.upgrade(h) != nil {
			put(h.Name, "its pods can move", canMove(s.opens(h)))
		}
		put(h.Name, "labels and taints to change", strings.Join(nodeChanges(h.Host, s.nodes[h.Name]), " "))
	}
	for _, name := range s.down {
		put(name, "is down", true)
	}
	for name, a := range s.Changes {
		if c := a.Change; c != nil && len(c.Nodes) > 0 {
			put(name, "change of the configuration", changeDigest(*c))
		}
	}
	put("", "digest of the credentials of registries", s.Credentials)
	s.putCluster(put)
	return seen
}

// putFields puts the facts that have the tag plan.
func putFields(put func(host, field string, value any), host string, of any) {
	v := reflect.ValueOf(of)
	for i := range v.NumField() {
		name, value := v.Type().Field(i).Tag.Get("plan"), v.Field(i).Interface()
		if list, ok := value.([]string); ok {
			value = slices.Sorted(slices.Values(list))
		}
		if name != "" {
			put(host, name, value)
		}
	}
}

func canMove(opens bool, down []string) string {
	switch {
	case opens:
		return "yes"
	case len(down) > 0:
		return "no, " + areDown(down) + " down"
	}
	return "no"
}

func (s *site) putCluster(put func(host, field string, value any)) {
	c := s.cluster
	if c == nil {
		return
	}
	putFields(put, "", *c)
	for name, version := range c.Stored {
		put("", "version of the ConfigMap "+name, version)
	}
	if g := c.Gate; g != nil {
		put("", "last batch that has not passed", fmt.Sprintf("%s of %s, by %s, since %s", g.Stage, strings.Join(g.Hosts, ", "), g.By, g.Since.UTC().Format(time.RFC3339)))
	}
	for _, n := range c.Nodes {
		putFields(put, n.Name, n)
	}
	for _, m := range c.EtcdMembers {
		put(m.Name, "etcd member", true)
	}
	for _, l := range s.leavers {
		put(l.name, "leaves, Ready", l.ready)
		put(l.name, "leaves, answers", l.answers)
		put(l.name, "leaves, adopted", l.adopted)
		if s.Remove {
			put(l.name, "leaves, pods that nothing creates again", strings.Join(s.barePods(l.name), ", "))
		}
	}
}

// changeDigest returns the sha256 of what a reconfiguration changes, hex; "" if it changes nothing. Findings are no part of it.
func changeDigest(c facts.Change) string {
	c.Warnings, c.Errors = nil, nil
	works := slices.ContainsFunc(c.Nodes, func(n facts.ChangedNode) bool { return n.Command != "" })
	if !works && len(c.Changes)+len(c.Certificates)+len(c.Marks)+len(c.AddOns) == 0 {
		return ""
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // only strings
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// digest returns the sha256 of the JSON, hex. JSON sorts the keys.
func digest(seen map[string]map[string]string) string {
	text, err := json.Marshal(seen)
	if err != nil {
		panic(err) // only strings
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Same fails if a plan that was saved is not what the site needs now. The error names each host and field that differs.
func Same(saved, fresh *Plan) error {
	var list []string
	differ := func(what, was, is string) {
		if was != is {
			list = append(list, fmt.Sprintf("%s: %s in the plan, %s now", what, cmp.Or(was, "none"), cmp.Or(is, "none")))
		}
	}
	differ("name of the cluster", saved.Cluster, fresh.Cluster)
	differ("version of the file", saved.Version, fresh.Version)
	differ("ID of the file", saved.Bundle, fresh.Bundle)
	differ("digest of cluster.yaml", saved.Spec, fresh.Spec)
	if saved.Observed != digest(saved.Seen) {
		list = append(list, "the plan was edited: its field observed is not the digest of seen")
	}
	hosts := maps.Clone(saved.Seen)
	if hosts == nil {
		hosts = map[string]map[string]string{}
	}
	maps.Copy(hosts, fresh.Seen)
	for _, host := range sortedKeys(hosts) {
		was, is := saved.Seen[host], fresh.Seen[host]
		fields := map[string]string{}
		maps.Copy(fields, was)
		maps.Copy(fields, is)
		for _, field := range sortedKeys(fields) {
			name := host
			if host == "" {
				name = "cluster"
			}
			differ(name+": "+field, was[field], is[field])
		}
	}
	if len(list) == 0 && !slices.Equal(work(saved), work(fresh)) {
		list = append(list, "the actions differ: it was made with other options, such as --remove, --continue, --pause-after or --parallel, or edited")
	}
	if len(list) == 0 {
		return nil
	}
	return fault.New(fault.Failure, "the plan is no longer valid:\n  - %s", strings.Join(list, "\n  - ")).
		Hint("make a new plan, and look at it: ./install cluster plan -o json >plan.json")
}

// work lists the actions and the rules of their stages without their order, which depends on the health of hosts. So does
// which control plane runs upgrade apply, and which one is the leader.
func work(p *Plan) (list []string) {
	for _, st := range p.Stages {
		for _, a := range st.Actions {
			host, verb := a.Host, a.Verb
			if verb == UpgradeApply && a.From != "" {
				verb = Upgrade
			}
			if host == p.Leader && p.anyPlane(st) {
				host = "the leader"
			}
			rules := fmt.Sprint(st.Name, st.Limit, st.Roll, st.Repair)
			commands := ""
			if host == a.Host && verb != Upgrade && verb != Unpack { // those depend on the leader
				commands = fmt.Sprint(a.Commands)
			}
			list = append(list, strings.Join(append([]string{rules, host, verb, a.From, a.To, a.Effect, commands}, a.Changes...), " "))
		}
	}
	slices.Sort(list)
	return list
}

// anyPlane reports whether any control plane could do the work of a stage.
func (p *Plan) anyPlane(st Stage) bool {
	return st.Name == addons || st.Name == versionOfCluster || st.Name == keepsFile || st.Name == endpointOfCluster &&
		!slices.ContainsFunc(p.Stages, func(st Stage) bool { return st.Name == endpointOfControlPlanes })
}
