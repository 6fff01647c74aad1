package run_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/installer/backup/target"
	"airlift/installer/config"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
	"airlift/scripts/fixtures/modelsite"
)

// sent counts copies of the whole file.
func sent(w *modelsite.World) (n int) {
	for _, line := range w.Seen {
		if strings.HasPrefix(line, "send /var/lib/airlift/cluster/whole") {
			n++
		}
	}
	return n
}

// Without the embedded registry, each host gets the whole file, which is removed after use.
func TestWithoutRegistry(t *testing.T) {
	c := aCluster()
	c.EmbeddedRegistry = false
	w := modelsite.New(c)
	applied(t, w, c, aFile(t, oldVersion), oldVersion)
	state := applied(t, w, c, aFile(t, newVersion), newVersion)
	if w.Registry || strings.Contains(state, "/whole") {
		t.Error(state)
	}
}

// The registry is turned on in cluster.yaml after the cluster was installed without it, whatever the order of the hosts. Only
// the control plane that leads gets the whole file, and first.
func TestRegistryIsTurnedOn(t *testing.T) {
	c, file := aCluster(), aFile(t, oldVersion)
	slices.Reverse(c.Hosts[:3]) // the leader is not the first
	c.EmbeddedRegistry = false
	w := modelsite.New(c)
	applied(t, w, c, file, oldVersion)
	before := sent(w)
	c.EmbeddedRegistry = true
	if state := applied(t, w, c, file, oldVersion); !w.Registry || strings.Contains(state, "/whole") || sent(w) != before+1 {
		t.Errorf("%d copies of the whole file\n%s", sent(w)-before, state)
	}
}

// The same together with a newer file: no control plane keeps it while it is unpacked.
func TestRegistryIsTurnedOnByAnUpgrade(t *testing.T) {
	c := aCluster()
	c.EmbeddedRegistry = false
	w := modelsite.New(c)
	applied(t, w, c, aFile(t, oldVersion), oldVersion)
	c.EmbeddedRegistry = true
	if state := applied(t, w, c, aFile(t, newVersion), newVersion); !w.Registry || strings.Contains(state, "/whole") {
		t.Error(state)
	}
}

// A driver that is killed while the registry is turned on with a newer file is continued by another one.
func TestKilledWhileTheRegistryIsTurnedOn(t *testing.T) {
	file, newer := aFile(t, oldVersion), aFile(t, newVersion)
	without, with := aCluster(), aCluster()
	without.EmbeddedRegistry = false
	installed := modelsite.New(without)
	applied(t, installed, without, file, oldVersion)
	want := applied(t, installed.Clone(), with, newer, newVersion)
	for how := 1; how <= 3; how++ {
		for n := 1; ; n++ {
			w := installed.Clone()
			if !killedAt(t, w, with, newer, newVersion, n, how) {
				break
			}
			if state := applied(t, w, with, newer, newVersion); withoutTokens(state) != withoutTokens(want) {
				t.Fatalf("killed at command %d (%d):\n%s\nwant\n%s", n, how, state, want)
			}
		}
	}
}

// Hosts get the patches that were checked: in subdirectories, and behind links.
func TestPatchesInSubdirectories(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"kubeletconfiguration.yaml", "etcd/etcd.yaml"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("maxPods: 50\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("kubeletconfiguration.yaml", filepath.Join(dir, "kubeletconfiguration1.yaml")); err != nil {
		t.Fatal(err)
	}
	c := aCluster()
	c.Hosts[3].Patches = dir
	w := modelsite.New(c)
	applied(t, w, c, aFile(t, oldVersion), oldVersion)
	for _, name := range []string{"kubeletconfiguration.yaml", "kubeletconfiguration1.yaml", "etcd/etcd.yaml"} {
		if w.Hosts["w1"].Files["/var/lib/airlift/cluster/patches/"+name] == "" {
			t.Errorf("%s was not sent", name)
		}
	}
}

