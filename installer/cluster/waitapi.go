package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/version"

	"airlift/installer/cluster/health"
	"airlift/installer/cluster/wait"
)

// WaitForAPI waits until the API server's /readyz succeeds, which includes its
// start-up hooks, such as the creation of RBAC's built-in roles.
func (c *Client) WaitForAPI(ctx context.Context, timeout time.Duration, report wait.Report) error {
	w := wait.For{
		What:    "the API server at " + c.Server + " to be ready",
		Short:   "the API server",
		Timeout: timeout, Attempt: health.AnswerTimeout, Report: report,
		Hint: health.KubeletHint + "; the logs of the containers are below /var/log/pods",
		Epilogue: func(ctx context.Context) string {
			_, state := health.Kubelet(ctx, health.KubeletURL)
			return state
		},
	}
	return w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		ready, state := c.Ready(ctx)
		return ready, state, nil
	})
}

// WaitForNoAPIServer waits until no API server is registered at one of the addresses. API servers renew their
// entries, and remove the entries of others that are not renewed.
func (c *Client) WaitForNoAPIServer(ctx context.Context, addresses []netip.Addr, timeout time.Duration, report wait.Report) error {
	w := wait.For{
		What: "the API servers to remove an address from the Service default/kubernetes", Timeout: timeout, Report: report,
		Hint: "see: kubectl get endpointslices kubernetes",
	}
	return w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		servers, _, err := c.listAPIServers(ctx)
		if err != nil {
			return false, err.Error(), nil
		}
		var left []string
		for _, s := range servers {
			if slices.Contains(addresses, s.Addr().Unmap()) {
				left = append(left, s.String())
			}
		}
		return len(left) == 0, "it has " + strings.Join(left, ", "), nil
	})
}

// Ready reports whether /readyz of the API server succeeds, and else why not.
func (c *Client) Ready(ctx context.Context) (ok bool, state string) {
	status := 0
	result := c.API.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status)
	body, err := result.Raw()
	switch status {
	case http.StatusOK:
		return true, ""
	case 0:
		return false, "the API server does not answer: " + err.Error()
	}
	return false, fmt.Sprintf("the API server returned %d: %s", status, health.FailedChecks(body))
}

// Answers reports whether the API server answers at all, in one attempt.
func (c *Client) Answers(ctx context.Context) bool {
	status := 0
	c.API.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).StatusCode(&status)
	return status != 0
}

// Accepts fails if the API server does not answer, or does not accept the credentials, in one attempt.
func (c *Client) Accepts(ctx context.Context) error {
	return c.API.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
}

// Version returns the API server's version: "v1.37.1".
func (c *Client) Version(ctx context.Context) (string, error) {
	var answer version.Info
	err := wait.Retry(ctx, func() error {
		body, err := c.API.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
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

// Reach makes one request to the API server. Unlike other methods it does not wait for a
// server that is away.
func (c *Client) Reach(ctx context.Context) error {
	status := 0
	result := c.API.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).StatusCode(&status)
	if status == http.StatusOK {
		return nil
	}
	return fmt.Errorf("the API server at %s does not answer: %w", c.Server, result.Error())
}
