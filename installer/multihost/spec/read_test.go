package spec_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"airlift/installer/config"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

func read(t *testing.T, text string) *spec.Cluster {
	t.Helper()
	c, err := spec.Read(directory(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhole(t *testing.T) {
	path := directory(t, whole)
	dir := filepath.Dir(path)
	c, err := spec.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, "key")
	jump := []spec.SSH{{Address: "gate.example.org", Port: 2222, User: "gate", KeyFile: key, HostKey: "SHA256:jdDmF7CksBRxZ6NK0ssUWrd9CF9Ac7MGmXnj0JmiIRg"}, {Address: "192.0.2.2", Port: 22, User: "root"}}
	// A host's values come first, then its group's, then the values for all hosts.
	if got, want := c.Hosts[3].SSH, (spec.SSH{Address: "w-1", Port: 2022, User: "operator", KeyFile: key, Jump: jump}); !reflect.DeepEqual(got, want) {
		t.Errorf("w-1: %+v, want %+v", got, want)
	}
	if got, want := c.Hosts[4].SSH, (spec.SSH{Address: "w-2", Port: 2022, User: "admin", KeyFile: key, OpenSSH: true, Options: []string{"-o", "ConnectTimeout=20"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("w-2: %+v, want %+v", got, want)
	}
	if got := c.Hosts[1].SSH.HostKey; got != "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ" {
		t.Errorf("the key of cp-2: %s", got)
	}
	if got, want := c.Hosts[3].Labels, map[string]string{"zone": "b", "stage": "canary"}; !reflect.DeepEqual(got, want) {
		t.Errorf("labels: %v", got)
	}
	if got, want := c.Hosts[3].Taints, []string{"dedicated=db:NoSchedule", "gpu:NoExecute"}; !slices.Equal(got, want) {
		t.Errorf("taints: %v", got)
	}
	if t0, t1 := c.Hosts[0].Taints, c.Hosts[1].Taints; t0 == nil || len(t0) > 0 || t1 != nil {
		t.Errorf("taints of control planes: %#v, %#v", t0, t1)
	}
	if got := c.Hosts[3].Patches + c.Hosts[4].Patches; got != filepath.Join(dir, "patches")+filepath.Join(dir, "patches") {
		t.Errorf("patches: %s", got)
	}
	var names []string
	for _, g := range c.Groups {
		names = append(names, g.Name)
	}
	if !slices.Equal(names, []string{"canary", "control-plane", "worker"}) {
		t.Errorf("groups: %s", names)
	}
	berlin, _ := time.LoadLocation("Europe/Berlin")
	if got, want := c.Groups[0].Roll, (spec.GroupRoll{MaxUnavailable: "25%", Soak: 10 * time.Minute, Pause: true, Check: []string{filepath.Join(dir, "check.sh"), "--all"},
		Window: &spec.Window{Days: []time.Weekday{time.Saturday, time.Sunday}, Start: 22 * time.Hour, End: 4*time.Hour + 30*time.Minute, Zone: berlin}}); !reflect.DeepEqual(got, want) {
		t.Errorf("roll of canary: %+v", got)
	}
	if got, want := c.Roll, (spec.Roll{Order: []string{"control-plane", "canary"}, DrainTimeout: 2 * time.Minute, Undo: true}); !reflect.DeepEqual(got, want) {
		t.Errorf("roll: %+v", got)
	}
	if c.EmbeddedRegistry || !c.Endpoint.Balancer || len(c.Endpoint.VIP) != 1 || c.Name != "plant-7" || len(c.Warnings) > 0 {
		t.Errorf("%+v", c)
	}
	if r := c.Renewal; r == nil || *r != (spec.Renewal{On: true, TimeZone: "Europe/Berlin"}) {
		t.Errorf("renewal: %+v", r)
	}
	if got, want := c.Backups, (&spec.Backups{On: true, Directory: "/mnt/backup", Every: 6 * time.Hour, Keep: 4, TimeZone: "Europe/Berlin",
		Recipients: []string{"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("backups: %+v", got)
	}
	if got, want := c.Registries.Flags, (config.RegistryFlags{
		Mirrors: []string{"docker.io=https://mirror.example:5000", "docker.io=http://m2", "quay.io=https://mirror.example:5000/v2/quay"},
		CAs:     []string{filepath.Join(dir, "ca.pem"), "docker.io=" + filepath.Join(dir, "ca.pem")}, Auth: filepath.Join(dir, "auth.json"),
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("registries: %+v", got)
	}
	if list := c.Registries.List; len(list) == 0 || strings.Contains(c.Digest, "hunter2") {
		t.Errorf("registries: %v", list)
	}
	if c.Profile != spec.Hardened || c.EncryptSecrets == nil || !*c.EncryptSecrets {
		t.Errorf("profile %q, encryptSecrets %v", c.Profile, c.EncryptSecrets)
	}
	// kubeadm's documents are as they are written, comments too.
	_, inline, _ := strings.Cut(whole, "\n---\n")
	if want := joinFile + "---\n" + inline; string(c.Kubeadm) != want {
		t.Errorf("kubeadm:\n%s", c.Kubeadm)
	}
}

func TestDefaults(t *testing.T) {
	c := read(t, "apiVersion: airlift/v1\nkind: Cluster\nname: a\nhosts:\n- {name: one.example.org, role: control-plane}\n")
	want := &spec.Cluster{Name: "a", Digest: c.Digest, Warnings: c.Warnings, Kubeadm: []byte{},
		Hosts:  []spec.Host{{Name: "one.example.org", Role: "control-plane", Group: "control-plane", SSH: spec.SSH{Address: "one.example.org", Port: 22, User: "root"}, Line: 5}},
		Groups: []spec.Group{{Name: "control-plane", Roll: spec.GroupRoll{MaxUnavailable: "1"}}}, Roll: spec.Roll{Drain: true, DrainTimeout: config.DrainTimeout}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v\nwant %+v", c, want)
	}
}

// The profile encrypts Secrets, unless the file says something else, or has an encryption of the site.
func TestProfileEncrypts(t *testing.T) {
	const head = "apiVersion: airlift/v1\nkind: Cluster\nname: a\nhosts:\n- {name: one.example.org, role: control-plane}\n"
	const own = "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer: {extraArgs: [{name: encryption-provider-config, value: /etc/keys.yaml}]}\n"
	for text, want := range map[string]*bool{
		head: nil, head + "profile: none\n": nil, head + "profile: hardened\n" + own: nil,
		head + "profile: hardened\n": new(true), head + "profile: hardened\nencryptSecrets: true\n": new(true), head + "profile: hardened\nencryptSecrets: false\n": new(false),
	} {
		c := read(t, text)
		if !reflect.DeepEqual(c.EncryptSecrets, want) || c.EncryptsByProfile != (text == head+"profile: hardened\n") {
			t.Errorf("%s: %v, by the profile: %t", text, c.EncryptSecrets, c.EncryptsByProfile)
		}
	}
}

func TestWarnings(t *testing.T) {
	const two = "apiVersion: airlift/v1\nkind: Cluster\nname: a\nendpoint: {balancer: true}\nhosts:\n- {name: a, role: control-plane}\n- {name: b, role: control-plane}\n"
	for text, want := range map[string][]string{
		two: {"cluster.yaml:5: 2 control planes survive the loss of no more hosts than 1 do: an odd number is better",
			"cluster.yaml:5: no host runs pods of users: add a worker, or write taints: [] at control planes"},
		two + "- {name: c, role: worker}\ngroups:\n- name: g\n":                                                                                {"cluster.yaml:10: the group \"g\" has no hosts", "cluster.yaml:5: 2 control planes"},
		two + "- {name: c, role: control-plane, taints: []}\n":                                                                                 nil,
		two + "- {name: c, role: control-plane, taints: []}\n---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: CredentialProviderConfig\n": {"x"},
	} {
		path := directory(t, text)
		c, err := spec.Read(path)
		if slices.Equal(want, []string{"x"}) { // a kind that kubeadm does not read
			if err == nil || !strings.Contains(err.Error(), "cluster.yaml:11: CredentialProviderConfig") {
				t.Errorf("%v", err)
			}
			continue
		}
		if err != nil || len(c.Warnings) != len(want) {
			t.Errorf("%q: %q, %v", text, c.Warnings, err)
			continue
		}
		for i, w := range c.Warnings {
			if !strings.Contains(w, want[i]) {
				t.Errorf("%q, want %q", w, want[i])
			}
		}
	}
}

// Behind another jump host, the same private address is another host.
func TestSameAddressElsewhere(t *testing.T) {
	read(t, "apiVersion: airlift/v1\nkind: Cluster\nname: a\nhosts:\n- {name: a, role: control-plane, address: 10.0.0.1, ssh: {jump: [{address: gate-1}]}}\n- {name: b, role: worker, address: 10.0.0.1, ssh: {jump: [{address: gate-2}]}}\n")
}

func TestAllErrorsAtOnce(t *testing.T) {
	path := directory(t, "apiVersion: airlift/v1\nkind: Cluster\nname: A\nhosts:\n- name: B\n  role: master\n  password: x\n  ssh: {user: -x, port: 0}\n  labels: {x: yes}\nroll: {order: [z]}\nname: B\nkubeadm: [secret.yaml, init.yaml]\n---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nnope: 1\n")
	_, err := spec.Read(path)
	got := regexp.MustCompile(`[a-z]+\.yaml:[0-9]+: `).FindAllString(err.Error(), -1)
	want := "cluster.yaml:3: ,cluster.yaml:5: ,cluster.yaml:6: ,cluster.yaml:7: ,cluster.yaml:8: ,cluster.yaml:8: ,cluster.yaml:9: ,cluster.yaml:10: ,cluster.yaml:11: ,cluster.yaml:14: ,cluster.yaml:16: ,secret.yaml:3: "
	if strings.Join(got, ",") != want {
		t.Errorf("%v", err)
	}
	if strings.Contains(err.Error(), "4711") {
		t.Errorf("a secret is in the error: %v", err)
	}
	for range 5 {
		if _, again := spec.Read(path); again.Error() != err.Error() {
			t.Errorf("other errors:\n%v\n%v", err, again)
		}
	}
}

// The digest depends on the file, kubeadm's documents and the patches, and on nothing else.
func TestDigest(t *testing.T) {
	path := directory(t, whole)
	dir := filepath.Dir(path)
	digest := func() string {
		c, err := spec.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		return c.Digest
	}
	last := digest()
	for _, c := range []struct {
		name, text string
		same       bool
	}{
		{"key", "other", true},
		{"check.sh", "other", true},
		{"join.yaml", joinFile + "# c\n", false},
		{"patches/kubeletconfiguration.yaml", "maxPods: 51\n", false},
		{"patches/kubeletconfiguration1.yaml", "maxPods: 52\n", false},
		{"cluster.yaml", whole + "# c\n", false},
	} {
		if err := os.WriteFile(filepath.Join(dir, c.name), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if now := digest(); (now == last) != c.same {
			t.Errorf("%s: the digest was %s and is %s", c.name, last, now)
		} else {
			last = now
		}
	}
}

func TestHomeDirectoryAndStandardInput(t *testing.T) {
	dir := filepath.Dir(directory(t, ""))
	t.Setenv("HOME", dir)
	t.Chdir(t.TempDir())
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func(f *os.File) { os.Stdin = f }(os.Stdin)
	os.Stdin = in
	if _, err := out.WriteString("apiVersion: airlift/v1\nkind: Cluster\nname: a\nssh: {keyPath: ~/key}\nhosts:\n- {name: a, role: control-plane}\n"); err != nil {
		t.Fatal(err)
	}
	out.Close()
	c, err := spec.Read("-")
	if err != nil || c.Hosts[0].SSH.KeyFile != filepath.Join(dir, "key") {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := spec.Read("nope.yaml"); fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), "./install cluster example") {
		t.Errorf("%v, hint %s", err, fault.Hint(err))
	}
}

// Without comments, the example has every field once in each mapping, and it is a cluster.
func TestExample(t *testing.T) {
	c, err := spec.Read(directory(t, spec.Example()))
	if err != nil || len(c.Hosts) != 5 || len(c.Warnings) > 0 {
		t.Errorf("%+v, %v", c, err)
	}
	text := spec.Uncommented()
	written := map[string]bool{}
	var doc yaml.Node
	if err := yaml.NewDecoder(strings.NewReader(text)).Decode(&doc); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var collect func(n *yaml.Node)
	collect = func(n *yaml.Node) {
		for i, child := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 0 {
				written[child.Value] = true
			}
			collect(child)
		}
	}
	collect(&doc)
	for _, name := range spec.Fields() {
		if !written[name] {
			t.Errorf("the example has no field %s", name)
		}
	}
	// Some fields exclude each other.
	text = strings.NewReplacer("\n  address: k8s.example.org:6443", "\n", "    address: 10.0.0.11\n", "", "~/.ssh/id_ed25519", "key", "~/.ssh/jump", "key",
		"kubeadm: kubeadm.yaml", "kubeadm: join.yaml", "site-ca.pem", "ca.pem", "other-ca.pem", "ca.pem", "\n  target: s3", "\n#", "\n  targetConfig:", "\n#").Replace(text)
	if _, err := spec.Read(directory(t, text)); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// The page has every field, and its first file is a cluster without warnings.
func TestReference(t *testing.T) {
	page, err := os.ReadFile("../../../docs/multi-host.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range spec.Fields() {
		if !regexp.MustCompile("`([a-z]+\\.)?" + name + "`").Match(page) {
			t.Errorf("docs/multi-host.md has no field %s", name)
		}
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, rest, _ := strings.Cut(text, "```")
	_, inline, _ := strings.Cut(rest, "```yaml\n---\n")
	inline, _, _ = strings.Cut("---\n"+inline, "```")
	text = strings.Replace(text, "~/.ssh/id_ed25519", "key", 1)
	if c := read(t, text+inline); len(c.Warnings) > 0 || len(c.Hosts) != 5 {
		t.Errorf("%+v", c)
	}
}

func TestEveryFieldHasARule(t *testing.T) {
	if names := spec.WithoutRule(); len(names) > 0 {
		t.Errorf("fields of document without a rule: %s", names)
	}
}

// Each value matters: another one is an error or another cluster.
func TestEveryValueIsUsed(t *testing.T) {
	before := read(t, whole)
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(whole), &doc); err != nil {
		t.Fatal(err)
	}
	_, inline, _ := strings.Cut(whole, "\n---\n")
	var mutate func(n *yaml.Node)
	check := func(n *yaml.Node, what string) {
		var out bytes.Buffer
		if err := yaml.NewEncoder(&out).Encode(&doc); err != nil {
			t.Fatal(err)
		}
		c, err := spec.Read(directory(t, out.String()+"---\n"+inline))
		if err == nil && equal(c, before) {
			t.Errorf("line %d: %s changes nothing", n.Line, what)
		}
	}
	mutate = func(n *yaml.Node) {
		for i, child := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 0 || child.Kind == yaml.ScalarNode && child.Tag == "!!bool" {
				continue
			}
			mutate(child)
		}
		switch n.Kind {
		case yaml.ScalarNode:
			for _, value := range []string{"x7", "7", "\x01"} {
				old := n.Value
				n.Value = value
				check(n, "writing "+value+" instead of "+old)
				n.Value = old
			}
		case yaml.MappingNode:
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "nope"}, &yaml.Node{Kind: yaml.ScalarNode, Value: "x"})
			check(n, "adding a field")
			n.Content = n.Content[:len(n.Content)-2]
		case yaml.SequenceNode:
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "nope", Tag: "!!str"})
			check(n, "adding an item")
			n.Content = n.Content[:len(n.Content)-1]
		}
	}
	mutate(&doc)
}

// equal compares clusters of files in different directories, with other lines.
func equal(a, b *spec.Cluster) bool {
	plain := func(c *spec.Cluster) *spec.Cluster {
		copied := *c
		copied.Digest, copied.Hosts = "", slices.Clone(c.Hosts)
		for i := range copied.Hosts {
			h := &copied.Hosts[i]
			h.Line, h.Patches, h.SSH.KeyFile = 0, filepath.Base(h.Patches), filepath.Base(h.SSH.KeyFile)
			h.SSH.Jump = slices.Clone(h.SSH.Jump)
			for j := range h.SSH.Jump {
				h.SSH.Jump[j].KeyFile = filepath.Base(h.SSH.Jump[j].KeyFile)
			}
		}
		copied.Groups = slices.Clone(c.Groups)
		for i := range copied.Groups {
			if check := copied.Groups[i].Roll.Check; len(check) > 0 {
				copied.Groups[i].Roll.Check = append([]string{filepath.Base(check[0])}, check[1:]...)
			}
		}
		return &copied
	}
	return reflect.DeepEqual(plain(a), plain(b))
}
