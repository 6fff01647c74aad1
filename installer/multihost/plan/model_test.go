package plan_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"airlift/installer/config"
	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
	_ "airlift/scripts/fixtures/seed"
)

const oldVersion, newVersion = "v1.36.3", "v1.37.1"

// A machine is a host of the model. What a step of a command changes is in its fields.
type machine struct {
	name, role string
	installed  bool   // it has the files of a node
	kubelet    string // version
	api        string // version of its API server
	apiDown    bool
	stopped    bool // its kubelet does not run
	unfinished string
	ran        string // version of the file of the unfinished command
	registry   bool
	timers     map[string]string
	registries *config.RegistryRecord // of the site
	other      bool                   // Airlift did not install its containerd
	config     int                    // the configuration that it follows
	changing   string                 // the reconfiguration that it did not finish
	goal       int                    // of that
	own        bool                   // the unfinished upgrade made it unschedulable
	lost       bool                   // switched off for good
	address    string                 // of its Node
	adopted    bool                   // another tool made its node
	stranger   bool                   // a host of another cluster answers at its address
	keys       int                    // of Secrets: see keysOf
	changes    bool                   // a change of the keys, to nextKeys, is not finished
	nextKeys   int
}

// A world is a site: machines, and what the API of the cluster has.
type world struct {
	t        *rapid.T
	machines map[string]*machine
	nodes    map[string]*facts.ClusterNode
	members  map[string]bool
	clusters int // how many were created
	cluster  facts.Cluster
	spec     *spec.Cluster
	stored   int             // the configuration that the cluster stores
	wants    int             // the configuration in kubeadm's documents
	others   []string        // nodes that a user made unschedulable
	broken   map[string]bool // nodes that are not Ready, and that no command repairs
	before   map[string]int  // by group, how many were down when an edit made the group smaller
	owing    []string        // the hosts of the last batch, until they have passed
	failing  bool            // health and checks may fail
	keys     int             // of Secrets, which the cluster stores
	stale    int             // Secrets that were not written again with the keys
	keeps    string          // a host at the endpoint, which leaves when the endpoint has changed
	serving  map[string]bool // control planes that served when the model began
	former   string          // the endpoint before its last change
	back     string          // a host at the former endpoint, which leaves when nothing uses that
}

func (w *world) host(name string) spec.Host {
	i := slices.IndexFunc(w.spec.Hosts, func(h spec.Host) bool { return h.Name == name })
	return w.spec.Hosts[i]
}

// answers returns what the hosts report.
func (w *world) answers(now time.Time) map[string]plan.Answer {
	c := w.cluster
	c.StaleSecrets = w.stale
	c.Nodes, c.EtcdMembers, c.EndpointAddresses, c.BarePods = nil, nil, nil, map[string][]string{}
	if host, _, found := strings.Cut(w.cluster.ControlPlaneEndpoint, ":"); found {
		c.EndpointAddresses = []string{host}
	}
	if w.usesFormer() {
		c.FormerEndpoint = w.former
	}
	healthy := 0
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		node := *w.nodes[name]
		node.Addresses = []string{w.machines[name].address}
		node.Ready = !w.isDown(name)
		c.BarePods[name] = []string{"site/on-" + name}
		node.ConfigurationBehind = w.machines[name].config != w.stored || node.ControlPlane && (w.machines[name].keys != w.keys || w.machines[name].changes)
		c.Nodes = append(c.Nodes, node)
	}
	for _, name := range slices.Sorted(maps.Keys(w.members)) {
		c.EtcdMembers = append(c.EtcdMembers, facts.EtcdMember{Name: name, Healthy: !w.machines[name].apiDown})
		if !w.machines[name].apiDown {
			healthy++
		}
	}
	answers := map[string]plan.Answer{}
	for name, m := range w.machines {
		if m.lost {
			continue
		}
		f := &facts.Facts{Hostname: name, MachineID: "id-" + name, MACs: []string{"mac-" + name}, Time: now, Arch: "amd64", Unfinished: m.unfinished, Reconfiguring: m.changing}
		if m.unfinished != "" {
			f.Runs = []facts.Run{{Command: m.unfinished, Version: m.ran}}
		}
		if m.stranger {
			f.Node = &facts.Node{Name: name, Role: m.role, Airlift: true, CASHA256: "ca of another cluster", Version: m.kubelet}
		} else if m.installed {
			f.Node = &facts.Node{Name: name, Role: m.role, Airlift: true, CASHA256: fmt.Sprint("ca", w.clusters), Version: m.kubelet, NoRegistry: !m.registry, Cordoned: m.own, Timers: maps.Clone(m.timers),
				Registries: m.registries, OtherRuntime: m.other,
				Etcd: m.role == spec.ControlPlane, Adopted: m.adopted, Encryption: m.encryption()}
			_, member := w.members[name]
			if m.role == spec.ControlPlane && m.api != "" && !m.apiDown && member && healthy > len(w.members)/2 {
				f.Cluster = &c
			} else if m.role == spec.ControlPlane {
				f.Unknown = map[string]string{"cluster": "connection refused", "cluster.etcdMembers": "connection refused"}
			}
		}
		answers[name] = plan.Answer{Facts: f, At: now}
	}
	return answers
}

// isDown reports whether a Node is not Ready.
func (w *world) isDown(name string) bool {
	m := w.machines[name]
	_, member := w.members[name]
	return m.lost || m.apiDown || !m.installed || m.stopped || w.broken[name] || m.role == spec.ControlPlane && !member
}

// steps are the steps of a command on one host. Each is done at once, and does nothing if it is done.
func (w *world) steps(a plan.Action) []func() {
	m := w.machines[a.Host]
	begin := func() { m.unfinished, m.ran = a.Verb, newVersion }
	if a.Verb == plan.Unpack {
		begin = func() {
			if m.unfinished == "" {
				m.unfinished, m.ran = "upgrade node phase unpack", newVersion
			}
		}
	}
	end := func() { m.unfinished, m.own = "", false }
	switch a.Verb {
	case plan.Init, plan.Join:
		return []func(){begin, func() { w.install(m, a.Verb) }, func() { w.startAPI(m) }, func() { w.register(m) }, end}
	case plan.Unpack:
		return []func(){begin, func() {
			if m.unfinished == "upgrade node phase unpack" {
				end()
			}
		}}
	case plan.UpgradeApply, plan.Upgrade:
		return w.upgradeSteps(a, m, begin, end)
	case plan.EndpointApply, plan.Endpoint:
		return []func(){begin, func() { w.changeEndpoint(a.Verb) }, func() { w.followEndpoint(m) }, end}
	case plan.Renewal, plan.Backups: // the installer writes the settings of a timer as cluster.yaml has them
		name := map[string]string{plan.Renewal: "airlift-certs-renew", plan.Backups: "airlift-backup"}[a.Verb]
		return []func(){func() {
			command := strings.Join(a.Commands[0], " ")
			timers := map[string]string{}
			maps.Copy(timers, m.timers) // several machines have one map
			timers[name] = command
			if strings.HasSuffix(command, "--off") || strings.HasSuffix(command, "--every off") {
				delete(timers, name)
			}
			m.timers = timers
		}}
	case plan.Mirrors:
		return w.mirrorSteps(a, m, begin, end)
	case plan.Registry:
		return []func(){begin, func() { w.cluster.EmbeddedRegistry = w.cluster.EmbeddedRegistry || m.role == spec.ControlPlane }, func() { m.registry = true }, end}
	case plan.SecretsEnable, plan.SecretsDisable:
		return w.keySteps(a, m, begin, end)
	case plan.Reconfigure, plan.ReconfigureNode:
		return w.reconfigureSteps(a, m, begin, end)
	case plan.NodeMeta:
		return []func(){func() { w.label(a) }}
	case plan.Remove, plan.RemoveOff:
		if lost := "deletes pods that nothing creates again: site/on-" + a.Host; w.nodes[a.Host] != nil && !slices.Contains(a.Changes, lost) {
			w.t.Fatalf("%s is removed, and the plan does not name its pod: %q", a.Host, a.Changes)
		}
		return w.removeSteps(a, m)
	}
	w.t.Fatalf("unknown verb %q", a.Verb)
	return nil
}

