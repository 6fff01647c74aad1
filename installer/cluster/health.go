package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Health makes one request to the health check of a component of this host. It does not
// check the certificate, and uses no proxy. A component that answers unauthorized requests with
// "forbidden" is healthy.
func Health(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: anyServer()}
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
	if failed := failedChecks(body); failed != "not ready" {
		return fmt.Errorf("its health check returned %s: %s", resp.Status, failed)
	}
	return fmt.Errorf("its health check returned %s: %.200s", resp.Status, strings.TrimSpace(string(body)))
}

// Reach makes one request to the API server. Unlike other methods it does not wait for a
// server that is away.
func (c *Client) Reach(ctx context.Context) error {
	status := 0
	result := c.api.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).StatusCode(&status)
	if status == http.StatusOK {
		return nil
	}
	return fmt.Errorf("the API server at %s does not answer: %w", c.server, result.Error())
}

// ServerTime returns the API server's time, from the header of an answer. The request takes
// part of a second, so the difference to this host's clock is exact to a second only.
func (c *Client) ServerTime(ctx context.Context) (time.Time, error) {
	resp, _, err := get(ctx, c.server+"/version", anyServer())
	if err != nil {
		return time.Time{}, err
	}
	return http.ParseTime(resp.Header.Get("Date"))
}
