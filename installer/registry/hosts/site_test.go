package hosts_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/registry/hosts"
	"airlift/installer/render"
)

// drawRegistries draws what the flags of init, join and "registry mirrors" may mean. The registries are sorted by their names.
func drawRegistries(t *rapid.T) (list []config.Registry) {
	access := func() (a config.RegistryAccess) {
		if rapid.Bool().Draw(t, "ca") {
			a.CA = certificate
		}
		if rapid.Bool().Draw(t, "auth") {
			a.Authorization = rapid.SampledFrom([]string{"Basic secret", "Basic terces"}).Draw(t, "password")
		}
		return a
	}
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"quay.io", "docker.io", "site.example:5000", config.DefaultRegistry}), 0, 4, rapid.ID).Draw(t, "registries")
	slices.Sort(names)
	for _, name := range names {
		r := config.Registry{Host: name, RegistryAccess: access()}
		for _, raw := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"https://m1.example:5000", "https://m2.example/v2/hub"}), 0, 2, rapid.ID).Draw(t, "mirrors") {
			u, err := url.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			r.Mirrors = append(r.Mirrors, config.RegistryMirror{URL: u, RegistryAccess: access()})
		}
		if r.Mirrors == nil && r.CA == nil && r.Authorization == "" {
			r.CA = certificate // the flags name no registry without one of the three
		}
		list = append(list, r)
	}
	return list
}

// tree returns the files and directories of containerd's configuration of registries, with their modes. Links to the root of the
// host are the same on each host.
func (s site) tree(t *rapid.T) map[string]string {
	found := map[string]string{}
	dir := s.Path(render.RegistriesDir)
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil || name == dir {
			return err
		}
		text := ""
		if !e.IsDir() {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text = strings.ReplaceAll(string(data), string(s.Root), "ROOT")
		}
		found[strings.TrimPrefix(name, dir)] = info.Mode().String() + " " + text
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return found
}

var errKilled = errors.New("killed")

// setRegistries is what the command does. before may stop it at each change of the host.
func setRegistries(h *host.Host, list []config.Registry) error {
	c, err := hosts.NewSiteChange(h, list)
	if err == nil {
		err = c.Apply(h)
	}
	return err
}

// TestAnySetReplacesAnother: after any sets of registries, with runs that were killed at any change and an embedded registry that
// comes and goes, a node has the files of a new node that got only the last set. Its record is that of the set. A run that was killed
// leaves no record that equals another set.
func TestAnySetReplacesAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp("", "hosts")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(root)
		for _, dir := range []string{"a", "b"} {
			if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		s := open(t, filepath.Join(root, "a"), "10.0.0.1", "10.0.0.2")
		var list []config.Registry
		var embedded []string
		killed := false
		for range rapid.IntRange(1, 4).Draw(t, "sets") {
			before := list
			list = drawRegistries(t)
			at := rapid.IntRange(0, 40).Draw(t, "killed at")
			s.GuardChanges(func(_ string, do func() error) error {
				if at--; at == 0 {
					return errKilled
				}
				return do()
			})
			err := setRegistries(s.Host, list)
			killed = errors.Is(err, errKilled)
			if err != nil && !killed {
				t.Fatal(err)
			}
			s.GuardChanges(nil)
			if s.Host, err = host.Open(string(s.Root)); err != nil {
				t.Fatal(err)
			}
			record, err := hosts.SiteRecord(s.Host)
			if err != nil {
				t.Fatal(err)
			}
			if changes := record.Changes(list); !killed && len(changes) > 0 {
				t.Fatalf("the host has the registries, and its record differs: %q", changes)
			}
			if killed && len(record.Changes(list)) > 0 && len(record.Changes(before)) > 0 && len(record.Changes(nil)) > 0 && !strings.Contains(record.String(), "did not finish") {
				t.Fatalf("killed, and the record is %s", record)
			}
			if rapid.Bool().Draw(t, "embedded registry") {
				embedded = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"quay.io", "registry.k8s.io"}), 0, 2, rapid.ID).Draw(t, "its registries")
				s.apply(t, embedded...)
			}
		}
		if killed {
			if err := setRegistries(s.Host, list); err != nil {
				t.Fatal(err)
			}
		}
		if again, err := hosts.NewSiteChange(s.Host, list); err != nil || !again.Empty() || len(again.Left) > 0 {
			t.Fatalf("a repeated run changes %+v, %v", again, err)
		}
		s.apply(t, embedded...)
		fresh := open(t, filepath.Join(root, "b"), "10.0.0.1", "10.0.0.2")
		if err := setRegistries(fresh.Host, list); err != nil {
			t.Fatal(err)
		}
		fresh.apply(t, embedded...)
		if has, want := s.tree(t), fresh.tree(t); !maps.Equal(has, want) {
			t.Fatalf("the node has %v\na new node has %v", has, want)
		}
	})
}

