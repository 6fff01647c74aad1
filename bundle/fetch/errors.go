package fetch

import "fmt"

// A MissingError says that a site does not have a file, or a registry an image.
type MissingError struct {
	URL string // of the file, or the image's reference
	Why string // more than that it was not found, if so
}

func (e *MissingError) Error() string {
	if e.Why != "" {
		return e.URL + " " + e.Why
	}
	return "not found: " + e.URL
}

// A MismatchError says that content is not what its publisher's checksum, or
// its digest, says.
type MismatchError struct {
	Name, URL string // of the file; empty where the caller knows better
	Want, Got string // sha256, lower-case hex
}

func (e *MismatchError) Error() string {
	s := fmt.Sprintf("sha256 is %s, but should be %s", e.Got, e.Want)
	if e.URL != "" {
		s = fmt.Sprintf("%s from %s: %s", e.Name, e.URL, s)
	}
	return s
}
