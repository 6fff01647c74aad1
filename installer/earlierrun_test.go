package installer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/fault"
	"airlift/installer/config"
)

// A second init without the file of the first one would replace etcd by an empty one. The API
// server may be down: nothing answers here.
func TestOtherEtcdIsRefused(t *testing.T) {
	external := func(c *config.Config) {
		c.Etcd.External = &config.ExternalEtcd{Endpoints: []string{"https://10.9.9.9:2379"}}
	}
	inData := func(c *config.Config) { c.Etcd.Local.DataDir = "/data/etcd" }
	same := func(*config.Config) {}
	for _, tt := range []struct {
		name        string
		first, then func(*config.Config)
		data        string // the directory that has etcd's data
		want        string
	}{
		{"the same", inData, inData, "/data/etcd", ""},
		{"the same with a slash", inData, func(c *config.Config) { c.Etcd.Local.DataDir = "/data/etcd/" }, "/data/etcd", ""},
		{"another directory", inData, same, "/data/etcd", "etcd is local, with its data in /data/etcd, and the requested value is local, with its data in /var/lib/etcd"},
		{"an external etcd", same, external, "/var/lib/etcd", "etcd is local, with its data in /var/lib/etcd, and the requested value is external"},
		{"another directory, before the first start", inData, same, "", ""},
	} {
		i := hostWith(t, tt.first)
		if tt.data != "" {
			if err := os.MkdirAll(i.host.Path(filepath.Join(tt.data, "member")), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		later := *i.config
		later.Etcd = config.Etcd{Local: config.LocalEtcd{DataDir: config.EtcdDataDir}}
		tt.then(&later)
		i.config, i.rerun = &later, true
		err := i.checkRunning(t.Context(), false)
		if (err == nil) != (tt.want == "") || err != nil && (fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