// TestRemovedSetKeepsTheEmbeddedRegistry: from the moment at which a mirror leaves, containerd asks the control planes for the images of the
// embedded registry as before, and no file of the site is missing that a file names.
func TestRemovedSetKeepsTheEmbeddedRegistry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp("", "hosts")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(root)
		s := open(t, root, "10.0.0.1", "10.0.0.2")
		if err := setRegistries(s.Host, drawRegistries(t)); err != nil {
			t.Fatal(err)
		}
		s.apply(t, "quay.io", "registry.k8s.io")
		planes := []string{"https://10.0.0.1:7444/v2", "https://10.0.0.2:7444/v2"}
		if err := setRegistries(s.Host, nil); err != nil {
			t.Fatal(err)
		}
		for _, registry := range []string{"quay.io", "registry.k8s.io"} {
			asked := first(s.asks(t, registry))
			slices.Sort(asked[:min(2, len(asked))]) // each node begins with another one
			if len(asked) < 2 || !slices.Equal(asked[:2], planes) {
				t.Fatalf("%s: containerd asks %q", registry, asked)
			}
		}
		for _, u := range first(s.asks(t, "docker.io")) {
			if strings.Contains(u, "example") {
				t.Fatalf("containerd asks %s", u)
			}
		}
	})
}

// TestFilesOfOthersStay: what Airlift did not write, or someone edited, stays and is named, with the certificates that it names.
func TestFilesOfOthersStay(t *testing.T) {
	u, err := url.Parse("https://m.example")
	if err != nil {
		t.Fatal(err)
	}
	wanted := []config.Registry{{Host: "quay.io", Mirrors: []config.RegistryMirror{{URL: u}}, RegistryAccess: config.RegistryAccess{CA: certificate}}}
	const file, ca = render.RegistriesDir + "/quay.io/hosts.toml", render.RegistriesDir + "/quay.io/quay.io.pem"
	for name, c := range map[string]struct {
		before []config.Registry
		put    map[string]string // "" appends to the file
		set    []config.Registry
		left   string
		kept   []string
	}{
		"a file":                   {nil, map[string]string{file: "# mine\n"}, wanted, file, []string{file}},
		"certificates":             {nil, map[string]string{render.RegistriesDir + "/quay.io/my.crt": "x"}, wanted, render.RegistriesDir + "/quay.io", []string{render.RegistriesDir + "/quay.io/my.crt"}},
		"an edited file stays":     {wanted, map[string]string{file: ""}, wanted, file, []string{file, ca}},
		"an edited file that goes": {wanted, map[string]string{file: ""}, nil, file, []string{file, ca}},
		"an edited certificate":    {wanted, map[string]string{ca: ""}, wanted, ca, []string{file, ca}},
		"of another registry":      {wanted, map[string]string{render.RegistriesDir + "/other.example/hosts.toml": "# mine\n"}, nil, "", []string{render.RegistriesDir + "/other.example/hosts.toml"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			if c.before != nil {
				if err := setRegistries(s.Host, c.before); err != nil {
					t.Fatal(err)
				}
			}
			for path, text := range c.put {
				if text == "" {
					text = s.text(t, path) + "# mine\n"
				}
				s.put(t, path, text)
			}
			before := map[string]string{}
			for _, path := range c.kept {
				before[path] = s.text(t, path)
			}
			change, err := hosts.NewSiteChange(s.Host, c.set)
			if err != nil {
				t.Fatal(err)
			}
			if err := change.Apply(s.Host); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(change.Left); c.left == "" && len(change.Left) > 0 || c.left != "" && got != fmt.Sprint([]string{c.left}) {
				t.Errorf("left %s", got)
			}
			for path, text := range before {
				if text == "" || s.text(t, path) != text {
					t.Errorf("%s changed: %q", path, s.text(t, path))
				}
			}
			if again, err := hosts.NewSiteChange(s.Host, c.set); err != nil || !again.Empty() {
				t.Errorf("a repeated run changes %+v, %v", again, err)
			}
		})
	}
}

// TestRecordOfAnEarlierVersion: files without a record are no registries that cluster.yaml could have; no files are none.
func TestRecordOfAnEarlierVersion(t *testing.T) {
	s := open(t, t.TempDir(), "10.0.0.1")
	s.apply(t, "quay.io")
	if r, err := hosts.SiteRecord(s.Host); err != nil || r != nil {
		t.Errorf("only the embedded registry: %s, %v", r, err)
	}
	u, err := url.Parse("https://m.example")
	if err != nil {
		t.Fatal(err)
	}
	list := []config.Registry{{Host: "quay.io", Mirrors: []config.RegistryMirror{{URL: u}}}}
	if err := setRegistries(s.Host, list); err != nil {
		t.Fatal(err)
	}
	s.apply(t, "quay.io")
	if err := os.Remove(s.Path(hosts.RecordPath)); err != nil {
		t.Fatal(err)
	}
	r, err := hosts.SiteRecord(s.Host)
	if err != nil || len(r.Changes(list)) == 0 || len(r.Changes(nil)) == 0 {
		t.Errorf("files of an earlier version: %s, %v", r, err)
	}
	if err := os.WriteFile(s.Path(hosts.RecordPath), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := hosts.SiteRecord(s.Host); err == nil {
		t.Error("a damaged record is accepted")
	}
}

// TestRecordIsForRoot: the record has the key of the digest of passwords.
func TestRecordIsForRoot(t *testing.T) {
	s := open(t, t.TempDir())
	if err := setRegistries(s.Host, []config.Registry{{Host: "quay.io", RegistryAccess: config.RegistryAccess{Authorization: "Basic secret"}}}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(s.Path(hosts.RecordPath))
	if err != nil || info.Mode().Perm() != 0o600 || strings.Contains(s.text(t, hosts.RecordPath), "secret") {
		t.Errorf("%v %v\n%s", info.Mode(), err, s.text(t, hosts.RecordPath))
	}
}
