package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"airlift/installer/daemon"
	"airlift/internal/fault"
)

const (
	// NodeVariable has the name of the node in the environment of the pod.
	NodeVariable = "NODE_NAME"

	// A dead connection to an API server is noticed after twice this time.
	pingLimit = 700 * time.Millisecond
	// stagger is the pause until the next API server is tried, too.
	stagger, dialLimit = 200 * time.Millisecond, 2 * time.Second
	// serversInterval is how often the API servers are listed, and the executable is compared.
	serversInterval = 10 * time.Second
)

// ErrRestart, as the cause of the context of Run, ends the agent, and another process goes on for this node at once.
var ErrRestart = errors.New("the process is replaced")

// caFile has the CAs of the API server, which a rotation replaces.
const caFile = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"

// RunPod runs the agent in its pod until ctx ends. When an upgrade of the node replaces the executable, or a rotation the CAs, it starts
// again in the same process.
func RunPod(ctx context.Context, log *slog.Logger) error {
	node := os.Getenv(NodeVariable)
	if node == "" {
		return fault.New(fault.Usage, "the environment has no %s", NodeVariable).Hint("only the pods of the add-on load-balancer run this command")
	}
	servers := &apiServers{}
	api, err := newClient(servers.dial)
	if err != nil {
		return err
	}
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("looking for the executable of this process: %w", err)
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return fmt.Errorf("reading the CAs of the API server: %w", err)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			reached := servers.list(ctx, api)
			executable, failed := os.Stat(os.Args[0])
			changed := failed == nil && !os.SameFile(self, executable)
			// Without the API, a new process would not know what to answer for. New CAs may be why nothing answers.
			if now, err := os.ReadFile(caFile); changed && reached || err == nil && !bytes.Equal(now, ca) {
				end(ErrRestart)
			}
			_ = daemon.Release()
			select {
			case <-ctx.Done():
			case <-time.After(serversInterval):
			}
		}
	})
	err = Run(ctx, Options{Node: node, API: api, Log: log})
	restart := errors.Is(context.Cause(ctx), ErrRestart)
	end(nil)
	wg.Wait()
	if restart && err == nil {
		log.Info("the executable or the CAs were replaced: starting again")
		return fmt.Errorf("starting %s: %w", os.Args[0], syscall.Exec(os.Args[0], os.Args, os.Environ()))
	}
	return err
}

// newClient creates a client with the identity of the pod. No limit of time ends its watches: a dead connection does.
func newClient(dial func(ctx context.Context, network, address string) (net.Conn, error)) (kubernetes.Interface, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the credentials of this pod: %w", err)
	}
	config.Dial, config.QPS, config.UserAgent = dial, -1, "airlift-load-balancer"
	config.Wrap(func(t http.RoundTripper) http.RoundTripper {
		inner := t
		for w, ok := t.(utilnet.RoundTripperWrapper); ok; w, ok = inner.(utilnet.RoundTripperWrapper) {
			inner = w.WrappedRoundTripper()
		}
		if base, ok := inner.(*http.Transport); ok {
			base.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingLimit, PingTimeout: pingLimit}
		}
		return t
	})
	return kubernetes.NewForConfig(config)
}

// apiServers are the addresses of the API servers. A connection to the Service kubernetes may lead to one that is dead.
type apiServers struct {
	mu        sync.Mutex
	addresses []string
}

// list reports whether the API answered.
func (s *apiServers) list(ctx context.Context, api kubernetes.Interface) bool {
	limited, cancel := context.WithTimeout(ctx, 2*requestTime)
	defer cancel()
	list, err := api.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(limited,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
	if err != nil {
		return false // the former ones stay
	}
	var found []string
	for _, slice := range list.Items {
		for _, endpoint := range slice.Endpoints {
			for _, a := range endpoint.Addresses {
				if len(slice.Ports) > 0 && slice.Ports[0].Port != nil {
					found = append(found, net.JoinHostPort(a, strconv.Itoa(int(*slice.Ports[0].Port))))
				}
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses = found
	return true
}

// dial connects to the first API server that accepts, or to the address of the Service.
func (s *apiServers) dial(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	list := slices.Clone(s.addresses)
	s.mu.Unlock()
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	list = append(list, address)
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result, len(list))
	var errs []string
	started := 0
	start := func() {
		to := list[started]
		started++
		go func() {
			conn, err := (&net.Dialer{KeepAlive: 5 * time.Second}).DialContext(ctx, network, to)
			results <- result{conn, err}
		}()
	}
	start()
	for len(errs) < len(list) {
		var next <-chan time.Time
		if started < len(list) {
			next = time.After(stagger)
		}
		select {
		case <-next:
			start()
		case r := <-results:
			if r.err == nil {
				go discard(results, started-len(errs)-1, func(r result) {
					if r.conn != nil {
						_ = r.conn.Close()
					}
				})
				return r.conn, nil
			}
			errs = append(errs, r.err.Error())
			if started < len(list) {
				start()
			}
		}
	}
	return nil, fmt.Errorf("connecting to an API server: %s", strings.Join(errs, "; "))
}

// discard takes n late results.
func discard[T any](results <-chan T, n int, drop func(T)) {
	for range n {
		drop(<-results)
	}
}