// mirrorSteps are the steps of registry mirrors. Between two files, a host has no known registries.
func (w *world) mirrorSteps(a plan.Action, m *machine, begin, end func()) []func() {
	if m.other {
		w.t.Fatalf("%s has a containerd that Airlift did not install, and gets %q", m.name, a.Commands)
	}
	wanted, before := w.spec.Registries, m.registries
	if none := slices.Contains(a.Commands[0], "--off"); none != (len(wanted.List) == 0) {
		w.t.Fatalf("%s gets %q for %+v", m.name, a.Commands, wanted)
	}
	return []func(){begin, func() { m.registries = &config.RegistryRecord{Settings: []string{"not known"}} }, func() {
		record := config.RecordRegistries(wanted.List, before)
		m.registries = &record
	}, end}
}

// registrySets are sets of registries. The last two differ in a password.
func registrySets() (sets [][]config.Registry) {
	sets = [][]config.Registry{nil}
	for _, password := range []string{"", "Basic one", "Basic two"} {
		mirror := config.RegistryMirror{URL: &url.URL{Scheme: "https", Host: "m.example"}, RegistryAccess: config.RegistryAccess{Authorization: password}}
		sets = append(sets, []config.Registry{{Host: "docker.io", Mirrors: []config.RegistryMirror{mirror}}})
	}
	return sets
}

// reconfigureSteps are those of reconfigure and reconfigure node. A host finishes only what it began.
func (w *world) reconfigureSteps(a plan.Action, m *machine, begin, end func()) []func() {
	goal := func() int {
		if a.Verb == plan.Reconfigure {
			return w.wants
		}
		return w.stored
	}
	steps := []func(){func() {
		if m.changes {
			w.t.Fatalf("%s did not finish a change of the keys, and gets %q", m.name, a.Verb)
		}
		if m.changing != "" && (m.goal != goal() || m.changing != a.Verb) {
			w.t.Fatalf("%s did not finish %q with %d, and gets %q with %d", m.name, m.changing, m.goal, a.Verb, goal())
		}
		if has := w.cluster.Profile; a.Verb == plan.Reconfigure && !slices.Equal(a.Commands[0][1:], slices.Concat(map[bool][]string{true: {"--config", "-"}}[w.spec.Kubeadm != nil],
			map[bool][]string{true: {"--profile", cmp.Or(w.spec.Profile, has)}}[w.spec.Profile+has != ""], []string{"--yes"})) {
			w.t.Fatalf("%s gets %q, and the file has %q, the cluster %q", m.name, a.Commands, w.spec.Profile, has)
		}
		if a.Verb == plan.Reconfigure && (m.config != w.stored || m.keys != w.keys) && m.changing == "" {
			w.t.Fatalf("%s has %d, and would miss what the cluster stores, %d", m.name, m.config, w.stored)
		}
		begin()
		m.goal, m.changing = goal(), a.Verb
	}}
	if m.role == spec.ControlPlane && a.Effect == plan.Restart {
		steps = append(steps, func() { // not if the files are the same
			m.apiDown = m.config != m.goal || a.Verb == plan.ReconfigureNode && m.keys != w.keys
		}, func() { m.apiDown = false })
	}
	return append(steps, func() { w.stored = m.goal }, func() {
		if m.config = m.goal; a.Verb == plan.ReconfigureNode && m.role == spec.ControlPlane {
			m.keys = w.keys
		}
	}, func() {
		if a.Verb == plan.Reconfigure {
			w.cluster.Profile = w.profile()
		}
	}, func() { m.changing = "" }, end)
}

// describes reports whether the file has a configuration for a running cluster.
func (w *world) describes() bool { return w.spec.Kubeadm != nil || w.spec.Profile != "" }

// profile is the profile of the cluster when it matches the file.
func (w *world) profile() string {
	return map[string]string{"": w.cluster.Profile, spec.Hardened: spec.Hardened, spec.NoProfile: ""}[w.spec.Profile]
}

// Keys of Secrets: none; one with which API servers read; and one with which they also encrypt.
const keysNone, keysRead, keysEncrypt = 0, 1, 2

// encryption is what a control plane reports of its keys.
func (m *machine) encryption() *facts.Encryption {
	if m.role != spec.ControlPlane {
		return nil
	}
	return &facts.Encryption{Steps: map[string]int{plan.SecretsEnable: keysEncrypt - m.keys, plan.SecretsDisable: m.keys}, Began: m.changes}
}

// keySteps are the steps of a run that changes the keys: it goes on until other control planes must follow.
func (w *world) keySteps(a plan.Action, m *machine, begin, end func()) []func() {
	goal, step := keysNone, -1
	if a.Verb == plan.SecretsEnable {
		goal, step = keysEncrypt, 1
	}
	if want := w.spec.EncryptSecrets; want == nil || *want != (goal == keysEncrypt) {
		w.t.Fatalf("%s gets %q", m.name, a.Verb)
	}
	ended, removed := false, false
	choose := func() { // the next change. One that was interrupted is finished first, with its keys
		if m.changes {
			return
		}
		for name := range w.members {
			if other := w.machines[name]; other.config != w.stored || other.keys != w.keys {
				if ended = true; !removed && !a.More {
					w.t.Fatalf("%s ends %q, and %s has not followed", m.name, a.Verb, name)
				}
				return
			}
		}
		if m.keys == goal || m.keys == keysRead && goal == keysNone { // all Secrets are written again
			w.stale = 0
		}
		if m.keys == goal {
			ended = true
			end()
			return
		}
		if a.Effect != plan.Restart {
			w.t.Fatalf("%s changes its keys by an action that does not restart its API server", m.name)
		}
		m.changes, m.nextKeys = true, m.keys+step
		removed = m.nextKeys == keysNone
	}
	change := func() {
		if w.stale = max(w.stale, 1); m.nextKeys == keysNone || step == 1 && m.nextKeys == keysRead {
			w.stale = 0 // it does not change how Secrets are written
		}
		m.keys, w.keys = m.nextKeys, m.nextKeys
	}
	steps := []func(){begin}
	for range 4 {
		for _, do := range []func(){choose, func() { m.apiDown = true }, change, func() { m.apiDown = false }, func() { m.changes = false }} {
			steps = append(steps, func() {
				if !ended {
					do()
				}
			})
		}
	}
	return append(steps, func() {
		if removed {
			end()
		}
	})
}

