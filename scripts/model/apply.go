package model

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"airlift/installer/host"
	"airlift/installer/multihost/live"
	"airlift/installer/multihost/plan"
	multihost "airlift/installer/multihost/run"
	"airlift/installer/multihost/seed"
	"airlift/installer/multihost/spec"
	"airlift/installer/profile"
	"airlift/installer/render"
	"airlift/internal/fault"
)

// Commands on the machine of a driver, and edits of its cluster.yaml. An edit concerns the host of the command.
const (
	clusterApply  = "cluster apply"
	clusterRemove = "cluster apply --remove"
	// clusterSkip is for a host that is off meanwhile.
	clusterSkip = "cluster apply --skip"
	// clusterOff does not leave a host out that is off meanwhile.
	clusterOff = "cluster apply with a host that is off"

	editHosts     = "edit cluster.yaml: the host is in it, or not"
	editRole      = "edit cluster.yaml: the role of the host"
	editName      = "edit cluster.yaml: the name of the host"
	editAddress   = "edit cluster.yaml: the address of the host"
	editEndpoint  = "edit cluster.yaml: the endpoint"
	editRegistry  = "edit cluster.yaml: the embedded registry"
	editDocuments = "edit cluster.yaml: kubeadm's documents"
	editRenewal   = "edit cluster.yaml: the renewal of certificates"
	editMirrors   = "edit cluster.yaml: the registries"
	editSecrets   = "edit cluster.yaml: the encryption of Secrets"
	editProfile   = "edit cluster.yaml: the profile"
	editLabels    = "edit cluster.yaml: the labels of the host"
)

// yamlEdits are the edits of cluster.yaml.
var yamlEdits = []string{editHosts, editRole, editName, editAddress, editEndpoint, editRegistry, editDocuments, editRenewal, editMirrors, editSecrets, editProfile, editLabels}

// applies reports whether a command is 'cluster apply'.
func applies(command string) bool { return strings.HasPrefix(command, clusterApply) }

// A clusterYAML is a cluster.yaml, as far as the model edits it.
type clusterYAML struct {
	hosts     []yamlHost
	endpoint  string
	registry  bool
	documents int
	renewal   int // 0: not in the file
	mirrors   int // 0: not in the file; 1: none; then two mirrors, and another password for the last one
	secrets   int // 0: not in the file; 1: encrypted; 2: not encrypted
	profile   int // 0: not in the file; 1: hardened; 2: none
}

type yamlHost struct {
	name, role, address string
	in, labelled        bool
}

// newYAML returns a cluster.yaml with the hosts of the site. The first three are control planes.
func (s *Site) newYAML() *clusterYAML {
	y := &clusterYAML{endpoint: Endpoint}
	for i, h := range s.hosts {
		role := spec.Worker
		if i < 3 && len(s.hosts) > 2 || i == 0 {
			role = spec.ControlPlane
		}
		y.hosts = append(y.hosts, yamlHost{name: h.Name, role: role, address: h.IP, in: true})
	}
	return y
}

// edit changes the file. number is that of the host, from 1.
func (y *clusterYAML) edit(command string, number int) {
	h := &y.hosts[number-1]
	other := func(now *string, one, two string) {
		if *now == one {
			*now = two
		} else {
			*now = one
		}
	}
	switch command {
	case editHosts:
		h.in = !h.in
	case editRole:
		other(&h.role, spec.Worker, spec.ControlPlane)
	case editName:
		other(&h.name, fmt.Sprintf("host%d", number), fmt.Sprintf("other%d", number))
	case editAddress: // that of its neighbour
		other(&h.address, fmt.Sprintf("10.0.0.%d", number), fmt.Sprintf("10.0.0.%d", number%len(y.hosts)+1))
	case editEndpoint:
		other(&y.endpoint, Endpoint, otherEndpoint)
	case editRegistry:
		y.registry = !y.registry
	case editDocuments:
		y.documents = (y.documents + 1) % 3
	case editRenewal:
		y.renewal = 1 + y.renewal%2
	case editMirrors:
		y.mirrors = 1 + y.mirrors%4
	case editSecrets:
		y.secrets = 1 + y.secrets%2
	case editProfile:
		y.profile = 1 + y.profile%2
	case editLabels:
		h.labelled = !h.labelled
	}
}

