package parts

import (
	"math"
	"strconv"
	"strings"

	"airlift/internal/fault"
)

// FAT32 is the maximum size of a file on FAT32 in bytes: its directory entries have 32 bits
// for the size.
const FAT32 = 1<<32 - 1

// named are sizes for common media, in bytes.
var named = map[string]int64{
	"fat32": FAT32,
	// A CD-R of 80 minutes has 360 000 sectors of 2048 bytes, 737 280 000 bytes. The rest is
	// for the file system.
	"cd": 700_000_000,
	// A DVD has at least 4 700 000 000 bytes, but a file on ISO 9660 has at most 4 GiB - 1.
	"dvd": FAT32,
}

// Names lists the named sizes.
func Names() []string { return []string{"fat32", "cd", "dvd"} }

// units as in split(1): powers of 1024, and of 1000 with a B.
var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
	{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30},
}

// MinSize is the minimum size of a part in bytes.
const MinSize = 1 << 20

// ParseSize parses the size of a part: a named size, or a number of bytes with a unit.
func ParseSize(s string) (int64, error) {
	if n, ok := named[strings.ToLower(s)]; ok {
		return n, nil
	}
	digits, unit := s, int64(1)
	for _, u := range units {
		if d, ok := strings.CutSuffix(s, u.suffix); ok {
			digits, unit = d, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > math.MaxInt64/unit {
		return 0, fault.New(fault.Usage, "%q is not a size", s).Hint("for example: --size fat32, --size 650M or --size 4GB")
	}
	if n *= unit; n < MinSize {
		return 0, fault.New(fault.Usage, "a part of %q is smaller than 1 MiB", s).Hint("for example: --size fat32, --size 650M or --size 4GB")
	}
	return n, nil
}
