package remote

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/sshhost"
)

// testFile returns a file of random bytes for a path.
func testFile(path string, size int, seed uint64) File {
	data := make([]byte, size)
	source := rand.New(rand.NewPCG(seed, 0))
	for i := 0; i+8 <= size; i += 8 {
		v := source.Uint64()
		for j := range 8 {
			data[i+j] = byte(v >> (8 * j))
		}
	}
	sum := sha256.Sum256(data)
	return File{bytes.NewReader(data), int64(size), hex.EncodeToString(sum[:]), path, 0o700}
}

func assertFile(t *testing.T, h *sshhost.Host, f File) {
	t.Helper()
	data, err := os.ReadFile(h.Path(f.Path))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	info, err := os.Stat(h.Path(f.Path))
	if err != nil {
		t.Fatal(err)
	}
	if hex.EncodeToString(sum[:]) != f.SHA256 || info.Mode() != os.FileMode(f.Mode) {
		t.Errorf("%s has another sha256, or the mode %v", f.Path, info.Mode())
	}
}

// Pains 11 and 40: the second copy sends nothing, and both digests are of the file on the host.
func TestSecondCopySendsNothing(t *testing.T) {
	t.Parallel()
	h := sshhost.Start(t)
	for _, user := range []string{"root", "secret", "noisy", "ttysec", "openssh secret"} {
		t.Run(user, func(t *testing.T) {
			c := dial(t, h, user)
			f := testFile("/var/lib/air lift's/"+strings.ReplaceAll(user, " ", "")+"/install", 5<<20+3, 1)
			var inPlace int64
			for i, want := range []int64{f.Size, 0} {
				sent, err := c.Send(t.Context(), f, func(n int64) { inPlace = n })
				if err != nil || sent != want || inPlace != f.Size {
					t.Fatalf("copy %d: %d bytes were sent, and %d are in place: %v", i, sent, inPlace, err)
				}
				assertFile(t, h, f)
			}
			if got := output(t, c, "", "stat", "-c", "%a", "/var/lib/air lift's"); got != "700\n" {
				t.Errorf("the directory has the mode %s", got)
			}
			if got := output(t, c, "", "ls", "-A", "/var/lib/air lift's/"+strings.ReplaceAll(user, " ", "")); got != "install\n" {
				t.Errorf("the directory has %q", got)
			}
		})
	}
}

// window is what sshd reads before the command does, and loses with the connection.
const window = 2<<20 + 128<<10

// Pain 12: a copy that was cut at 90 % sends at most 10 % again, and sshd's window.
func TestCutCopyContinues(t *testing.T) {
	t.Parallel()
	h := sshhost.Start(t)
	for _, user := range []string{"root", "nopasswd", "openssh root"} {
		t.Run(user, func(t *testing.T) {
			p := startProxy(t, h.Port)
			to := target(h, user)
			to.SSH.Port = p.port
			d := dialer(t, Options{})
			f := testFile("/var/lib/cut/"+strings.ReplaceAll(user, " ", ""), 40<<20, 2)
			c, err := d.Dial(t.Context(), to)
			if err != nil {
				t.Fatal(err)
			}
			p.cutAfter.Store(p.sent.Load() + f.Size*9/10)
			_, err = c.Send(t.Context(), f, nil)
			if lost := (*LostError)(nil); !errors.As(err, &lost) {
				t.Fatalf("the error is %v", err)
			}
			_ = c.Close()
			p.cutAfter.Store(0)
			if c, err = d.Dial(t.Context(), to); err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			partial := h.Path("/var/lib/cut/." + strings.ReplaceAll(user, " ", "") + ".partial-" + f.SHA256)
			await(t, func() bool { info, err := os.Stat(partial); return err == nil && info.Size() >= f.Size*9/10-window })
			before := p.sent.Load()
			sent, err := c.Send(t.Context(), f, nil)
			if err != nil {
				t.Fatal(err)
			}
			wire := p.sent.Load() - before
			t.Logf("sent %d of %d bytes again, %d with the protocol", sent, f.Size, wire)
			if limit := f.Size/10 + window; sent > limit || wire > limit+limit/20 {
				t.Errorf("%d bytes were sent, limit %d", wire, limit)
			}
			assertFile(t, h, f)
		})
	}
}

