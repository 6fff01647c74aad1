package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/cluster/lease"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// ErrNoAPI is why a turn cannot be taken: no API server answers, or none accepts the credentials.
var ErrNoAPI = errors.New("no API server answers")

// answerTimeout limits the first request to an API server.
const answerTimeout = 10 * time.Second

// ShortPatience limits the time without an API server for commands that check the quorum themselves.
const ShortPatience = 30 * time.Second

// A Turn is the turn of this host's control plane. It is nil in a run that goes on without it.
type Turn struct {
	lease   *lease.Turn
	console *workflow.Console
	giveUp  func() error
}

// TakeTurn waits until no other control plane restarts its components, and keeps the turn until End is
// called. The lock of this host comes first: it proves that an earlier process that has the turn was
// killed. patience limits the time without an API server, 0 means the default; servers are tried in
// addition to the kubeconfig's.
func TakeTurn(ctx context.Context, m *Machine, node, kubeconfig string, patience time.Duration, servers ...string) (*Turn, error) {
	if !m.Host.Locked() {
		return nil, errors.New("taking the turn of this control plane: this process does not have the lock of the host")
	}
	kubeconfig, err := filepath.Abs(kubeconfig)
	if err != nil {
		return nil, err
	}
	t := &Turn{console: m.Console, lease: &lease.Turn{
		Node: node, Servers: servers, Patience: patience,
		Connect: func(server string) (*cluster.Client, error) { return LoadClient(m.Host, kubeconfig, server, 0) },
	}}
	t.giveUp = func() error { return t.lease.End(context.WithoutCancel(ctx)) }
	if own := OwnAPIServer(m.Existing); own != "" {
		t.lease.Servers = append(t.lease.Servers, own)
	}
	if err := t.answers(ctx); err != nil {
		t.lease.Servers = append(t.lease.Servers, peerAPIServers(ctx, m)...)
		if err = t.answers(ctx); err != nil {
			return nil, err
		}
	}
	printed := ""
	report := func(state string) {
		if state != printed {
			m.Console.Note("waiting: %s", state)
			printed = state
		}
	}
	if err := t.lease.Take(ctx, report); err != nil {
		return nil, err
	}
	return t, nil
}

// TryTurn is TakeTurn for commands that must also work in a broken cluster: without an API server
// they go on.
func TryTurn(ctx context.Context, m *Machine, kubeconfig string, patience time.Duration) (*Turn, error) {
	t, err := TakeTurn(ctx, m, m.TurnName(), kubeconfig, patience)
	if err == nil || ctx.Err() != nil || !errors.Is(err, ErrNoAPI) && !errors.Is(err, lease.ErrRefused) {
		return t, err
	}
	m.Console.Warn("not waiting for other control planes: %v", err)
	return nil, nil
}

// TurnName is the name of this node, or without a kubelet.conf the name of the host.
func (m *Machine) TurnName() string {
	name, _ := os.Hostname()
	return cmp.Or(pki.NodeName(m.Files()), name, "unknown")
}

// answers returns an error if no API server answers.
func (t *Turn) answers(ctx context.Context) error {
	var first error
	for _, server := range append([]string{""}, t.lease.Servers...) {
		c, err := t.lease.Connect(server)
		if err == nil {
			probe, cancel := context.WithTimeout(ctx, answerTimeout)
			err = c.Accepts(probe)
			cancel()
		}
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if first == nil {
			first = err
		}
	}
	return fault.Wrap(fmt.Errorf("%w: %w", ErrNoAPI, first), fault.Failure, "see './install status'; run the same command again when an API server answers")
}

// OwnAPIServer returns the URL of the API server of this host, "" if it has none.
func OwnAPIServer(h *host.Host) string {
	flags, _, err := ReadStaticPod(h, "kube-apiserver")
	if err != nil || flags["advertise-address"] == "" {
		return ""
	}
	return "https://" + net.JoinHostPort(flags["advertise-address"], cmp.Or(flags["secure-port"], strconv.Itoa(config.DefaultBindPort)))
}

// peerAPIServers returns the URLs of the API servers of the hosts that etcd knows.
func peerAPIServers(ctx context.Context, m *Machine) (urls []string) {
	e, err := FindEtcd(m.Existing)
	if err != nil || e == nil {
		return nil
	}
	c, err := ConnectEtcd(ctx, m.Host, m.Report, []string{e.ClientURL}, e.Certificates, answerTimeout)
	if err != nil {
		return nil
	}
	defer c.Close()
	members, err := c.Members(ctx)
	if err != nil {
		return nil
	}
	for _, member := range members {
		if u, err := url.Parse(member.PeerURL); err == nil && !member.HasPeer(e.PeerURL) {
			urls = append(urls, "https://"+net.JoinHostPort(u.Hostname(), strconv.Itoa(config.DefaultBindPort)))
		}
	}
	return urls
}

// Confirm fails if the turn is lost. It must be called before each restart.
func (t *Turn) Confirm(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.lease.Confirm(ctx)
}

// CheckOthers fails if no other API server is ready.
func (t *Turn) CheckOthers(ctx context.Context) error { return t.lease.CheckOthers(ctx) }

// End gives up the turn.
func (t *Turn) End() {
	if t == nil {
		return
	}
	if err := t.giveUp(); err != nil {
		t.console.Warn("other control planes wait for this one for up to %s: %v", lease.Duration, err)
	}
}

// CheckQuorum fails if etcd would have no quorum while the member of this host restarts. If this
// member does not answer, its restart loses nothing.
func (m *Machine) CheckQuorum(ctx context.Context) error {
	e, err := FindEtcd(m.Existing)
	if err != nil && !m.etcdAnswers(ctx) { // its manifest may be what keeps it from starting
		m.Console.Debug(1, "the other members of etcd are not checked: %v", err)
		return ctx.Err()
	}
	if err != nil || e == nil {
		return err
	}
	c, err := ConnectEtcd(ctx, m.Host, m.Report, []string{e.ClientURL}, e.Certificates, ProbeTimeout)
	if err != nil {
		m.Console.Debug(1, "the other members of etcd are not checked: %v", err)
		return ctx.Err()
	}
	defer c.Close()
	return c.CheckRestart(ctx, e.PeerURL)
}

// etcdAnswers reports whether the etcd that this host's API server uses answers.
func (m *Machine) etcdAnswers(ctx context.Context) bool {
	flags, _, err := ReadStaticPod(m.Existing, "kube-apiserver")
	if err != nil || flags["etcd-servers"] == "" {
		return false
	}
	c, err := ConnectEtcd(ctx, m.Host, m.Report, strings.Split(flags["etcd-servers"], ","), path.Dir(path.Dir(flags["etcd-cafile"])), ProbeTimeout)
	if err != nil {
		return false
	}
	c.Close()
	return true
}
