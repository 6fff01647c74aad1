package systemd

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"airlift/installer/timeline"
)

// unitDir has the units that Airlift and the administrator write.
const unitDir = "/etc/systemd/system"

// Written has the files of units that changed since systemd read them. It may be used by several goroutines.
type Written struct {
	mu    sync.Mutex
	paths map[string]bool
	// Reloaded is called after systemd has read all units again, with the unit whose file had changed; it may be nil.
	Reloaded func(unit string)
}

// Add notes that a file has changed, if it belongs to a unit.
func (w *Written) Add(file string) {
	if !strings.HasPrefix(file, unitDir+"/") {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paths == nil {
		w.paths = map[string]bool{}
	}
	w.paths[file] = true
}

// has reports whether the file of a unit or one of its drop-ins has changed.
func (w *Written) has(unit string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(slices.Collect(maps.Keys(w.paths)), func(file string) bool {
		return file == path.Join(unitDir, unit) || path.Dir(file) == path.Join(unitDir, unit+".d")
	})
}

// take returns the files, and forgets them.
func (w *Written) take() (files []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	files, w.paths = slices.Collect(maps.Keys(w.paths)), nil
	return files
}

// Reread makes systemd read its units again if it has not the present files of one of these. systemd can only read all of them, and
// then applies the device rules of their cgroups again: this takes devices from running containers that got them without its knowledge
// (NVIDIA/nvidia-container-toolkit#48), so it must not happen without need.
//
// A file that this process changed counts. systemd itself notices only a file that is newer than the one that it read, which a
// clock that was set back can hide.
func (m Manager) Reread(ctx context.Context, units ...string) error {
	for _, unit := range units {
		changed := m.written.has(unit)
		if !changed {
			state, err := m.Unit(ctx, unit)
			if err != nil {
				return err
			}
			changed = state.Stale || state.Load == "not-found" && m.exists(unit)
		}
		if changed {
			return m.Reload(ctx, unit)
		}
	}
	return nil
}

// exists reports whether a unit has a file. systemd before 247 remembers that there was none.
func (m Manager) exists(unit string) bool {
	_, err := os.Stat(m.root.Path(path.Join(unitDir, unit)))
	return err == nil
}

// Reload makes systemd read all units again, because the file of a unit has changed. Use Reread unless that is known, also after an
// interruption.
func (m Manager) Reload(ctx context.Context, unit string) error {
	defer timeline.Wait(ctx, "systemd", "reload for "+unit).End()
	read := m.written.take() // what changes meanwhile, systemd may not read
	err := m.withSystemd(ctx, func(ctx context.Context, c Conn) error { return c.ReloadContext(ctx) })
	if err != nil {
		for _, file := range read {
			m.written.Add(file)
		}
		return fmt.Errorf("reloading systemd's units: %w", err)
	}
	if m.written.Reloaded != nil {
		m.written.Reloaded(unit)
	}
	return nil
}
