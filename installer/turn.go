package installer

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
	"slices"
	"strconv"
	"strings"
	"time"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
)

// ErrNoAPI is why a turn cannot be taken: no API server answers, or none accepts the credentials.
var ErrNoAPI = errors.New("no API server answers")

// answerTimeout limits the first request to an API server.
const answerTimeout = 10 * time.Second

// shortPatience limits the time without an API server for commands that check the quorum themselves.
const shortPatience = 30 * time.Second

// A turn is the turn of this host's control plane. It is nil in a run that goes on without it.
type turn struct {
	*cluster.Turn
	console *Console
}

// takeTurn waits until no other control plane restarts its components, and keeps the turn until end is
// called. The lock of this host comes first: it proves that an earlier process that has the turn was
// killed. patience limits the time without an API server, 0 means the default; servers are tried in
// addition to the kubeconfig's.
func takeTurn(ctx context.Context, m *machine, node, kubeconfig string, patience time.Duration, servers ...string) (*turn, error) {
	if !m.host.Locked() {
		return nil, errors.New("taking the turn of this control plane: this process does not have the lock of the host")
	}
	kubeconfig, err := filepath.Abs(kubeconfig)
	if err != nil {
		return nil, err
	}
	t := &turn{console: m.console, Turn: &cluster.Turn{
		Node: node, Servers: servers, Patience: patience,
		Connect: func(server string) (*cluster.Client, error) { return loadClient(m.host, kubeconfig, server, 0) },
	}}
	if own := ownAPIServer(m.existing); own != "" {
		t.Servers = append(t.Servers, own)
	}
	if err := t.answers(ctx); err != nil {
		t.Servers = append(t.Servers, peerAPIServers(ctx, m)...)
		if err = t.answers(ctx); err != nil {
			return nil, err
		}
	}
	printed := ""
	report := func(state string) {
		if state != printed {
			m.console.Note("waiting: %s", state)
			printed = state
		}
	}
	if err := t.Take(ctx, report); err != nil {
		return nil, err
	}
	return t, nil
}

// tryTurn is takeTurn for commands that must also work in a broken cluster: without an API server
// they go on.
func tryTurn(ctx context.Context, m *machine, kubeconfig string, patience time.Duration) (*turn, error) {
	t, err := takeTurn(ctx, m, m.turnName(), kubeconfig, patience)
	if err == nil || ctx.Err() != nil || !errors.Is(err, ErrNoAPI) && !errors.Is(err, cluster.ErrTurnRefused) {
		return t, err
	}
	m.console.Warn("not waiting for other control planes: %v", err)
	return nil, nil
}

// turnName is the name of this node, or without a kubelet.conf that of the host.
func (m *machine) turnName() string {
	name, _ := os.Hostname()
	return cmp.Or(pki.NodeName(m.files()), name, "unknown")
}

// answers returns an error if no API server answers.
func (t *turn) answers(ctx context.Context) error {
	var first error
	for _, server := range append([]string{""}, t.Servers...) {
		c, err := t.Connect(server)
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

// ownAPIServer returns the URL of the API server of this host, "" if it has none.
func ownAPIServer(h *host.Host) string {
	flags, _, err := readStaticPod(h, "kube-apiserver")
	if err != nil || flags["advertise-address"] == "" {
		return ""
	}
	return "https://" + net.JoinHostPort(flags["advertise-address"], cmp.Or(flags["secure-port"], strconv.Itoa(config.DefaultBindPort)))
}

// peerAPIServers returns the URLs of the API servers of the hosts that etcd knows.
func peerAPIServers(ctx context.Context, m *machine) (urls []string) {
	e, err := findEtcd(m.existing)
	if err != nil || e == nil {
		return nil
	}
	c, err := connectEtcd(ctx, m, []string{e.clientURL}, e.certificates, answerTimeout)
	if err != nil {
		return nil
	}
	defer c.Close()
	members, err := c.Members(ctx)
	if err != nil {
		return nil
	}
	for _, member := range members {
		if u, err := url.Parse(member.PeerURL); err == nil && !member.HasPeer(e.peerURL) {
			urls = append(urls, "https://"+net.JoinHostPort(u.Hostname(), strconv.Itoa(config.DefaultBindPort)))
		}
	}
	return urls
}

// confirm fails if the turn is lost. It must be called before each restart.
func (t *turn) confirm(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.Confirm(ctx)
}

// end gives up the turn.
func (t *turn) end() {
	if t == nil {
		return
	}
	if err := t.End(context.Background()); err != nil {
		t.console.Warn("other control planes wait for this one for up to %s: %v", cluster.TurnDuration, err)
	}
}

// TakeTurn waits until no other control plane restarts its components, and keeps the turn of this one
// until Close. It does nothing if this run has it.
func (s *StaticPods) TakeTurn(ctx context.Context, kubeconfig string) (err error) {
	if s.turn == nil {
		s.turn, err = takeTurn(ctx, s.machine, s.turnName(), kubeconfig, 0)
	}
	return err
}

// CheckOthers fails if the other control planes would not keep the cluster alive while these components
// restart: etcd would have no quorum, or no API server would be ready.
func (s *StaticPods) CheckOthers(ctx context.Context, components []string) error {
	if s.turn != nil && slices.Contains(components, "kube-apiserver") {
		if err := s.turn.CheckOthers(ctx); err != nil {
			return err
		}
	}
	if !slices.Contains(components, etcdPod) {
		return nil
	}
	return s.checkQuorum(ctx)
}

// mayRestart fails if a component must not be restarted now.
func (s *StaticPods) mayRestart(ctx context.Context, component string) error {
	if err := s.turn.confirm(ctx); err != nil {
		return err
	}
	if component != etcdPod || s.ignoresEtcd {
		return nil
	}
	return s.checkQuorum(ctx)
}

// checkQuorum fails if etcd would have no quorum while the member of this host restarts. If this
// member does not answer, its restart loses nothing.
func (m *machine) checkQuorum(ctx context.Context) error {
	e, err := findEtcd(m.existing)
	if err != nil && !m.etcdAnswers(ctx) { // its manifest may be what keeps it from starting
		m.console.Debug(1, "the other members of etcd are not checked: %v", err)
		return ctx.Err()
	}
	if err != nil || e == nil {
		return err
	}
	c, err := connectEtcd(ctx, m, []string{e.clientURL}, e.certificates, probeTimeout)
	if err != nil {
		m.console.Debug(1, "the other members of etcd are not checked: %v", err)
		return ctx.Err()
	}
	defer c.Close()
	return c.CheckRestart(ctx, e.peerURL)
}

// etcdAnswers reports whether the etcd that this host's API server uses answers.
func (m *machine) etcdAnswers(ctx context.Context) bool {
	flags, _, err := readStaticPod(m.existing, "kube-apiserver")
	if err != nil || flags["etcd-servers"] == "" {
		return false
	}
	c, err := connectEtcd(ctx, m, strings.Split(flags["etcd-servers"], ","), path.Dir(path.Dir(flags["etcd-cafile"])), probeTimeout)
	if err != nil {
		return false
	}
	c.Close()
	return true
}
