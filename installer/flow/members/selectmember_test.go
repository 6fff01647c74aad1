package members

import (
	"strings"
	"testing"

	"airlift/installer/etcd"
	"airlift/internal/fault"
)

// TestSelectMember: an empty name, a part of an ID and a name that may be an ID select no member.
func TestSelectMember(t *testing.T) {
	members := []etcd.Member{
		{ID: 0x10, Name: "host1"},
		{ID: 0x8e9e05c52164694d, PeerURL: "https://10.0.0.4:2380", Learner: true}, // a host that joins
		{ID: 0x9f, Name: "8e9e05c52164694d"},
		{ID: 0xa1, Name: "twice"}, {ID: 0xa2, Name: "twice"},
	}
	for name, want := range map[string]uint64{
		"host1": 0x10, "10": 0x10, "0x10": 0x10, "0000000000000010": 0x10, "9f": 0x9f, "9F": 0x9f,
		"0x8e9e05c52164694d": 0x8e9e05c52164694d, "0X8E9E05C52164694D": 0x8e9e05c52164694d, "a2": 0xa2,
		"": 0, " ": 0, "0x": 0, "0": 0, "8e9e": 0, "host": 0, "HOST1": 0, "8e9e05c52164694d": 0, "twice": 0, "-10": 0, "10 ": 0,
	} {
		m, err := selectMember(members, name)
		if m.ID != want || (err == nil) != (want != 0) || err != nil && (fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "") {
			t.Errorf("%q: %x, %v, hint %q", name, m.ID, err, fault.Hint(err))
		}
	}
	if _, err := selectMember(members, "8e9e05c52164694d"); !strings.Contains(fault.Hint(err), "./install etcd member remove 0x8e9e05c52164694d, or ./install etcd member remove 0x000000000000009f") {
		t.Errorf("hint %q", fault.Hint(err))
	}
}
