package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/installer/host/filesystem"
	"airlift/internal/fault"
	"airlift/internal/space"
)

// syncEvery is after how many written bytes they are flushed to the disk. Many dirty pages at once would delay the writes
// of etcd on the same disk.
const syncEvery = 16 << 20

// Keep copies a bundle into the store, unless it is in place. It compares every byte with the digests, and continues what
// a run that was killed has copied. On a file system that can share blocks (btrfs, XFS), the copy needs no space. progress
// is called with the number of bytes that are in place; it may be nil.
func (s *Store) Keep(ctx context.Context, f *bundle.File, progress func(int64)) (changed bool, err error) {
	id := f.ID()
	if has, err := s.has(id); has || err != nil {
		return false, err
	}
	p, err := filesystem.OpenPartial(ctx, s.path(id))
	if err != nil {
		return false, fmt.Errorf("keeping the bundle %s: %w", f.Path(), err)
	}
	defer p.Close()
	if has, err := s.has(id); has || err != nil { // another process had the file
		return false, errors.Join(err, p.Discard())
	}
	if err := s.fill(ctx, p, f, progress); err != nil {
		return false, fmt.Errorf("keeping the bundle %s: %w", f.Path(), err)
	}
	return true, nil
}

// has reports whether the file is in place, and counts as placed now. A file whose digests or trailer are damaged gets its
// temporary name again.
func (s *Store) has(id string) (bool, error) {
	k, err := s.Open(id, func(error) {})
	switch {
	case err == nil:
		return true, errors.Join(k.Close(), filesystem.Touch(s.path(id)))
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case fault.ExitCode(err) != fault.Bundle: // the file may be intact
		return false, err
	}
	return false, filesystem.ReopenPartial(s.path(id))
}

// fill copies to the temporary file, and gives it its name.
func (s *Store) fill(ctx context.Context, p *filesystem.Partial, f *bundle.File, progress func(int64)) error {
	if size, err := sizeOf(p); err != nil {
		return err
	} else if size == 0 {
		clone(p, f.Path())
	}
	size, err := sizeOf(p)
	if err != nil {
		return err
	}
	whole := int64(f.Trailer().FileSize())
	if err := s.hasRoom(whole - size); err != nil {
		return err
	}
	c := copying{ctx: ctx, from: f, to: p.File, present: size, progress: progress}
	if err := c.run(); err != nil {
		return err
	}
	if err := p.Truncate(whole); err != nil {
		return err
	}
	return p.Settle()
}

func sizeOf(p *filesystem.Partial) (int64, error) {
	info, err := p.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// clone shares the blocks of the file at a path. Whatever that is, every byte is compared afterwards.
func clone(p *filesystem.Partial, path string) {
	from, err := os.Open(path)
	if err != nil {
		return
	}
	defer from.Close()
	if info, err := from.Stat(); err == nil && info.Mode().IsRegular() {
		p.Clone(from)
	}
}

// spare is what must stay free on the file system, in bytes: it may be etcd's, and a control plane copies files on its own.
const spare = 256 << 20

func (s *Store) hasRoom(need int64) error {
	if need <= 0 {
		return nil
	}
	need += spare
	free, err := space.Free(s.dir)
	if err != nil || free >= need {
		return err
	}
	return fault.New(fault.Failure, "not enough space in %s: it has %d bytes free, %d are needed", s.dir, free, need).
		Hint("free some space there: df " + s.dir)
}

// Repair compares a file in the store with its digests, and replaces what is damaged by the bytes of f, the same bundle.
// It returns the number of bytes that it replaced.
func (s *Store) Repair(ctx context.Context, f *bundle.File) (repaired int64, err error) {
	file, err := filesystem.RepairPartial(s.path(f.ID()))
	if err == nil {
		defer file.Close()
		c := copying{ctx: ctx, from: f, to: file, present: int64(f.Trailer().FileSize())}
		err = c.run()
		repaired = c.copied
	}
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		return repaired, fmt.Errorf("repairing the kept bundle %s: %w", f.ID(), err)
	}
	return repaired, nil
}

// A copying writes one copy of a bundle from another one, except for the bytes that match already.
type copying struct {
	ctx      context.Context
	from     *bundle.File
	to       *os.File
	present  int64 // bytes at the beginning of to that may match
	progress func(int64)

	copied   int64 // bytes
	unsynced int64
}

// run writes the sections in the order of the file, the trailer last: until then it is no bundle.
func (c *copying) run() error {
	t := c.from.Trailer()
	if err := c.launcher(); err != nil {
		return err
	}
	if err := c.frame(head.Header{FileSize: t.FileSize()}.Encode(), int64(t.PayloadOffset)-head.HeaderSize); err != nil {
		return err
	}
	if err := c.pieces(); err != nil {
		return err
	}
	if err := c.frame(c.from.Payload().Frame(), t.DigestsOffset()); err != nil {
		return err
	}
	return c.frame(t.Encode(), int64(t.FileSize())-head.TrailerSize)
}

func (c *copying) launcher() error {
	t, buf := c.from.Trailer(), make([]byte, 64<<10)
	end := int64(t.PayloadOffset) - head.HeaderSize
	if end <= c.present {
		if is, err := sumOf(c.to, 0, end, buf); err == nil && is == t.LauncherSHA256 {
			return nil
		}
	}
	launcher := c.from.Launcher()
	for at := int64(0); at < end; {
		n, err := launcher.ReadAt(buf[:min(int64(len(buf)), end-at)], at)
		if n == 0 {
			return head.ReadError(c.from.Path(), err)
		}
		if err := c.write(buf[:n], at); err != nil {
			return err
		}
		at += int64(n)
	}
	is, err := sumOf(c.to, 0, end, buf)
	if err == nil && is != t.LauncherSHA256 {
		err = head.Damaged(c.from.Path(), "the launcher (first %d bytes) does not match its sha256", end)
	}
	return err
}

func (c *copying) pieces() error {
	source := c.from.Payload().Within(c.ctx)
	target, buf := source.In(c.to), make([]byte, head.PieceSize)
	for n := range source.Pieces() {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		at := int64(c.from.Trailer().PayloadOffset) + n*head.PieceSize
		if at < c.present {
			if piece, err := target.ReadPiece(n, buf); err == nil {
				c.report(at + int64(len(piece)))
				continue
			}
		}
		piece, err := source.ReadPiece(n, buf)
		if damaged := (*head.DamagedPiece)(nil); errors.As(err, &damaged) {
			return head.Damaged(c.from.Path(), "%w", err)
		}
		if err != nil {
			return head.ReadError(c.from.Path(), err)
		}
		if err := c.write(piece, at); err != nil {
			return err
		}
		c.report(at + int64(len(piece)))
	}
	return nil
}

// frame writes bytes that are in memory, unless they are there.
func (c *copying) frame(b []byte, at int64) error {
	is := make([]byte, len(b))
	if _, err := c.to.ReadAt(is, at); err == nil && string(is) == string(b) {
		return nil
	}
	return c.write(b, at)
}

func (c *copying) write(b []byte, at int64) error {
	if _, err := c.to.WriteAt(b, at); err != nil {
		return err
	}
	c.copied += int64(len(b))
	if c.unsynced += int64(len(b)); c.unsynced >= syncEvery {
		c.unsynced = 0
		return c.to.Sync()
	}
	return nil
}

func (c *copying) report(done int64) {
	if c.progress != nil {
		c.progress(done)
	}
}
