package cluster

import (
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"
)

// A Lease has one holder until it is dropped or its duration has passed.
func TestLease(t *testing.T) {
	c := &Client{api: fake.NewClientset()}
	now := time.Now()
	take := func(holder string, at time.Time) string {
		has, err := c.TakeLease(t.Context(), "turn", holder, time.Minute, at)
		if err != nil {
			t.Fatal(err)
		}
		return has
	}
	for i, step := range []struct {
		holder string
		after  time.Duration
		want   string
		drop   string
	}{
		{holder: "a", want: "a"},
		{holder: "b", want: "a"},
		{holder: "a", after: time.Second, want: "a"}, // the same command again
		{holder: "b", after: time.Minute, want: "a", drop: "b"},
		{holder: "b", after: 62 * time.Second, want: "b", drop: "b"},
		{holder: "a", after: 63 * time.Second, want: "a"},
	} {
		if has := take(step.holder, now.Add(step.after)); has != step.want {
			t.Errorf("step %d: %s has the Lease, not %s", i, has, step.want)
		}
		if step.drop != "" {
			if err := c.DropLease(t.Context(), "turn", step.drop); err != nil {
				t.Error(err)
			}
		}
	}
}
