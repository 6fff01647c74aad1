package repair

import (
	"context"
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
	result := &Result{}
	if err := result.repair(ctx, ref, file, target, copies, stage, check); err != nil {
		return result, fmt.Errorf("repairing %s: %w", file.Name(), err)
	}
	return result, nil
}

func (r *Result) repair(ctx context.Context, ref reference, file *os.File, target Copy, copies []Copy, stage Stage, check Check) error {
	damaged, err := ref.survey(ctx, target, stage("comparing "+target.Name, ref.size()))
	if err != nil {
		return err
	}
	v := &view{reference: ref, target: target, copies: copies, damaged: map[Range]bool{}}
	for _, s := range damaged {
		v.damaged[s] = true
	}
	if err := check(io.NewSectionReader(v, 0, ref.size()), ref.own); err != nil {
		return err
	}
	mend := func(s Range) error {
		b, from := ref.find(s, copies)
		if s.From = from; b == nil {
			r.Lost = add(r.Lost, s)
			return nil
		}
		if _, err := file.WriteAt(b, s.First); err != nil {
			return space.Explain(filepath.Dir(file.Name()), err)
		}
		r.Rewritten = add(r.Rewritten, s)
		return nil
	}
	for _, s := range damaged {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.What != trailer {
			if err := mend(s); err != nil {
				return err
			}
		}
	}
	if target.Size > ref.size() {
		if err := file.Truncate(ref.size()); err != nil {
			return err
		}
		r.Removed = target.Size - ref.size()
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if last := ref.section(ref.size() - 1); v.damaged[last] {
		if err := mend(last); err != nil {
			return err
		}
	}
	return file.Sync()
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