// Each host gets the registries of the file, whenever the driver is killed. Their files are there only for the command, and no
// password is in an argument.
func TestRegistriesOfTheSite(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"ca.pem", "auth.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("hunter2"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mirror := config.RegistryMirror{URL: &url.URL{Scheme: "https", Host: "m.example"}, RegistryAccess: config.RegistryAccess{CA: []byte("hunter2"), Authorization: "Basic hunter2"}}
	list := []config.Registry{{Host: "docker.io", Mirrors: []config.RegistryMirror{mirror}}}
	without, with, none := aCluster(), aCluster(), aCluster()
	with.Registries = &spec.Registries{List: list, Flags: config.RegistryFlags{
		Mirrors: []string{"docker.io=https://m.example"}, CAs: []string{"m.example=" + filepath.Join(dir, "ca.pem")}, Auth: filepath.Join(dir, "auth.json"),
	}}
	none.Registries = &spec.Registries{}
	file := aFile(t, oldVersion)
	check := func(w *modelsite.World, c *spec.Cluster, killed bool) {
		t.Helper()
		// A run that was killed leaves the files on a host that has all.
		if state := applied(t, w, c, file, oldVersion); strings.Contains(state, "cluster/registries") && !killed {
			t.Fatal(state)
		}
		for name, m := range w.Hosts {
			if changes := m.Registries.Changes(c.Registries.List); len(changes) > 0 {
				t.Fatalf("%s differs: %q", name, changes)
			}
		}
		if seen := strings.Join(w.Seen, "\n"); strings.Contains(seen, "hunter2") || !strings.Contains(seen, "registry mirrors --registry-mirror docker.io=https://m.example --registry-ca m.example=/var/lib/airlift/cluster/registries/ca-1.pem --registry-auth") {
			t.Fatal(seen)
		}
	}
	w := modelsite.New(with) // hosts that join
	w.Registries = list
	check(w, with, false)
	w.Registries = nil
	check(w, none, false)
	installed := modelsite.New(without)
	applied(t, installed, without, file, oldVersion)
	for how := 1; how <= 3; how++ {
		for n := 1; ; n++ {
			w := installed.Clone()
			w.Registries = list
			if !killedAt(t, w, with, file, oldVersion, n, how) {
				break
			}
			check(w, with, true)
		}
	}
}

// Credentials do not stay on a host: after Ctrl-C, the files of registries are removed; those of the target of backups are never written,
// so a driver that is killed leaves none either.
func TestCredentialsStayNowhere(t *testing.T) {
	const canary = "hunter2"
	dir := t.TempDir()
	auth, credentials := filepath.Join(dir, "auth.json"), filepath.Join(dir, "target.yaml")
	for name, text := range map[string]string{auth: canary, credentials: "apiVersion: airlift/v1\nkind: BackupTarget\ns3: {endpoint: 'https://s3.site.example', accessKey: me, secretKey: " + canary + "}\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	without, with := aCluster(), aCluster()
	mirror := config.RegistryMirror{URL: &url.URL{Scheme: "https", Host: "m.example"}, RegistryAccess: config.RegistryAccess{Authorization: "Basic " + canary}}
	with.Registries = &spec.Registries{List: []config.Registry{{Host: "docker.io", Mirrors: []config.RegistryMirror{mirror}}}, Flags: config.RegistryFlags{Mirrors: []string{"docker.io=https://m.example"}, Auth: auth}}
	with.Backups = &spec.Backups{On: true, Target: "s3://backups/plant", Config: credentials, Digest: "d1ge5t", Every: time.Hour, Keep: 3, TimeZone: "UTC", Recipients: []string{"age1x"}}
	file := aFile(t, oldVersion)
	start := func() *modelsite.World {
		w := modelsite.New(without)
		applied(t, w, without, file, oldVersion)
		w.Registries, w.BackupMark = with.Registries.List, target.Mark(with.Backups.Digest)
		return w
	}
	check := func(w *modelsite.World, what string, registries bool) {
		t.Helper()
		if seen := strings.Join(w.Seen, "\n"); strings.Contains(seen, canary) {
			t.Fatalf("%s: %s", what, seen)
		}
		for name, m := range w.Hosts {
			for path, text := range m.Files {
				if strings.Contains(text, canary) && (registries || !strings.HasPrefix(path, plan.RegistriesDir)) {
					t.Fatalf("%s: %s is left on %s", what, path, name)
				}
			}
		}
	}
	whole := start()
	applied(t, whole, with, file, oldVersion)
	check(whole, "applied", true)
	if !strings.Contains(strings.Join(whole.Seen, "\n"), "etcd snapshot s3://backups/plant --every 1h0m0s") {
		t.Fatal(strings.Join(whole.Seen, "\n"))
	}
	for n := 1; ; n++ {
		w := start()
		before, interrupted := w.Commands, false
		ctx, cancel := context.WithCancel(t.Context())
		w.Kill = func(now int) int {
			if now-before == n {
				interrupted = true
				cancel()
			}
			return 0
		}
		_ = (&driver{w: w, c: with, file: file, version: oldVersion}).apply(ctx)
		cancel()
		check(w, fmt.Sprint("Ctrl-C at command ", n), true)
		if !interrupted {
			break
		}
	}
	for how := 1; how <= 3; how++ {
		for n := 1; ; n++ {
			w := start()
			if !killedAt(t, w, with, file, oldVersion, n, how) {
				break
			}
			check(w, fmt.Sprintf("killed at command %d (%d)", n, how), false)
		}
	}
}