// changes are what hosts answer about the configuration.
func (w *world) changes(questions map[string]string) map[string]plan.ChangeAnswer {
	answers := map[string]plan.ChangeAnswer{}
	for name, verb := range questions {
		c := &facts.Change{}
		for _, n := range append([]string{name}, slices.Sorted(maps.Keys(w.nodes))...) {
			m := w.machines[n]
			goal := w.stored
			if verb == plan.Reconfigure {
				goal = w.wants
			}
			one := facts.ChangedNode{Name: n}
			behind := m.config != w.stored || m.role == spec.ControlPlane && m.keys != w.keys
			if goal != w.stored || behind && (n != name || verb == plan.ReconfigureNode) {
				one.Command, one.Restarts = "./install reconfigure", []string{"kube-apiserver"}
			}
			if n != name || len(c.Nodes) == 0 {
				c.Nodes = append(c.Nodes, one)
			}
		}
		answers[name] = plan.ChangeAnswer{Change: c}
	}
	return answers
}

func (w *world) install(m *machine, verb string) {
	if m.installed {
		return
	}
	if verb == plan.Init {
		w.stored = w.wants
		if w.spec.EncryptSecrets != nil && *w.spec.EncryptSecrets {
			w.keys = keysEncrypt
		}
	}
	if m.config = w.stored; w.host(m.name).Role == spec.ControlPlane {
		m.keys = w.keys
	}
	if verb == plan.Init {
		w.clusters++
	} else if len(w.nodes) == 0 {
		w.t.Fatalf("%s joins no cluster", m.name)
	}
	if _, member := w.members[m.name]; member || w.nodes[m.name] != nil {
		w.t.Fatalf("%s joins under the name of a former node", m.name)
	}
	m.installed, m.role, m.kubelet = true, w.host(m.name).Role, newVersion
	m.registry = w.spec.EmbeddedRegistry
}

func (w *world) startAPI(m *machine) {
	if m.role != spec.ControlPlane || m.api != "" {
		return
	}
	m.api = newVersion
	w.members[m.name] = true
	if len(w.members) == 1 {
		w.cluster = facts.Cluster{Name: w.spec.Name, Version: newVersion, ControlPlaneEndpoint: w.spec.Endpoint.Address, EmbeddedRegistry: w.spec.EmbeddedRegistry, Profile: w.profile()}
	} else if w.cluster.Version != newVersion {
		w.t.Fatalf("%s joins with %s a cluster of %s", m.name, newVersion, w.cluster.Version)
	}
}

func (w *world) register(m *machine) {
	if w.nodes[m.name] != nil {
		return
	}
	n := &facts.ClusterNode{Name: m.name, ControlPlane: m.role == spec.ControlPlane, Version: m.kubelet, Labels: map[string]string{}}
	if n.ControlPlane {
		n.Taints = []string{"node-role.kubernetes.io/control-plane:NoSchedule"}
	}
	w.nodes[m.name] = n
}

func (w *world) upgradeSteps(a plan.Action, m *machine, begin, end func()) []func() {
	n := w.nodes[m.name]
	steps := []func(){begin}
	if m.role == spec.ControlPlane {
		steps = append(steps, func() { m.apiDown = true }, func() { m.api = newVersion }, func() { m.apiDown = false })
		if a.Verb == plan.UpgradeApply {
			steps = append(steps, func() { w.cluster.AddonsWait = w.cluster.AddonsWait || w.cluster.Version != newVersion }, func() { w.cluster.Version = newVersion })
		}
		steps = append(steps, func() { w.upgradeAddons(m) })
	}
	if a.Effect == plan.Drain {
		steps = append(steps, func() {
			if slices.Contains(w.others, m.name) {
				w.t.Fatalf("%s is drained, and somebody else made it unschedulable", m.name)
			}
			m.own, n.Unschedulable = true, true
		})
	}
	return append(steps,
		func() { m.kubelet, m.stopped = newVersion, m.stopped || n.Version != newVersion },
		func() { n.Version, m.stopped = newVersion, false },
		func() {
			if m.own {
				n.Unschedulable = false
			}
		}, func() {
			if m.role == spec.ControlPlane && w.cluster.Version != newVersion {
				w.t.Fatalf("%s is upgraded with %q, and the cluster has %s", m.name, a.Verb, w.cluster.Version)
			}
			end()
		})
}

// upgradeAddons upgrades the add-ons if all other nodes have their images.
func (w *world) upgradeAddons(m *machine) {
	for name, n := range w.nodes {
		if other := w.machines[name]; name != m.name && (n.Version != newVersion || other.role == spec.ControlPlane && other.api != newVersion) {
			return
		}
	}
	w.cluster.AddonsWait = w.cluster.AddonsWait && w.cluster.Version != newVersion
}

func (w *world) changeEndpoint(verb string) {
	if verb != plan.EndpointApply || w.cluster.ControlPlaneEndpoint == w.spec.Endpoint.Address {
		return
	}
	for name, n := range w.nodes {
		if n.EndpointBehind {
			w.t.Fatalf("the endpoint changes, and %s does not follow the last change", name)
		}
	}
	w.former = w.cluster.ControlPlaneEndpoint
	w.cluster.ControlPlaneEndpoint, w.cluster.EndpointWaits, w.cluster.EndpointUndone = w.spec.Endpoint.Address, true, false
	for _, n := range w.nodes {
		n.EndpointBehind, n.EndpointServes = true, false
	}
}

// followEndpoint lets a node use the endpoint. A control plane only serves it while another one does not, and after an undone change
// while any node may use the other one. The add-ons use it when all nodes do, and the former one at once.
func (w *world) followEndpoint(m *machine) {
	own, behind := w.nodes[m.name], false
	own.EndpointServes = own.EndpointBehind && own.ControlPlane
	late := false
	for _, n := range w.nodes {
		late = late || n.EndpointBehind && !n.EndpointServes && n != own && (n.ControlPlane || w.cluster.EndpointUndone)
	}
	if !late || !own.ControlPlane {
		own.EndpointBehind, own.EndpointServes = false, false
	}
	for _, n := range w.nodes {
		behind = behind || n.EndpointBehind
	}
	if own.ControlPlane && (w.cluster.EndpointUndone || !behind) {
		w.cluster.EndpointWaits = false
	}
}

// label does what the Changes of an action say.
func (w *world) label(a plan.Action) {
	n := w.nodes[a.Host]
	for _, c := range a.Changes {
		sign, text := c[0], c[1:]
		taint, isTaint := strings.CutPrefix(text, "taint ")
		key, value, _ := strings.Cut(text, "=")
		switch {
		case isTaint && sign == '+':
			n.Taints = append(n.Taints, taint)
			key, _, _ := strings.Cut(taint, "=")
			n.ManagedTaints = append(n.ManagedTaints, strings.TrimSuffix(key, ":NoSchedule")+":NoSchedule")
		case isTaint:
			if n.ManagedTaints = append(n.ManagedTaints, "-"+taint); n.ControlPlane && w.host(a.Host).Taints == nil && strings.HasPrefix(taint, "node-role") {
				w.t.Fatalf("%s loses kubeadm's taint", a.Host)
			}
			key, effect, _ := strings.Cut(taint, ":")
			n.Taints = slices.DeleteFunc(n.Taints, func(t string) bool { return strings.HasPrefix(t, key) && strings.HasSuffix(t, ":"+effect) })
		case sign == '+':
			n.Labels[key] = value
			n.ManagedLabels = append(n.ManagedLabels, key)
		default:
			delete(n.Labels, key)
		}
	}
}

