package fetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"airlift/internal/fault"
)

// A ProxyError is the answer of a proxy that does not forward a request.
type ProxyError struct {
	Proxy string // its URL without the password; empty if it is not known
	Code  int
}

func (e *ProxyError) Error() string {
	name := "a proxy"
	if e.Proxy != "" {
		name = "the proxy " + e.Proxy
	}
	return fmt.Sprintf("%s returned %d %s", name, e.Code, http.StatusText(e.Code))
}

// proxySchemes are the kinds of proxies that net/http supports.
var proxySchemes = []string{"http", "https", "socks5", "socks5h"}

const proxyHint = "write http://HOST:PORT or http://USER:PASSWORD@HOST:PORT; in USER and PASSWORD, write % as %25, # as %23, @ as %40, : as %3A, / as %2F and \\ as %5C"

// checkProxies returns an error for a variable that net/http would ignore or understand in another way. The error
// has no part of the value, which may be a part of a password.
func checkProxies() error {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		if value := os.Getenv(name); value != "" && !isProxy(value) {
			return fault.New(fault.Usage, "the variable %s is not the URL of a proxy", name).Hint(proxyHint)
		}
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		for _, entry := range strings.Split(os.Getenv(name), ",") {
			entry = strings.TrimSpace(entry)
			if _, _, err := net.ParseCIDR(entry); err != nil && strings.Contains(entry, "/") {
				return fault.New(fault.Usage, "the variable %s has %q, which is neither a host nor a network", name, entry).
					Hint("write host names, .DOMAIN, IP addresses and networks such as 10.0.0.0/8, separated by commas")
			}
		}
	}
	return nil
}

func isProxy(value string) bool {
	if !strings.Contains(value, "://") {
		value = "http://" + value
	}
	u, err := url.Parse(value)
	return err == nil && slices.Contains(proxySchemes, u.Scheme) && u.Hostname() != "" &&
		strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && !u.ForceQuery && !strings.Contains(value, "#")
}

// proxyVariable names the variables with the proxy for requests of a scheme.
func proxyVariable(scheme string) string {
	upper := strings.ToUpper(scheme) + "_PROXY"
	set := slices.DeleteFunc([]string{upper, strings.ToLower(upper)}, func(name string) bool { return os.Getenv(name) == "" })
	if len(set) == 0 {
		return upper
	}
	return strings.Join(set, " and ")
}

// useProxies makes a transport use the proxies in the environment. It reads the variables now.
func useProxies(t *http.Transport) {
	choose := httpproxy.FromEnvironment().ProxyFunc()
	t.Proxy = func(req *http.Request) (*url.URL, error) { return choose(req.URL) }
	t.OnProxyConnectResponse = func(_ context.Context, proxy *url.URL, _ *http.Request, answer *http.Response) error {
		if answer.StatusCode == http.StatusOK {
			return nil
		}
		return &ProxyError{Shown(proxy), answer.StatusCode}
	}
}

func explainProxy(u *url.URL, err error) error {
	name := proxyVariable(u.Scheme)
	around := ", or add " + u.Hostname() + " to NO_PROXY if it is reachable without a proxy"
	var refused *ProxyError
	if errors.As(err, &refused) && refused.Code == http.StatusProxyAuthRequired {
		return fault.Wrap(err, fault.Failure, "the proxy needs a login: set "+name+" to http://USER:PASSWORD@HOST:PORT, with % as %25, # as %23 and @ as %40"+around)
	}
	if errors.As(err, &refused) {
		return fault.Wrap(err, fault.Failure, "allow access to "+u.Hostname()+" in the proxy of "+name+around)
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "proxyconnect" {
		return fault.Wrap(err, fault.Failure, "check the proxy in "+name+around)
	}
	return err
}
