package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// processFile is locked by the process that started a lab, for as long as that process runs.
func (l *Lab) processFile() string { return filepath.Join(l.Dir(), "process.lock") }

// holdProcessLock marks the lab as in use by this process. The kernel releases the lock when the
// process ends, also when it is killed.
func (l *Lab) holdProcessLock() (err error) {
	l.process, err = os.OpenFile(l.processFile(), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(l.process.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		return fmt.Errorf("locking lab: %w", err)
	}
	return nil
}

// removeAbandoned removes the labs whose processes were killed. Their hosts still run, and
// reserve their names. The caller holds lockFile.
func removeAbandoned(ctx context.Context, log func(format string, args ...any)) error {
	names, err := List()
	if err != nil {
		return err
	}
	for _, name := range names {
		l := &Lab{Name: name}
		abandoned, err := l.abandoned()
		if err != nil {
			return fmt.Errorf("looking for the process of lab %s: %w", name, err)
		}
		if !abandoned {
			continue
		}
		log("removing lab %s, whose process was killed", name)
		if err := down(ctx, l.Dir(), qualified(name, "")); err != nil {
			return fmt.Errorf("taking lab %s down: %w", name, err)
		}
	}
	return nil
}

// abandoned reports whether the lab is not kept and its process has ended.
func (l *Lab) abandoned() (bool, error) {
	data, err := os.ReadFile(l.optionsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // killed before it wrote the options
	}
	if err != nil {
		return false, err
	}
	var o Options
	if json.Unmarshal(data, &o) != nil {
		return true, nil // killed while it wrote them
	}
	if o.Kept {
		return false, nil
	}
	f, err := os.OpenFile(l.processFile(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
