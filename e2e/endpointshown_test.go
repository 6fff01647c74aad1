//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// showsEndpoint breaks the endpoint in one way at a time, and looks at what status and doctor show of it.
func showsEndpoint(t *testing.T, s *site.Site, planes []*lab.Host, worker *lab.Host) {
	healthy := func(t *testing.T, hosts ...*lab.Host) {
		t.Helper()
		for _, h := range hosts {
			eventually(t, 2*time.Minute, func() string {
				if now := look(t, h); now.code != 0 || len(now.suspicions) > 0 {
					return fmt.Sprintf("%s: %+v", h.Name, now)
				}
				return ""
			})
		}
	}
	healthy(t, s.Hosts...)
	h := holder(t, planes)
	others := slices.DeleteFunc(slices.Clone(planes), func(o *lab.Host) bool { return o == h })
	on := fmt.Sprintf("%s on %s (%s)", virtual, h.Name, h.Addr)
	contains(t, install(t, h, 0, "status"), "endpoint      "+virtual+" on this host (eth0) for ", "airlift-endpoint")
	for _, o := range others {
		contains(t, install(t, o, 0, "status"), "endpoint      "+on+" for ")
		contains(t, install(t, o, 0, "endpoint", "status"), fmt.Sprintf("%s: on %s (%s), since ", virtual, h.Name, h.Addr))
	}
	text := install(t, worker, 0, "status")
	t.Log(text)
	for _, o := range planes {
		contains(t, text, fmt.Sprintf("%s:6443 ready", o.Addr))
	}

	change := func(from, to string) string {
		return "sed -i 's/" + from + "/" + to + "/' /etc/kubernetes/endpoint.yaml"
	}
	lost := others[1].Addr.String() + ":6443"
	drop := fmt.Sprintf(" INPUT -s %s -p tcp --dport 6443 -j DROP", worker.Addr)
	for _, c := range []struct {
		name                string
		broken              *lab.Host
		breaks, repairs     string
		seen                *lab.Host // where status and doctor run
		suspicion, saw, fix string
		code                int // exit code of status
	}{
		{"the service is stopped", worker, "systemctl stop airlift-endpoint", "systemctl start airlift-endpoint", worker, "component-airlift-endpoint", "inactive", "systemctl start airlift-endpoint", 1},
		{"the service is disabled", worker, "systemctl -q disable airlift-endpoint", "systemctl -q enable airlift-endpoint", worker, "endpoint-disabled", "next boot", "systemctl enable airlift-endpoint", 0},
		{"other settings than the cluster's", others[0], change(virtual, "10.77.0.101"), change("10.77.0.101", virtual), others[0], "endpoint-settings", "10.77.0.101", "./install", 1},
		{"names that the certificate has not", others[0], change(virtual, "10.77.0.101"), change("10.77.0.101", virtual), others[0], "endpoint-certificate", "is not valid for 10.77.0.101", "./install endpoint node", 1},
		{"a wrong subnet", others[0], change(virtual, "192.0.2.1"), change("192.0.2.1", virtual), others[0], "preflight-ControlPlaneVIP", "192.0.2.1", "subnet", 1},
		{"a closed port", others[1], "iptables -I" + drop, "iptables -D" + drop, worker, "endpoint-api-server", lost, "TCP 6443", 0},
		{"all ports are closed", worker, "iptables -I OUTPUT -p tcp --dport 6443 -j DROP", "iptables -D OUTPUT -p tcp --dport 6443 -j DROP", worker, "endpoint-no-api", "reaches none of 3 API servers", "./install status", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, c.broken, "sh", "-ec", c.breaks)
			eventually(t, 90*time.Second, func() string {
				now := look(t, c.seen)
				for _, one := range now.suspicions {
					if now.code == c.code && one.Name == c.suspicion && strings.Contains(one.Saw, c.saw) && strings.Contains(one.Fix, c.fix) && one.Why != "" {
						t.Logf("%+v", one)
						return ""
					}
				}
				return fmt.Sprintf("%+v", now)
			})
			run(t, c.broken, "sh", "-ec", c.repairs)
			healthy(t, c.broken, c.seen)
		})
	}
	t.Run("another host has the address", func(t *testing.T) {
		h := holder(t, planes)
		run(t, worker, "ip", "address", "add", virtual+"/32", "dev", "eth0")
		eventually(t, time.Minute, func() string {
			now := look(t, h)
			if !now.has("endpoint-conflict") {
				return fmt.Sprintf("%+v", now)
			}
			t.Logf("%+v", now.suspicions)
			return ""
		})
		run(t, worker, "ip", "address", "del", virtual+"/32", "dev", "eth0")
		run(t, h, "systemctl", "restart", "airlift-endpoint") // its warning stays for an hour
		holder(t, planes)
		healthy(t, planes...)
	})
	t.Run("no quorum", func(t *testing.T) {
		h := holder(t, planes)
		others := slices.DeleteFunc(slices.Clone(planes), func(o *lab.Host) bool { return o == h })
		for _, o := range others {
			run(t, o, "pkill", "-STOP", "-x", "etcd")
		}
		eventually(t, time.Minute, func() string {
			now := statusOf(t, h)
			for _, p := range now.Problems {
				if p.Name == "endpoint-nowhere" && strings.Contains(p.Message, virtual) {
					t.Log(p.Message)
					return ""
				}
			}
			return fmt.Sprintf("%+v", now)
		})
		for _, o := range others {
			run(t, o, "pkill", "-CONT", "-x", "etcd")
		}
		healthy(t, planes...)
	})
	for _, h := range s.Hosts {
		run(t, h, "rm", "-rf", "/root/doctor")
	}
	systemIsUp(t, s, 4)
}
