package preflight

import (
	"context"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/profile"
	"airlift/internal/fault"
)

// EtcdUser is the check of the user etcd for a control plane of a running cluster that gets the configuration c.
func EtcdUser(ctx context.Context, c *config.Config, h *host.Host) []Problem {
	s := &subject{Target: Target{Config: c}, host: h}
	s.run = s.output
	found := s.etcdUser(ctx)
	for i := range found {
		found[i].Name = "EtcdUser"
	}
	return found
}

// etcdUser checks that the user who runs etcd in a hardened cluster exists in the host's own files, or can be created there.
func (s *subject) etcdUser(ctx context.Context) (found []Problem) {
	if !profile.Used(&s.Config.Cluster) {
		return nil
	}
	const name = host.EtcdAccount
	_, user, group, err := s.host.FindAccount(name)
	if err != nil {
		return Fail(fault.Hint(err), "%v", err)
	}
	for _, of := range []struct {
		known          bool
		database, what string
	}{{user, "passwd", "user"}, {group, "group", "group"}} {
		if of.known {
			continue
		}
		if _, err := s.run(ctx, "getent", of.database, name); err == nil { // it also asks LDAP
			file := "/etc/" + of.database
			found = append(found, Fail("getent "+of.database+" "+name+" >>"+file, "the %s %s is not in %s, but in another directory of users, such as LDAP: etcd must start without the network", of.what, name, file)...)
		}
	}
	if len(found) == 0 && !(user && group) && !s.inPath("systemd-sysusers") {
		return Fail(host.AddAccount(name), "the user or the group %s does not exist, and this host has no systemd-sysusers to create it", name)
	}
	return found
}
