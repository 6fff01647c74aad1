// Package service is the process airlift-registry.service of a control plane. It serves the kept bundles, and the images
// in them, to the nodes of the cluster and to joining hosts, and copies bundles from other control planes.
package service

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sync/errgroup"

	"airlift/bundle"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/daemon"
	"airlift/installer/registry"
	"airlift/installer/registry/images"
	"airlift/installer/registry/store"
	"airlift/internal/fault"
)

const (
	idleTimeout    = 90 * time.Second // as clients of Go
	maxHeaderBytes = 16 << 10
	// refreshInterval is after which time a file that was placed in the store is served at the latest.
	refreshInterval = 2 * time.Second
)

// headerTimeout is for the TLS handshake, and for the header of each request. With 5 s, a loaded host cut 13 of 100 clients that
// connected at once. It may be long: connections that wait make room for others.
var headerTimeout = 30 * time.Second

// An api is what the service asks the API.
type api interface {
	FollowNodes(ctx context.Context, use func([]string), failed func(error))
	FollowConfigMap(ctx context.Context, namespace, name string, use func(map[string]string), failed func(error))
	FollowAPIServers(ctx context.Context, use func([]netip.AddrPort), failed func(error))
	NodeExists(ctx context.Context, name string) (bool, error)
	ReviewToken(ctx context.Context, token string) (bool, error)
	// Credentials are for connections to other control planes.
	Credentials() (trust *tls.Config, token string, err error)
}

// A registryAPI serves the images of bundles below /v2/.
type registryAPI interface {
	http.Handler
	Set([]*bundle.File) error
	Served() []images.Served
	Close()
}

// A service has the parts of the process.
type service struct {
	settings *registry.Settings
	log      *slog.Logger
	api      api
	images   registryAPI

	catalog     *catalog
	access      *access
	copies      *copies
	contact     contact
	known       known
	connections *connections
	requests    chan struct{}
	sent        atomic.Int64 // bytes of bodies
	refused     atomic.Int64
}

// Run runs the service until ctx ends. It tells systemd when clients may connect.
func Run(ctx context.Context, log *slog.Logger) error {
	data, err := os.ReadFile(registry.SettingsPath)
	if err != nil {
		return fault.New(fault.Usage, "reading the settings of the registry: %w", err).Hint("init and join write them on control planes, on a cluster with --embedded-registry")
	}
	settings, err := registry.Decode(data)
	if err != nil {
		return fault.New(fault.Failure, "reading %s: %w", registry.SettingsPath, err).Hint("write the file again: ./install registry enable")
	}
	socket, err := daemon.Listen(registry.Socket)
	if err != nil {
		return err
	}
	if err := daemon.Release(); err != nil { // what the start touched, before the bundles are read
		return err
	}
	s := newService(settings, cluster.NewIdentity(config.KubernetesDir+"/kubelet.conf"), images.New(images.Options{
		Cache: settings.CacheDirectory(), Limit: settings.CacheLimit, Log: log,
	}), log)
	return s.run(ctx, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return daemon.Serve(ctx, socket, s.local()) })
		group.Go(func() error { return daemon.KeepAlive(ctx) })
		return group.Wait()
	})
}

func newService(settings *registry.Settings, api api, images registryAPI, log *slog.Logger) *service {
	st := store.New(settings.Directory)
	s := &service{
		settings: settings, log: log, api: api, images: images,
		copies: newCopies(st, log), access: &access{api: api, answers: newAnswers()},
		known: known{path: settings.KnownPath(), log: log}, requests: make(chan struct{}, maxRequests),
	}
	s.catalog = newCatalog(st, images, log, s.copies.wakeUp)
	s.copies.catalog = s.catalog
	s.copies.open = func(ctx context.Context, servers []netip.AddrPort, b config.KeptBundle) (*bundle.File, func(), error) {
		return openRemote(ctx, api, servers, b, log)
	}
	return s
}

