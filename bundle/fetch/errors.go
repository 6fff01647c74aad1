package fetch

import (
	"errors"
	"fmt"
)

// A MissingError says that a site does not have a file, or a registry an image.
type MissingError struct {
	URL string // of the file, or the image's reference
	// Why is a reason other than "not found". If it is empty, the site itself
	// answered 404 or 410.
	Why string
}

func (e *MissingError) Error() string {
	if e.Why != "" {
		return e.URL + " " + e.Why
	}
	return "not found: " + e.URL
}

// NotThere reports whether err is a site's own answer that it does not have a
// file: 404 or 410, and not a site that cannot be reached, refuses or fails.
func NotThere(err error) bool {
	var missing *MissingError
	return errors.As(err, &missing) && missing.Why == ""
}

// A MismatchError says that content does not have the sha256 that it should.
type MismatchError struct {
	Name, URL string // of the file; empty where the caller knows better
	Want, Got string // sha256, lower-case hex
	// Vouched is where Want comes from: "published at https://…". It may be
	// empty.
	Vouched string
}

func (e *MismatchError) Error() string {
	s := fmt.Sprintf("sha256 is %s, but should be %s", e.Got, e.Want)
	if e.Vouched != "" {
		s += ", " + e.Vouched
	}
	if e.URL != "" {
		s = fmt.Sprintf("%s from %s: %s", e.Name, e.URL, s)
	}
	return s
}

// A SizeError says that an answer, or what it unpacks to, does not have the
// size that was announced or allowed.
type SizeError struct {
	What string // "https://…", "unpacked layer …"
	Why  string
}

func (e *SizeError) Error() string { return e.What + " " + e.Why }

// A StatusError is an answer other than the one asked for.
type StatusError struct {
	URL    string
	Code   int
	Status string // "403 Forbidden"
	retry  string // the header Retry-After
}

func (e *StatusError) Error() string { return fmt.Sprintf("%s answered %s", e.URL, e.Status) }

// A RedirectError is a redirect of a checksum or a manifest from https to plain
// http, where anyone on the network path could answer.
type RedirectError struct{ From, To string }

func (e *RedirectError) Error() string {
	return fmt.Sprintf("%s redirects to %s: a redirect from https to http is refused", e.From, e.To)
}

// A localError is this machine's own: a full disk is no reason to ask again.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }
func (e *localError) Unwrap() error { return e.err }
