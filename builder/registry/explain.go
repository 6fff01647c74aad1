package registry

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"airlift/builder/fetch"
	"airlift/internal/fault"
)

// An answer is the status of a request that failed. method and path are empty if they are not known.
type answer struct {
	code         int
	method, path string
	host         string // that answered
}

func answerOf(err error) (a answer) {
	if e := (*transport.Error)(nil); errors.As(err, &e) {
		a.code = e.StatusCode
		if e.Request != nil {
			a.method, a.path, a.host = e.Request.Method, e.Request.URL.Path, e.Request.URL.Host
		}
	}
	if e := (*fetch.StatusError)(nil); errors.As(err, &e) {
		a.code, a.host = e.Code, e.Host
	}
	return a
}

// explainAt is explain for what has this name in a repository.
func (c *Client) explainAt(repo name.Repository, what string, err error) error {
	host := c.account(repo).host
	var plain *plainError
	var proxy *fetch.ProxyError
	var syntax *json.SyntaxError
	a := answerOf(err)
	err = withoutPage(err)
	// The name that --mirror takes; it may already have a mirror.
	mirror := "--mirror " + strings.Replace(repo.RegistryStr(), name.DefaultRegistry, "docker.io", 1) + "=URL"
	if host != repo.RegistryStr() {
		mirror += " with another URL"
	}
	switch certificate := fetch.CertificateHint(err, host, "trust the registry's CA with --registry-ca "+host+"=FILE"); {
	case certificate != "":
		return fault.Wrap(err, fault.Failure, certificate)
	case errors.As(err, &proxy):
		return err
	case errors.As(err, &plain):
		return fault.Wrap(err, fault.Failure, "check the registry's name and port; if it has no TLS, allow plain http with --mirror "+host+"=http://"+host)
	case a.code == http.StatusNotFound && strings.HasSuffix(a.path, "/v2/"):
		return fault.New(fault.Failure, "%s is not a registry: /v2/ was not found", host).
			Hint("check the name and the port with: curl -I https://" + host + "/v2/ (a registry returns 200 or 401)")
	case a.code == http.StatusNotFound, fetch.NotThere(err):
		return &fetch.MissingError{URL: what}
	case fault.Hint(err) == fetch.PageHint:
		return err
	case a.code == http.StatusUnauthorized, a.code == http.StatusForbidden:
		return fault.Wrap(err, fault.Failure,
			"check the name; if it needs a login, run docker login "+host)
	case a.code == http.StatusTooManyRequests:
		return fault.Wrap(err, fault.Failure, cmp.Or(a.host, host)+" limits requests: wait, run docker login "+host+" for a higher limit, or use a mirror: "+mirror)
	case a.code >= http.StatusInternalServerError:
		return fault.Wrap(err, fault.Failure, cmp.Or(a.host, host)+" or a proxy before it has a fault: try again later, or use a mirror: "+mirror)
	case errors.As(err, &syntax):
		return fault.Wrap(fmt.Errorf("the answer of the registry or its token service is not JSON: %w", err), fault.Failure, fetch.PageHint)
	case err != nil && strings.Contains(err.Error(), "invalid realm in www-authenticate"):
		return fault.Wrap(err, fault.Failure, "the registry names a token service (realm) that is not used, because a registry could send "+
			"credentials anywhere: give the service a host name and https in the registry's configuration, or copy the image elsewhere: skopeo copy docker://"+what+" oci-archive:FILE")
	}
	return err
}

func withoutPage(err error) error {
	e := (*transport.Error)(nil)
	if !errors.As(err, &e) || !pageText.MatchString(e.Error()) {
		return err
	}
	short := &transport.Error{StatusCode: e.StatusCode, Request: e.Request}
	return fault.Wrap(fmt.Errorf("%w, and a web page (HTML)", short), fault.Failure, fetch.PageHint)
}

var pageText = regexp.MustCompile(`(?i)<(!doctype|html|head|body|\?xml)`)

var (
	quota = regexp.MustCompile(`(?i)quota|upper limit|limit ?exceeded|storage limit`)
	full  = regexp.MustCompile(`(?i)no space left|insufficient storage`)
)

// explainPush adds a hint if the repository refuses the push.
func (c *Client) explainPush(repo name.Repository, err error) error {
	a := answerOf(err)
	host := c.account(repo).host
	hint := ""
	switch {
	case a.code == http.StatusInsufficientStorage, full.MatchString(err.Error()):
		hint = "free space on the disk of the registry, or raise the quota of " + repo.RepositoryStr() + ", and run the command again"
	case quota.MatchString(err.Error()):
		hint = "raise the quota of the project of " + repo.RepositoryStr() + " in the registry, or delete images there, and run the command again"
	case a.method == http.MethodHead && (a.code == http.StatusMethodNotAllowed || a.code == http.StatusNotImplemented):
		hint = "allow the method HEAD in the proxy or firewall in front of the registry; this must return 200 or 401: curl -I https://" + host + "/v2/"
	case a.code == http.StatusRequestEntityTooLarge:
		hint = "raise the limit for uploads of the proxy in front of the registry, for nginx: client_max_body_size 0;"
	case fault.Hint(withoutPage(err)) == fetch.PageHint:
		return c.explain(repo.Tag("latest"), err)
	case a.code == http.StatusUnauthorized, a.code == http.StatusForbidden:
		hint = "run docker login " + host + " with an account that may push to " + repo.RepositoryStr()
	case a.code == http.StatusMethodNotAllowed:
		hint = "the registry is read-only or a proxy; push to another one"
	case a.code == http.StatusNotFound && !strings.HasSuffix(a.path, "/v2/"):
		hint = "create the project or namespace of " + repo.RepositoryStr() + " in the registry, or choose another prefix"
	default:
		return c.explain(repo.Tag("latest"), err)
	}
	return fault.Wrap(withoutPage(err), fault.Failure, hint)
}
