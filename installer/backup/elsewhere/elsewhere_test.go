package elsewhere

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"airlift/installer/backup/target"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/s3host"
	"airlift/scripts/fixtures/sftphost"
	"airlift/scripts/fixtures/smallfs"
	"airlift/scripts/fixtures/sshhost"
)

// A place is a target of a test.
type place struct {
	url, config string
	dir         string // where its files are on this machine
}

func (p place) open(t testing.TB, patience time.Duration) (*Store, error) {
	t.Helper()
	a, err := target.ParseURL(p.url)
	if err != nil {
		t.Fatal(err)
	}
	c, err := target.Parse("target.yaml", []byte(p.config), a)
	if err != nil {
		t.Fatal(err)
	}
	s, err := open(t.Context(), a, c, patience)
	if err == nil {
		t.Cleanup(s.Close)
	}
	return s, err
}

func (p place) store(t testing.TB) *Store {
	t.Helper()
	s, err := p.open(t, silence)
	if err != nil {
		t.Fatalf("%v (%s)", err, fault.Hint(err))
	}
	return s
}

func inProcess(t testing.TB) (*sftphost.Host, place) {
	h, dir := sftphost.Start(t), t.TempDir()
	return h, place{"sftp://backup@" + h.Address + dir, h.Config(), dir}
}

func bucket(t testing.TB, endpoint, dir string) place {
	if err := os.MkdirAll(filepath.Join(dir, "backups", "plant"), 0o755); err != nil {
		t.Fatal(err)
	}
	return place{"s3://backups/plant", s3host.Config(endpoint), filepath.Join(dir, "backups", "plant")}
}

func openSSH(t testing.TB) place {
	h := sshhost.Start(t, "Subsystem sftp /usr/lib/openssh/sftp-server")
	key, err := os.ReadFile(h.Key)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(h.Root(), "home/dash/backups")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, ownerOf(t, filepath.Dir(dir)), 0)); err != nil {
		t.Fatal(err)
	}
	config := "apiVersion: airlift/v1\nkind: BackupTarget\nsftp:\n  hostKey: " + h.HostKey + "\n  privateKey: |\n    " + strings.ReplaceAll(strings.TrimSpace(string(key)), "\n", "\n    ") + "\n"
	return place{fmt.Sprintf("sftp://dash@%s:%d/home/dash/backups", h.Address, h.Port), config, dir}
}