func (w *world) removeSteps(a plan.Action, m *machine) []func() {
	steps := []func(){
		func() {
			if n := w.nodes[m.name]; n != nil {
				n.Unschedulable = true
			}
		},
		func() { delete(w.members, m.name) },
		func() {
			delete(w.nodes, m.name)
			w.others = slices.DeleteFunc(w.others, func(name string) bool { return name == m.name }) // it may join again
		},
	}
	if a.Verb != plan.Remove {
		return steps
	}
	node := steps[2]
	return append(steps[:2], func() {
		if m.stranger || m.adopted && !a.Adopted {
			w.t.Fatalf("%s is reset: %+v, %+v", m.name, a, m)
		}
		m.unfinished = "reset"
	}, func() {
		m.installed, m.api, m.unfinished, m.adopted, m.timers, m.registries, m.other, m.keys, m.changes = false, "", "", false, nil, nil, false, 0, false
	}, node)
}

// check asserts the rules that hold at any time.
func (w *world) check() {
	if w.clusters > 1 {
		w.t.Fatal("two clusters were created")
	}
	controlPlanes, healthy := 0, 0
	oldest := newVersion
	for name := range w.members {
		m := w.machines[name]
		if !m.lost && m.apiDown {
			controlPlanes++
		}
		if !m.lost && !m.apiDown {
			healthy++
		}
		if !m.lost {
			oldest = min(oldest, m.api)
		}
	}
	w.checkEndpoint()
	w.checkKeys()
	if controlPlanes > 1 {
		w.t.Fatal("two control planes are down")
	}
	if len(w.members) > 2 && healthy <= len(w.members)/2 {
		w.t.Fatalf("etcd has no quorum: %d of %d", healthy, len(w.members))
	}
	w.checkNodes(oldest)
}

// checkKeys asserts that each API server reads what any other one writes.
func (w *world) checkKeys() {
	least, most := keysEncrypt, keysNone
	for name := range w.members {
		least, most = min(least, w.machines[name].keys), max(most, w.machines[name].keys)
	}
	if most-least > 1 || most == keysNone && w.stale > 0 {
		w.t.Fatalf("a control plane has keys %d, another one %d, and %d Secrets are not written again", least, most, w.stale)
	}
}

// checkEndpoint asserts that the endpoint leads to no control plane that has left the cluster, nor does the former one while it is used.
func (w *world) checkEndpoint() {
	for name, m := range w.machines {
		_, member := w.members[name]
		if member || m.address == "" || !w.serving[name] {
			continue
		}
		if m.address+":6443" == w.cluster.ControlPlaneEndpoint || m.address+":6443" == w.former && w.usesFormer() {
			w.t.Fatalf("the endpoint is %s, the former one %s, and %s has left", w.cluster.ControlPlaneEndpoint, w.former, name)
		}
	}
}

// usesFormer reports whether kube-proxy, flannel or a node still use the former endpoint.
func (w *world) usesFormer() bool {
	behind := slices.ContainsFunc(slices.Collect(maps.Values(w.nodes)), func(n *facts.ClusterNode) bool { return n.EndpointBehind })
	return w.former != "" && (w.cluster.EndpointWaits || behind)
}

// checkNodes asserts the rules of single nodes and of groups. No kubelet may be newer than the oldest API server.
func (w *world) checkNodes(oldest string) {
	down := w.down()
	for name := range w.nodes {
		m := w.machines[name]
		if m.lost || !m.installed {
			continue
		}
		if m.role == spec.Worker && m.kubelet > oldest || m.role == spec.ControlPlane && m.kubelet > m.api {
			w.t.Fatalf("the kubelet of %s is newer than an API server", name)
		}
	}
	for _, g := range w.spec.Groups {
		if limit := map[string]int{"1": 1, "2": 2, "50%": max(1, workersOf(w.spec, g.Name)/2)}[g.Roll.MaxUnavailable]; down[g.Name] > max(limit, w.before[g.Name]) {
			w.t.Fatalf("%d hosts of group %s are down, and %d may be", down[g.Name], g.Name, limit)
		}
	}
	for _, name := range w.others {
		if n := w.nodes[name]; n != nil && !n.Unschedulable {
			w.t.Fatalf("%s was made schedulable again", name)
		}
	}
}

// down counts the workers of each group of the file that do not serve because of an upgrade.
func (w *world) down() map[string]int {
	down := map[string]int{}
	for _, h := range w.spec.Hosts {
		if m := w.machines[h.Name]; h.Role == spec.Worker && w.nodes[h.Name] != nil && (m.stopped || m.own) {
			down[h.Group]++
		}
	}
	return down
}

func workersOf(c *spec.Cluster, group string) (n int) {
	for _, h := range c.Hosts {
		if h.Role == spec.Worker && h.Group == group {
			n++
		}
	}
	return n
}

// run does actions at once, at most limit, in any interleaving of their steps. It returns false if it was killed.
func (w *world) run(actions []plan.Action, limit int, kills bool) bool {
	var running [][]func()
	for len(actions) > 0 || len(running) > 0 {
		if len(actions) > 0 && len(running) < limit && (len(running) == 0 || rapid.Bool().Draw(w.t, "start")) {
			running = append(running, w.steps(actions[0]))
			actions = actions[1:]
			continue
		}
		if kills && rapid.IntRange(0, 14).Draw(w.t, "kill") == 0 {
			return false
		}
		i := rapid.IntRange(0, len(running)-1).Draw(w.t, "step")
		running[i][0]()
		w.check()
		if running[i] = running[i][1:]; len(running[i]) == 0 {
			running = slices.Delete(running, i, i+1)
		}
	}
	return true
}

// roll does a stage with the batches that Next chooses.
func (w *world) roll(st plan.Stage, now *time.Time, kills bool) bool {
	s := plan.RollState{Spec: w.spec}
	continues := w.cluster.Gate != nil
	for range 1000 {
		for _, a := range w.answers(*now) {
			if a.Facts.Cluster != nil {
				s.Cluster = a.Facts.Cluster
			}
		}
		s.Now = *now
		step := plan.Next(st, s)
		switch {
		case step.Done:
			return true
		case len(step.Batch) > 0:
			if !w.batch(st, step.Batch, continues, *now, kills) {
				return false
			}
			for _, a := range step.Batch {
				s.Done = append(s.Done, a.Host)
			}
		case continues:
			w.t.Fatalf("stage %s finishes the last batch, and waits: %s", st.Name, step.Wait)
		case step.Until.After(*now):
			*now = step.Until
		default:
			w.t.Fatalf("stage %s waits for ever: %s", st.Name, step.Wait)
		}
	}
	w.t.Fatalf("stage %s does not end", st.Name)
	return false
}

