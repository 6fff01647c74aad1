package spec

import (
	"net"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"airlift/internal/documents/strict"
)

// match returns how a host finds itself, nil if the file does not say so.
func (r *reader) match(at string, in host) *Match {
	at += ".match"
	if in.Match == nil {
		return nil
	}
	switch set := slices.DeleteFunc([]string{"serial", "mac", "label"}, func(field string) bool { return r.Lines[at+"."+field] == 0 }); {
	case len(set) == 0:
		r.Add(r.Lines[at], "write serial, mac or label", "%s has no value", at)
	case len(set) > 1:
		r.Add(r.Lines[at], "write one of them", "%s has both %s and %s", at, set[0], set[1])
	}
	if *in.Match == (Match{}) {
		return nil // an error has its line
	}
	return in.Match
}

// noSerials are what firmware has that nobody configured.
var noSerials = regexp.MustCompile(`(?i)^(to be filled|default string|not (specified|applicable|available|present)|system serial|serial|none$|n/?a$|unknown|x+$|[0.\-]+$|0?123456789(0|abcdef)?$)`)

// NoSerial reports whether a serial number is none: many machines may have it.
func NoSerial(text string) bool {
	return strings.TrimSpace(text) == "" || noSerials.MatchString(strings.TrimSpace(text))
}

func serial(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	const where = "on that host: cat /sys/class/dmi/id/product_serial"
	switch {
	case NoSerial(text):
		return "", "is what many machines have", "write mac or label instead; " + where
	case strings.TrimSpace(text) != text || len(text) > 128 || strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }):
		return "", "is not a serial number", where
	}
	return text, "", ""
}

func mac(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	a, err := net.ParseMAC(text)
	if err != nil || len(a) != 6 || a[0]&1 != 0 || a.String() == "00:00:00:00:00:00" {
		return "", "is not the MAC address of a network interface", "write it as ip link prints it, such as 52:54:00:12:34:56"
	}
	return a.String(), "", ""
}

var labelText = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

func matchLabel(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	if !labelText.MatchString(text) {
		return "", "is not a label", "write letters, digits, and . _ - between them, at most 63"
	}
	return text, "", ""
}
