package main

import (
	"testing"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// A result of another kind never replaces a bundle, and a signature never replaces the signature of
// another key.
func TestLastCopiesAreKept(t *testing.T) {
	u := fakesites.New(t, "v1.29.15", "v1.29.99")
	s := newShell(t)
	s.want(0, "", "keygen", "--no-password")
	s.want(0, "", "keygen", "--no-password", "--output", "release")
	s.want(0, "", buildArgs(u, "--version", "v1.29.15", "--output", "old", "--sign-key", "airlift.key")...)
	s.want(0, "", buildArgs(u, "--version", "v1.29.99", "--output", "new")...)
	s.write("other", []byte(s.read("old")))
	before := s.read("other") + s.read("old.minisig")
	s.want(fault.Usage, `"other" is a bundle: it is not replaced`, "delta", "old", "new", "--output", "other")
	s.want(fault.Usage, `"other" is a bundle: it is not replaced`, "sign", "old", "--key", "airlift.key", "--output", "other")
	s.want(fault.Usage, `"other" is a bundle: it is not replaced`, buildArgs(u, "--version", "v1.29.15", "--output", "next", "--lock", "other")...)
	s.want(fault.Usage, `"old.minisig" is a signature by key `, "sign", "old", "--key", "release.key")
	if s.read("other")+s.read("old.minisig") != before {
		t.Error("a bundle or a signature was replaced")
	}
	s.want(0, "", "sign", "old", "--key", "airlift.key")
	s.want(0, "", "sign", "old", "--key", "release.key", "--output", "old.release.minisig")
}
