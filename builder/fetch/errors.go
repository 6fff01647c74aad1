package fetch

import (
	"errors"
	"fmt"
	"net/url"
)

// A MissingError means that a site does not have a file, or a registry an image.
type MissingError struct {
	URL string // of the file, or the image's reference
	// Why is a reason other than "not found". If it is empty, the site itself
	// returned 404 or 410.
	Why string
}

func (e *MissingError) Error() string {
	if e.Why != "" {
		return e.URL + " " + e.Why
	}
	return "not found: " + e.URL
}

// NotThere reports whether the site itself returned 404 or 410, as opposed to a site
// that is unreachable, denies access or fails.
func NotThere(err error) bool {
	var missing *MissingError
	return errors.As(err, &missing) && missing.Why == ""
}

// A MismatchError means that content does not have the expected sha256.
type MismatchError struct {
	Name, URL string // of the file; empty if the caller adds them
	Want, Got string // sha256, lower-case hex
	// Vouched names the source of Want: "published at https://…". It may be empty.
	Vouched string
}

func (e *MismatchError) Error() string {
	s := fmt.Sprintf("sha256 is %s, expected %s", e.Got, e.Want)
	if e.Vouched != "" {
		s += ", " + e.Vouched
	}
	if e.URL != "" {
		s = fmt.Sprintf("%s from %s: %s", e.Name, e.URL, s)
	}
	return s
}

// A SizeError means that an answer or its unpacked content is not of the announced size, or is too
// large.
type SizeError struct {
	What string // "https://…", "unpacked layer …"
	Why  string
}

func (e *SizeError) Error() string { return e.What + " " + e.Why }

// A StatusError is an answer with an unexpected HTTP status.
type StatusError struct {
	URL    string
	Code   int
	Status string // "403 Forbidden"
	Host   string // that answered; empty if it is not known
	retry  string // the header Retry-After
}

func (e *StatusError) Error() string {
	if u, err := url.Parse(e.URL); err == nil && e.Host != "" && u.Host != e.Host {
		return fmt.Sprintf("%s returned %s (from %s)", e.URL, e.Status, e.Host)
	}
	return fmt.Sprintf("%s returned %s", e.URL, e.Status)
}

// A RedirectError is a redirect from https to plain http, where anyone on the network path can
// read the request and answer it.
type RedirectError struct{ From, To string }

func (e *RedirectError) Error() string {
	return fmt.Sprintf("%s redirects to %s: a redirect from https to http is refused", e.From, e.To)
}

// Final marks an error that a retry does not change, such as a full disk.
func Final(err error) error { return &finalError{err} }

type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }
