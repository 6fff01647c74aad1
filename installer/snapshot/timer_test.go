package snapshot

import (
	"testing"
	"time"

	"airlift/installer/node"
	"airlift/internal/fault"
)

// TestScheduledCommand: the timer runs with the flags of the command, in systemd's words.
func TestScheduledCommand(t *testing.T) {
	for _, c := range []struct {
		schedule         Schedule
		kubeconfig, want string
	}{
		{Schedule{Directory: "/mnt/a b", Keep: 8}, node.AdminConf, `etcd snapshot "/mnt/a b" --scheduled --keep 8 --mount-point "/mnt"`},
		{Schedule{Directory: "/mnt", Keep: 1, Recipients: "age1"}, "/root/my.conf", `etcd snapshot "/mnt" --scheduled --keep 1 --mount-point "/mnt" --kubeconfig "/root/my.conf" --recipients-file ` + recipientsPath},
	} {
		if got, err := c.schedule.command(c.kubeconfig, "/mnt"); err != nil || got != c.want {
			t.Errorf("%+v: %q, %v; want %q", c.schedule, got, err, c.want)
		}
	}
	for _, path := range []string{"/mnt/$backups", "/mnt/%h", `/mnt/"`} {
		if _, err := (Schedule{Directory: path}).command(node.AdminConf, "/"); err == nil || fault.ExitCode(err) != fault.Usage {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := (Schedule{Directory: "/mnt"}).command(path, "/"); err == nil {
			t.Errorf("the kubeconfig %s is accepted", path)
		}
	}
}

// TestCalendar: backups are at times of the day, which systemd makes up for after the host was off.
// The settings of a timer are the command of cluster.yaml that sets it: see package plan.
func TestSettings(t *testing.T) {
	s := Schedule{Directory: "/mnt/backup", Every: 6 * time.Hour, Keep: 4, Recipients: "# site\nage1a\n\nage1b\n"}
	if got, want := s.settings(node.AdminConf), "etcd snapshot /mnt/backup --every 6h0m0s --keep 4 --time-zone UTC --recipient age1a --recipient age1b"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestCalendar(t *testing.T) {
	for every, want := range map[time.Duration]string{
		time.Minute:      "*-*-* *:*:00 UTC",
		15 * time.Minute: "*-*-* *:00/15:00 UTC",
		time.Hour:        "*-*-* 00/1:00:00 UTC",
		6 * time.Hour:    "*-*-* 00/6:00:00 UTC",
		24 * time.Hour:   "*-*-* 00:00:00 UTC",
		168 * time.Hour:  "Mon *-*-* 00:00:00 UTC",
		7 * time.Hour:    "", 90 * time.Minute: "", 48 * time.Hour: "", 90 * time.Second: "", 0: "",
	} {
		got, err := calendar(every, "UTC")
		if got != want || (err != nil) != (want == "") || err != nil && fault.ExitCode(err) != fault.Usage {
			t.Errorf("%s: %q, %v; want %q", every, got, err, want)
		}
	}
	if got, err := calendar(6*time.Hour, "Europe/Berlin"); got != "*-*-* 00/6:00:00 Europe/Berlin" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
