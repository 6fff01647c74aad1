package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"airlift/builder/fetch"
)

// logIn returns a transport that has a permission in a repository. It renews the permission
// when it expires.
// action is transport.PullScope or transport.PushScope.
func (c *Client) logIn(ctx context.Context, repo name.Repository, action string) (http.RoundTripper, error) {
	auth, err := credentials(c.account(repo), c.AuthFile)
	if err != nil {
		return nil, err
	}
	host := repo.RegistryStr()
	_, mirrored := c.mirrors.Lookup(host)
	base := &loginTransport{host: host, mirrored: mirrored, secure: action == transport.PushScope, requests: c.mirrors, logins: c.fetch.Patient(c.mirrors)}
	tr, err := transport.NewWithContext(ctx, repo.Registry, auth, base, []string{c.scope(repo, action)})
	if err != nil {
		return nil, fmt.Errorf("logging in: %w", err)
	}
	return tr, nil
}

// scope is a permission in a repository. A mirror knows the repository by the
// path that requests to it have.
func (c *Client) scope(repo name.Repository, action string) string {
	a := c.account(repo)
	return "repository:" + a.path + ":" + action
}

// account returns the account to authenticate with. For a mirrored registry this is one at
// the mirror, which must not get the registry's password.
func (c *Client) account(repo name.Repository) account {
	return c.accountAt(repo.RegistryStr(), repo.RepositoryStr())
}

func (c *Client) accountAt(host, path string) account {
	a := account{host, path}
	if to, ok := c.mirrors.Lookup(a.host); ok {
		a.host = to.Host
		if prefix, ok := strings.CutPrefix(to.Path, "/v2/"); ok {
			a.path = prefix + "/" + a.path
		}
	}
	return a
}

type requestKey struct{}

// A sessionTransport marks the requests of package fetch, so that a loginTransport can distinguish
// them from the requests that go-containerregistry adds.
type sessionTransport struct{ base http.RoundTripper }

func (t sessionTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req.WithContext(context.WithValue(req.Context(), requestKey{}, req.URL)))
	if denied := (*transport.Error)(nil); errors.As(err, &denied) {
		return nil, fetch.Final(fmt.Errorf("logging in: %w", err))
	}
	return resp, err
}

// A loginTransport is below go-containerregistry's. Requests for tokens have the context of
// the request that needs one, but not its limits, and package fetch does not retry them.
type loginTransport struct {
	host             string // the registry
	mirrored         bool
	requests, logins http.RoundTripper
	// secure sends requests over https that go-containerregistry would send over http,
	// because the host looks private. The ping, which fails then, is not one of them.
	secure bool
}

func (t *loginTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.secure && req.URL.Scheme == "http" && req.URL.Host == t.host && req.URL.Path != "/v2/" {
		req = req.Clone(req.Context())
		req.URL.Scheme = "https"
	}
	// go-containerregistry tries http for hosts that look private, and for uploads that the
	// registry wants there.
	if req.URL.Scheme == "http" && !t.mirrored {
		return nil, fetch.Final(&plainError{req.URL.Host})
	}
	if u, ok := req.Context().Value(requestKey{}).(*url.URL); ok && u == req.URL {
		return t.requests.RoundTrip(req)
	}
	resp, err := t.logins.RoundTrip(req)
	if err != nil || req.Method != http.MethodPost || req.Header.Get("Content-Type") != formType {
		return resp, err
	}
	return keepForm(req.URL, resp)
}

// formType is the type of a request with an identity token. Uploads have another one.
const formType = "application/x-www-form-urlencoded"

// keepForm returns the answer of a token service, or an error if net/http would send the form
// with the identity token again to another site.
func keepForm(from *url.URL, resp *http.Response) (*http.Response, error) {
	if code := resp.StatusCode; code != http.StatusTemporaryRedirect && code != http.StatusPermanentRedirect {
		return resp, nil
	}
	to, err := from.Parse(resp.Header.Get("Location"))
	if err == nil && fetch.SameOrigin(from, to) {
		return resp, nil
	}
	resp.Body.Close()
	return nil, fetch.Final(fmt.Errorf("the token service %s redirects to %q: the identity token is not sent to another site", from.Host, resp.Header.Get("Location")))
}

// A plainError is a request over plain http that was not sent.
type plainError struct{ host string }

func (e *plainError) Error() string {
	return fmt.Sprintf("plain http needs --mirror %s=http://%s", e.host, e.host)
}
