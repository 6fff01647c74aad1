package preflight

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/profile"
	"airlift/scripts/fixtures/rig"
)

// TestEtcdUser: before init changes the host, it knows whether the user of etcd can be created, and does not ask in other clusters.
func TestEtcdUser(t *testing.T) {
	for _, c := range []struct {
		name, passwd, group string
		ldap                []string // what getent finds
		tool, plain         bool
		want                []string // in the fixes
	}{
		{name: "nothing yet", tool: true},
		{name: "no tool", want: []string{"groupadd --system etcd; useradd --system --gid etcd"}},
		{name: "no tool, plain", plain: true},
		{name: "of a package, no tool", passwd: "etcd:x:52:53::/:/bin/false\n", group: "etcd:x:53:\n"},
		{name: "a group of another number", passwd: "etcd:x:52:53::/:/bin/false\n", group: "etcd:x:54:\n"},
		{name: "no group", passwd: "etcd:x:52:53::/:/bin/false\n", tool: true},
		{name: "all in LDAP", ldap: []string{"passwd", "group"}, tool: true, want: []string{"getent passwd etcd >>/etc/passwd", "getent group etcd >>/etc/group"}},
		{name: "all in LDAP, plain", ldap: []string{"passwd", "group"}, plain: true},
		{name: "the group in LDAP", passwd: "etcd:x:52:53::/:/bin/false\n", ldap: []string{"passwd", "group"}, tool: true, want: []string{"getent group etcd >>/etc/group"}},
		{name: "copied from LDAP", passwd: "etcd:x:52:53::/:/bin/false\n", group: "etcd:x:53:\n", ldap: []string{"passwd", "group"}},
		{name: "root", passwd: "etcd:x:0:0::/:/bin/false\n", group: "etcd:x:53:\n", want: []string{"another number"}},
	} {
		s := healthy(t)
		if !c.plain {
			if _, err := profile.Apply(profile.Hardened, s.Config); err != nil {
				t.Fatal(err)
			}
		}
		write(t, s.Root, "/etc/passwd", "root:x:0:0::/:/bin/sh\n"+c.passwd)
		write(t, s.Root, "/etc/group", "root:x:0:\n"+c.group)
		if c.tool {
			write(t, s.Root, "/usr/bin/systemd-sysusers", "")
		}
		s.run = func(_ context.Context, name string, args ...string) ([]byte, error) {
			for _, database := range c.ldap {
				if name == "getent" && args[0] == database && args[1] == "etcd" {
					return []byte("etcd:*:70001:70001\n"), nil
				}
			}
			return nil, errNoCommand
		}
		problems := s.etcdUser(t.Context())
		if len(problems) != len(c.want) {
			t.Errorf("%s: %+v", c.name, problems)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(problems[i].Fix, want) || problems[i].Warning {
				t.Errorf("%s: %+v, want %s", c.name, problems[i], want)
			}
		}
	}
}

// TestEtcdOwnsItsData: the data of a hardened cluster belongs to the user of etcd, and to no other one, nor in another cluster.
func TestEtcdOwnsItsData(t *testing.T) {
	rig.Root(t)
	for _, c := range []struct {
		profile string
		owner   int
		fine    bool
	}{{profile.Hardened, 52, true}, {profile.Hardened, 0, true}, {profile.Hardened, 1001, false}, {"", 52, false}, {"", 0, true}} {
		s := healthy(t)
		if _, err := profile.Apply(c.profile, s.Config); err != nil {
			t.Fatal(err)
		}
		write(t, s.Root, "/etc/passwd", "root:x:0:0::/:/bin/sh\netcd:x:52:53::/:/bin/false\n")
		write(t, s.Root, "/etc/group", "root:x:0:\netcd:x:53:\n")
		const data = "/var/lib/etcd"
		s.Config.Etcd.Local.DataDir = data
		write(t, s.Root, data+"/member/snap/db", "")
		if err := os.Chown(filepath.Join(s.Root, data), c.owner, c.owner); err != nil {
			t.Fatal(err)
		}
		if found := s.dirOwner(t.Context()); (len(found) == 0) != c.fine {
			t.Errorf("profile %q, owner %d: %+v", c.profile, c.owner, found)
		}
	}
}
