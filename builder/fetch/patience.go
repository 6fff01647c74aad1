package fetch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"airlift/internal/fault"
)

// wait returns the time before the next attempt: what the site asks for, or a time that
// grows with the number of failures. It returns an error if the site asks for too long.
func (c *Client) wait(err error, failed int) (time.Duration, error) {
	usual := min(retryablehttp.DefaultBackoff(c.RetryWait, c.maxWait, failed-1, nil), c.maxWait)
	var status *StatusError
	if !errors.As(err, &status) || status.Code != http.StatusTooManyRequests && status.Code != http.StatusServiceUnavailable {
		return usual, nil
	}
	asked := retryAfter(status.retry, time.Now())
	if asked > c.maxRetryAfter {
		return 0, Final(fault.Wrap(fmt.Errorf("%w; it asks to wait %v", err, asked.Round(time.Second)), fault.Failure,
			"run the same command again after that time; if this is a registry that limits pulls without an account, log in"))
	}
	return cmp.Or(asked, usual), nil
}

// retryAfter returns the wait in the header Retry-After, which has seconds or a date. It
// returns 0 if there is none, or if the date has passed.
func retryAfter(header string, now time.Time) time.Duration {
	const most = 1 << 30 // seconds, so that nothing overflows
	if s, err := strconv.ParseUint(header, 10, 64); err == nil {
		return time.Duration(min(s, most)) * time.Second
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return max(0, at.Sub(now))
}

// Patient returns a transport that retries requests as c does. It is for small requests of other
// packages, such as login requests. After the last attempt, it returns an error instead of the
// answer.
func (c *Client) Patient(base http.RoundTripper) http.RoundTripper { return patient{c, base} }

type patient struct {
	client *Client
	base   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (p patient) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	ctx := Allow(req.Context(), maxAnswer)
	err = p.client.retry(ctx, func() (bool, error) {
		again := req.Clone(ctx)
		if req.GetBody != nil {
			if again.Body, err = req.GetBody(); err != nil {
				return false, Final(err)
			}
		}
		answer, err := p.base.RoundTrip(again)
		if err != nil {
			return false, err
		}
		if code := answer.StatusCode; temporaryStatus(ctx, code) {
			_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10))
			answer.Body.Close()
			return false, &StatusError{Shown(req.URL), code, fmt.Sprintf("%d %s", code, http.StatusText(code)), hostOf(answer), answer.Header.Get("Retry-After")}
		}
		resp = answer
		return false, nil
	})
	if err != nil {
		return nil, Final(err)
	}
	return resp, nil
}
