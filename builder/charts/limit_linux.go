//go:build !race

package charts

import "golang.org/x/sys/unix"

// limitMemory ends this process when it allocates more. The memory that the race detector reserves
// would be counted too.
func limitMemory() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_DATA, &limit); err != nil {
		return err
	}
	limit.Cur = min(limit.Max, maxMemory)
	return unix.Setrlimit(unix.RLIMIT_DATA, &limit)
}
