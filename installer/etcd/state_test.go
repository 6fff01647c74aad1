package etcd

import (
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestAlarms reads the alarms and the database of a real etcd.
func TestAlarms(t *testing.T) {
	s := newServers(t)
	one := s.make("one")
	s.start(one)
	c := s.connect(one)
	m := s.member(c, one)
	if alarms, err := c.Alarms(t.Context()); err != nil || len(alarms) > 0 {
		t.Errorf("%v %v", alarms, err)
	}
	if version, size, err := c.Database(t.Context(), m); err != nil || version == "" || size == 0 {
		t.Errorf("%q %d %v", version, size, err)
	}
	raise := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: m.ID, Alarm: etcdserverpb.AlarmType_NOSPACE}
	if _, err := etcdserverpb.NewMaintenanceClient(c.api.ActiveConnection()).Alarm(t.Context(), raise); err != nil {
		t.Fatal(err)
	}
	if alarms, err := c.Alarms(t.Context()); err != nil || alarms[m.ID] != "NOSPACE" {
		t.Errorf("%v %v", alarms, err)
	}
	if _, _, err := c.Database(t.Context(), Member{}); err == nil {
		t.Error("a member without URLs has a database")
	}
}