// batch records what a batch owes, changes its hosts, and lets them pass. A batch that continues the last one passes in the stage that
// follows.
func (w *world) batch(st plan.Stage, actions []plan.Action, continues bool, now time.Time, kills bool) bool {
	var names []string
	for _, a := range actions {
		names = append(names, a.Host)
		if len(w.owing) > 0 && !slices.Contains(w.owing, a.Host) {
			w.t.Fatalf("stage %s changes %s, and %v have not passed", st.Name, a.Host, w.owing)
		}
	}
	if !continues {
		if w.cluster.Gate != nil {
			w.t.Fatalf("stage %s begins with %v, and %v have not passed", st.Name, names, w.cluster.Gate.Hosts)
		}
		w.cluster.Gate = &facts.Gate{Stage: st.Name, Hosts: names, Groups: plan.GroupsOf(w.spec, names), Since: now}
		w.owing = names
	}
	if kills && rapid.IntRange(0, 14).Draw(w.t, "kill before the batch") == 0 || !w.run(actions, len(actions), kills) {
		return false
	}
	return continues || w.pass(plan.OwedBy(w.spec, names, plan.GroupsOf(w.spec, names)), actions)
}

// pass reports whether hosts pass what they owe. actions are those of a batch that ended just now: they may be undone.
func (w *world) pass(owed plan.Owed, actions []plan.Action) bool {
	for _, name := range owed.Hosts {
		if w.isDown(name) || w.machines[name].kubelet != w.nodes[name].Version {
			w.t.Fatalf("%s has to be healthy, and nothing makes it so", name)
		}
	}
	if w.failing && rapid.IntRange(0, 3).Draw(w.t, "fails") == 0 {
		if rapid.Bool().Draw(w.t, "undo") {
			w.undo(actions)
		}
		return false
	}
	if w.failing && rapid.IntRange(0, 14).Draw(w.t, "kill before it is recorded") == 0 {
		return false
	}
	w.owing, w.cluster.Gate = nil, nil
	return true
}

// undo takes back upgrades of workers.
func (w *world) undo(actions []plan.Action) {
	for _, a := range actions {
		if m := w.machines[a.Host]; a.Verb == plan.Upgrade && m.role == spec.Worker {
			m.kubelet, w.nodes[a.Host].Version = a.From, a.From
		}
	}
}

// apply does a plan, until it is killed.
func (w *world) apply(p *plan.Plan, now *time.Time, kills bool) {
	for _, st := range p.Stages {
		ok := false
		if st.Owed != nil {
			ok = w.pass(*st.Owed, nil)
		} else if st.Roll {
			ok = w.roll(st, now, kills)
		} else {
			w.checkWindows(st)
			ok = w.run(st.Actions, st.Limit, kills)
		}
		if !ok {
			break
		}
	}
	w.heal()
}

// checkWindows asserts that what restarts on a host waits for the window of its group.
func (w *world) checkWindows(st plan.Stage) {
	for _, a := range st.Actions {
		for _, h := range w.spec.Hosts {
			at := slices.IndexFunc(w.spec.Groups, func(g spec.Group) bool { return g.Name == h.Group })
			if a.Effect == plan.Restart && h.Name == a.Host && w.spec.Groups[at].Roll.Window != nil {
				w.t.Fatalf("stage %s restarts %s, and does not wait for its window", st.Name, a.Host)
			}
		}
	}
}

// heal is what happens without a driver after a kill: kubelet starts the static pods again, at the latest if the API is down.
func (w *world) heal() {
	up, seen := 0, 0 // seen: by the driver, which reaches the hosts of the file
	for name := range w.members {
		if w.machines[name].apiDown {
			continue
		}
		up++
		if slices.ContainsFunc(w.spec.Hosts, func(h spec.Host) bool { return h.Name == name }) {
			seen++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.members)) {
		m := w.machines[name]
		if m.apiDown && !m.lost && (up <= len(w.members)/2 || seen == 0 || rapid.Bool().Draw(w.t, "comes back")) {
			m.apiDown = false
		}
	}
}

// newWorld draws a site: bare or with a cluster, with any mixture of what an edit of cluster.yaml may ask for.
func newWorld(t *rapid.T) (w *world, remove bool) {
	w = &world{t: t, broken: map[string]bool{}, machines: map[string]*machine{}, nodes: map[string]*facts.ClusterNode{}, members: map[string]bool{}, spec: &spec.Cluster{Name: "site", Digest: "d"}}
	w.spec.EmbeddedRegistry = rapid.Bool().Draw(t, "registry")
	w.spec.Endpoint.Address = rapid.SampledFrom([]string{"", "a:6443"}).Draw(t, "endpoint")
	w.spec.Roll.Drain = rapid.Bool().Draw(t, "drain")
	if rapid.Bool().Draw(t, "documents") {
		w.spec.Kubeadm = []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n")
	}
	w.spec.Profile = rapid.SampledFrom([]string{"", spec.Hardened, spec.NoProfile}).Draw(t, "profile")
	if w.describes() {
		w.wants = rapid.IntRange(0, 1).Draw(t, "configuration")
	}
	if rapid.Bool().Draw(t, "renewal") {
		w.spec.Renewal = &spec.Renewal{On: rapid.Bool().Draw(t, "renews"), TimeZone: rapid.SampledFrom([]string{"", "UTC"}).Draw(t, "zone")}
	}
	if rapid.Bool().Draw(t, "registries") {
		w.spec.Registries = &spec.Registries{List: rapid.SampledFrom(registrySets()).Draw(t, "wanted registries")}
	}
	if rapid.Bool().Draw(t, "encryption") {
		w.spec.EncryptSecrets = new(rapid.Bool().Draw(t, "encrypts"))
	}
	if rapid.Bool().Draw(t, "backups") {
		w.spec.Backups = &spec.Backups{On: rapid.Bool().Draw(t, "backs up"), Directory: "/mnt/backup", Every: 6 * time.Hour, Keep: rapid.IntRange(1, 2).Draw(t, "keep"), TimeZone: "UTC"}
	}
	for _, name := range []string{"control-plane", "other-planes", "g1", "g2"} {
		g := spec.Group{Name: name}
		g.Roll.MaxUnavailable = rapid.SampledFrom([]string{"1", "2", "50%"}).Draw(t, "maxUnavailable")
		g.Roll.Pause = rapid.Bool().Draw(t, "pause")
		g.Roll.Soak = time.Duration(rapid.IntRange(0, 2).Draw(t, "soak")) * time.Minute
		if rapid.Bool().Draw(t, "window") {
			day := rapid.SampledFrom([]time.Weekday{time.Saturday, time.Sunday}).Draw(t, "day")
			g.Roll.Window = &spec.Window{Days: []time.Weekday{day, time.Tuesday}, Start: 22 * time.Hour, End: 4 * time.Hour}
		}
		w.spec.Groups = append(w.spec.Groups, g)
	}
	w.spec.Roll.Order = rapid.SampledFrom([][]string{nil, {"g2"}, {"g2", "g1"}}).Draw(t, "order")
	add := func(name, role, group string) {
		h := spec.Host{Name: name, Role: role, Group: group}
		if rapid.Bool().Draw(t, "labelled") {
			h.Labels = map[string]string{"zone": "a"}
			h.Taints = rapid.SampledFrom([][]string{nil, {}, {"dedicated=db:NoSchedule"}}).Draw(t, "taints")
		}
		w.spec.Hosts = append(w.spec.Hosts, h)
		w.machines[name] = &machine{name: name}
	}
	for i := range rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "control planes") {
		add(fmt.Sprint("cp", i), spec.ControlPlane, rapid.SampledFrom([]string{"control-plane", "other-planes"}).Draw(t, "group of control planes"))
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "workers") {
		add(fmt.Sprint("w", i), spec.Worker, rapid.SampledFrom([]string{"g1", "g2"}).Draw(t, "group"))
	}
	if rapid.IntRange(0, 3).Draw(t, "bare") == 0 {
		return w, false
	}
	return w, w.populate()
}

