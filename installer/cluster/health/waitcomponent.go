package health

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"airlift/installer/cluster/wait"
)

// WaitForContainer waits until look reports that the kubelet has started the container of a
// component. state describes the container for the progress output.
func WaitForContainer(ctx context.Context, name string, timeout time.Duration, report wait.Report, look func(context.Context) (done bool, state string, err error)) error {
	w := wait.For{What: "the kubelet to start the new container of " + name, Short: name + "'s container", Hint: KubeletHint, Timeout: timeout, Report: report}
	return w.Until(ctx, nil, look)
}

// WaitForEnd waits until the kubelet has removed the previous pod of a component.
// look returns a description of the pod's state.
func WaitForEnd(ctx context.Context, name string, timeout time.Duration, report wait.Report, look func(context.Context) (done bool, state string, err error)) error {
	w := wait.For{What: "the kubelet to remove the previous pod of " + name, Short: name + "'s end", Hint: KubeletHint, Timeout: timeout, Report: report}
	return w.Until(ctx, nil, look)
}

// WaitForComponent waits until the health check of a component of this host's control plane
// succeeds. It does not check the certificate: the controller manager and the scheduler sign
// their own.
func WaitForComponent(ctx context.Context, name, url string, timeout time.Duration, report wait.Report) error {
	w := wait.For{
		What: "the health check of " + name + " at " + url, Short: name, Timeout: timeout, Attempt: AnswerTimeout, Report: report,
		Hint: KubeletHint + "; the component's log: /var/log/pods",
	}
	transport := anyCertificate()
	return w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, "", err
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return false, name + " does not answer: " + err.Error(), nil
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return true, "", nil
		}
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return false, fmt.Sprintf("%s returned %s: %s", name, resp.Status, strings.TrimSpace(string(body))), nil
	})
}
