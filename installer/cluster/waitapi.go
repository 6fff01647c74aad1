package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/version"
)

const kubeletHint = "check the kubelet's log: journalctl -u kubelet -e"

// WaitForKubelet waits until the health check of this host's kubelet at url
// succeeds.
func WaitForKubelet(ctx context.Context, url string, timeout time.Duration, report Report) error {
	w := wait{what: "the kubelet to be healthy", hint: kubeletHint, timeout: timeout, attempt: 2 * time.Second, report: report}
	return w.until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		ok, state := kubeletHealth(ctx, url)
		return ok, state, nil
	})
}

// kubeletHealth requests url without a proxy, because it is on loopback.
func kubeletHealth(ctx context.Context, url string) (ok bool, state string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err.Error()
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return false, "the kubelet does not answer: " + err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Sprintf("the kubelet returned %s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return true, "the kubelet is healthy"
}

// answerTimeout limits the first request for a health check. An API server that starts may leave one
// request without an answer, and answer the next one at once. A slow host gets more time: until
// doubles the limit each time.
const answerTimeout = time.Second

// WaitForAPI waits until the API server's /readyz succeeds, which includes its
// start-up hooks, such as the creation of RBAC's built-in roles.
func (c Waits) WaitForAPI(ctx context.Context, timeout time.Duration, report Report) error {
	w := wait{
		what:    "the API server at " + c.client.server + " to be ready",
		short:   "the API server",
		timeout: timeout, attempt: answerTimeout, report: report,
		hint: kubeletHint + "; the logs of the containers are below /var/log/pods",
		epilogue: func(ctx context.Context) string {
			_, state := kubeletHealth(ctx, kubeletHealthURL)
			return state
		},
	}
	return w.until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		ready, state := c.client.ready(ctx)
		return ready, state, nil
	})
}

// ready reports whether /readyz of the API server succeeds, and else why not.
func (c *Client) ready(ctx context.Context) (ok bool, state string) {
	status := 0
	result := c.api.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status)
	body, err := result.Raw()
	switch status {
	case http.StatusOK:
		return true, ""
	case 0:
		return false, "the API server does not answer: " + err.Error()
	}
	return false, fmt.Sprintf("the API server returned %d: %s", status, failedChecks(body))
}

// Answers reports whether the API server answers at all, in one attempt.
func (c *Client) Answers(ctx context.Context) bool {
	status := 0
	c.api.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).StatusCode(&status)
	return status != 0
}

// Accepts fails if the API server does not answer, or does not accept the credentials, in one attempt.
func (c *Client) Accepts(ctx context.Context) error {
	return c.api.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
}

// Version returns the API server's version: "v1.37.1".
func (c *Client) Version(ctx context.Context) (string, error) {
	var answer version.Info
	err := persist(ctx, func() error {
		body, err := c.api.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
		if err != nil {
			return err
		}
		return json.Unmarshal(body, &answer)
	})
	if err != nil {
		return "", fmt.Errorf("reading the version of the API server: %w", err)
	}
	return answer.GitVersion, nil
}

// failedChecks lists the failed checks in an answer of /readyz: lines that start
// with [-].
func failedChecks(body []byte) string {
	var failed []string
	lines := bufio.NewScanner(strings.NewReader(string(body)))
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			failed = append(failed, name)
		}
	}
	if len(failed) == 0 {
		return "not ready"
	}
	return "not ready: " + strings.Join(failed, ", ")
}