// populate makes some hosts nodes of a cluster, and adds nodes that the file does not have.
func (w *world) populate() (remove bool) {
	t := w.t
	version := rapid.SampledFrom([]string{oldVersion, newVersion}).Draw(t, "version")
	w.clusters = 1
	w.cluster = facts.Cluster{Name: "site", Version: version, EmbeddedRegistry: w.spec.EmbeddedRegistry && rapid.Bool().Draw(t, "has registry")}
	if w.spec.Endpoint.Address != "" {
		w.cluster.ControlPlaneEndpoint = rapid.SampledFrom([]string{"a:6443", "b:6443", ""}).Draw(t, "has endpoint")
	}
	if version == newVersion && rapid.IntRange(0, 4).Draw(t, "the cluster stores the old version") == 0 {
		w.cluster.Version = oldVersion
	}
	w.cluster.Profile = rapid.SampledFrom([]string{"", spec.Hardened}).Draw(t, "has the profile")
	w.keys = rapid.IntRange(keysNone, keysEncrypt).Draw(t, "keys")
	if w.keys == keysRead {
		w.stale = rapid.IntRange(0, 1).Draw(t, "stale")
	}
	existing := func(name, role string) *machine {
		m := &machine{name: name, role: role, installed: true, kubelet: version, registry: w.cluster.EmbeddedRegistry}
		if role == spec.ControlPlane {
			m.api, w.members[name] = version, true
			if m.keys = w.keys; w.keys == keysRead && len(w.members) > 1 && version == newVersion && rapid.IntRange(0, 3).Draw(t, "has former keys") == 0 {
				m.keys = keysEncrypt
			}
			m.timers = rapid.SampledFrom([]map[string]string{nil, {"airlift-certs-renew": "certs auto"},
				{"airlift-backup": "etcd snapshot /mnt/backup --every 6h0m0s --keep 1 --time-zone UTC", "airlift-certs-renew": "certs auto --time-zone UTC"}}).Draw(t, "timers")
		}
		if list := rapid.SampledFrom(registrySets()).Draw(t, "registries"); list != nil {
			record := config.RecordRegistries(list, nil)
			m.registries = &record
		}
		m.other = rapid.IntRange(0, 5).Draw(t, "other containerd") == 0
		w.machines[name] = m
		n := &facts.ClusterNode{Name: name, ControlPlane: role == spec.ControlPlane, Version: version, Labels: map[string]string{"zone": "b", "old": "x"}, ManagedLabels: []string{"old"}}
		if rapid.IntRange(0, 4).Draw(t, "unschedulable") == 0 {
			n.Unschedulable = true
			w.others = append(w.others, name)
		}
		w.nodes[name] = n
		return m
	}
	for i, h := range w.spec.Hosts {
		if i == 0 || rapid.IntRange(0, 3).Draw(t, "is node") > 0 {
			existing(h.Name, h.Role)
		}
	}
	var planes []string // that leave
	for i := range rapid.IntRange(0, 2).Draw(t, "leaving") {
		m := existing(fmt.Sprint("gone", i), rapid.SampledFrom([]string{spec.ControlPlane, spec.Worker}).Draw(t, "role of leaving"))
		m.address, remove = fmt.Sprint("10.0.1.", i), true
		m.adopted, m.stranger = rapid.IntRange(0, 2).Draw(t, "adopted") == 0, rapid.IntRange(0, 3).Draw(t, "stranger") == 0
		if m.role == spec.ControlPlane && !m.stranger && version == newVersion && w.spec.Endpoint.Address != "" && rapid.IntRange(0, 2).Draw(t, "endpoint at a host") == 0 {
			w.cluster.ControlPlaneEndpoint, w.serving = m.address+":6443", map[string]bool{m.name: true}
			w.spec.Endpoint.Address = rapid.SampledFrom([]string{"a:6443", m.address, m.address + ":6443"}).Draw(t, "endpoint in the file")
		}
		if m.role == spec.ControlPlane && !m.stranger {
			planes = append(planes, m.name)
		}
	}
	if len(w.members) > 3 && w.serving == nil && rapid.Bool().Draw(t, "lost control plane") {
		m := existing("lost", spec.ControlPlane)
		m.lost, m.apiDown, remove = true, true, true
	}
	if w.cluster.ControlPlaneEndpoint != "" && w.serving == nil && rapid.Bool().Draw(t, "the endpoint changed") {
		if len(planes) > 0 && version == newVersion && rapid.Bool().Draw(t, "the former endpoint at a host") {
			w.former, w.serving = w.machines[planes[0]].address+":6443", map[string]bool{planes[0]: true}
		}
		w.cluster.EndpointUndone = rapid.Bool().Draw(t, "undone")
		w.cluster.EndpointWaits = !w.cluster.EndpointUndone
		for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
			w.nodes[name].EndpointBehind = true
		}
		for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
			if rapid.Bool().Draw(t, "follows") && !w.machines[name].lost {
				w.followEndpoint(w.machines[name])
			}
			if m := w.machines[name]; m.role == spec.ControlPlane && !m.lost && w.spec.EmbeddedRegistry {
				m.unfinished, m.ran = rapid.SampledFrom([]string{"", "", "endpoint node", "registry enable"}).Draw(t, "unfinished"), newVersion
			}
		}
	}
	return remove
}

// edit changes the file between two runs: a worker more or less, a label, the rules. It reports whether a host was taken out.
func (w *world) edit(round int) (removed bool) {
	t := w.t
	switch rapid.SampledFrom([]string{"add", "take out", "put back", "label", "registry", "configuration", "encryption"}).Draw(t, "what") {
	case "add":
		name := fmt.Sprint("new", round)
		w.machines[name] = &machine{name: name}
		w.spec.Hosts = append(w.spec.Hosts, spec.Host{Name: name, Role: spec.Worker, Group: "g2"})
	case "take out":
		workers := slices.DeleteFunc(slices.Clone(w.spec.Hosts), func(h spec.Host) bool { return h.Role != spec.Worker })
		if len(workers) == 0 {
			return false
		}
		name := rapid.SampledFrom(workers).Draw(t, "which").Name
		w.spec.Hosts = slices.DeleteFunc(w.spec.Hosts, func(h spec.Host) bool { return h.Name == name })
		w.before = w.down()
		return true
	case "put back": // a host whose removal may have begun
		for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
			if m := w.machines[name]; !w.inFile(name) && strings.HasPrefix(name, "gone") && !m.stranger {
				group := map[string]string{spec.ControlPlane: "control-plane", spec.Worker: "g2"}[m.role]
				w.spec.Hosts = append(w.spec.Hosts, spec.Host{Name: name, Role: m.role, Group: group})
				return true
			}
		}
	case "label":
		w.spec.Hosts[0].Labels, w.spec.Hosts[0].Taints = map[string]string{"zone": "c"}, nil
	case "registry":
		w.spec.EmbeddedRegistry = true
	case "encryption":
		w.spec.EncryptSecrets = new(w.spec.EncryptSecrets == nil || !*w.spec.EncryptSecrets)
	case "configuration":
		for _, m := range w.machines {
			if m.changing == plan.Reconfigure { // it can only be finished or undone
				return false
			}
		}
		if w.describes() {
			w.wants++
		}
	}
	return false
}

