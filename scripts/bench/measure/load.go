package measure

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"airlift/scripts/lab"
)

// A Load is what all processes of a host use, pods included.
type Load struct {
	// Memory is the 95th percentile of their memory in bytes: what is theirs alone, and their part of pages that several
	// processes share (PSS).
	Memory int64
	// Resident is that of the sum of their resident sets, where each process counts shared pages.
	Resident int64
	// CPU is their processor time, in percent of a core.
	CPU float64
}

// samplePause is the time between two samples of memory.
const samplePause = time.Second

// Loads watches hosts for a while. It looks at them from this machine, so it uses nothing of them.
func Loads(ctx context.Context, while time.Duration, hosts ...*lab.Host) ([]Load, error) {
	memory, resident := make([][]int64, len(hosts)), make([][]int64, len(hosts))
	before, err := cpuTimes(hosts)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	for time.Since(started) < while {
		for i, h := range hosts {
			p, r, err := memoryOf(h.Processes())
			if err != nil {
				return nil, err
			}
			memory[i], resident[i] = append(memory[i], p), append(resident[i], r)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(samplePause):
		}
	}
	after, err := cpuTimes(hosts)
	took := time.Since(started)
	loads := make([]Load, len(hosts))
	for i := range hosts {
		loads[i] = Load{percentile(memory[i], 95), percentile(resident[i], 95), 100 * (after[i] - before[i]).Seconds() / took.Seconds()}
	}
	return loads, err
}

func cpuTimes(hosts []*lab.Host) ([]time.Duration, error) {
	list := make([]time.Duration, len(hosts))
	var err error
	for i, h := range hosts {
		if list[i], err = h.CPUTime(); err != nil {
			return list, err
		}
	}
	return list, nil
}

// memoryOf returns the memory of processes in bytes. Those that have ended meanwhile have none.
func memoryOf(pids []int) (memory, resident int64, err error) {
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return 0, 0, err
		}
		for line := range strings.Lines(string(data)) {
			var kib int64
			if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kib); n == 1 {
				memory += kib << 10
			}
			if n, _ := fmt.Sscanf(line, "Rss: %d kB", &kib); n == 1 {
				resident += kib << 10
			}
		}
	}
	return memory, resident, nil
}

// percentile returns the least value that so many percent of the values do not exceed. There is at least one.
func percentile(values []int64, percent int) int64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)*percent+99)/100-1]
}
