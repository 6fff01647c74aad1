package etcd

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"airlift/internal/fault"
)

// TestReported distinguishes the alarm NOSPACE, which a defragmentation may end, from others.
func TestReported(t *testing.T) {
	for _, c := range []struct {
		list    []string
		noSpace bool
	}{
		{[]string{"memberID:10 alarm:NOSPACE "}, true},
		{[]string{"memberID:10  alarm:NOSPACE", "memberID:11  alarm:NOSPACE"}, true},
		{[]string{"memberID:10 alarm:CORRUPT "}, false},
		{[]string{"memberID:10 alarm:NOSPACE ", "memberID:11 alarm:CORRUPT "}, false},
	} {
		if err := reported(c.list); err == nil || errors.Is(err, ErrNoSpace) != c.noSpace {
			t.Errorf("%q: %v", c.list, err)
		}
	}
}

// TestQuorumWithoutSpace: members with the alarm NOSPACE vote.
func TestQuorumWithoutSpace(t *testing.T) {
	states := []State{{Member{ID: 1}, ErrNoSpace}, {Member{ID: 2}, ErrNoSpace}, {Member{ID: 3}, ErrNoSpace}}
	if _, err := Without(states, states[0].Member); err != nil {
		t.Error(err)
	}
	states[1].Err = errors.New("connection refused")
	if _, err := Without(states, states[0].Member); err == nil {
		t.Error("one of two members is down, and the third may be removed")
	}
}

// TestStatusHasAlarms reads the alarms and the database of a real etcd. Only a defragmentation
// accepts the alarm NOSPACE, and it ends with none.
func TestStatusHasAlarms(t *testing.T) {
	s := newServers(t)
	one := s.make("one")
	s.start(one)
	c := s.connect(one)
	m := s.member(c, one)
	list, _, err := c.Status(t.Context())
	if err != nil || len(list) != 1 || len(list[0].Alarms) > 0 || list[0].Version == "" || list[0].DBSize == 0 {
		t.Errorf("%+v %v", list, err)
	}
	raise := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: m.ID, Alarm: etcdserverpb.AlarmType_NOSPACE}
	if _, err := etcdserverpb.NewMaintenanceClient(c.api.ActiveConnection()).Alarm(t.Context(), raise); err != nil {
		t.Fatal(err)
	}
	if list, _, err = c.Status(t.Context()); err != nil || !slices.Equal(list[0].Alarms, []string{"NOSPACE"}) {
		t.Errorf("%+v %v", list, err)
	}
	if !errors.Is(list[0].Err, ErrNoSpace) {
		t.Errorf("unhealthy because of %v", list[0].Err)
	}
	if err := c.CheckHealthy(t.Context(), ""); err == nil || !strings.Contains(fault.Hint(err), "etcd defrag") {
		t.Errorf("%v, hint %q", err, fault.Hint(err))
	}
	if err := c.CheckDefrag(t.Context()); err != nil {
		t.Errorf("a defragmentation is refused: %v", err)
	}
	for _, want := range []bool{true, false} {
		if disarmed, err := c.DisarmNoSpace(t.Context()); err != nil || disarmed != want {
			t.Errorf("disarmed %t, %v; want %t", disarmed, err, want)
		}
	}
	if err := c.CheckHealthy(t.Context(), ""); err != nil {
		t.Error(err)
	}
}