// text returns the file.
func (y *clusterYAML) text() (string, error) {
	var hosts []map[string]any
	for i, h := range y.hosts {
		if !h.in {
			continue
		}
		one := map[string]any{"name": h.name, "role": h.role, "address": h.address, "nodeIP": h.address, "match": map[string]string{"serial": serial(i + 1)}}
		if h.labelled {
			one["labels"] = map[string]string{"zone": "a"}
		}
		hosts = append(hosts, one)
	}
	file := map[string]any{
		"apiVersion": "airlift/v1", "kind": "Cluster", "name": "site", "hosts": hosts, "embeddedRegistry": y.registry, "endpoint": map[string]any{"address": y.endpoint + ":6443"},
	}
	if y.renewal > 0 {
		file["certificates"] = map[string]any{"autoRenew": y.renewal == 1}
	}
	if y.secrets > 0 {
		file["encryptSecrets"] = y.secrets == 1
	}
	if y.profile > 0 {
		file["profile"] = []string{spec.Hardened, spec.NoProfile}[y.profile-1]
	}
	if y.mirrors > 0 {
		file["registries"] = y.registries()
	}
	data, err := yaml.Marshal(file)
	text := string(data)
	if y.documents > 0 {
		text += fmt.Sprintf("---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nscheduler: {extraArgs: [{name: v, value: %q}]}\n", fmt.Sprint(y.documents+3))
	}
	return text, err
}

// mirrorPassword is the password in the file of credentials.
func (y *clusterYAML) mirrorPassword() string { return fmt.Sprint("correct horse ", y.mirrors) }

// registries are the registries of the site.
func (y *clusterYAML) registries() map[string]any {
	if y.mirrors == 1 {
		return map[string]any{}
	}
	list := map[string]any{"mirrors": map[string]any{"docker.io": fmt.Sprintf("https://m%d.example", min(y.mirrors, 3))}}
	if y.mirrors > 2 {
		list["auth"] = "auth.json"
	}
	return list
}

// hasMirrors fails unless a host has the registries of the file, if the file has some, and nothing else of a driver's.
func (y *clusterYAML) hasMirrors(h *Host) error {
	const file = render.RegistriesDir + "/docker.io/hosts.toml"
	text := h.read(file)
	mirror := strings.Contains(text, fmt.Sprintf("https://m%d.example", min(y.mirrors, 3)))
	secret := strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("u:"+y.mirrorPassword())))
	if y.mirrors > 0 && !h.foreign && (mirror != (y.mirrors > 1) || secret != (y.mirrors > 2)) {
		return fmt.Errorf("cluster apply has succeeded with registries %d, and %s of %s has %q", y.mirrors, file, h.Name, text)
	}
	if h.exists(plan.RegistriesDir) {
		return fmt.Errorf("cluster apply has succeeded, and %s has %s", h.Name, plan.RegistriesDir)
	}
	return nil
}

// decodeYAML decodes a file that may be missing.
func decodeYAML(text string, into any) error { return yaml.Unmarshal([]byte(text), into) }

// editYAML edits cluster.yaml.
func (s *Site) editYAML(c Command) {
	if s.yaml == nil {
		s.yaml = s.newYAML()
	}
	s.yaml.edit(c.Name, c.Host)
}

// runApply runs 'cluster apply'. If a host or the driver lost its power meanwhile, it runs again.
func (s *Site) runApply(c Command) error {
	if s.yaml == nil {
		s.yaml = s.newYAML()
	}
	s.worked = nil
	disturbed, err := s.applyOnce(c)
	for _, h := range s.hosts {
		if e := s.keeps(h); e != nil {
			return e
		}
	}
	if disturbed {
		s.Crashes++
		if c.Left {
			return nil
		}
		s.reboot()
		time.Sleep(2 * time.Minute) // the lock of a driver without power ends
		c.Crash = 0
		_, err = s.applyOnce(c)
	}
	for _, h := range s.hosts {
		if e := s.keeps(h); e != nil {
			return e
		}
	}
	if err != nil {
		return checkApplyError(err)
	}
	return s.applied(c)
}

// checkApplyError is checkError for errors that have a hint for each host.
func checkApplyError(err error) error {
	if strings.Contains(err.Error(), "hint: ") || strings.Contains(fault.Hint(err), "cluster.yaml") || fault.ExitCode(err) == fault.Usage {
		return nil
	}
	return checkError(err)
}

// applyOnce runs 'cluster apply' once. disturbed reports whether a host or the driver lost its power meanwhile.
func (s *Site) applyOnce(c Command) (disturbed bool, err error) {
	ctx, kill := context.WithCancelCause(s.ctx)
	defer kill(nil)
	d := &driver{site: s, bundle: s.bundles[c.File], kill: kill, crashAt: c.Crash, dies: c.Full}
	s.mu.Lock()
	s.Runs++
	s.note("--- %s", c)
	s.mu.Unlock()
	off := s.hosts[c.Host-1]
	if c.Name == clusterSkip || c.Name == clusterOff {
		off.powerOff()
		defer off.boot()
	} else {
		off = nil
	}
	out := &strings.Builder{}
	planned, err := s.apply(ctx, d, c, off, out)
	if err != nil && planned == nil && d.changes > 0 && !d.done {
		s.violate("cluster apply refuses, and has changed something: %v", err)
	}
	if strings.Contains(out.String()+fmt.Sprint(err), "correct horse") {
		s.violate("a password is in the output of cluster apply")
	}
	Reached.count(c.Name, "", out.String(), d.done, err)
	fmt.Fprintf(&s.report, "\n=== %s: %v (%d changes)\nhint: %s\n%s", c, err, d.changes, fault.Hint(err), out)
	return d.done, err
}

