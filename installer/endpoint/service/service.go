// Package service is the process airlift-endpoint.service: the balancer of a node, and on a control plane the agent of
// the virtual address.
package service

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/daemon"
	"airlift/installer/endpoint"
	"airlift/installer/endpoint/balancer"
	"airlift/installer/endpoint/vip"
	"airlift/installer/etcd"
	"airlift/internal/atomicfile"
	"airlift/internal/fault"
)

// State is what the service does. A part that the host does not have is nil.
type State struct {
	Balancer *balancer.Status `json:"balancer,omitempty"`
	VIP      *vip.Status      `json:"vip,omitempty"`
}

// A service has the parts that the settings of this host ask for; the others are nil.
type service struct {
	settings *endpoint.Settings
	log      *slog.Logger
	balancer *balancer.Balancer
	agent    *vip.Agent
}

// Run runs the service until ctx ends. It tells systemd when clients may connect.
func Run(ctx context.Context, log *slog.Logger) error {
	data, err := os.ReadFile(endpoint.SettingsPath)
	if err != nil {
		return fault.New(fault.Usage, "reading the settings of the endpoint: %w", err).Hint("init and join write them, on a cluster with --control-plane-vip or --control-plane-balancer")
	}
	s := &service{log: log}
	if s.settings, err = endpoint.Decode(data); err != nil {
		return damaged(err)
	}
	if err := s.prepare(); err != nil {
		return err
	}
	listener, err := daemon.Listen(endpoint.Socket)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.answer(ctx, listener) })
	if s.balancer != nil {
		group.Go(func() error { return s.balancer.Run(ctx) })
	}
	if s.agent != nil {
		group.Go(func() error { return s.agent.Run(ctx) })
	}
	group.Go(func() error { return daemon.KeepAlive(ctx) })
	return group.Wait()
}

// damaged is the error of settings that cannot be used.
func damaged(err error) error {
	return fault.New(fault.Failure, "reading %s: %w", endpoint.SettingsPath, err).Hint("write the file again: ./install endpoint node")
}

// prepare creates the parts. After it, the balancer's address accepts connections.
func (s *service) prepare() (err error) {
	if s.settings.Balancer != "" {
		if err := s.prepareBalancer(); err != nil {
			return err
		}
	}
	if len(s.settings.VIPs) > 0 {
		s.agent, err = s.newAgent()
	}
	return err
}

func (s *service) prepareBalancer() error {
	listen, err := netip.ParseAddrPort(s.settings.Balancer)
	if err != nil {
		return damaged(err)
	}
	cached, err := os.ReadFile(endpoint.StateFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("the list of API servers cannot be read", "error", err)
	}
	s.balancer, err = balancer.Listen(balancer.Options{
		Listen: []netip.AddrPort{listen}, Seeds: addresses(s.settings.ControlPlanes), Cached: addresses(strings.Fields(string(cached))),
		Save: save, TLS: s.tls, Follow: s.follow, Log: s.log,
	})
	return err
}

// addresses parses addresses with a port. It leaves out a line of the state file that is damaged.
func addresses(texts []string) (list []netip.AddrPort) {
	for _, text := range texts {
		if a, err := netip.ParseAddrPort(text); err == nil {
			list = append(list, a)
		}
	}
	return list
}

// save stores the API servers for the next start, before which no API may answer.
func save(list []netip.AddrPort) error {
	var text strings.Builder
	for _, a := range list {
		fmt.Fprintln(&text, a)
	}
	return atomicfile.Write(endpoint.StateFile, []byte(text.String()), 0o644)
}

// follow reads the API servers from the cluster, as the kubelet of this node.
func (s *service) follow(ctx context.Context, use func([]netip.AddrPort)) {
	cluster.FollowAPIServers(ctx, config.KubernetesDir+"/kubelet.conf", use, func(err error) {
		s.log.Debug("the API servers are not known from the cluster", "error", err)
	})
}

// tls trusts the CA of the cluster. It is read for each connection: a rotation replaces it.
func (s *service) tls() (*tls.Config, error) {
	pem, err := os.ReadFile(path.Join(s.settings.CertificatesDir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s/ca.crt has no certificate", s.settings.CertificatesDir)
	}
	return &tls.Config{RootCAs: pool}, nil
}

func (s *service) newAgent() (*vip.Agent, error) {
	own, err := netip.ParseAddrPort(s.settings.APIServer)
	if err != nil {
		return nil, damaged(err)
	}
	check := balancer.NewCheck(s.tls)
	pki := path.Join(s.settings.CertificatesDir, "etcd")
	return vip.New(vip.Options{
		Addresses: s.settings.VIPs, Log: s.log,
		Election: etcd.NewElection(etcdURL(own.Addr()),
			pki+"/ca.crt", pki+"/healthcheck-client.crt", pki+"/healthcheck-client.key"),
		Ready: func(ctx context.Context, host string) error {
			target := own
			if host != "" {
				peer, err := netip.ParseAddr(host)
				if err != nil {
					return err
				}
				target = netip.AddrPortFrom(peer, own.Port())
			}
			return check(ctx, target)
		},
	})
}

// etcdURL is where etcd listens for this host, whose API server has an address.
func etcdURL(own netip.Addr) string {
	return "https://" + net.JoinHostPort(config.APIEndpoint{AdvertiseAddress: own.String()}.Loopback(), strconv.Itoa(config.EtcdClientPort))
}

// answer answers requests at the socket: GET /status, POST /handover.
func (s *service) answer(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.state())
	})
	mux.HandleFunc("POST /handover", func(w http.ResponseWriter, r *http.Request) {
		if s.agent == nil {
			return
		}
		if err := s.agent.Handover(r.Context()); errors.Is(err, vip.ErrNoPeer) {
			http.Error(w, err.Error(), http.StatusConflict)
		} else if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return daemon.Serve(ctx, l, mux)
}

func (s *service) state() (state State) {
	if s.balancer != nil {
		status := s.balancer.Status()
		state.Balancer = &status
	}
	if s.agent != nil {
		status := s.agent.Status()
		state.VIP = &status
	}
	return state
}

// Query returns the state of this host's service, nil if none runs.
func Query(ctx context.Context) (*State, error) {
	state, err := daemon.Query[State](ctx, endpoint.Socket)
	if err != nil {
		return nil, fmt.Errorf("asking the endpoint's service of this host: %w", err)
	}
	return state, nil
}

// Handover gives the virtual address to another control plane, if this host has it and another one is ready.
func Handover(ctx context.Context) error {
	resp, err := daemon.Request(ctx, endpoint.Socket, http.MethodPost, "/handover")
	if err != nil {
		return fmt.Errorf("asking the endpoint's service of this host: %w", err)
	}
	if resp == nil {
		return nil
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusConflict {
		return fmt.Errorf("giving the virtual address to another control plane: %s", resp.Status)
	}
	return nil
}
