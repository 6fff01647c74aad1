package repair

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"airlift/bundle/head"
	"airlift/internal/fault"
	"airlift/internal/space"
)

// A Result describes a repair.
type Result struct {
	Rewritten []Range // in order
	Removed   int64   // bytes after the file's end
	Lost      []Range // damaged in every copy
}

// Bytes is the number of bytes that were rewritten.
func (r Result) Bytes() (n int64) {
	for _, d := range r.Rewritten {
		n += d.Len()
	}
	return n
}

// A Stage announces what is compared next, and how many bytes. The result is called with
// the number of bytes that were compared.
type Stage func(what string, size int64) (compared func(n int64))

// A Check accepts or refuses the file as it will be after the repair. own reports whether the
// file's own trailer is intact, which determines all other bytes; if it is not, a copy does, and
// nothing but a signature proves that it is genuine.
type Check func(repaired *io.SectionReader, own bool) error

// File rewrites the damaged sections of a file, and only these, if check accepts the result. Each section
// comes from the first of copies in which it is intact.
//
// It writes in place, without a journal: a section is written only if it is damaged, and
// only with bytes that were compared with the reference in memory. So a repair that is
// interrupted leaves each section as it was, repaired, or still damaged, and finds the rest
// when it runs again. The trailer is written last, when everything else is on the disk.
//
// On an error, the result lists the sections that were rewritten before it.
func File(ctx context.Context, file *os.File, copies []Copy, stage Stage, check Check) (*Result, error) {
	i, err := file.Stat()
	if err != nil {
		return &Result{}, err
	}
	target := Copy{file.Name(), i.Size(), file}
	for _, c := range append([]Copy{target}, copies...) {
		if t, ok := c.trailerBefore(c.Size); ok && t.IsThin(c.Size) {
			return &Result{}, head.NeedsWhole(c.Name)
		}
	}
	ref, err := findReference(target, copies)
	if err != nil {
		return &Result{}, err
	}
	if missing := ref.size() - target.Size; missing > 0 {
		if err := space.Check(filepath.Dir(file.Name()), "the missing bytes", missing); err != nil {
			return &Result{}, err
		}
	}
	w := &writer{reference: ref, file: file, copies: copies, check: check, result: &Result{}}
	if err := w.repair(ctx, target, stage); err != nil {
		return w.result, fmt.Errorf("repairing %s: %w", file.Name(), err)
	}
	return w.result, nil
}

// A writer repairs one file.
type writer struct {
	reference
	file   *os.File
	copies []Copy
	check  Check
	result *Result
}

func (w *writer) repair(ctx context.Context, target Copy, stage Stage) error {
	damage, err := w.survey(ctx, target, stage("comparing "+target.Name, w.surveySize()))
	if err != nil {
		return err
	}
	v := &view{writer: w, target: target, damage: damage}
	if damage.launcher {
		if v.launcherFrom, v.launcher, err = w.readLauncher(ctx); err != nil {
			return err
		}
	}
	if err := w.check(io.NewSectionReader(v, 0, w.size()), w.own); err != nil {
		return err
	}
	if damage.launcher {
		if err := w.repairLauncher(v.launcherFrom, v.launcher); err != nil {
			return err
		}
	}
	if damage.header {
		r := Range{First: w.launcher(), Last: w.launcher() + head.HeaderSize - 1, What: "header"}
		if err := w.write(r, w.header()); err != nil {
			return err
		}
	}
	for _, n := range damage.pieces {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.repairPiece(n); err != nil {
			return err
		}
	}
	end := w.size() - head.TrailerSize
	if damage.digests {
		if err := w.write(Range{First: w.trailer.DigestsOffset(), Last: end - 1, What: "digests"}, w.frame); err != nil {
			return err
		}
	}
	if target.Size > w.size() {
		if err := w.file.Truncate(w.size()); err != nil {
			return err
		}
		w.result.Removed = target.Size - w.size()
	}
	if err := w.file.Sync(); err != nil {
		return err
	}
	if damage.trailer {
		if err := w.write(Range{First: end, Last: w.size() - 1, What: "trailer"}, w.trailer.Encode()); err != nil {
			return err
		}
	}
	return w.file.Sync()
}

// maxLauncher is the largest launcher, because it is in memory.
const maxLauncher = 512 << 20

// readLauncher reads the launcher of the first copy in which it is intact, once. There are no
// digests for sections of the launcher. It returns nil if no copy has it.
func (w *writer) readLauncher(ctx context.Context) (from string, launcher []byte, err error) {
	if w.reference.launcher() > maxLauncher {
		return "", nil, fmt.Errorf("the launcher has %d bytes, more than the %d allowed", w.reference.launcher(), maxLauncher)
	}
	for _, c := range w.copies {
		if err := ctx.Err(); err != nil {
			return "", nil, err
		}
		b := make([]byte, w.reference.launcher())
		if _, err := c.ReadAt(b, 0); err == nil && sha256.Sum256(b) == w.trailer.LauncherSHA256 {
			return c.Name, b, nil
		}
	}
	return "", nil, nil
}

func (w *writer) repairLauncher(from string, launcher []byte) error {
	r := Range{Last: w.reference.launcher() - 1, What: "launcher", From: from}
	if launcher == nil {
		w.result.Lost = add(w.result.Lost, r)
		return nil
	}
	return w.write(r, launcher)
}

func (w *writer) repairPiece(n int64) error {
	r, buf := w.piece(n), make([]byte, head.PieceSize)
	for _, c := range w.copies {
		piece, err := w.payload(c).ReadPiece(n, buf)
		if err != nil {
			continue // damaged or missing there
		}
		r.From = c.Name
		return w.write(r, piece)
	}
	w.result.Lost = add(w.result.Lost, r)
	return nil
}

func (w *writer) write(r Range, b []byte) error {
	if _, err := w.file.WriteAt(b, r.First); err != nil {
		return space.Explain(filepath.Dir(w.file.Name()), err)
	}
	w.result.Rewritten = add(w.result.Rewritten, r)
	return nil
}

// Err returns an error if sections could not be repaired.
func (r Result) Err(path string) error {
	if len(r.Lost) == 0 {
		return nil
	}
	var n int64
	for _, l := range r.Lost {
		n += l.Len()
	}
	return fault.New(fault.Bundle, "%s is still damaged: %d bytes in %d section(s), the first is %v; no copy has them intact", path, n, len(r.Lost), r.Lost[0]).
		Hint("run the command again with another copy: --from is repeatable")
}