// newCopy writes a local backup.
func newCopy(t testing.TB, name string, size int) (*target.Copy, *os.File) {
	t.Helper()
	data := make([]byte, size)
	_, _ = rand.Read(data)
	sum := sha256.Sum256(data)
	f, err := os.Create(filepath.Join(t.TempDir(), "backup"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	return &target.Copy{Name: name, Size: int64(size), SHA256: hex.EncodeToString(sum[:]), Token: rand.Text()}, f
}

func names(t testing.TB, s *Store) (list []string) {
	t.Helper()
	items, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range items {
		list = append(list, i.Name)
	}
	slices.Sort(list)
	return list
}

func (p place) put(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// testStore stores, lists, reads and removes backups next to files of others.
func testStore(t *testing.T, p place, sizes ...int) {
	// Neither a proxy nor credentials of the environment are used.
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "MINIO_ACCESS_KEY", "MINIO_SECRET_KEY"} {
		t.Setenv(name, "wrong")
	}
	p.put(t, "other.txt", []byte("of another program"))
	s := p.store(t)
	for i, size := range sizes {
		name := fmt.Sprintf("backup-%d.tar.age", i)
		c, f := newCopy(t, name, size)
		for range 2 { // again, as after a run that was killed before it recorded the result
			c.Version, c.Stored = "", nil
			if err := s.Deliver(t.Context(), c, f); err != nil || c.Stored == nil {
				t.Fatalf("%v (%s)", err, fault.Hint(err))
			}
		}
		if got := names(t, s); !slices.Equal(got, []string{name, "other.txt"}) {
			t.Errorf("%q", got)
		}
		var read bytes.Buffer
		if err := s.Fetch(t.Context(), name, c.Size, &read); err != nil || fmt.Sprintf("%x", sha256.Sum256(read.Bytes())) != c.SHA256 {
			t.Errorf("read %d bytes: %v", read.Len(), err)
		}
		if err := s.Fetch(t.Context(), name, c.Size-1, &read); err == nil {
			t.Error("more bytes than listed are accepted")
		}
		if err := s.Remove(t.Context(), *c); err != nil {
			t.Error(err)
		}
		if err := s.Remove(t.Context(), *c); !errors.Is(err, ErrMissing) {
			t.Errorf("removed twice: %v", err)
		}
		// The target has another file with this name.
		p.put(t, name, []byte("other"))
		if err := s.Remove(t.Context(), *c); !errors.Is(err, ErrOther) && !errors.Is(err, ErrMissing) {
			t.Errorf("the file of another program: %v", err)
		}
		c.Version, c.Stored = "", nil
		if err := s.Deliver(t.Context(), c, f); err == nil || c.Stored != nil {
			t.Error("the file of another program was replaced")
		}
		if err := s.Forget(t.Context(), *c); err != nil {
			t.Error(err)
		}
		if data, err := os.ReadFile(filepath.Join(p.dir, name)); err != nil || string(data) != "other" {
			t.Errorf("the file of another program is now %q, %v", data, err)
		}
		if err := os.Remove(filepath.Join(p.dir, name)); err != nil {
			t.Error(err)
		}
	}
	if err := s.Fetch(t.Context(), "missing", 1, new(bytes.Buffer)); !errors.Is(err, ErrMissing) {
		t.Error(err)
	}
	if got := names(t, s); !slices.Equal(got, []string{"other.txt"}) {
		t.Errorf("left: %q", got)
	}
	if entries, err := os.ReadDir(p.dir); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestSFTPInProcess(t *testing.T) {
	_, p := inProcess(t)
	testStore(t, p, 1, 100_000, 3<<20)
}

func TestSFTPOfOpenSSH(t *testing.T) { testStore(t, openSSH(t), 1, 100_000, 3<<20) }

func TestS3(t *testing.T) {
	for _, versions := range []bool{false, true} {
		h := s3host.Start(t, versions)
		testStore(t, bucket(t, h.Endpoint, h.Dir), 1, 100_000, 40<<20)
	}
}

// failed checks an error: its exit code, its text, a hint, and that it has no secret.
func failed(t *testing.T, name string, err error, want string) {
	t.Helper()
	text := fmt.Sprintf("%v (%s)", err, fault.Hint(err))
	if err == nil || fault.ExitCode(err) != fault.Failure || fault.Hint(err) == "" || !strings.Contains(text, want) {
		t.Errorf("%s: %s, want %q and a hint", name, text, want)
	}
	for _, secret := range []string{s3host.SecretKey, sftphost.Password, "BEGIN OPENSSH"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s: the error has a secret: %s", name, text)
		}
	}
}

// TestFaultsOfS3: each fault has an error with a hint, and leaves nothing that a later run does not remove.
func TestFaultsOfS3(t *testing.T) {
	h := s3host.Start(t, false)
	proxy := h.Proxy(t)
	good, bad := bucket(t, h.Endpoint, h.Dir), bucket(t, proxy.Endpoint, h.Dir)
	c, f := newCopy(t, "backup.tar.age", 20<<20)
	patience := silence
	deliver := func(p place) error {
		s, err := p.open(t, patience)
		if err != nil {
			return err
		}
		c.Stored = nil
		return s.Deliver(t.Context(), c, f)
	}
	for name, one := range map[string]struct {
		fault func(http.ResponseWriter, *http.Request) bool
		want  string
	}{
		"overloaded":          {s3host.Answer(http.MethodPut, 503, "SlowDown"), "status 503"},
		"full":                {s3host.Answer(http.MethodPut, 507, "InsufficientStorage"), "the target is full"},
		"read-only":           {s3host.Answer(http.MethodPut, 403, "AccessDenied"), "access denied"},
		"clock":               {s3host.Answer(http.MethodGet, 403, "RequestTimeTooSkewed"), "timedatectl"},
		"silent":              {s3host.Silent(http.MethodPut), ""},
		"cut":                 {s3host.Cut(http.MethodPut, 100_000), "check that the target runs"},
		"not a server of S3":  {s3host.Answer(http.MethodGet, 404, "PageNotFound"), "s3.endpoint"},
		"reading is refused":  {s3host.Answer(http.MethodGet, 403, "AccessDenied"), "s3:GetObject"},
		"the bucket vanished": {s3host.Answer(http.MethodPut, 404, "NoSuchBucket"), "does not exist"},
	} {
		if patience = silence; name == "silent" {
			patience = 700 * time.Millisecond
		}
		proxy.Set(one.fault)
		failed(t, name, deliver(bad), one.want)
		proxy.Set(nil)
		if err := good.store(t).Forget(t.Context(), *c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if left := names(t, good.store(t)); len(left) > 0 {
			t.Errorf("%s: left %q", name, left)
		}
	}
	patience = silence
	proxy.Flip(true)
	failed(t, "wrong bytes", deliver(bad), "other bytes")
	proxy.Flip(false)
	c.Version = ""
	if err := deliver(bad); err != nil {
		t.Errorf("after all faults: %v", err)
	}
	h.Stop()
	failed(t, "down", deliver(good), "check that the target runs")
}

func TestMistakesInTheConfigOfS3(t *testing.T) {
	h := s3host.Start(t, false)
	for name, one := range map[string]struct{ url, old, new, want string }{
		"secret key": {"s3://backups/plant", s3host.SecretKey, "other", "does not accept the credentials"},
		"access key": {"s3://backups/plant", s3host.AccessKey, "NOBODY", "does not accept the credentials"},
		"bucket":     {"s3://backups-of-others/plant", "", "", "the bucket backups-of-others does not exist"},
		"TLS":        {"s3://backups/plant", "http://", "https://", "write http://"},
		"port":       {"s3://backups/plant", h.Endpoint, "http://127.0.0.1:1", "check that the target runs"},
	} {
		s := place{url: one.url, config: strings.Replace(s3host.Config(h.Endpoint), one.old, one.new, 1)}.store(t)
		_, err := s.List(t.Context())
		failed(t, name, err, one.want)
		c, f := newCopy(t, "x", 10)
		failed(t, name, s.Deliver(t.Context(), c, f), one.want)
	}
}

// TestUnfinishedUploads: only uploads of this host's backups are aborted.
func TestUnfinishedUploads(t *testing.T) {
	h := s3host.Start(t, false)
	p := bucket(t, h.Endpoint, h.Dir)
	s := p.store(t)
	core := minio.Core{Client: s.backend.(*s3).client}
	begin := func(key string) {
		id, err := core.NewMultipartUpload(t.Context(), "backups", key, minio.PutObjectOptions{})
		if err == nil {
			_, err = core.PutObjectPart(t.Context(), "backups", key, id, 1, bytes.NewReader(make([]byte, 5<<20)), 5<<20, minio.PutObjectPartOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c, _ := newCopy(t, "ours.tar.age", 10)
	for _, key := range []string{"plant/ours.tar.age", "plant/ours.tar.age", "plant/ours.tar.age.bak", "plant/other", "ours.tar.age"} {
		begin(key)
	}
	if err := s.Forget(t.Context(), *c); err != nil {
		t.Fatal(err)
	}
	left := []string{}
	for u := range s.backend.(*s3).client.ListIncompleteUploads(t.Context(), "backups", "", true) {
		if u.Err != nil {
			t.Fatal(u.Err)
		}
		left = append(left, u.Key)
	}
	slices.Sort(left)
	if want := []string{"ours.tar.age", "plant/other", "plant/ours.tar.age.bak"}; !slices.Equal(left, want) {
		t.Errorf("left %q, want %q", left, want)
	}
}

// TestObjectLock: a backup is stored, and retention is refused.
func TestObjectLock(t *testing.T) {
	h := s3host.Start(t, true)
	s := place{url: "s3://locked/plant", config: s3host.Config(h.Endpoint)}.store(t)
	client := s.backend.(*s3).client
	if err := client.MakeBucket(t.Context(), "locked", minio.MakeBucketOptions{ObjectLocking: true}); err != nil {
		t.Fatal(err)
	}
	mode, days, unit := minio.Compliance, uint(1), minio.Days
	if err := client.SetObjectLockConfig(t.Context(), "locked", &mode, &days, &unit); err != nil {
		t.Fatal(err)
	}
	c, f := newCopy(t, "backup.tar.age", 1000)
	if err := s.Deliver(t.Context(), c, f); err != nil || c.Version == "" {
		t.Fatalf("%+v, %v (%s)", c, err, fault.Hint(err))
	}
	failed(t, "a locked object", s.Remove(t.Context(), *c), "")
	if err := s.Fetch(t.Context(), c.Name, c.Size, new(bytes.Buffer)); err != nil {
		t.Error(err)
	}
}

func TestFaultsOfSFTP(t *testing.T) {
	h, p := inProcess(t)
	c, f := newCopy(t, "backup.tar.age", 1<<20)
	deliver := func(p place, patience time.Duration) error {
		s, err := p.open(t, patience)
		if err != nil {
			return err
		}
		c.Version, c.Stored = "", nil
		return s.Deliver(t.Context(), c, f)
	}
	with := func(old, new string) place { return place{p.url, strings.Replace(p.config, old, new, 1), p.dir} }
	failed(t, "host key", deliver(with(h.HostKey, "SHA256:"+strings.Repeat("A", 43)), silence), "another host key")
	failed(t, "password", deliver(with(sftphost.Password, "wrong"), silence), "does not accept the credentials")
	failed(t, "directory", deliver(place{p.url + "/missing", p.config, p.dir}, silence), "does not exist")
	failed(t, "down", deliver(place{"sftp://backup@127.0.0.1:1" + p.dir, p.config, p.dir}, silence), "check that the target runs")
	h.CutAfter(300_000)
	failed(t, "cut", deliver(p, silence), "")
	h.CutAfter(0)
	if err := p.store(t).Forget(t.Context(), *c); err != nil {
		t.Error(err)
	}
	h.ReturnWrong(true)
	failed(t, "wrong bytes", deliver(p, silence), "other bytes")
	h.ReturnWrong(false)
	if entries, err := os.ReadDir(p.dir); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if err := deliver(p, silence); err != nil {
		t.Errorf("after all faults: %v", err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	failed(t, "silent", deliver(place{"sftp://backup@" + silent.Addr().String() + p.dir, p.config, p.dir}, 200*time.Millisecond), "no data was sent or received")
}

// TestFullDiskOfSFTP: the error has the reason, and nothing is left.
func TestFullDiskOfSFTP(t *testing.T) {
	h, dir := sftphost.Start(t), smallfs.Small(t, 1<<20)
	p := place{"sftp://backup@" + h.Address + dir, h.Config(), dir}
	c, f := newCopy(t, "backup.tar.age", 4<<20)
	failed(t, "full", p.store(t).Deliver(t.Context(), c, f), "full")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// TestInterrupted: the error is the context's, so that the exit code means an interruption.
func TestInterrupted(t *testing.T) {
	_, p := inProcess(t)
	s := p.store(t)
	c, f := newCopy(t, "backup.tar.age", 1<<20)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Deliver(ctx, c, f); fault.ExitCode(err) != fault.Interrupted && err != nil {
		t.Errorf("%v: exit code %d", err, fault.ExitCode(err))
	}
}

func TestTextsOfTheTargetArePlain(t *testing.T) {
	s := &Store{config: &target.Config{S3: &target.S3Config{SecretKey: "geheim"}}}
	if got := s.plain("a\x1b[2J\ngeheim" + strings.Repeat("x", 1000)); strings.ContainsAny(got, "\x1b\n") || strings.Contains(got, "geheim") || len(got) > 600 {
		t.Errorf("%q", got)
	}
}

func ownerOf(t testing.TB, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}
