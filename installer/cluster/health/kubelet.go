package health

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/internal/dialer"
)

const KubeletHint = "check the kubelet's log: journalctl -u kubelet -e"

// WaitForKubelet waits until the health check of this host's kubelet at url
// succeeds.
func WaitForKubelet(ctx context.Context, url string, timeout time.Duration, report wait.Report) error {
	w := wait.For{What: "the kubelet to be healthy", Hint: KubeletHint, Timeout: timeout, Attempt: 2 * time.Second, Report: report}
	return w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		ok, state := Kubelet(ctx, url)
		return ok, state, nil
	})
}

// Kubelet requests url without a proxy, because it is on loopback.
func Kubelet(ctx context.Context, url string) (ok bool, state string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err.Error()
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: dialer.Dial}
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

// KubeletURL is the kubelet's health check on loopback, at the default of
// KubeletConfiguration.healthzPort.
var KubeletURL = fmt.Sprintf("http://127.0.0.1:%d/healthz", config.KubeletHealthzPort)
