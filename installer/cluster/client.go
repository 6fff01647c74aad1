package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"airlift/installer/cluster/wait"
	"airlift/internal/dialer"
	"airlift/internal/fault"
)

// RequestTimeout bounds one request, a watch included: a watch on a dead
// connection is noticed after this time at the latest and opened again.
const RequestTimeout = 30 * time.Second

// A connection from which nothing came for pingAfter is asked for a sign of life, and given up after pingTimeout: client-go then reads
// again over another one, within RequestTimeout. Its own values, 30 and 15 s, are too late for that. A virtual address that leaves this host
// takes the connections of its own processes with it without a word.
const pingAfter, pingTimeout = 10 * time.Second, 5 * time.Second

// userAgent identifies Airlift in the API server's audit log.
const userAgent = "airlift-install"

// Client connects to one API server with one identity.
type Client struct {
	API     kubernetes.Interface
	Dynamic dynamic.Interface
	Server  string       // the API server's URL
	CA      []byte       // the PEM bundle that verifies the API server
	http    *http.Client // of API, Dynamic and metadata; nil in tests
	// certificate is the client's certificate, in PEM; nil if it has none.
	certificate []byte
	// metadata reads only the metadata of objects.
	metadata metadata.Interface
	// dryRun is the value of the field dryRun of requests that change tokens; nil means
	// that they are changed.
	dryRun []string
}

// Load creates a client from a kubeconfig file. A non-empty server
// ("https://host:port" or "host:port") replaces the one in the file; the
// certificate is still checked against the file's CA and the new address.
func Load(path, server string) (*Client, error) {
	kubeconfig, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", path, err)
	}
	c, err := fromConfig(kubeconfig, server)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", path, err)
	}
	return c, nil
}

// New is Load for a kubeconfig that is not on disk.
func New(kubeconfig []byte, server string) (*Client, error) {
	parsed, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	c, err := fromConfig(parsed, server)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	return c, nil
}

func fromConfig(kubeconfig *clientcmdapi.Config, server string) (*Client, error) {
	// For certificates in files, client-go starts a goroutine that reads them again.
	if err := clientcmdapi.FlattenConfig(kubeconfig); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*kubeconfig, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	if server != "" {
		cfg.Host = ServerURL(server)
	}
	return fromREST(cfg)
}

func fromREST(cfg *rest.Config) (*Client, error) {
	cfg.UserAgent = userAgent
	cfg.Timeout = RequestTimeout
	// No client-side limit: an installer sends a few dozen requests, and the
	// API server protects itself with its priority and fairness queues.
	cfg.QPS = -1
	cfg.Dial = dial
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	cfg.Wrap(func(t http.RoundTripper) http.RoundTripper {
		inner := t
		for w, ok := t.(utilnet.RoundTripperWrapper); ok; w, ok = inner.(utilnet.RoundTripperWrapper) {
			inner = w.WrappedRoundTripper()
		}
		if base, ok := inner.(*http.Transport); ok {
			base.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
		}
		return Logged{t}
	})

	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	api, err := kubernetes.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, err
	}
	meta, err := metadata.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, err
	}
	ca := cfg.CAData
	if len(ca) == 0 && cfg.CAFile != "" {
		if ca, err = os.ReadFile(cfg.CAFile); err != nil {
			return nil, err
		}
	}
	return &Client{API: api, Dynamic: dyn, Server: cfg.Host, CA: ca, http: httpClient, metadata: meta, certificate: cfg.CertData}, nil
}

// dial connects to an API server.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := dialer.Dial(ctx, network, address)
	return conn, fault.Wrap(err, fault.Failure, wait.APIServerHint)
}

// SetTimeout limits every request, a watch included; 0 keeps the default.
func (c *Client) SetTimeout(d time.Duration) {
	if d > 0 && c.http != nil {
		c.http.Timeout = d
	}
}

// SetDryRun makes CreateToken and DeleteToken change nothing: the API server only checks
// their requests.
func (c *Client) SetDryRun() { c.dryRun = []string{metav1.DryRunAll} }

// ServerURL adds the scheme to "host:port".
func ServerURL(endpoint string) string {
	if strings.Contains(endpoint, "://") {
		return endpoint
	}
	return "https://" + endpoint
}
