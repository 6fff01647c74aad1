package spec_test

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/installer/multihost/spec"
	_ "airlift/scripts/fixtures/seed"
)

type object = map[string]any

var (
	labels = rapid.MapOfN(rapid.StringMatching(`([a-z]{1,5}\.example/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?`), rapid.StringMatching(`([A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?)?`), 0, 3)
	taints = rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}(=[a-z0-9]{1,4})?:(NoSchedule|PreferNoSchedule|NoExecute)`), 0, 2, func(s string) string {
		return s[:1] // distinct keys
	})
	durations = rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.IntRange(1, 10000).Draw(t, "seconds")) * time.Second
	})
)

// login draws user, port and key, and writes the values that differ from what already applies.
func login(t *rapid.T, dir string, to *spec.SSH, written object) {
	if rapid.Bool().Draw(t, "user") {
		to.User = rapid.StringMatching(`[a-z][a-z0-9]{0,5}`).Draw(t, "name of user")
		written["user"] = to.User
	}
	if rapid.Bool().Draw(t, "port") {
		to.Port = rapid.IntRange(1, 65535).Draw(t, "number")
		written["port"] = to.Port
	}
	if rapid.Bool().Draw(t, "key") {
		to.KeyFile = filepath.Join(dir, "key")
		written["keyPath"] = rapid.SampledFrom([]string{"key", "./key", "patches/../key", to.KeyFile}).Draw(t, "path")
	}
}

// shared draws what several hosts have in common.
func shared(t *rapid.T, dir string, to *spec.SSH) object {
	written := object{}
	login(t, dir, to, written)
	if rapid.Bool().Draw(t, "jump") {
		list := []object{}
		to.Jump = nil
		for i := range rapid.IntRange(0, 2).Draw(t, "jumps") {
			j := spec.SSH{Address: fmt.Sprintf("gate-%d.example.org", i), User: "root", Port: 22}
			w := object{"address": j.Address}
			login(t, dir, &j, w)
			to.Jump, list = append(to.Jump, j), append(list, w)
		}
		written["jump"] = list
	}
	if rapid.Bool().Draw(t, "openSSH") {
		to.OpenSSH = true
		to.Options = rapid.SliceOfN(rapid.StringMatching(`-[a-z]{1,3}`), 0, 2).Draw(t, "options")
		written["openSSH"], written["options"] = true, to.Options
	}
	return written
}

// A drawn cluster is written in one of the ways in which it can be written, and read again.
func TestGeneratedClusters(t *testing.T) {
	path := directory(t, "")
	dir := filepath.Dir(path)
	rapid.Check(t, func(t *rapid.T) {
		want := &spec.Cluster{Name: rapid.StringMatching(`[a-z]([-a-z0-9]{0,8}[a-z0-9])?`).Draw(t, "name"), Kubeadm: []byte{}}
		all := spec.SSH{User: "root", Port: 22}
		doc := object{"apiVersion": "airlift/v1", "kind": "Cluster", "name": want.Name, "ssh": shared(t, dir, &all)}
		groups := map[string]drawnGroup{}
		var writtenGroups, writtenHosts []object
		for i := range rapid.IntRange(0, 3).Draw(t, "groups") {
			g, w := drawGroup(t, dir, i, all)
			groups[g.roll.Name], writtenGroups = g, append(writtenGroups, w)
			want.Groups = append(want.Groups, g.roll)
		}
		n := rapid.IntRange(1, 6).Draw(t, "hosts")
		for i := range n {
			role := spec.Worker
			if i < 3 && i%2 == 0 || i == 1 && n > 2 {
				role = spec.ControlPlane
			}
			h, w := drawHost(t, dir, i, role, all, groups)
			want.Hosts, writtenHosts = append(want.Hosts, h), append(writtenHosts, w)
		}
		for _, role := range []string{spec.ControlPlane, spec.Worker} {
			if slices.ContainsFunc(want.Hosts, func(h spec.Host) bool { return h.Group == role }) {
				want.Groups = append(want.Groups, spec.Group{Name: role, Roll: spec.GroupRoll{MaxUnavailable: "1"}})
			}
		}
		doc["hosts"], doc["groups"] = writtenHosts, writtenGroups
		if writtenGroups == nil {
			delete(doc, "groups")
		}
		drawRest(t, want, doc)
		drawRegistries(t, dir, want, doc)
		text, err := yaml.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := spec.Read(path)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for i := range got.Hosts {
			want.Hosts[i].Line = got.Hosts[i].Line
		}
		want.Digest, want.Warnings = got.Digest, got.Warnings
		if !reflect.DeepEqual(normal(got), normal(want)) {
			t.Fatalf("%s\ngot  %+v\nwant %+v", text, got, want)
		}
	})
}

// normal makes empty lists nil where both mean the same.
func normal(c *spec.Cluster) *spec.Cluster {
	for i := range c.Hosts {
		s := &c.Hosts[i].SSH
		s.Options, s.Jump = slices.Clip(append([]string(nil), s.Options...)), append([]spec.SSH(nil), s.Jump...)
		if len(c.Hosts[i].Labels) == 0 {
			c.Hosts[i].Labels = nil
		}
		c.Hosts[i].NodeIP = append([]netip.Addr(nil), c.Hosts[i].NodeIP...)
	}
	c.Endpoint.VIP = append([]netip.Addr(nil), c.Endpoint.VIP...)
	return c
}

type drawnGroup struct {
	roll   spec.Group
	ssh    spec.SSH
	labels map[string]string
	taints []string // nil: not written
	path   string
}

func drawGroup(t *rapid.T, dir string, i int, all spec.SSH) (drawnGroup, object) {
	g := drawnGroup{roll: spec.Group{Name: fmt.Sprintf("group-%d", i), Roll: spec.GroupRoll{MaxUnavailable: "1"}}, ssh: all}
	w := object{"name": g.roll.Name, "ssh": shared(t, dir, &g.ssh)}
	r, wr := &g.roll.Roll, object{}
	if rapid.Bool().Draw(t, "values") {
		g.labels, g.taints, g.path = labels.Draw(t, "labels"), taints.Draw(t, "taints"), filepath.Join(dir, "patches")
		w["labels"], w["taints"], w["patches"] = g.labels, g.taints, "patches"
	}
	if rapid.Bool().Draw(t, "roll") {
		r.Soak, r.Pause, r.Check = durations.Draw(t, "soak"), true, []string{"true", "-x"}
		wr["soak"], wr["pause"], wr["check"] = r.Soak.String(), true, r.Check
	}
	if rapid.Bool().Draw(t, "window") {
		minutes := rapid.SliceOfNDistinct(rapid.IntRange(0, 24*60-1), 2, 2, rapid.ID[int]).Draw(t, "minutes")
		r.Window = &spec.Window{Start: time.Duration(minutes[0]) * time.Minute, End: time.Duration(minutes[1]) * time.Minute, Zone: time.UTC}
		clock := func(m int) string { return fmt.Sprintf("%02d:%02d", m/60, m%60) }
		wr["window"] = object{"startTime": clock(minutes[0]), "endTime": clock(minutes[1])}
	}
	w["roll"] = wr
	return g, w
}

func drawHost(t *rapid.T, dir string, i int, role string, all spec.SSH, groups map[string]drawnGroup) (spec.Host, object) {
	h := spec.Host{Name: fmt.Sprintf("host-%d", i), Role: role, Group: role, SSH: all, NodeValues: spec.NodeValues{Labels: map[string]string{}}}
	w := object{"name": h.Name, "role": role}
	var g drawnGroup
	if role == spec.Worker && len(groups) > 0 && rapid.Bool().Draw(t, "in a group") {
		h.Group = rapid.SampledFrom(slices.Sorted(maps.Keys(groups))).Draw(t, "group")
		g = groups[h.Group]
		h.SSH, h.Patches, h.Taints = g.ssh, g.path, g.taints
		maps.Copy(h.Labels, g.labels)
		w["group"] = h.Group
	}
	ws := shared(t, dir, &h.SSH)
	h.SSH.Address = h.Name
	switch rapid.IntRange(0, 2).Draw(t, "address") {
	case 1:
		h.SSH.Address = fmt.Sprintf("fd00::%x", i+1)
		w["address"] = fmt.Sprintf("FD00:0::%x", i+1)
	case 2:
		h.SSH.Address = fmt.Sprintf("10.0.0.%d", i+1)
		ws["address"] = h.SSH.Address
	}
	if rapid.Bool().Draw(t, "nodeIP") {
		h.NodeIP = []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})}
		w["nodeIP"] = h.NodeIP[0].String()
	}
	switch rapid.IntRange(0, 3).Draw(t, "match") {
	case 1:
		h.Match = &spec.Match{Serial: fmt.Sprintf("S-%d a", i)}
		w["match"] = object{"serial": h.Match.Serial}
	case 2:
		h.Match = &spec.Match{MAC: fmt.Sprintf("52:54:00:12:34:a%d", i)}
		w["match"] = object{"mac": strings.ToUpper(strings.ReplaceAll(h.Match.MAC, ":", "-"))}
	case 3:
		h.Match = &spec.Match{Label: fmt.Sprintf("rack.%d", i)}
		w["match"] = object{"label": h.Match.Label}
	}
	if h.Match != nil && len(h.NodeIP) > 0 && h.SSH.Address == h.Name {
		h.SSH.Address = h.NodeIP[0].String() // a seeded host needs no SSH
	}
	if rapid.Bool().Draw(t, "values") {
		own, more := taints.Draw(t, "taints"), labels.Draw(t, "labels")
		maps.Copy(h.Labels, more)
		w["taints"], w["labels"] = own, more
		if len(own) == 0 || g.taints == nil {
			h.Taints = own
		} else {
			h.Taints = union(g.taints, own)
		}
	}
	if len(ws) > 0 {
		w["ssh"] = ws
	}
	return h, w
}

// union is the taints of a group that a host does not replace, and the host's.
func union(group, own []string) (list []string) {
	key := func(taint string) string {
		before, effect, _ := strings.Cut(taint, ":")
		name, _, _ := strings.Cut(before, "=")
		return name + ":" + effect
	}
	for _, taint := range group {
		if !slices.ContainsFunc(own, func(o string) bool { return key(o) == key(taint) }) {
			list = append(list, taint)
		}
	}
	return append(list, own...)
}

func drawRest(t *rapid.T, want *spec.Cluster, doc object) {
	want.EmbeddedRegistry = len(want.Hosts) > 1
	if rapid.Bool().Draw(t, "registry") {
		want.EmbeddedRegistry = rapid.Bool().Draw(t, "embedded")
		doc["embeddedRegistry"] = want.EmbeddedRegistry
	}
	if rapid.Bool().Draw(t, "vip") {
		want.Endpoint = spec.Endpoint{VIP: []netip.Addr{netip.MustParseAddr("10.2.0.1"), netip.MustParseAddr("fd01::1")}, Balancer: true}
		doc["endpoint"] = object{"vip": []string{"10.2.0.1", "fd01:0:0::1"}, "balancer": true}
	} else {
		want.Endpoint.Address = "k8s.example.org:6443"
		doc["endpoint"] = object{"address": want.Endpoint.Address}
	}
	if rapid.Bool().Draw(t, "profile") {
		want.Profile = rapid.SampledFrom([]string{spec.Hardened, spec.NoProfile}).Draw(t, "name of the profile")
		doc["profile"] = want.Profile
	}
	if rapid.Bool().Draw(t, "encryption") {
		want.EncryptSecrets = new(rapid.Bool().Draw(t, "encrypts"))
		doc["encryptSecrets"] = *want.EncryptSecrets
	} else if want.Profile == spec.Hardened {
		want.EncryptSecrets, want.EncryptsByProfile = new(true), true
	}
	want.Roll = spec.Roll{Drain: true, DrainTimeout: config.DrainTimeout}
	if rapid.Bool().Draw(t, "roll") {
		want.Roll = spec.Roll{Drain: rapid.Bool().Draw(t, "drain"), DrainTimeout: durations.Draw(t, "timeout"), Undo: true}
		for _, g := range want.Groups {
			if g.Name != spec.ControlPlane && g.Name != spec.Worker {
				want.Roll.Order = append(want.Roll.Order, g.Name)
			}
		}
		r := object{"drain": want.Roll.Drain, "drainTimeout": want.Roll.DrainTimeout.String(), "undo": true}
		if want.Roll.Order != nil {
			r["order"] = want.Roll.Order
		}
		doc["roll"] = r
	}
}

// drawRegistries draws registries, which mean what the same flags mean.
func drawRegistries(t *rapid.T, dir string, want *spec.Cluster, doc object) {
	if rapid.Bool().Draw(t, "no registries") {
		return
	}
	flags, written := config.RegistryFlags{}, object{}
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"_default", "docker.io", "quay.io", "r.example:5000"}), 0, 3, rapid.ID).Draw(t, "registries")
	mirrors := object{}
	for _, name := range slices.Sorted(slices.Values(names)) {
		urls := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"https://m1.example", "http://m2:5000"}), 1, 2, rapid.ID).Draw(t, "mirrors")
		for _, u := range urls {
			flags.Mirrors = append(flags.Mirrors, name+"="+u)
		}
		mirrors[name] = urls
	}
	if len(names) > 0 {
		written["mirrors"] = mirrors
	}
	if rapid.Bool().Draw(t, "ca") {
		flags.CAs, written["ca"] = []string{filepath.Join(dir, "ca.pem")}, "patches/../ca.pem"
	}
	if rapid.Bool().Draw(t, "auth") {
		flags.Auth, written["auth"] = filepath.Join(dir, "auth.json"), "auth.json"
	}
	list, _, err := flags.Read()
	if err != nil {
		t.Fatal(err)
	}
	doc["registries"], want.Registries = written, &spec.Registries{Flags: flags, List: list}
}

// What Kubernetes' own validation of labels refuses is refused, and nothing else.
func TestLabelsAreThoseOfKubernetes(t *testing.T) {
	path := directory(t, "")
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringMatching(`([-a-zA-Z._]{0,4}/)?[-a-zA-Z0-9_./ ]{0,6}`).Draw(t, "key")
		value := rapid.StringMatching(`[-a-zA-Z0-9_./ ]{0,6}`).Draw(t, "value")
		text, err := yaml.Marshal(object{"apiVersion": "airlift/v1", "kind": "Cluster", "name": "a", "hosts": []object{{"name": "a", "role": "control-plane", "labels": object{key: value}}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = spec.Read(path)
		oracle := metavalidation.ValidateLabels(map[string]string{key: value}, field.NewPath("labels"))
		if (err == nil) != (len(oracle) == 0) {
			t.Fatalf("%q: %q: %v, but Kubernetes: %v", key, value, err, oracle)
		}
	})
}
