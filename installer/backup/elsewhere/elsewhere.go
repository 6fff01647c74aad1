// Package elsewhere stores backups on another machine: in a bucket of S3, or in a directory of an SSH server. It connects to the
// target that the user named and to nothing else: no proxy, no credentials of the environment, no metadata service, no redirects.
package elsewhere

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
	"unicode"

	"airlift/installer/backup/target"
	"airlift/internal/dialer"
	"airlift/internal/fault"
)

// silence is how long a target may send and accept nothing.
const silence = time.Minute

// maxItems limits what a bucket can list.
const maxItems = 100_000

// A Store is a target that is connected.
type Store struct {
	Address target.Address
	backend
	config *target.Config
}

// An Item is a file at the target.
type Item struct {
	Name string
	Size int64
}

// Errors of backends. What they are about is known to the caller.
var (
	// ErrMissing is the cause of errors about a name that nothing has.
	ErrMissing = errors.New("it does not exist")
	// ErrOther is the cause of errors about a name that has something else than what this host stored.
	ErrOther = errors.New("it is not what this host stored there")
	// ErrWrongBytes is the cause of errors about a backup that is read back with other bytes.
	ErrWrongBytes = errors.New("the target returned other bytes than it was sent")
)

// errTooMuch is why a list is refused.
var errTooMuch = errors.New("the target lists too much")

// A backend is one kind of target. All names are in the prefix or directory of the target.
type backend interface {
	// send stores a file where nothing is. It may be under a temporary name that has the token.
	send(ctx context.Context, c *target.Copy, in *os.File) error
	// open opens what send has stored, or with settled what a target has under the name of the backup.
	open(ctx context.Context, c *target.Copy, settled bool) (io.ReadCloser, error)
	// settle gives what send has stored its name, if nothing has the name.
	settle(ctx context.Context, c *target.Copy) error
	// clean removes what an interrupted send of this copy has left, and nothing else.
	clean(ctx context.Context, c *target.Copy) error
	// identify completes a copy with the version of what was read at the name of the backup.
	identify(ctx context.Context, c *target.Copy) error
	// find returns nil only if what is at the name of the backup is proved to be this host's, or ErrMissing or ErrOther.
	find(ctx context.Context, c *target.Copy) error
	// remove removes what find has found.
	remove(ctx context.Context, c *target.Copy) error
	list(ctx context.Context) ([]Item, error)
	// stat returns what is at a name, or ErrMissing.
	stat(ctx context.Context, name string) (Item, error)
	explain(err error) (text, hint string)
	close()
}

// Open connects to a target.
func Open(ctx context.Context, a target.Address, c *target.Config) (*Store, error) {
	return open(ctx, a, c, silence)
}

func open(ctx context.Context, a target.Address, c *target.Config, patience time.Duration) (s *Store, err error) {
	s = &Store{Address: a, config: c}
	dial := dialPatiently(patience)
	if a.Scheme == target.S3 {
		s.backend, err = newS3(a, c, dial, patience)
	} else {
		s.backend, err = newSFTP(ctx, a, c, dial)
	}
	if err != nil {
		return nil, s.failed(ctx, "connecting to", "", err)
	}
	return s, nil
}

// Close ends the connections.
func (s *Store) Close() { s.close() }

