package preflight

import (
	"context"
	"strings"
	"testing"

	"airlift/installer/profile"
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
