package etcd

import (
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestStatusHasAlarms reads the alarms and the database of a real etcd.
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
}