// await waits until something is so, for a time that a loaded machine does not need.
func await(t *testing.T, is func() bool) {
	t.Helper()
	for range 600 {
		if is() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("waited for 30 s")
}

func TestPartialCopyOfOtherContentNeverWins(t *testing.T) {
	h := sshhost.Start(t)
	c := dial(t, h, "root")
	f := testFile("/srv/install", 3<<20, 3)
	partial := "/srv/.install.partial-" + f.SHA256
	for name, script := range map[string]string{
		"damaged":   `head -c 1000000 /dev/urandom >` + partial,
		"too long":  `head -c 9000000 /dev/zero >` + partial,
		"another":   `echo x >/srv/.install.partial-other`,
		"empty":     `: >` + partial,
		"old file":  `echo old >/srv/install`,
		"same size": `head -c 3145728 /dev/zero >/srv/install`,
	} {
		output(t, c, "", "sh", "-c", "rm -rf /srv/* /srv/.install*; "+script)
		if sent, err := c.Send(t.Context(), f, nil); err != nil || sent != f.Size {
			t.Errorf("%s: sent %d: %v", name, sent, err)
		}
		assertFile(t, h, f)
		if got := output(t, c, "", "ls", "-A", "/srv"); got != "install\n" {
			t.Errorf("%s: the directory has %q", name, got)
		}
	}
}

// Pain 13: a running binary is replaced.
func TestRunningBinaryIsReplaced(t *testing.T) {
	h := sshhost.Start(t)
	c := dial(t, h, "root")
	output(t, c, "", "sh", "-c", "cp /bin/sleep /srv/install; /srv/install 1000 >/dev/null 2>&1 </dev/null &")
	f := testFile("/srv/install", 1<<20, 4)
	if _, err := c.Send(t.Context(), f, nil); err != nil {
		t.Fatal(err)
	}
	assertFile(t, h, f)
}

// Pain 14: the error names the host, the path, and both sizes, before anything is sent.
func TestFullDisk(t *testing.T) {
	h := sshhost.Start(t)
	c := dial(t, h, "root")
	output(t, c, "", "sh", "-c", "mkdir /srv/small && mount -t tmpfs -o mode=755,size=2m tmpfs /srv/small")
	sent, err := c.Send(t.Context(), testFile("/srv/small/install", 4<<20, 5), nil)
	for _, want := range []string{"node-root", "/srv/small", "4.2 MB", "2.1 MB"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error %v has no %q", err, want)
		}
	}
	if sent != 0 || classOf(err) != Disk || !strings.Contains(fault.Hint(err), "df -h '/srv/small'") {
		t.Errorf("sent %d: %v, hint %q", sent, err, fault.Hint(err))
	}
	// The disk gets full during the copy.
	f := testFile("/srv/small/install", 1<<20, 5)
	f.Size = 1 << 20
	c.(*conn).name = "node-full"
	output(t, c, "", "sh", "-c", "mount -o remount,size=1536k /srv/small; head -c 1200000 /dev/zero >/srv/small/other; mount -o remount,size=4m /srv/small")
	done := false
	_, err = c.Send(t.Context(), f, func(n int64) {
		if !done {
			output(t, c, "", "mount", "-o", "remount,size=1536k", "/srv/small")
			done = true
		}
	})
	if classOf(err) != Disk || !strings.Contains(fmt.Sprint(err), "No space left") {
		t.Errorf("the error is %v", err)
	}
}

func TestCopyToADirectoryIsRefused(t *testing.T) {
	h := sshhost.Start(t)
	c := dial(t, h, "root")
	if _, err := c.Send(t.Context(), testFile("/srv", 10, 6), nil); !strings.Contains(fmt.Sprint(err), "is a directory") {
		t.Errorf("the error is %v", err)
	}
}

// A host that has only busybox: PATH in the scripts has nothing else.
func TestCopyWithBusybox(t *testing.T) {
	h := sshhost.Start(t)
	c := dial(t, h, "root").(*conn)
	output(t, c, "", "sh", "-c", "mkdir /srv/bin && busybox --install -s /srv/bin")
	f := testFile("/srv/install", 2<<20, 7)
	var found bytes.Buffer
	if err := c.script(t.Context(), f, "PATH=/srv/bin\n"+findScript, nil, 0, &found); err != nil {
		t.Fatal(err)
	}
	if empty := sha256.Sum256(nil); !strings.HasPrefix(found.String(), "0 "+hex.EncodeToString(empty[:])+" ") {
		t.Errorf("found %q", found.String())
	}
	if err := c.script(t.Context(), f, "PATH=/srv/bin\nfrom=0\n"+receiveScript, f.Content.(*bytes.Reader), -1, &found); err != nil {
		t.Fatal(err)
	}
	assertFile(t, h, f)
}

func BenchmarkSend(b *testing.B) {
	h := sshhost.Start(b)
	for _, user := range []string{"root", "openssh root", "nopasswd"} {
		b.Run(user, func(b *testing.B) {
			c, err := NewDialer(Options{KnownHosts: []string{b.TempDir() + "/known_hosts"}}).Dial(b.Context(), target(h, user))
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			f := testFile("/srv/install", 256<<20, 8)
			b.SetBytes(f.Size)
			for b.Loop() {
				if err := c.Run(b.Context(), Command{Args: []string{"rm", "-f", f.Path}}); err != nil {
					b.Fatal(err)
				}
				if _, err := c.Send(b.Context(), f, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