// Deliver stores a local file under the name of a copy, reads it back and compares it. What a former run has stored is accepted
// if it has the same bytes.
func (s *Store) Deliver(ctx context.Context, c *target.Copy, in *os.File) error {
	c.Version = ""
	err := s.deliver(ctx, c, in)
	if err != nil {
		clean, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer done()
		_ = s.discard(clean, c) // the next run tries again
		return s.failed(ctx, "sending the backup to", c.Name, err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	c.Stored = &now
	return nil
}

func (s *Store) deliver(ctx context.Context, c *target.Copy, in *os.File) error {
	switch err := s.compare(ctx, c, true); {
	case err == nil:
		return s.identify(ctx, c)
	case errors.Is(err, ErrWrongBytes):
		if s.find(ctx, c) != nil {
			return fmt.Errorf("the name exists: %w", ErrOther)
		}
		_ = s.remove(ctx, c) // an earlier run was stopped before it compared. Without the permission, it is replaced
	case !errors.Is(err, ErrMissing):
		return err
	}
	if err := s.clean(ctx, c); err != nil {
		return err
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := s.send(ctx, c, in); err != nil {
		return err
	}
	if err := s.compare(ctx, c, false); err != nil {
		return err // the caller cleans
	}
	if err := s.settle(ctx, c); err != nil {
		return err
	}
	return s.identify(ctx, c)
}

// compare reads a backup at the target, and compares it with what was sent.
func (s *Store) compare(ctx context.Context, c *target.Copy, settled bool) error {
	r, err := s.open(ctx, c, settled)
	if err != nil {
		return err
	}
	defer r.Close()
	sum := sha256.New()
	n, err := copyLimited(sum, r, c.Size)
	if err != nil {
		return err
	}
	if is := hex.EncodeToString(sum.Sum(nil)); n != c.Size || is != c.SHA256 {
		return fmt.Errorf("%w: the sha256 of its %d bytes is %s, want %s of %d bytes", ErrWrongBytes, n, is, c.SHA256, c.Size)
	}
	return nil
}

// Remove removes a backup that this host has stored. If the name has nothing or something else, nothing is removed: the error is
// ErrMissing or ErrOther.
func (s *Store) Remove(ctx context.Context, c target.Copy) error {
	err := s.find(ctx, &c)
	if err == nil {
		err = s.remove(ctx, &c)
	}
	return s.failed(ctx, "removing the old backup from", c.Name, err)
}

// Forget removes what an interrupted run of this host has left of a backup that will not be sent any more.
func (s *Store) Forget(ctx context.Context, c target.Copy) error {
	return s.failed(ctx, "removing a part of a backup from", c.Name, s.discard(ctx, &c))
}

// discard removes what an interrupted send has left, and what is at the name of the backup if it is this host's and has other bytes.
func (s *Store) discard(ctx context.Context, c *target.Copy) error {
	err := s.clean(ctx, c)
	if err == nil && s.find(ctx, c) == nil && errors.Is(s.compare(ctx, c, true), ErrWrongBytes) {
		err = s.remove(ctx, c)
	}
	return err
}

// List lists the files of the target.
func (s *Store) List(ctx context.Context) ([]Item, error) {
	list, err := s.list(ctx)
	return list, s.failed(ctx, "listing the backups at", "", err)
}

// Fetch copies a backup of the target to w.
func (s *Store) Fetch(ctx context.Context, name string, size int64, w io.Writer) error {
	err := func() error {
		r, err := s.open(ctx, &target.Copy{Name: name}, true)
		if err != nil {
			return err
		}
		defer r.Close()
		n, err := copyLimited(w, r, size)
		if err == nil && n != size {
			err = fmt.Errorf("the target sent %d bytes, and has listed %d", n, size)
		}
		return err
	}()
	return s.failed(ctx, "reading the backup from", name, err)
}

// Find returns the file of the target with a name. If there is none, the error is ErrMissing.
func (s *Store) Find(ctx context.Context, name string) (Item, error) {
	item, err := s.stat(ctx, name)
	return item, s.failed(ctx, "looking for the backup at", name, err)
}

// copyLimited copies what a target sends, at most one byte more than expected. It returns how many bytes were sent. A file of SFTP
// sends several parts at once with WriteTo.
func copyLimited(w io.Writer, r io.Reader, size int64) (n int64, err error) {
	limited := &limitedWriter{w: w, left: size}
	n, err = io.Copy(limited, r)
	if limited.more {
		return size + 1, nil
	}
	return n, err
}

// A limitedWriter fails at the first byte after its limit.
type limitedWriter struct {
	w    io.Writer
	left int64
	more bool
}

func (l *limitedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > l.left { // which a target may have chosen
		l.more = true
		return 0, io.ErrShortWrite
	}
	l.left -= int64(len(p))
	return l.w.Write(p)
}

// again ends the hints: what was not stored is sent by the next run.
const again = "; then run the same command again"

// failed explains an error, which names the target and never a secret.
func (s *Store) failed(ctx context.Context, doing, name string, err error) error {
	at := s.Address.String()
	if name != "" {
		at = target.Within(at, name)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s %s: %w", doing, at, context.Cause(ctx))
	case errors.Is(err, ErrMissing), errors.Is(err, ErrOther):
		return fault.New(fault.Failure, "%s %s: %w", doing, at, err).Hint("see what is there: ./install etcd list " + s.Address.String() + " --target-config FILE")
	case errors.Is(err, ErrWrongBytes):
		return fault.New(fault.Failure, "%s %s: %w", doing, at, err).Hint("check the disk and the network of the target" + again)
	}
	text, hint := s.explained(err)
	return &failure{fault.New(fault.Failure, "%s %s: %s", doing, at, s.plain(text)).Hint(s.plain(hint) + again), err}
}

// A failure hides the text of its cause, which the target has chosen.
type failure struct {
	error
	cause error
}

func (f *failure) Unwrap() []error { return []error{f.error, f.cause} }

func (s *Store) explained(err error) (text, hint string) {
	if s.backend != nil && !errors.Is(err, errTooMuch) {
		if text, hint = s.explain(err); text != "" {
			return text, hint
		}
	}
	var unreachable *net.OpError
	var name *net.DNSError
	switch {
	case errors.Is(err, errTooMuch):
		return err.Error(), "use a prefix or a directory that has only backups; to restore, name the backup after it, which needs no list"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "no data was sent or received for " + silence.String(), "check the load and the network of the target"
	case errors.As(err, &name):
		return err.Error(), "check the name of the server, and the DNS of this host"
	case errors.As(err, &unreachable), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return err.Error(), "check that the target runs, and that this host reaches it"
	}
	return err.Error(), "check that the target runs, and look at its log"
}

// plain limits a text of the target, and leaves secrets and control characters out of it.
func (s *Store) plain(text string) string {
	for _, secret := range s.config.Secrets() {
		text = strings.ReplaceAll(text, secret, "…")
	}
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, text)
	if runes := []rune(text); len(runes) > 500 {
		text = string(runes[:500]) + "…"
	}
	return text
}

// dialPatiently returns a function that connects to the target. Connections that are silent end.
func dialPatiently(patience time.Duration) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, min(patience, 20*time.Second))
		defer cancel()
		c, err := dialer.Dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &patient{c, patience}, nil
	}
}

// A patient connection ends when neither side has sent anything for a while.
type patient struct {
	net.Conn
	patience time.Duration
}

func (c *patient) Read(p []byte) (int, error) {
	if err := c.progress(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if n > 0 {
		_ = c.progress() // also for a pending Write
	}
	return n, err
}

func (c *patient) Write(p []byte) (int, error) {
	if err := c.progress(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if n > 0 {
		_ = c.progress()
	}
	return n, err
}

func (c *patient) progress() error { return c.SetDeadline(time.Now().Add(c.patience)) }
