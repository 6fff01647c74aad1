package progress_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"airlift/internal/progress"
)

func work(d *progress.Display) {
	a, b := d.Item("first", 1000), d.Item("second", 0)
	d.Printf("a line\n")
	a.Add(1500)
	a.Add(-500)
	b.SetTotal(2_000_000)
	b.Add(2_000_000)
	b.Done("downloaded")
	a.Done("pulled")
	d.Item("third", 10).Failed()
	d.Item("fourth", 0).Done("2 of 2 verified")
	d.Close()
}

func TestPlainLinesWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	work(progress.New(&out))
	want := "a line\n" +
		"  second                                                2.0 MB  downloaded\n" +
		"  first                                                 1.0 kB  pulled\n" +
		"  fourth                                                        2 of 2 verified\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestNilShowsNothing(t *testing.T) { work(nil) }

// On a terminal there is a bar, and the items' lines are above it.
func TestBarOnATerminal(t *testing.T) {
	master, slave := openPTY(t)
	t.Setenv("TERM", "xterm")
	var out bytes.Buffer
	read := make(chan struct{})
	go func() {
		io.Copy(&out, master) // ends with EIO when the slave closes
		close(read)
	}()
	d := progress.New(slave)
	i := d.Item("kubelet", 100_000_000)
	i.Add(90_000_000) // from a cache, at once
	for range 10 {
		i.Add(1_000_000)
		time.Sleep(250 * time.Millisecond)
	}
	i.Done("downloaded")
	d.Close()
	slave.Close()
	<-read
	text := out.String()
	if !regexp.MustCompile(`kubelet +9\d\.0 MB of 100\.0 MB .* \d+% \|█`).MatchString(text) {
		t.Errorf("no bar:\n%q", text)
	}
	// The rate does not include the bytes from the cache: 4 MB/s follow.
	rates := regexp.MustCompile(`([\d.]+ [kMGT]?B)/s +(\d+) s left`).FindAllStringSubmatch(text, -1)
	if len(rates) == 0 {
		t.Errorf("no rate:\n%q", text)
	}
	for _, r := range rates {
		var mb float64
		if _, err := fmt.Sscanf(r[1], "%f MB", &mb); err != nil || mb > 20 {
			t.Errorf("the rate was shown as %q", r[0])
		}
	}
	screen := lastState(text)
	if want := "  kubelet                                             100.0 MB  downloaded"; strings.TrimRight(screen, "\n ") != want {
		t.Errorf("the screen shows\n%q\nwant\n%q", screen, want)
	}
}

// lastState replays carriage returns and line erasures.
func lastState(s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	var lines []string
	for _, line := range strings.Split(s, "\n") {
		if n := strings.LastIndex(line, "\x1b[2K"); n >= 0 {
			line = line[n+len("\x1b[2K"):]
		}
		if n := strings.LastIndex(line, "\r"); n >= 0 {
			line = line[n+1:]
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return strings.Join(lines, "\n")
}

func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func TestItemsFromManyGoroutines(t *testing.T) {
	var out bytes.Buffer
	d := progress.New(&out)
	var wg sync.WaitGroup
	for n := range 20 {
		wg.Go(func() {
			i := d.Item(fmt.Sprint("item", n), 100)
			i.Add(100)
			i.Done("ok")
		})
	}
	wg.Wait()
	if got := strings.Count(out.String(), "\n"); got != 20 {
		t.Errorf("%d lines", got)
	}
}
