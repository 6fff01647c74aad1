package ledger_test

import (
	"reflect"
	"testing"

	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
)

// The ledger keeps the original target of an image name, however often Airlift
// changes the target and wherever a run is killed. If another user changes the
// target in between, that becomes the original.
func TestImageNames(t *testing.T) {
	root := t.TempDir()
	open := func() *host.Host {
		t.Helper()
		h, err := host.Open(root) // as in a new run
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	target := func(digest string) *ledger.ImageTarget {
		return &ledger.ImageTarget{MediaType: "m", Digest: digest, Size: 1, Labels: map[string]string{"pinned": "no"}}
	}
	name := func(before *ledger.ImageTarget, set ...string) ledger.ImageName {
		return ledger.ImageName{Socket: "/run/c.sock", Name: "pause:1", Before: before, Set: set}
	}
	for _, step := range []struct {
		record, want ledger.ImageName
	}{
		{name(target("theirs"), "ours"), name(target("theirs"), "ours")},
		{name(target("theirs"), "ours"), name(target("theirs"), "ours")},         // killed before the change
		{name(target("ours"), "newer"), name(target("theirs"), "newer", "ours")}, // another bundle
		{name(target("ours"), "newer"), name(target("theirs"), "newer", "ours")}, // killed again
		{name(target("another"), "newer"), name(target("another"), "newer", "ours")},
		{name(nil, "newer"), name(nil, "newer", "ours")}, // a user removed it
		{name(target("newer"), "newer"), name(nil, "newer", "ours")},
	} {
		if err := open().Records().RecordImageNames(step.record); err != nil {
			t.Fatal(err)
		}
		if got := open().Records().ImageNames(); !reflect.DeepEqual(got, []ledger.ImageName{step.want}) {
			t.Errorf("recorded %+v: the ledger has %+v, want %+v", step.record, got, step.want)
		}
	}

	// The same name in another containerd is a separate name.
	other := name(nil, "ours")
	other.Socket = "/run/other.sock"
	h := open()
	if err := h.Records().RecordImageNames(other); err != nil {
		t.Fatal(err)
	}
	if got := h.Records().ImageNames(); len(got) != 2 || got[0].Socket != other.Socket {
		t.Errorf("the ledger has %+v", got)
	}
	if err := h.Records().ForgetImageNames(other); err != nil {
		t.Fatal(err)
	}
	if got := open().Records().ImageNames(); len(got) != 1 || got[0].Socket == other.Socket {
		t.Errorf("the ledger has %+v", got)
	}
	// Reset keeps the ledger while it has image names to restore.
	if _, err := uninstall.RemoveInstalled(t.Context(), h); err != nil || !open().Records().Used() {
		t.Errorf("the ledger is gone with a name in it: %v", err)
	}
	if err := h.Records().ForgetImageNames(name(nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := uninstall.RemoveInstalled(t.Context(), h); err != nil || open().Records().Used() {
		t.Errorf("the ledger is still there: %v", err)
	}
}
