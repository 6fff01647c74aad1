package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

const (
	// leaseLabel marks the leases of importers. Its value is the ID of the boot in which
	// the lease was created.
	leaseLabel = "airlift.dev/import"

	// leaseExpiry is when containerd may remove what a killed importer left, if no later
	// importer does so before. No import takes a day.
	leaseExpiry = 24 * time.Hour

	// runDir has one lock file for each running importer.
	runDir = "/run/airlift"
)

// A lock is held while the importer's process lives, however it ends. A later importer
// uses it to distinguish the lease of a killed importer from one in use.
type lock struct{ file *os.File }

func lockPath(leaseID string) string { return filepath.Join(runDir, leaseID+".lock") }

func newLock(leaseID string) (*lock, error) {
	if err := os.MkdirAll(runDir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(lockPath(leaseID), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return &lock{f}, nil
}

func (l *lock) release() error {
	return errors.Join(os.Remove(l.file.Name()), l.file.Close())
}

// abandoned reports whether no process holds the lease's lock, and then removes the lock
// file.
func abandoned(lease leases.Lease) (bool, error) {
	f, err := os.Open(lockPath(lease.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // /run is empty after a reboot
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, os.Remove(f.Name())
}

// fromEarlierBoot reports whether the machine was rebooted since the lease was created.
func fromEarlierBoot(lease leases.Lease) (bool, error) {
	boot, err := bootID()
	return lease.Labels[leaseLabel] != boot, err
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// newLease creates a lease that protects everything an importer writes, and the lock that
// shows that the importer is alive.
func (s *Store) newLease(ctx context.Context) (leases.Lease, *lock, error) {
	id := "airlift-" + rand.Text()
	lock, err := newLock(id)
	if err != nil {
		return leases.Lease{}, nil, fmt.Errorf("locking lease %s: %w", id, err)
	}
	boot, err := bootID()
	if err != nil {
		return leases.Lease{}, nil, errors.Join(err, lock.release())
	}
	lease, err := s.leases.Create(ctx, leases.WithID(id),
		leases.WithLabel(leaseLabel, boot), leases.WithExpiration(leaseExpiry))
	if err != nil {
		return leases.Lease{}, nil, errors.Join(fmt.Errorf("creating a lease: %w", err), lock.release())
	}
	return lease, lock, nil
}

// dropLeases deletes the leases of dead importers, and with them the snapshots that nothing
// else uses.
func (s *Store) dropLeases(ctx context.Context, stale func(leases.Lease) (bool, error)) error {
	held, err := s.leases.List(ctx, fmt.Sprintf("labels.%q", leaseLabel))
	if err != nil {
		return fmt.Errorf("listing leases: %w", err)
	}
	for _, lease := range held {
		drop, err := stale(lease)
		if err != nil {
			return fmt.Errorf("checking whether lease %s is in use: %w", lease.ID, err)
		}
		if drop {
			if err := s.deleteLease(ctx, lease); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteLease deletes a lease and waits until containerd has removed what only the lease
// protected.
func (s *Store) deleteLease(ctx context.Context, lease leases.Lease) error {
	err := s.leases.Delete(ctx, lease, leases.SynchronousDelete)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("deleting lease %s: %w", lease.ID, err)
	}
	return nil
}
