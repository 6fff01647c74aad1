package health

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"airlift/internal/dialer"
)

// ServerName is in the certificate of every API server, and in no kubelet's. A client that trusts the CA of the cluster must
// require it: the CA also signs certificates with which kubelets serve.
const ServerName = "kubernetes.default.svc"

// Check makes one request to the health check of a component of this host. It does not
// check the certificate, and uses no proxy. A component that answers unauthorized requests with
// "forbidden" is healthy.
func Check(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	transport := anyCertificate()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("it does not answer: %w", err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusUnauthorized, http.StatusForbidden:
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if failed := FailedChecks(body); failed != "not ready" {
		return fmt.Errorf("its health check returned %s: %s", resp.Status, failed)
	}
	return fmt.Errorf("its health check returned %s: %.200s", resp.Status, strings.TrimSpace(string(body)))
}

// FailedChecks lists the failed checks in an answer of /readyz: lines that start
// with [-].
func FailedChecks(body []byte) string {
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

// AnswerTimeout limits the first request for a health check. An API server that starts may leave one
// request without an answer, and answer the next one at once. A slow host gets more time: until
// doubles the limit each time.
const AnswerTimeout = time.Second

// anyCertificate does not check certificates: some components sign their own.
func anyCertificate() *http.Transport {
	return &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DialContext: dialer.Dial}
}
