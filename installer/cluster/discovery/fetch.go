package discovery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/installer/timeline"
	"airlift/internal/dialer"
)

const clusterInfoPath = "/api/v1/namespaces/kube-public/configmaps/cluster-info"

// tryTimeout limits one attempt; retryPause is the pause between two.
const (
	tryTimeout = 10 * time.Second
	retryPause = 500 * time.Millisecond
)

// infoSource fetches cluster-info anonymously. It uses net/http and not
// client-go, to distinguish the causes of a failure and to read the server's
// clock from the Date header.
type infoSource struct {
	server  string
	timeout time.Duration
	report  wait.Report
	// mayBePrivate accepts an API server that forbids anonymous users to
	// read cluster-info.
	mayBePrivate bool
}

type clusterInfo struct {
	kubeconfig string
	// ahead is how much the server's clock is ahead of this host's, in seconds.
	ahead time.Duration
}

// mayHeal is a failure that may be temporary: it is retried for grace.
type mayHeal struct {
	grace time.Duration
	error
}

func (e *mayHeal) Unwrap() error { return e.error }

// anyServer trusts every server.
func anyServer() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// signedBy trusts servers whose certificate the CA signed; without a CA, it trusts servers whose
// certificate the host's own CAs signed.
func signedBy(ca []byte) *tls.Config {
	cfg := &tls.Config{}
	if len(ca) > 0 {
		cfg.RootCAs = x509.NewCertPool()
		cfg.RootCAs.AppendCertsFromPEM(ca)
	}
	return cfg
}

