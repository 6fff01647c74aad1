package snapshot

import (
	"errors"
	"strings"
	"testing"

	"airlift/installer/etcd"
	"airlift/internal/fault"
)

// TestCheckCurrent: a member without a leader sends a snapshot too, and it may be old.
func TestCheckCurrent(t *testing.T) {
	const own, other = "https://10.1.2.3:2379", "https://10.1.2.4:2379"
	for _, c := range []struct {
		url     string
		err     error
		refused bool
	}{
		{own, nil, false},
		{own, etcd.ErrNoSpace, false},
		{own, errors.New("it has no leader"), true},
		{other, errors.New("it has no leader"), false},
	} {
		members := []etcd.Status{{Member: etcd.Member{Name: "one", PeerURL: "https://one:2380", ClientURLs: []string{c.url}}, Err: c.err}}
		err := checkCurrent(members, own)
		if c.refused != (err != nil) || err != nil && (!strings.Contains(err.Error(), "one (https://one:2380) may not have the last changes: it has no leader") || fault.Hint(err) == "") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
