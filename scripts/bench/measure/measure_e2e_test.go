//go:build e2e

package measure

import (
	"context"
	"testing"
	"time"

	"airlift/scripts/lab"
)

// The measurements must match what the test does on a host.
func TestMeasuresWhatHappens(t *testing.T) {
	l, err := lab.Up(t.Context(), lab.Options{Name: "e2e-measure", Hosts: 1, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	h := l.Hosts[0]
	gauge, err := BuildGauge(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := CopyGauge(t.Context(), gauge, h); err != nil {
		t.Fatal(err)
	}
	const mb = 1 << 20
	before, err := h.CPUTime()
	if err != nil {
		t.Fatal(err)
	}
	_, u, err := Run(t.Context(), h, "sh", "-ec", "head -c 41943040 /dev/zero | tail -c 41943040 >/dev/null; sleep 0.5")
	if err != nil {
		t.Fatal(err)
	}
	if u.Memory < 40*mb || u.Memory > 60*mb {
		t.Errorf("the largest process had %d MB, want tail's 40 and a little", u.Memory/mb)
	}
	if u.Wall < 500*time.Millisecond || u.CPU <= 0 || u.CPU > 2*u.Wall {
		t.Errorf("it took %v and %v of CPU time, and it slept half a second", u.Wall, u.CPU)
	}
	after, err := h.CPUTime()
	if err != nil || after-before < u.CPU {
		t.Errorf("the host took %v of CPU time, and its command %v: %v", after-before, u.CPU, err)
	}
	loads, err := Loads(t.Context(), time.Second, h)
	if err != nil || loads[0].Memory < mb || loads[0].Resident < loads[0].Memory || loads[0].CPU < 0 {
		t.Errorf("systemd and its services have %+v: %v", loads, err)
	}
}