// apply does what the command does: it reads the file, gathers facts, makes a plan, checks and executes it. The plan is nil if it was
// refused.
func (s *Site) apply(ctx context.Context, d *driver, c Command, off *Host, out *strings.Builder) (p *plan.Plan, err error) {
	described, err := s.describe()
	if err != nil {
		return nil, err
	}
	sent, err := multihost.NewFile(ctx, d.bundle.File)
	if err != nil {
		return nil, err
	}
	defer sent.Close()
	site := &multihost.Site{Cluster: described, File: sent, Dialer: d, Display: live.New(out, true), Parallel: 10, Who: "driver", Skip: map[string]bool{}}
	defer site.Close()
	var skip []string
	if c.Name == clusterSkip {
		for i, h := range s.hosts {
			if h == off && s.yaml.hosts[i].in {
				skip, site.Skip[s.yaml.hosts[i].name] = []string{s.yaml.hosts[i].name}, true
			}
		}
	}
	if err := site.Gather(ctx, false); err != nil {
		return nil, err
	}
	defer site.Discard(ctx)
	remove := c.Name == clusterRemove
	if remove {
		if err := site.GatherLeavers(ctx); err != nil {
			return nil, err
		}
	}
	compute := func() (*plan.Plan, error) {
		in := plan.Input{Spec: described, Answers: site.Answers(), Version: d.bundle.Manifest.KubernetesVersion, Bundle: d.bundle.File.ID(), Arch: "amd64",
			Options: plan.Options{Remove: remove, Skip: skip, Parallel: site.Parallel}}
		in.Changes = site.Changes(ctx, plan.Questions(in))
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		p, problems := plan.Make(in)
		if len(problems) > 0 {
			var lines []string
			for _, one := range problems {
				lines = append(lines, fmt.Sprintf("%s: %s: %s\nhint: %s", one.Host, one.What, one.Why, one.Hint))
			}
			return nil, fault.New(fault.Preflight, "nothing was changed: %s", strings.Join(lines, "; "))
		}
		return p, nil
	}
	if p, err = compute(); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(out, p.Text(0, false)); err != nil {
		return nil, err
	}
	if len(p.Stages) == 0 {
		return p, p.Outcome()
	}
	if _, err := site.Preflight(ctx, p); err != nil {
		return nil, err
	}
	made := p
	err = site.Execute(ctx, p, func() error {
		now, err := compute()
		if err == nil {
			err = plan.Same(made, now)
		}
		return err
	})
	if err != nil {
		return p, fault.Wrap(err, fault.ExitCode(err), cmpHint(err))
	}
	left, err := compute()
	if err != nil {
		return p, err
	}
	return p, left.Outcome()
}

// describe writes the cluster.yaml of the site with its files, and reads it.
func (s *Site) describe() (*spec.Cluster, error) {
	text, err := s.yaml.text()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(filepath.Dir(s.hosts[0].Root), "cluster.yaml")
	auth := fmt.Sprintf(`{"auths": {"m3.example": {"username": "u", "password": %q}}}`, s.yaml.mirrorPassword())
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.WriteFile(filepath.Join(filepath.Dir(file), "auth.json"), []byte(auth), 0o600)); err != nil {
		return nil, err
	}
	return spec.Read(file)
}

// cmpHint is the hint of an error, or the one of the command.
func cmpHint(err error) string {
	if hint := fault.Hint(err); hint != "" {
		return hint
	}
	return "solve the problem, and run the same command again: it continues"
}