// input is what the driver reads now. The order of the hosts in the file does not matter.
func (w *world) input(now time.Time, remove, goOn bool) plan.Input {
	c := *w.spec
	order := make([]int, len(w.spec.Hosts))
	for i := range order {
		order[i] = i
	}
	c.Hosts = nil
	for _, i := range rapid.Permutation(order).Draw(w.t, "order of hosts") {
		c.Hosts = append(c.Hosts, w.spec.Hosts[i])
	}
	in := plan.Input{Spec: &c, Answers: w.answers(now), Version: newVersion, Bundle: "b", Arch: "amd64",
		Options: plan.Options{Remove: remove, Continue: goOn, Parallel: rapid.IntRange(1, 4).Draw(w.t, "parallel")}}
	in.Changes = w.changes(plan.Questions(in))
	return in
}

// Pains 16, 17, 18, 19, 21, 22, 24, 29, 32, 34, 35: any edit, with kills at any step, ends at what the file describes, and breaks no
// rule on the way.
func TestApplyConvergesAfterKills(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, remove := newWorld(t)
		now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
		const killed, limit = 12, 60
		for round := range limit {
			w.takeOut()
			now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "hours later")) * time.Hour)
			p, problems := plan.Make(w.input(now, remove && w.clusters > 0 && !w.waits(), rapid.Bool().Draw(t, "continue")))
			if len(problems) > 0 && w.follow(problems) {
				continue
			}
			if len(problems) > 0 {
				t.Fatalf("round %d: %+v", round, problems)
			}
			if len(p.Stages) == 0 && !p.Pauses() {
				if w.waits() {
					t.Fatal("the endpoint leads to a host that leaves, and nothing is to be done")
				}
				w.reached(remove)
				return
			}
			w.failing = round < killed
			if g := w.cluster.Gate; g != nil && rapid.IntRange(0, 4).Draw(t, "skip a host of the batch") == 0 {
				w.skipsOf(g, now, remove)
			}
			w.apply(p, &now, round < killed)
			if round < killed && rapid.IntRange(0, 5).Draw(t, "edit") == 0 {
				remove = w.edit(round) || remove
			}
		}
		p, problems := plan.Make(w.input(now, remove && !w.waits(), true))
		if p == nil {
			t.Fatalf("no end after %d rounds: %+v", limit, problems)
		}
		t.Fatalf("no end after %d rounds: %q, %q", limit, lines(p), p.Rest)
	})
}

// skipsOf asserts that a plan without a host of the last batch changes nothing that serves.
func (w *world) skipsOf(g *facts.Gate, now time.Time, remove bool) {
	in := w.input(now, remove, true)
	in.Skip = []string{rapid.SampledFrom(g.Hosts).Draw(w.t, "which host of the batch")}
	in.Changes = w.changes(plan.Questions(in))
	inFile := slices.ContainsFunc(w.spec.Hosts, func(h spec.Host) bool { return h.Name == in.Skip[0] })
	p, problems := plan.Make(in)
	if w.nodes[in.Skip[0]] == nil || !inFile {
		return
	}
	for _, problem := range problems {
		if strings.Contains(problem.What, "would leave alone") { // nobody is upgraded
			w.t.Fatalf("%v have not passed, %s is skipped, and the plan is refused: %+v", g.Hosts, in.Skip[0], problem)
		}
	}
	if len(problems) > 0 {
		return
	}
	if slices.ContainsFunc(p.Stages, func(st plan.Stage) bool { return st.Name != "remove lost hosts" }) || !strings.Contains(fmt.Sprint(p.Rest), "has not passed its checks") {
		w.t.Fatalf("%v have not passed, one of them is skipped, and the plan is %q, %q", g.Hosts, lines(p), p.Rest)
	}
}

// One run that nothing interrupts changes the endpoint of all nodes and of the add-ons.
func TestEndpointChangesInOneRun(t *testing.T) {
	sites := 0
	defer func() {
		if sites == 0 {
			t.Error("in each site, a node does not follow")
		}
	}()
	rapid.Check(t, func(t *rapid.T) {
		w, remove := newWorld(t)
		now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
		for _, name := range slices.Sorted(maps.Keys(w.machines)) {
			m := w.machines[name]
			inFile := slices.ContainsFunc(w.spec.Hosts, func(h spec.Host) bool { return h.Name == name })
			if m.lost || m.apiDown || m.unfinished != "" || !inFile {
				return // it does not follow
			}
		}
		sites++
		for i := range w.spec.Groups {
			w.spec.Groups[i].Roll.Pause = false
		}
		p, problems := plan.Make(w.input(now, remove, true))
		if len(problems) > 0 {
			t.Fatalf("%+v", problems)
		}
		w.apply(p, &now, false)
		fresh, problems := plan.Make(w.input(now, remove, true))
		if announced(p) && len(problems) == 0 {
			p = fresh
			w.apply(p, &now, false)
			fresh, problems = plan.Make(w.input(now, remove, true))
		}
		if len(problems) > 0 || slices.ContainsFunc(fresh.Stages, func(st plan.Stage) bool { return strings.HasPrefix(st.Name, "endpoint") }) {
			t.Fatalf("after\n%s\nthere is\n%s\n%+v", strings.Join(lines(p), "\n"), strings.Join(lines(fresh), "\n"), problems)
		}
	})
}

// waits reports whether the user leaves --remove out, as a hint said: the endpoint still leads to a host that leaves.
func (w *world) waits() bool {
	return w.keeps != "" && w.cluster.ControlPlaneEndpoint == w.machines[w.keeps].address+":6443" && !w.inFile(w.keeps)
}

// takeOut takes the host at the former endpoint out of the file again, when nothing uses that.
func (w *world) takeOut() {
	if w.back != "" && !w.usesFormer() {
		w.spec.Hosts = slices.DeleteFunc(w.spec.Hosts, func(h spec.Host) bool { return h.Name == w.back })
		w.back = ""
	}
}

func (w *world) inFile(name string) bool {
	return slices.ContainsFunc(w.spec.Hosts, func(h spec.Host) bool { return h.Name == name })
}

