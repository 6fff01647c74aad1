package overview

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/installer/endpoint/vip"
	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
	"airlift/installer/status"
)

var now = time.Date(2026, 11, 29, 15, 0, 0, 0, time.UTC)

// secrets are texts that no report may have.
var secrets = []string{"abcdef.0123456789abcdef", "s3cr3t-user", "eyJhbGciOiJSUzI1NiJ9"}

// names are the names of generated hosts: some are odd, some as long as a name can be.
var names = []string{"cp1", "cp2", "<script>alert(1)</script>", "w1", `"><img src=http://evil.example/x>`, strings.Repeat("long-name-", 25) + "0", "w-ü", "w7", "\u202ew8"}

// generated is a report about n hosts, of which down do not answer: the first one if odd is set, and else the last ones.
func generated(n, down int, odd bool) *Report {
	planes := 1
	if n >= 5 {
		planes = 3
	}
	named := func(i int) string {
		if odd {
			return names[i]
		}
		return fmt.Sprintf("host-%d", i+1)
	}
	isDown := func(i int) bool { return odd && i == 0 && down > 0 || i > n-1-down }
	c := &facts.Cluster{Name: "plant", Version: "v1.37.1", ControlPlaneEndpoint: "10.0.0.9:6443", VIP: []string{"10.0.0.9"}, Balancer: true}
	etcd := &status.Etcd{}
	holder := ""
	for i := range n {
		c.Nodes = append(c.Nodes, facts.ClusterNode{Name: named(i), ControlPlane: i < planes, Ready: !isDown(i), Version: "v1.37.1", Unschedulable: i == 4})
		if i < planes {
			etcd.Members = append(etcd.Members, status.EtcdMember{Name: named(i), Healthy: !isDown(i), Leader: holder == "" && !isDown(i)})
			if !isDown(i) && holder == "" {
				holder = named(i)
			}
		}
	}
	s := &Site{Name: "plant"}
	if odd {
		s.Name = "<script>"
		c.Nodes = append(c.Nodes, facts.ClusterNode{Name: "<b>stranger</b>", Ready: true, Version: "v1.36.0"})
	}
	r := &Report{Site: s, Time: now, File: "v1.38.0", Findings: map[string][]Finding{}, NoFindings: map[string]string{}}
	zero := 0
	for i := range n {
		h := Host{Name: named(i), Role: spec.Worker, Group: spec.Worker, Address: fmt.Sprintf("10.0.0.%d", 10+i)}
		if i < planes {
			h.Role, h.Group = spec.ControlPlane, spec.ControlPlane
		} else if i%3 == 0 {
			h.Group = "canary"
		}
		if isDown(i) {
			h.Error, h.Hint = "dial tcp "+h.Address+":22: no route to host, as "+secrets[1]+"@", "see the address: ping "+h.Address
			h.Error = strings.ReplaceAll(h.Error, secrets[1]+"@", "https://"+secrets[1]+"@10.0.0.1/")
			s.Hosts = append(s.Hosts, h)
			continue
		}
		began, ended := now.Add(-time.Hour).Add(time.Duration(i)*20*time.Second), now.Add(-time.Hour).Add(time.Duration(i+1)*25*time.Second)
		h.Facts = &facts.Facts{OS: "Debian GNU/Linux 12 (bookworm)", Node: &facts.Node{Name: h.Name, Role: h.Role, Version: "v1.37.1", KubeletRunning: true},
			Runs: []facts.Run{{Command: "etcd snapshot", Began: now.Add(-72 * time.Hour), Ended: &now, ExitCode: &zero}, {Command: "upgrade node", Began: began, Ended: &ended, ExitCode: &zero}}}
		if i == n-1 {
			failed := 1
			h.Facts.Runs[1].ExitCode = &failed
		}
		st := &status.Status{Versions: status.Versions{Host: status.HostVersions{Containerd: "2.4.2", Runc: "1.4.0"}}, Node: status.Node{OS: "Debian GNU/Linux 12 (bookworm)", Kernel: "6.1.0-41-amd64"}}
		if i < planes {
			h.Facts.Cluster, st.Etcd = c, etcd
			st.Endpoint = &status.Endpoint{VIP: &vip.Status{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.9")}, Held: h.Name == holder}}
			st.LastBackup = &status.Backup{Path: "/var/backups/<airlift>/snapshot-20261129T030000Z.tar.age", Time: now.Add(-12 * time.Hour), Size: 12 << 20}
			for j, name := range []string{"apiserver", "admin.conf", "ca", "etcd-server"} {
				st.Certificates = append(st.Certificates, status.Certificate{Name: name, Expires: now.Add(time.Duration(j*40+i+3) * 24 * time.Hour)})
			}
			for k := range n {
				if isDown(k) {
					st.Problems = append(st.Problems, status.Problem{Part: "api", Name: status.OtherNodeNotReady, Message: "the node " + named(k) + " is not Ready: kubelet stopped posting", Fix: "on that host: ./install status"})
				}
			}
		}
		if i%2 == 1 {
			st.Warnings = append(st.Warnings, status.Problem{Part: driftPart, Message: "/var/lib/kubelet/config.yaml was edited by hand with " + secrets[0], Fix: "to drop it: ./install reconfigure node --restore"})
			st.Drift = []status.Drift{{Name: "/var/lib/kubelet/config.yaml", Cause: status.Edited, Diff: "+token " + secrets[2]}}
		}
		h.Status, h.Problems, h.Warnings, h.Drift = st, st.Problems, st.Warnings, st.Drift
		r.Findings[h.Name] = []Finding{{What: "the file system at /var is full: 3 of 40000 MB are free, " + secrets[2] + ".e30.x", Why: "etcd, containerd and the kubelet stop or lose data if they cannot write", Fix: "du -xh /var | sort -h | tail"}}
		s.Hosts = append(s.Hosts, h)
	}
	s.Complete()
	if down > 1 {
		r.NoPlan = errors.New("1 problem, and nothing was changed:\n  " + named(n-1) + ": does not answer")
		return r
	}
	r.Plan = &plan.Plan{Rest: []plan.Rest{{Outcome: "held", What: named(0) + " is <in> the cluster", Hint: "remove it"}}, Notes: []string{"a note"}}
	for i := range n {
		r.Plan.Stages = append(r.Plan.Stages, plan.Stage{Name: "upgrade worker", Actions: []plan.Action{{Host: named(i), Verb: plan.Upgrade, From: "v1.37.1", To: "v1.38.0", Why: "follows the file", Effect: plan.Drain,
			Files: []facts.FileChange{{Name: "/etc/kubernetes/manifests/kube-apiserver.yaml", Diff: "--- a\n+++ b\n@@ -1 +1 @@\n-    - --audit-log-path=" + strings.Repeat("/x", 90) + "\n+    - <b>\n"}}}}})
	}
	return r
}

// sections are the parts that each report has.
var sections = []string{"wrong", "topology", "versions", "certificates", "backups", "drift", "plan", "doctor", "timeline"}

// all calls try with reports about 1 to 9 hosts, some of which are down.
func all(try func(name string, r *Report)) {
	for n := 1; n <= 9; n++ {
		for down := 0; down <= min(n, 3); down++ {
			for _, odd := range []bool{false, true} {
				try(fmt.Sprintf("%d hosts, %d down, odd names %v", n, down, odd), generated(n, down, odd))
			}
		}
	}
}

// TestHTML: each report has all parts and all hosts, no markup of others, no secret and nothing from elsewhere.
func TestHTML(t *testing.T) {
	all(func(name string, r *Report) {
		text := string(r.HTML())
		for _, id := range sections {
			if !strings.Contains(text, `<section id="`+id+`">`) {
				t.Errorf("%s: no section %s", name, id)
			}
		}
		for _, h := range r.Site.Hosts {
			if !strings.Contains(text, "<h4>"+esc(h.Name)+"</h4>") {
				t.Errorf("%s: no host %q", name, h.Name)
			}
		}
		for _, bad := range slices.Concat(secrets, []string{"<script", "<img", "<b>stranger", "<in>", "<airlift>", "\u202e", "<link", "@import", "url(", "%!"}) {
			if strings.Contains(text, bad) {
				t.Errorf("%s: %q in\n%s", name, bad, text)
			}
		}
	})
}

// TestPicture: who has the address, who leads etcd, what is down and why is in the text, and a consequence is not.
func TestPicture(t *testing.T) {
	r := generated(5, 1, false)
	var b strings.Builder
	if err := r.Site.Write(&b, false); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"cluster plant: 4 of 5 hosts are Ready, 1 problem, 1 warning\n", "10.0.0.9 is on host-1\n", "3 of 3 members are healthy, the leader is host-1\n",
		"CONTROL PLANES  STATE", "  host-1        Ready      v1.37.1  etcd leader, 10.0.0.9", "WORKERS, GROUP CANARY\n", "! host-5        no answer  v1.37.1",
		"\nhost-5 does not answer: dial tcp", "\nhost-2, host-4: drift: /var/lib/kubelet/config.yaml",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "the node host-5 is not Ready") {
		t.Errorf("a consequence of host-5 in\n%s", text)
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("%q", text)
	}
}

// TestDeadControlPlane: the picture comes from the others, and what the dead one had moved.
func TestDeadControlPlane(t *testing.T) {
	s := generated(5, 1, true).Site // the first control plane is down
	if s.VIPOn != "cp2" || s.EtcdLeader != "cp2" || s.Healthy {
		t.Errorf("%+v", s)
	}
	if got := s.etcd(); got != "2 of 3 members are healthy, the leader is cp2" {
		t.Error(got)
	}
	if got := s.Hosts[0].serves(); got != "etcd is down" {
		t.Error(got)
	}
}

// TestWorkersHaveNoSay: what a worker reports of others is a claim.
func TestWorkersHaveNoSay(t *testing.T) {
	r := generated(5, 0, false)
	w := &r.Site.Hosts[4]
	w.Facts.Cluster = &facts.Cluster{Nodes: []facts.ClusterNode{{Name: "evil"}}}
	w.Status.Etcd = &status.Etcd{Members: []status.EtcdMember{{Name: w.Name, Leader: true}}}
	w.Status.Endpoint = &status.Endpoint{VIP: &vip.Status{Held: true}}
	for i := range 3 {
		h := &r.Site.Hosts[i]
		h.Error, h.Facts, h.Status, h.Problems = "no answer", nil, nil, nil
	}
	r.Site.Complete()
	if s := r.Site; s.VIPOn != "" || s.EtcdLeader != "" || len(s.Others) > 0 || s.Version != "" {
		t.Errorf("%+v", s)
	}
}

// TestScreen: the text fits, whatever the size; hosts that need attention stay.
// TestOverloadedHost: a host that answers no question in time is one line, with what it answered last; its other problems stay.
func TestOverloadedHost(t *testing.T) {
	s := generated(5, 0, false).Site
	h := &s.Hosts[1]
	h.Problems = nil
	for i, part := range []string{"api", "etcd", "images", "addOns", "manifests", "drift", "versions", "etcd"} {
		h.Problems = append(h.Problems, status.Problem{Part: part, Message: fmt.Sprintf("Get \"https://10.0.0.11:6443/%d\": read tcp 10.0.0.11:4%04d->10.0.0.11:6443: i/o timeout", i, i)})
	}
	h.Problems = append(h.Problems, status.Problem{Part: "certificates", Message: "apiserver expires in 3 days", Fix: "renew it"},
		status.Problem{Part: "endpoint", Name: "vip", Message: "the virtual address gives no answer within 2s"})
	s.Complete()
	var b strings.Builder
	if err := s.Write(&b, false); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if n := strings.Count(text, "timeout"); n != 1 || !strings.Contains(text, h.Name+": api, etcd, images, addOns, manifests, drift, versions: 8 questions got no answer in time; the last one: Get \"https://10.0.0.11:6443/7\"") {
		t.Errorf("%d timeouts in\n%s", n, text)
	}
	if !strings.Contains(text, "apiserver expires in 3 days") || !strings.Contains(text, "the virtual address gives no answer") || !strings.Contains(text, "3 problems") {
		t.Error(text)
	}
	if len(h.Problems) != 10 {
		t.Errorf("-o json has %d problems", len(h.Problems))
	}
}

func TestScreen(t *testing.T) {
	all(func(name string, r *Report) {
		for _, size := range [][2]int{{40, 8}, {80, 24}, {200, 60}} {
			text := r.Site.Screen(now, size[0], size[1], false)
			lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			if len(lines) > size[1] {
				t.Errorf("%s, %v: %d lines", name, size, len(lines))
			}
			for _, line := range lines {
				if n := len([]rune(line)); n > size[0] {
					t.Errorf("%s, %v: %d columns: %s", name, size, n, line)
				}
			}
		}
	})
	if text := generated(9, 1, false).Site.Screen(now, 80, 18, false); !strings.Contains(text, "! host-9") || !strings.Contains(text, "that are Ready") || strings.Contains(text, "\n  host-1 ") {
		t.Error(text)
	}
}

// TestChanges: a change is a line, and what only grows is none.
func TestChanges(t *testing.T) {
	was, is := generated(5, 0, false).Site, generated(5, 1, false).Site
	got := strings.Join(is.Changes(was), "\n")
	if !strings.Contains(got, "host-5: Ready, cordoned → no answer: dial tcp") || strings.Contains(got, "version") {
		t.Error(got)
	}
	if got := strings.Join(was.Changes(is), "\n"); got != "host-5: no answer → Ready, cordoned" {
		t.Error(got)
	}
	if list := was.Changes(generated(5, 0, false).Site); len(list) > 0 {
		t.Error(list)
	}
	for _, c := range []struct {
		was, is string
		changes int
	}{
		{"the certificate apiserver expires in 12d", "the certificate apiserver expires in 11d", 0},
		{"the database has 1.9 GB, its limit is 2.0 GB", "the database has 2 GB, its limit is 2.0 GB", 0},
		{"no answer for 1m30s", "no answer for 2m5.5s", 0},
		{"the node w1 is not Ready", "the node w2 is not Ready", 2},
		{"10.0.0.1 is closed", "10.0.0.2 is closed", 2},
	} {
		var list []string
		news(&list, "h", "problem", []status.Problem{{Message: c.was}}, []status.Problem{{Message: c.is}})
		if len(list) != c.changes {
			t.Errorf("%q to %q: %q", c.was, c.is, list)
		}
	}
}

// TestLastRun: commands that follow each other are one run; a timer's snapshot is none.
func TestLastRun(t *testing.T) {
	zero := 0
	one := func(command string, began, ended time.Duration) facts.Run {
		end := now.Add(ended)
		return facts.Run{Command: command, Began: now.Add(began), Ended: &end, ExitCode: &zero}
	}
	s := &Site{Hosts: []Host{
		{Name: "a", Facts: &facts.Facts{Runs: []facts.Run{one("init", -9*time.Hour, -8*time.Hour), one("upgrade apply", -65*time.Minute, -61*time.Minute), one(snapshot, -2*time.Minute, -time.Minute)}}},
		{Name: "b", Facts: &facts.Facts{Runs: []facts.Run{one("upgrade node", -60*time.Minute, -50*time.Minute)}}},
		{Name: "c", Error: "off"},
	}}
	var got []string
	for _, b := range s.lastRun(now) {
		got = append(got, b.host+" "+b.run.Command)
	}
	if strings.Join(got, ", ") != "b upgrade node, a upgrade apply" {
		t.Error(got)
	}
	s.Hosts[1].Facts.Runs = append(s.Hosts[1].Facts.Runs, facts.Run{Command: "join", Began: now.Add(-time.Minute)})
	if bars := s.lastRun(now); len(bars) != 2 || bars[0].ends != now {
		t.Errorf("%+v", bars)
	}
}