// applied fails if the cluster is not as cluster.yaml has it, or if a second run would change something.
func (s *Site) applied(c Command) error {
	for i, h := range s.hosts {
		y := s.yaml.hosts[i]
		switch {
		case y.in && y.address != h.IP:
		case y.in && !h.exists(kubeletConf) && c.Name != clusterSkip:
			return fmt.Errorf("cluster apply has succeeded, and %s is no node", h.Name)
		case y.in && c.Name != clusterSkip:
			if err := s.running(h, false); err != nil {
				return fmt.Errorf("%s: %w", h.Name, err)
			}
		}
	}
	if c.Name == clusterSkip || c.Name == clusterOff {
		return nil
	}
	if err := s.reachesKubelets(); err != nil {
		return err
	}
	for i, h := range s.hosts {
		s.mu.Lock()
		timer := h.unit("airlift-certs-renew.timer").active
		s.mu.Unlock()
		if y := s.yaml.hosts[i]; y.in && y.role == spec.ControlPlane && s.yaml.renewal > 0 && timer != (s.yaml.renewal == 1) {
			return fmt.Errorf("cluster apply has succeeded, and the timer of %s is active: %t", h.Name, timer)
		}
		if s.yaml.hosts[i].in && s.yaml.hosts[i].address == h.IP {
			if err := s.yaml.hasMirrors(h); err != nil {
				return err
			}
		}
	}
	if err := s.hasSecrets(); err != nil {
		return err
	}
	for i, h := range s.hosts {
		if y := s.yaml.hosts[i]; y.in && y.address == h.IP {
			if err := s.yaml.hasProfile(h, y.role == spec.ControlPlane); err != nil {
				return err
			}
			if s.yaml.profile == 2 && s.before[h.Name]["/etc/passwd"] != h.files()["/etc/passwd"] {
				return fmt.Errorf("cluster apply has taken the profile away, and /etc/passwd of %s has %q", h.Name, h.read("etc/passwd"))
			}
		}
	}
	before := s.states()
	c.Crash = 0
	if _, err := s.applyOnce(c); err != nil {
		return fmt.Errorf("a second cluster apply fails: %w", err)
	}
	if list := differing(before, s.states()); len(list) > 0 {
		slices.Sort(list)
		return fmt.Errorf("a second cluster apply changes %v", list)
	}
	return nil
}

// hasSecrets fails unless etcd has all Secrets as the file has it.
func (s *Site) hasSecrets() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.api()
	byProfile := s.yaml.secrets == 0 && s.yaml.profile == 1
	ofSite := slices.ContainsFunc(s.hosts, func(h *Host) bool {
		return strings.Contains(h.read("etc/kubernetes/manifests/kube-apiserver.yaml"), "encryption-provider-config=/encryption/")
	})
	if c == nil || s.yaml.secrets == 0 && !byProfile || byProfile && ofSite { // it stays
		return nil
	}
	for key, value := range c.data {
		if want := s.yaml.secrets == 1 || byProfile; strings.HasPrefix(key, "secrets/") && strings.HasPrefix(value, "k8s:enc:secretbox:") != want {
			return fmt.Errorf("cluster apply has succeeded, Secrets are to be encrypted: %t, and etcd has %s as %.40q", want, key, value)
		}
	}
	return nil
}

// hasProfile fails unless a host has what the profile of the file gives it.
func (y *clusterYAML) hasProfile(h *Host, controlPlane bool) error {
	if y.profile == 0 {
		return nil
	}
	const kubelet, server = "var/lib/kubelet/config.yaml", "etc/kubernetes/manifests/kube-apiserver.yaml"
	values := [][2]string{{kubelet, "protectKernelDefaults: true"}, {kubelet, "serverTLSBootstrap: true"}}
	if controlPlane {
		values = append(values, [][2]string{{server, "--audit-policy-file=" + profile.Dir}, {server, "--kubelet-certificate-authority=/"},
			{"etc/kubernetes/manifests/kube-scheduler.yaml", "--profiling=false"}, {"etc/kubernetes/manifests/etcd.yaml", "runAsNonRoot: true"}, {"etc/passwd", host.EtcdAccount + ":"}}...)
	}
	for _, v := range values {
		if has := strings.Contains(h.read(v[0]), v[1]); has != (y.profile == 1) && !h.isAdopted() && (v[0] != "etc/passwd" || y.profile == 1) {
			return fmt.Errorf("cluster apply has succeeded with profile %d, and %s of %s has %q: %t", y.profile, v[0], h.Name, v[1], has)
		}
	}
	return nil
}

// states are the states of all hosts.
func (s *Site) states() map[string]string {
	all := map[string]string{}
	for _, h := range s.hosts {
		for name, sum := range h.state() {
			all[h.Name+" "+name] = sum
		}
	}
	return all
}

// powerOff takes the power from a host.
func (h *Host) powerOff() {
	h.off = true
	for _, name := range []string{seed.Unit, "kubelet.service", "containerd.service"} {
		_ = h.stop(name)
	}
	h.kill(func(*pod) bool { return true }, false)
	h.world.mu.Lock()
	h.cutSpeaker()
	h.world.mu.Unlock()
	time.Sleep(2 * nodeGrace) // its node counts as down
}

// boot starts what the host starts by itself.
func (h *Host) boot() {
	h.off = false
	for _, name := range []string{"containerd.service", "kubelet.service", seed.Unit} {
		if h.unit(name).enabled && h.unitFile(name) != "" {
			_ = h.start(name)
		}
	}
}
