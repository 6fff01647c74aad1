package phases

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"airlift/installer/config"
	"airlift/installer/host/systemd"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testhost"
)

// running is the systemd of a host on which each unit runs since a time.
type running struct {
	systemd.Conn
	since     time.Time
	restarted int
}

func (r *running) Close() {}

func (r *running) ReloadContext(context.Context) error { return nil }

func (r *running) GetUnitPropertyContext(_ context.Context, _, name string) (*dbus.Property, error) {
	return &dbus.Property{Name: name, Value: godbus.MakeVariant("enabled")}, nil
}

func (r *running) GetAllPropertiesContext(context.Context, string) (map[string]any, error) {
	return map[string]any{"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "ActiveEnterTimestamp": uint64(r.since.UnixMicro())}, nil
}

func (r *running) StartUnitContext(_ context.Context, _, _ string, done chan<- string) (int, error) {
	done <- "done"
	return 1, nil
}

func (r *running) RestartUnitContext(_ context.Context, _, _ string, done chan<- string) (int, error) {
	r.since = time.Now().Add(time.Second)
	r.restarted++
	done <- "done"
	return 1, nil
}

// TestStartEndpoint: the service starts again with new settings, also if the run that wrote them was killed before. A repeated
// run does nothing.
func TestStartEndpoint(t *testing.T) {
	h := testhost.Open(t, t.TempDir())
	r := &running{since: time.Now().Add(-time.Hour)}
	h.ConnectSystemd = func(context.Context) (systemd.Conn, error) { return r, nil }
	m := node.NewMachine(h, &workflow.Console{Out: io.Discard})
	list, err := EndpointFiles(&config.Config{Cluster: config.Cluster{Endpoint: config.Endpoint{Balancer: true}}}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list.Files { // a run that is killed now
		if _, err := h.WriteFile(f.Path, f.Data, f.Mode); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := StartEndpoint(t.Context(), m, list); err != nil {
			t.Fatal(err)
		}
		if r.restarted != 1 || m.Changes != 0 {
			t.Errorf("restarted %d times, %d changes", r.restarted, m.Changes)
		}
	}
}

// A node that joins by a name has a balancer that knows the addresses, and no name.
func TestResolve(t *testing.T) {
	is, err := resolve(t.Context(), []string{"localhost:6443", "192.0.2.1:6443", "[2001:db8::1]:6443"})
	if err != nil || !slices.Contains(is, "127.0.0.1:6443") || !slices.Contains(is, "192.0.2.1:6443") || !slices.Contains(is, "[2001:db8::1]:6443") {
		t.Error(is, err)
	}
	if is, err := resolve(t.Context(), []string{"no-such-host.invalid:6443"}); err == nil {
		t.Error(is)
	}
}