// fetch gets cluster-info, checks it with accept, and retries temporary
// failures.
func (s infoSource) fetch(ctx context.Context, trust *tls.Config, accept func(*corev1.ConfigMap) error) (*clusterInfo, error) {
	span := timeline.Wait(ctx, "cluster-info")
	defer span.End()
	start, said := time.Now(), ""
	attempts, cancel := context.WithDeadline(ctx, start.Add(s.limit()))
	defer cancel()
	// The last failure, and since when it has been of that kind.
	var last error
	var reason Reason
	var since time.Time
	for {
		info, err := s.try(attempts, trust, accept)
		if err == nil {
			return info, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("getting cluster-info from %s: %w", s.server, context.Cause(ctx))
		}
		if attempts.Err() != nil && last != nil {
			return nil, last // time ran out before this attempt saw anything
		}
		var healing *mayHeal
		var refused *Error
		if !errors.As(err, &healing) || !errors.As(err, &refused) {
			return nil, err
		}
		if refused.Reason != reason {
			reason, since = refused.Reason, time.Now()
		}
		if time.Since(start) >= s.limit() || time.Since(since) >= healing.grace {
			return nil, healing.error
		}
		last = healing.error
		span.Saw(err.Error())
		if s.report != nil && err.Error() != said {
			said = err.Error()
			s.report(said)
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
}

func (s infoSource) try(ctx context.Context, trust *tls.Config, accept func(*corev1.ConfigMap) error) (*clusterInfo, error) {
	resp, body, err := get(ctx, s.server+clusterInfoPath, trust)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	info := &clusterInfo{}
	if there, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		info.ahead = time.Until(there).Round(time.Second)
	}
	private := resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden
	if private && s.mayBePrivate {
		return info, nil
	}
	if resp.StatusCode != http.StatusOK {
		return nil, s.explainStatus(resp, body)
	}
	var configMap corev1.ConfigMap
	if err := json.Unmarshal(body, &configMap); err != nil || configMap.Kind != "ConfigMap" {
		return nil, s.notAPIServer("its response is not a Kubernetes object")
	}
	info.kubeconfig = configMap.Data[bootstrapapi.KubeConfigKey]
	if info.kubeconfig == "" && !s.mayBePrivate {
		return nil, &mayHeal{freshGrace, refuse(NotReady, "to restore what is missing, run on the control plane: ./install init",
			"cluster-info at %s is empty", s.server)}
	}
	if accept != nil {
		if err := accept(&configMap); err != nil {
			return nil, err
		}
	}
	return info, nil
}

// get is one attempt, without redirects: an API server sends none.
func get(ctx context.Context, url string, trust *tls.Config) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", "application/json")
	// The kubelet also uses the environment's proxy.
	transport := &http.Transport{TLSClientConfig: trust, Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, DialContext: dialer.Dial}
	resp, err := cluster.Logged{RoundTripper: transport}.RoundTrip(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	// etcd limits a ConfigMap to 1.5 MiB.
	body, err := io.ReadAll(io.LimitReader(resp.Body, 2<<20))
	return resp, body, err
}

// explainStatus turns a status other than 200 into an error with a hint.
func (s infoSource) explainStatus(resp *http.Response, body []byte) error {
	var status metav1.Status
	isAPI := json.Unmarshal(body, &status) == nil && status.Kind == "Status"
	switch {
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return &mayHeal{s.limit(), refuse(NotReady, "check the control plane: kubectl get pods -n kube-system",
			"%s returned %s", s.server, resp.Status)}
	case !isAPI:
		return s.notAPIServer("it returned " + resp.Status)
	case resp.StatusCode == http.StatusUnauthorized:
		return refuse(NotReady, "the cluster's API server has anonymous-auth=false; join with --discovery-file and a kubeconfig instead",
			"%s refuses anonymous access to cluster-info", s.server)
	case resp.StatusCode == http.StatusForbidden, resp.StatusCode == http.StatusNotFound:
		return &mayHeal{freshGrace, refuse(NotReady, "wait until its init has finished; if none is running, run on the control plane: ./install init",
			"%s does not serve cluster-info: %s", s.server, status.Message)}
	}
	return s.notAPIServer("it returned " + resp.Status)
}

// limit is how long to retry.
func (s infoSource) limit() time.Duration {
	if s.timeout == 0 {
		return defaultTimeout
	}
	return s.timeout
}

func (s infoSource) notAPIServer(why string) error {
	return refuse(NotAPIServer, "check the host and port: the API server's port is usually 6443", "%s is not a Kubernetes API server: %s", s.server, why)
}

// explain turns a failed request into an error with a hint.
func (s infoSource) explain(ctx context.Context, err error) error {
	var dns *net.DNSError
	var op *net.OpError
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	var authority x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	unreachable := func(grace time.Duration, hint, why string) error {
		return &mayHeal{grace, refuse(Unreachable, hint, "cannot reach %s: %s", s.server, why)}
	}
	all := s.limit()
	switch {
	case errors.As(err, &op) && op.Op == "proxyconnect":
		return unreachable(hostGrace, "this host's environment sets an HTTPS proxy; add the control plane's address to NO_PROXY", "the proxy does not answer: "+op.Err.Error())
	case errors.As(err, &dns):
		hint := fmt.Sprintf("use the control plane's IP address, or add %s to /etc/hosts on every node", dns.Name)
		if dns.IsNotFound {
			return refuse(Unreachable, hint, "cannot reach %s: the name %q cannot be resolved", s.server, dns.Name)
		}
		return unreachable(hostGrace, hint, fmt.Sprintf("looking up the name %q: %s", dns.Name, dns.Err))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return s.explainTime(ctx, invalid.Cert)
	case errors.As(err, &hostname):
		return refuse(CertificateInvalid, "use one of those names, or add this name on the control plane with --apiserver-cert-extra-sans",
			"the certificate of %s is for other names: %w", s.server, hostname)
	case errors.As(err, &authority):
		return refuse(CertificateInvalid, "another cluster, or a proxy that intercepts TLS, answers at that address",
			"the certificate of %s is not signed by the cluster's CA", s.server)
	case errors.As(err, &invalid):
		return refuse(CertificateInvalid, "", "the certificate of %s is not valid: %w", s.server, invalid)
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return s.notAPIServer("it does not use TLS")
	case errors.Is(err, syscall.ECONNREFUSED):
		return unreachable(all, "see why, on that control plane: ./install status; the port is usually 6443", "connection refused: the host is up, but nothing listens on that port")
	case errors.Is(err, syscall.ENETUNREACH):
		return unreachable(hostGrace, "check this host's network: ip address; ip route", "this host has no route to it")
	case errors.Is(err, syscall.EHOSTUNREACH):
		return unreachable(all, "check that the address is right, that the host is up, and that the network allows it if it is a virtual address: ARP inspection, port security", "no host answers at that address")
	case isTimeout(err):
		return unreachable(all, "check that the address is right and that no firewall blocks TCP to that port", "no answer in time")
	}
	return unreachable(all, "check the control plane's API server and the network between it and this host", err.Error())
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// explainTime distinguishes a wrong clock from an expired certificate: it gets
// the time from the server. That answer is not verified and only used for the
// message.
func (s infoSource) explainTime(ctx context.Context, cert *x509.Certificate) error {
	now := time.Now()
	resp, _, err := get(ctx, s.server+"/version", anyServer())
	if err == nil {
		there, err := http.ParseTime(resp.Header.Get("Date"))
		if err == nil && !there.Before(cert.NotBefore) && !there.After(cert.NotAfter) {
			return clockError(now, there)
		}
	}
	span := fmt.Sprintf("it is valid from %s to %s, and this host's time is %s", utc(cert.NotBefore), utc(cert.NotAfter), utc(now))
	if now.Before(cert.NotBefore) {
		return refuse(ClockSkew, setClockHint, "the certificate of %s is not valid yet: %s", s.server, span)
	}
	return refuse(CertificateInvalid, "renew the certificates, on the control plane: ./install certs renew all --restart", "the certificate of %s has expired: %s", s.server, span)
}

const setClockHint = "set the time on this host: timedatectl set-time 'YYYY-MM-DD HH:MM:SS'"

func clockError(here, there time.Time) error {
	diff, word := there.Sub(here).Round(time.Second), "behind"
	if diff < 0 {
		diff, word = -diff, "ahead of"
	}
	return refuse(ClockSkew, setClockHint, "this host's clock is %s %s the control plane's clock: %s here, %s there", diff, word, utc(here), utc(there))
}

// checkClock fails if a certificate that the cluster issues now would not be
// valid yet on this host, and warns of smaller differences.
func (f *Cluster) checkClock(ahead time.Duration) error {
	here := time.Now()
	err := clockError(here, here.Add(ahead))
	switch {
	case ahead > backdate:
		return err
	case ahead.Abs() > time.Minute:
		f.Warnings = append(f.Warnings, err.Error())
	}
	return nil
}

func utc(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// download fetches a discovery file over HTTPS, trusting the host's CAs.
func download(ctx context.Context, url string, timeout time.Duration) ([]byte, error) {
	resp, body, err := get(ctx, url, &tls.Config{})
	if err != nil {
		err = infoSource{server: url, timeout: timeout}.explain(ctx, err)
		if healing := (*mayHeal)(nil); errors.As(err, &healing) {
			return nil, healing.error
		}
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the site returned %s", resp.Status)
	}
	return body, nil
}

// ServerTime returns the time of the API server at a URL, from the header of an answer. The request takes
// part of a second, so the difference to this host's clock is exact to a second only.
func ServerTime(ctx context.Context, server string) (time.Time, error) {
	resp, _, err := get(ctx, server+"/version", anyServer())
	if err != nil {
		return time.Time{}, err
	}
	return http.ParseTime(resp.Header.Get("Date"))
}
