package model

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/cluster/workloads"
	"airlift/installer/config"
	"airlift/installer/flow/endpointchange"
	"airlift/installer/flow/noderemove"
	"airlift/installer/flow/reconfigure"
	"airlift/installer/flow/upgrade"
	"airlift/installer/host"
	"airlift/installer/multihost/agent"
	"airlift/installer/multihost/remote"
	"airlift/installer/multihost/spec"
	"airlift/installer/payload"
	"airlift/installer/secrets"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// A driver is the machine on which 'cluster apply' runs. It connects to the hosts of the world, where its commands run the flows.
type driver struct {
	site   *Site
	bundle *payload.Bundle
	kill   context.CancelCauseFunc // ends what runs on the driver

	// Guarded by the lock of the world:
	crashAt int  // the change of a host before which that host, or the driver, loses its power; 0 for none
	dies    bool // it is the driver
	changes int  // of all hosts
	done    bool // the crash has happened
}

// errDriverDied is the end of a driver without power.
var errDriverDied = errors.New("the machine of the driver lost its power")

// disturb is called before each change that a command of the driver makes. It reports whether the host of the command loses its power.
// The caller holds w.mu.
func (d *driver) disturb() (crash bool) {
	d.changes++
	if d.done || d.changes != d.crashAt {
		return false
	}
	d.done = true
	if d.dies {
		d.kill(errDriverDied)
	}
	return !d.dies
}

// Dial is that of a run.Dialer.
func (d *driver) Dial(_ context.Context, h spec.Host) (remote.Conn, error) {
	for _, on := range d.site.hosts {
		if on.IP == h.SSH.Address && !on.off {
			return &login{driver: d, host: on, gone: make(chan struct{})}, nil
		}
	}
	return nil, fault.New(fault.Failure, "connecting to %s: no route to host", h.SSH.Address).Hint("if the host is off, leave it out: ./install cluster apply --skip " + h.Name)
}

// A login is the connection of a driver to a host.
type login struct {
	driver *driver
	host   *Host
	gone   chan struct{} // closed when the connection is lost
}

func (l *login) Close() error { return nil }

// lose ends the connection. The caller holds w.mu.
func (l *login) lose() {
	select {
	case <-l.gone:
	default:
		close(l.gone)
	}
}

// usable returns why nothing can begin in the connection.
func (l *login) usable(ctx context.Context) error {
	select {
	case <-l.gone:
		return &remote.LostError{Host: l.host.Name, Err: io.EOF}
	default:
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// Send copies a file whole, or not at all.
func (l *login) Send(ctx context.Context, f remote.File, moved func(int64)) (int64, error) {
	if err := l.usable(ctx); err != nil {
		return 0, err
	}
	data, err := io.ReadAll(io.NewSectionReader(f.Content, 0, f.Size))
	if err != nil {
		return 0, err
	}
	if moved != nil {
		moved(f.Size)
	}
	if l.host.read(f.Path) == string(data) {
		return 0, nil
	}
	return f.Size, l.host.put(f.Path, string(data), os.FileMode(f.Mode))
}

// Run runs a command on the host.
func (l *login) Run(ctx context.Context, c remote.Command) error {
	if err := l.usable(ctx); err != nil {
		return err
	}
	if slices.Contains(c.Args, "hold") {
		return l.hold(ctx, c)
	}
	var in []byte
	if c.Stdin != nil {
		var err error
		if in, err = io.ReadAll(c.Stdin); err != nil {
			return err
		}
	}
	var out bytes.Buffer
	err := l.command(ctx, c.Args, in, &out)
	if c.Stdout != nil {
		if _, err := c.Stdout.Write(out.Bytes()); err != nil {
			return err
		}
	}
	if why := l.usable(ctx); err != nil && why != nil {
		return why
	}
	return l.exit(err)
}

// exit returns the error of a command as the shell of a host does.
func (l *login) exit(err error) error {
	if exit := (*remote.ExitError)(nil); err == nil || errors.As(err, &exit) {
		return err
	}
	text := "error: " + err.Error()
	if hint := fault.Hint(err); hint != "" {
		text += "\nhint: " + hint
	}
	return &remote.ExitError{Host: l.host.Name, Code: int(fault.ExitCode(err)), Stderr: text}
}

// hold holds the lock of the driver on the host.
func (l *login) hold(ctx context.Context, c remote.Command) error {
	holder, last, release, err := host.LockForDriver(l.host.Root, flagOf(c.Args, "--who"), slices.Contains(c.Args, "--again"))
	if err != nil {
		return l.exit(err)
	}
	if release == nil && last.Who != "" {
		_ = json.NewEncoder(c.Stdout).Encode(agent.Held{Last: last})
		return l.exit(agent.HadError(last))
	}
	if release == nil {
		_ = json.NewEncoder(c.Stdout).Encode(agent.Held{Holder: holder})
		return l.exit(agent.HeldError(holder, time.Now()))
	}
	defer release()
	if err := json.NewEncoder(c.Stdout).Encode(agent.Held{Held: true, Holder: holder, Last: last}); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-l.gone:
		case <-ctx.Done():
		}
		end()
	}()
	beat, _ := time.ParseDuration(flagOf(c.Args, "--beat"))
	err = agent.Hold(ctx, host.OpenDamaged(l.host.Root), c.Stdin, beat)
	if why := l.usable(context.Background()); why != nil {
		return why
	}
	return l.exit(err)
}

