package progress

import (
	"testing"
	"time"
)

func TestRate(t *testing.T) {
	const mb = 1_000_000
	at := func(ms int) time.Time { return time.Unix(1e9, 0).Add(time.Duration(ms) * time.Millisecond) }
	for name, c := range map[string]struct {
		samples []sample // as they are added
		left    int64
		rate    string
		time    string
	}{
		"nothing yet":       {nil, mb, "", ""},
		"one sample":        {[]sample{{at(0), 500 * mb}}, mb, "", ""},
		"the first second":  {[]sample{{at(0), 0}, {at(900), 900 * mb}}, mb, "", ""},
		"the next second":   {[]sample{{at(0), 0}, {at(1000), 900 * mb}, {at(1900), 905 * mb}}, mb, "", ""},
		"a second":          {[]sample{{at(0), 0}, {at(1000), 900 * mb}, {at(2000), 950 * mb}}, 100 * mb, "50.0 MB/s", "3 s left"},
		"begun at half":     {[]sample{{at(0), 500 * mb}, {at(1000), 500 * mb}, {at(3000), 510 * mb}}, 490 * mb, "5.0 MB/s", "99 s left"},
		"only lately":       {[]sample{{at(0), 0}, {at(1500), 900 * mb}, {at(2500), 910 * mb}, {at(7000), 919 * mb}, {at(7500), 920 * mb}}, 20 * mb, "2.0 MB/s", "11 s left"},
		"standing still":    {[]sample{{at(0), 7}, {at(3000), 7}, {at(5000), 7}}, mb, "", ""},
		"samples too close": {[]sample{{at(0), 0}, {at(1000), 0}, {at(1050), 50 * mb}, {at(2000), 50 * mb}}, mb, "50.0 MB/s", "1 s left"},
		"taken back":        {[]sample{{at(0), 0}, {at(1000), 50 * mb}, {at(3000), 10 * mb}}, mb, "", ""},
		"minutes":           {[]sample{{at(0), 0}, {at(1000), 0}, {at(2000), mb}}, 600 * mb, "1.0 MB/s", "11 min left"},
		"hours":             {[]sample{{at(0), 0}, {at(1000), 0}, {at(2000), 1000}}, 36 * mb, "1.0 kB/s", "11 h left"},
	} {
		var r rate
		for _, s := range c.samples {
			r.add(s.at, s.done)
		}
		if r.String() != c.rate || r.left(c.left) != c.time {
			t.Errorf("%s: %q and %q, want %q and %q", name, r, r.left(c.left), c.rate, c.time)
		}
	}
}