// run serves until ctx ends. It calls ready when clients may connect.
func (s *service) run(ctx context.Context, ready func(context.Context) error) error {
	defer s.images.Close()
	if err := s.listen(ctx); err != nil {
		return err
	}
	s.remember()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.serve(ctx) })
	group.Go(func() error { return s.copies.run(ctx) })
	group.Go(func() error { return s.follow(ctx) })
	group.Go(func() error { return s.refresh(ctx) })
	group.Go(func() error { return s.catalog.publish(ctx) })
	group.Go(func() error { return ready(ctx) })
	return group.Wait()
}

// listen listens with TLS. Without a host in the address, one socket is for IPv6 and IPv4, or for IPv4 on a host without
// IPv6.
func (s *service) listen(ctx context.Context) error {
	certificates := &certificates{dir: s.settings.CertificatesDir, log: s.log}
	if _, err := certificates.get(nil); err != nil {
		return fault.New(fault.Failure, "reading the certificate of the API server: %w", err).Hint("see: ./install certs check-expiration")
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.settings.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fault.New(fault.Failure, "listening on %s: another process uses this port", s.settings.Listen).
			Hint("find the process: ss -ltnp")
	}
	if err != nil {
		return err
	}
	s.connections = newConnections(l, certificates.get)
	return nil
}

// serve answers requests until ctx ends.
func (s *service) serve(ctx context.Context) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	server := &http.Server{
		Handler: s, Protocols: protocols, ConnState: s.connections.follow, ConnContext: s.connections.remember,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(s.connections); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// refresh serves what is in the store, and what is placed there later.
func (s *service) refresh(ctx context.Context) error {
	s.catalog.refresh()
	tick := time.NewTicker(refreshInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.catalog.refresh()
		}
	}
}

// follow follows the nodes, the list of bundles and the control planes of the cluster until ctx ends.
func (s *service) follow(ctx context.Context) error {
	failed := func(err error) {
		s.contact.failed(err)
		s.log.Debug("following the cluster", "error", err)
	}
	var tasks sync.WaitGroup
	tasks.Go(func() { s.api.FollowNodes(ctx, s.useNodes, failed) })
	tasks.Go(func() { s.api.FollowAPIServers(ctx, s.usePeers, failed) })
	tasks.Go(func() {
		s.api.FollowConfigMap(ctx, metav1.NamespaceSystem, config.RegistryConfigMap, s.useConfigMap, failed)
	})
	tasks.Wait()
	return nil
}

func (s *service) useNodes(names []string) {
	s.contact.answered()
	s.access.use(names)
	s.known.setNodes(names)
}

// usePeers lets the service copy from the other control planes.
func (s *service) usePeers(servers []netip.AddrPort) {
	s.contact.answered()
	own := ownAddresses()
	var peers []netip.AddrPort
	for _, a := range servers {
		if !slices.Contains(own, a.Addr()) {
			peers = append(peers, netip.AddrPortFrom(a.Addr(), config.RegistryPort))
		}
	}
	s.copies.useServers(peers)
}

// ownAddresses are the addresses of this host.
func ownAddresses() (list []netip.Addr) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, prefix.Addr())
		}
	}
	return list
}

// useConfigMap takes the list of bundles. Without one, or if it cannot be read or lists none, all files stay.
func (s *service) useConfigMap(data map[string]string) {
	s.contact.answered()
	text, ok := data[config.RegistryKey]
	if !ok {
		s.copies.useList(nil, false)
		return
	}
	list, err := config.DecodeRegistry([]byte(text))
	if err == nil && list.Used && len(list.Bundles) == 0 { // no command leaves such a list
		err = errors.New("it lists no bundles")
	}
	if err != nil {
		s.log.Error("the ConfigMap "+config.RegistryConfigMap+" cannot be used", "error", err)
		s.copies.useList(nil, false)
		return
	}
	s.catalog.use(list.Bundles)
	s.copies.useList(list.Bundles, true)
	s.known.setBundles(list.Bundles)
}

// remember uses what the service knew last, until the API answers.
func (s *service) remember() {
	if err := s.known.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("what was known of the cluster cannot be read", "error", err)
	}
	if s.known.Nodes != nil {
		s.access.use(s.known.Nodes)
	}
	s.catalog.order = s.known.Bundles
}