// flagOf returns the value of a flag, "" without it.
func flagOf(args []string, name string) string {
	if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// command runs a command of the shell, or one of the installer on the host.
func (l *login) command(ctx context.Context, args []string, in []byte, out *bytes.Buffer) error {
	h := l.host
	switch args[0] {
	case "/bin/sh":
		return h.shell(args[2], out)
	case "rm":
		return os.RemoveAll(filepath.Join(h.Root, args[len(args)-1]))
	case "mv":
		return os.Rename(filepath.Join(h.Root, args[len(args)-2]), filepath.Join(h.Root, args[len(args)-1]))
	}
	if !h.exists(args[0]) {
		return &remote.ExitError{Host: h.Name, Code: 127, Stderr: args[0] + ": not found"}
	}
	args = args[1:]
	words := strings.Join(args, " ")
	reads := strings.HasPrefix(words, "cluster host facts") || strings.HasPrefix(words, "cluster host wait") || strings.HasPrefix(words, "preflight") || slices.Contains(args, "--plan")
	begin := h.begin
	if reads {
		begin = h.process
	}
	r, err := begin(0)
	if err != nil {
		return err
	}
	r.login, r.installer = l, h.world.installer(l.driver.bundle.Manifest.KubernetesVersion)
	defer context.AfterFunc(ctx, r.cancel)()
	defer r.end()
	if !reads {
		h.world.mu.Lock()
		h.driven++
		if u := h.seed; u != nil && !u.over() && len(u.runs) > 1 && u.runs[1] == h.current {
			h.world.violateLocked("a driver runs %s on %s while a seed runs a command there", words, h.Name)
		}
		defer func() {
			h.world.mu.Lock()
			defer h.world.mu.Unlock()
			h.driven--
		}()
		h.world.note("--- %s: ./install %s", h.Name, words)
		h.world.mu.Unlock()
	}
	checkVault, checkPackages := l.driver.site.beginVault(r, words), l.driver.site.beginPackages(r, words)
	text, err := l.driver.site.installed(r, l.driver.bundle, args, in, out)
	if e := errorsOf(checkVault(text, err), checkPackages(err)); e != nil {
		l.driver.site.violate("%v", e)
	}
	if settles(words) && r.changes > 0 {
		h.half = err != nil || r.disturbed
	}
	if err := l.driver.site.copyAccount(h, fault.Hint(err)); err != nil {
		return err
	}
	if !reads {
		fmt.Fprintf(&l.driver.site.report, "\n--- %s: ./install %s: %v (%d changes)\nhint: %s\n%s", h.Name, words, err, r.changes, fault.Hint(err), text)
		Reached.count(clusterApply+": "+strings.Join(args[:min(2, len(args))], " "), "", text, r.disturbed, err)
	}
	if r.disturbed {
		h.interrupted = clusterApply
	}
	return err
}

// shell does what the scripts of a driver do.
func (h *Host) shell(script string, out io.Writer) error {
	const state = "/var/lib/airlift"
	dir := filepath.Join(h.Root, state, "cluster")
	remove := func(pattern string) error {
		names, err := filepath.Glob(filepath.Join(h.Root, pattern))
		for _, name := range names {
			err = errors.Join(err, os.RemoveAll(name))
		}
		return err
	}
	emptied := func(dir string) { _ = os.Remove(filepath.Join(h.Root, dir)) } // rmdir
	switch {
	case strings.Contains(script, "uname -m"):
		fmt.Fprintln(out, "machine x86_64")
		if data := h.read(state + "/cluster/install"); data != "" {
			fmt.Fprintf(out, "has-installer\nsum %x\n", sha256.Sum256([]byte(data)))
		}
		fmt.Fprintln(out, "df /dev/vda 10485760 1 10485760 1% /\nmount /dev/vda / ext4 rw 0 0")
		return nil
	case strings.HasPrefix(script, "umask 077 && mkdir -p"):
		return os.MkdirAll(dir, 0o700)
	case strings.HasPrefix(script, "test -d"):
		return h.identify(out)
	case strings.HasPrefix(script, "umask 077 && rm -rf"):
		empty := filepath.Join(h.Root, strings.Fields(script)[5])
		return errors.Join(os.RemoveAll(empty), os.Mkdir(empty, 0o700))
	case strings.HasPrefix(script, "rm -rf"):
		err := errors.Join(os.RemoveAll(dir), remove("run/airlift-planned-patches.*"))
		emptied(state)
		return err
	case strings.HasPrefix(script, "rm -f") && strings.Contains(script, "next-*"):
		return errors.Join(remove(state+"/cluster/next-*"), remove(state+"/cluster/.next-*"))
	case strings.HasPrefix(script, "rm -f"):
		err := remove(strings.TrimSuffix(strings.Fields(script)[2], ";"))
		emptied(state + "/cluster")
		return err
	}
	return fmt.Errorf("the model does not know the script %q", script)
}

// identify prints what shows whose node the host is.
func (h *Host) identify(out io.Writer) error {
	brought := "brought"
	if h.exists("var/lib/airlift/cluster") {
		brought += " " + h.Name
	}
	var conf struct {
		Clusters []struct {
			Cluster struct {
				CA string `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if err := decodeYAML(h.read(kubeletConf), &conf); err != nil {
		return err
	}
	ca := ""
	if len(conf.Clusters) > 0 {
		ca = conf.Clusters[0].Cluster.CA
	}
	cert, _, _ := strings.Cut(h.read(kubeletCert), "-----BEGIN EC PRIVATE KEY")
	fmt.Fprintf(out, "%s\nca %s\ncert \n%s\nledger\n%s", brought, ca, cert, h.read("var/lib/airlift/ledger.json"))
	_, err := base64.StdEncoding.DecodeString(ca)
	return err
}

// installed runs a command of the installer. Documents go to out, and what people read is returned.
func (s *Site) installed(r *run, b *payload.Bundle, args []string, in []byte, out io.Writer) (string, error) {
	document := filepath.Join(filepath.Dir(r.host.Root), "stdin-"+r.host.Name+".yaml")
	if len(in) > 0 {
		if err := os.WriteFile(document, in, 0o600); err != nil {
			return "", err
		}
	}
	words := strings.Join(args, " ")
	is := func(verb string) bool { return words == verb || strings.HasPrefix(words, verb+" ") }
	switch {
	case is("cluster host"):
		return "", r.forDriver(args[2], args, in, out)
	case is("preflight"): // its checks need a real host
		fmt.Fprintln(out, `{"warnings":[],"errors":[]}`)
		return "", nil
	case is("init"):
		cfg, _, err := config.ReadInit(document)
		if err != nil {
			return "", err
		}
		cfg.Registry.Used = slices.Contains(args, "--embedded-registry")
		if slices.Contains(args, "--encrypt-secrets=true") {
			if err := secrets.Use(&cfg.Cluster); err != nil {
				return "", err
			}
		}
		r.profile = flagOf(args, "--profile")
		return r.initialise(b, cfg)
	case is("join"):
		cfg, _, err := config.ReadJoin(document)
		if err != nil {
			return "", err
		}
		return r.joins(b, cfg)
	case is("upgrade apply phase unpack"), is("upgrade node phase unpack"), is("upgrade apply phase registry"):
		return r.upgradePhase(b, args[1] == "node", args[3])
	case is("upgrade apply"):
		return r.upgrade(b, false)
	case is("upgrade node"):
		return r.upgrade(b, true)
	case is("upgrade undo"):
		return r.undo()
	case is("endpoint apply"):
		return r.endpoint(endpointApply, endpointchange.Options{Verb: endpointchange.Apply, ControlPlaneEndpoint: flagOf(args, "--control-plane-endpoint"), IgnorePreflightErrors: []string{"all"}})
	case is("endpoint node"):
		return r.endpoint(endpointNode, endpointchange.Options{Verb: endpointchange.Follow, IgnorePreflightErrors: []string{"all"}})
	case is("certs auto"):
		return r.autoRenew(slices.Contains(args, "--off"))
	case is("registry mirrors"):
		return r.mirrors(args)
	case is("registry enable"):
		return r.enableRegistry(b)
	case is("reconfigure"):
		return r.reconfigured(b, is("reconfigure node"), slices.Contains(args, "--plan"), flagOf(args, "--profile"), document, in, out)
	case is(secretsEnable), is(secretsDisable):
		return r.secrets(b, args[0]+" "+args[1])
	case is("node remove"):
		r.removes = args[2]
		return r.nodeRemove(noderemove.Options{Node: args[2], Drain: !slices.Contains(args, "--drain=false"), DrainTimeout: time.Minute, KeepNode: slices.Contains(args, "--keep-node")})
	case is("reset"):
		out, err := r.reset(true, slices.Contains(args, "--remove-node"))
		s.mu.Lock()
		defer s.mu.Unlock()
		if i := slices.Index(s.hosts, r.host); !s.yaml.hosts[i].in || s.yaml.hosts[i].address != r.host.IP { // nobody may reset another host
			s.forgetsLocked(r)
		}
		return out, err
	}
	return "", fmt.Errorf("the model has no command %q", words)
}

// forDriver runs a hidden command that serves drivers.
func (r *run) forDriver(name string, args []string, in []byte, out io.Writer) error {
	h, damaged := host.Open(r.root)
	if damaged != nil {
		h = host.OpenDamaged(r.root)
	}
	r.use(h)
	print := func(v any, err error) error {
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(v)
	}
	switch name {
	case "facts":
		f := agent.ReadFacts(r.ctx, h, damaged)
		f.Hostname, f.MACs, f.Addresses = r.host.Name, []string{"mac of " + r.host.Name}, []string{r.host.IP} // those of this process are the machine's
		return print(f, nil)
	case "reach":
		return agent.CheckReach(r.ctx, flagOf(args, "--endpoint"), strings.Split(flagOf(args, "--api-servers"), ","), time.Minute)
	}
	client, err := agent.Connect(h)
	if err != nil {
		return err
	}
	switch name {
	case "credentials":
		if slices.Contains(args, "--delete") {
			var made agent.Credentials
			if err := json.Unmarshal(in, &made); err != nil {
				return err
			}
			return print(agent.DeleteCredentials(r.ctx, client, made))
		}
		ttl, err := time.ParseDuration(flagOf(args, "--ttl"))
		if err != nil {
			return err
		}
		return print(agent.CreateCredentials(r.ctx, client, h, ttl, slices.Contains(args, "--control-plane")))
	case "nodes":
		var wanted []cluster.NodeMeta
		if err := json.Unmarshal(in, &wanted); err != nil {
			return err
		}
		return print(agent.SetNodes(r.ctx, client, wanted, false))
	case "gate":
		var change agent.GateChange
		if err := json.Unmarshal(in, &change); err != nil {
			return err
		}
		return print(change.Apply(r.ctx, client))
	case "wait":
		w := agent.Wait{Healthy: workloads.Healthy{Pods: true, Version: flagOf(args, "--version")}, Timeout: 5 * time.Minute}
		if err := json.Unmarshal(in, &struct {
			Nodes  *[]string
			Broken *map[string]int
		}{&w.Healthy.Nodes, &w.Healthy.Broken}); err != nil {
			return err
		}
		w.Report = func(missing []workloads.Lack) {
			_ = print(map[string]any{"time": time.Now().UTC(), "waitingFor": agent.Texts(missing), "nodes": agent.NodesOf(missing)}, nil)
		}
		return w.Until(r.ctx, client.API)
	}
	return fmt.Errorf("the model has no command cluster host %s", name)
}

// upgradePhase runs one phase of an upgrade.
func (r *run) upgradePhase(b *payload.Bundle, node bool, phase string) (string, error) {
	name := "upgrade apply phase " + phase
	if node {
		name = "upgrade node phase " + phase
	}
	return r.changing(name, b.Manifest.KubernetesVersion, func(h *host.Host, c *workflow.Console) error {
		o := upgrade.Options{Node: node}
		o.CertificateRenewal, o.EtcdUpgrade, o.Drain = true, true, true
		o.IgnorePreflightErrors = []string{"all"}
		run := upgrade.New(b, o, true, h, c)
		defer run.Close()
		return run.RunPhase(r.ctx, phase)
	})
}

// reconfigured changes the configuration with the documents in a file, or prints what would change.
func (r *run) reconfigured(b *payload.Bundle, node, plan bool, profile, document string, in []byte, out io.Writer) (string, error) {
	o := reconfigure.Options{Node: node, Profile: profile, IgnorePreflightErrors: []string{"NodesReady", "ControlPlaneNodesReady", "EtcdHealth"}}
	if len(in) > 0 {
		given, _, err := config.ReadReconfigure(document)
		if err != nil {
			return "", err
		}
		o.Given = given
	}
	if plan {
		h, err := host.Open(r.root)
		if err != nil {
			return "", err
		}
		r.use(h)
		p, err := reconfigure.ReadPlan(r.ctx, b, o, 3, h, &workflow.Console{Out: io.Discard, Results: io.Discard})
		if p == nil {
			return "", err
		}
		if err := json.NewEncoder(out).Encode(p); err != nil {
			return "", err
		}
		switch {
		case len(p.Refused)+len(p.Errors) > 0:
			return "", fault.New(fault.Preflight, "a running cluster cannot change it")
		}
		return "", err
	}
	name := "reconfigure"
	if node {
		name = reconfigureNode
	}
	return r.changing(name, b.Manifest.KubernetesVersion, func(h *host.Host, c *workflow.Console) error {
		run := reconfigure.New(b, o, h, c)
		defer run.Close()
		return run.Run(r.ctx)
	})
}
