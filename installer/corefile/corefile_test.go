package corefile

import (
	"strings"
	"testing"
)

const edited = `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes site.example in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    forward . 10.0.0.1
    cache 30
    loop
    reload
    loadbalance
}
`

func TestMigrate(t *testing.T) {
	m, err := Migrate("v1.11.1", "v1.11.3", edited)
	if err != nil || m.Changed(edited) || len(m.Unknown) > 0 {
		t.Errorf("%+v, %v", m, err)
	}
	// Removed: upstream in the plugin kubernetes (1.7.0).
	old := strings.Replace(edited, "pods insecure", "pods insecure\n       upstream", 1)
	m, err = Migrate("v1.6.7", "v1.11.1", old)
	if err != nil || !m.Changed(old) || strings.Contains(m.Corefile, "upstream") || !strings.Contains(m.Corefile, "site.example") || len(m.Changes) == 0 {
		t.Errorf("%+v, %v", m, err)
	}
	other := strings.Replace(edited, "    loop\n", "    unbound\n    loop\n", 1)
	m, err = Migrate("v1.11.1", "v1.11.3", other)
	if err != nil || m.Changed(other) || len(m.Unknown) != 1 || !strings.Contains(m.Unknown[0], "unbound") {
		t.Errorf("%+v, %v", m, err)
	}
	for _, bad := range []struct{ from, to, corefile string }{
		{"v1.11.1", "v99.1.1", edited},
		{"v0.0.1", "v1.11.1", edited},
	} {
		if m, err := Migrate(bad.from, bad.to, bad.corefile); err == nil || m.Corefile != bad.corefile {
			t.Errorf("%q: %+v, %v", bad, m, err)
		}
	}
	if m, err := Migrate("v1.14.6", "v1.14.6", "not read"); err != nil || m.Changed("not read") {
		t.Error(m, err)
	}
}

func TestIsDefault(t *testing.T) {
	upstream := strings.NewReplacer("site.example", "cluster.local", "forward . 10.0.0.1", "prometheus :9153\n    forward . /etc/resolv.conf {\n       max_concurrent 1000\n    }").Replace(edited)
	if !IsDefault(upstream) || IsDefault(edited) {
		t.Error(IsDefault(upstream), IsDefault(edited))
	}
}