// follow does what the hints of refusals say. It returns false if none of them is about removals.
func (w *world) follow(problems []plan.Problem) (done bool) {
	for _, p := range problems {
		switch m := w.machines[p.Host]; {
		case strings.HasPrefix(p.What, "cannot be removed: the endpoint of the cluster"):
			w.keeps, w.spec.Endpoint.Address, done = p.Host, "a:6443", true
		case strings.HasPrefix(p.What, "cannot be removed: kube-proxy, flannel or nodes still use"):
			w.spec.Hosts = append(w.spec.Hosts, spec.Host{Name: p.Host, Role: spec.ControlPlane, Group: "control-plane"})
			w.back, done = p.Host, true
		case strings.HasPrefix(p.What, "cannot be removed: cluster.yaml has its address"):
			w.spec.Endpoint.Address, done = "a:6443", true
		case strings.HasPrefix(p.What, "its etcd is not a member"):
			w.spec.Hosts, done = slices.DeleteFunc(w.spec.Hosts, func(h spec.Host) bool { return h.Name == p.Host }), true
		case p.What == "cannot be removed: etcd would have no quorum", strings.HasPrefix(p.What, "is down, and another control plane"):
			for _, m := range w.machines { // a static pod that a kill stopped starts again
				done = done || m.apiDown && !m.lost
				m.apiDown = m.lost
			}
		case p.What == `did not finish the command "reset"`:
			m.installed, m.api, m.unfinished, m.adopted, m.timers, m.registries, m.other, m.keys, done = false, "", "", false, nil, nil, false, 0, true
		}
	}
	return done
}

// reached asserts that the site matches the file.
func (w *world) reached(remove bool) {
	if len(w.owing) > 0 {
		w.t.Fatalf("the site matches the file, and %v have not passed", w.owing)
	}
	for _, h := range w.spec.Hosts {
		m, n := w.machines[h.Name], w.nodes[h.Name]
		switch {
		case n == nil || m.kubelet != newVersion || n.Version != newVersion || m.role != h.Role || m.unfinished != "" || m.own:
			w.t.Fatalf("%s is %+v, %+v", h.Name, m, n)
		case m.config != w.stored || w.describes() && m.config != w.wants:
			w.t.Fatalf("%s has the configuration %d, the cluster %d, the file %d", h.Name, m.config, w.stored, w.wants)
		case h.Role == spec.ControlPlane && (m.api != newVersion || m.apiDown || !w.members[h.Name]):
			w.t.Fatalf("control plane %s is %+v", h.Name, m)
		case h.Labels["zone"] != "" && n.Labels["zone"] != h.Labels["zone"] || n.Labels["old"] != "":
			w.t.Fatalf("%s has the labels %v", h.Name, n.Labels)
		case h.Role == spec.ControlPlane && h.Taints == nil && slices.Contains(n.ManagedTaints, "-node-role.kubernetes.io/control-plane:NoSchedule") && len(n.Taints) != 1:
			w.t.Fatalf("%s has the taints %v", h.Name, n.Taints)
		case h.Role == spec.ControlPlane && (m.keys != w.keys || m.changes):
			w.t.Fatalf("%s has the keys %d, the cluster %d", h.Name, m.keys, w.keys)
		case h.Role == spec.ControlPlane && !w.timersMatch(m):
			w.t.Fatalf("%s has the timers %q, and the file %+v, %+v", h.Name, m.timers, w.spec.Renewal, w.spec.Backups)
		case w.spec.Registries != nil && !m.other && len(m.registries.Changes(w.spec.Registries.List)) > 0:
			w.t.Fatalf("%s has the registries %s, and the file %+v", h.Name, m.registries, w.spec.Registries)
		case h.Taints != nil && !slices.Equal(n.Taints, h.Taints) || n.EndpointBehind || m.registry != w.spec.EmbeddedRegistry:
			w.t.Fatalf("%s is %+v, %+v, wanted taints %v", h.Name, m, n, h.Taints)
		}
	}
	for name := range w.nodes {
		if remove && !slices.ContainsFunc(w.spec.Hosts, func(h spec.Host) bool { return h.Name == name }) {
			w.t.Fatalf("%s was not removed", name)
		}
	}
	if want := w.spec.EncryptSecrets; want != nil && (w.stale > 0 || *want != (w.keys == keysEncrypt) || !*want && w.keys != keysNone) {
		w.t.Fatalf("the cluster has the keys %d and %d Secrets that are not written again, and the file %t", w.keys, w.stale, *want)
	}
	if w.cluster.Version != newVersion || w.cluster.ControlPlaneEndpoint != w.spec.Endpoint.Address || w.cluster.EndpointWaits || w.cluster.AddonsWait {
		w.t.Fatalf("the cluster is %+v", w.cluster)
	}
}

// timersMatch reports whether a control plane has the timers of the file.
func (w *world) timersMatch(m *machine) bool {
	renews, backsUp := m.timers["airlift-certs-renew"], m.timers["airlift-backup"]
	wantedRenewal, wantedBackups := renews, backsUp
	if r := w.spec.Renewal; r != nil {
		wantedRenewal = map[string]string{"true": "certs auto", "trueUTC": "certs auto --time-zone UTC"}[fmt.Sprint(r.On)+r.TimeZone]
	}
	if b := w.spec.Backups; b != nil && b.On {
		wantedBackups = fmt.Sprintf("etcd snapshot /mnt/backup --every 6h0m0s --keep %d --time-zone UTC", b.Keep)
	} else if b != nil {
		wantedBackups = ""
	}
	return renews == wantedRenewal && backsUp == wantedBackups
}

// A plan whose first stage waits for windows has one outcome, with the time at which they open, and no other plan has it.
func TestClosedWindowIsOneOutcome(t *testing.T) {
	closed, open := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w, remove := newWorld(t)
		now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 7*24).Draw(t, "hours")) * time.Hour)
		p, problems := plan.Make(w.input(now, remove, true))
		if len(problems) > 0 || len(p.Stages) == 0 {
			return
		}
		may := func(a plan.Action) bool {
			window := w.spec.Groups[slices.IndexFunc(w.spec.Groups, func(g spec.Group) bool { return g.Name == w.host(a.Host).Group })].Roll.Window
			if window == nil {
				return true
			}
			day := now.Weekday()
			if now.Hour() < 4 {
				day = (day + 6) % 7
			}
			return (now.Hour() < 4 || now.Hour() >= 22) && slices.Contains(window.Days, day)
		}
		first := p.Stages[0]
		switch {
		case !first.Roll, !slices.ContainsFunc(first.Actions, func(a plan.Action) bool { return !may(a) }):
			open++
			if p.Wait != "" {
				t.Fatalf("it waits for %q:\n%s", p.Wait, text(p))
			}
		case !slices.ContainsFunc(first.Actions, may):
			closed++
			err := p.Outcome()
			out := p.Text(0, false)
			if !strings.HasPrefix(p.Wait, first.Name+": the window of ") || !strings.Contains(p.Wait, " opens at ") ||
				!p.Pauses() && (fault.ExitCode(err) != fault.Waiting || !strings.HasPrefix(err.Error(), p.Wait)) || !strings.Contains(strings.Join(strings.Fields(out), " "), "Waiting: "+p.Wait) {
				t.Fatalf("%q: %v\n%s", p.Wait, err, out)
			}
		}
	})
	if closed == 0 || open == 0 {
		t.Errorf("%d closed, %d open", closed, open)
	}
}
