package measure

import (
	"os"
	"testing"
)

func TestPercentile(t *testing.T) {
	var values []int64
	for i := range int64(60) {
		values = append(values, 60-i)
	}
	for _, c := range []struct {
		values []int64
		want   int64
	}{{values, 57}, {values[:20], 59}, {values[:1], 60}} { // 95 % of 60 are 57, of 20 (41 to 60) are 19
		if got := percentile(c.values, 95); got != c.want {
			t.Errorf("of %d values: %d, want %d", len(c.values), got, c.want)
		}
	}
}

func TestMemoryOf(t *testing.T) {
	block := make([]byte, 64<<20)
	for i := range block {
		block[i] = 1
	}
	memory, resident, err := memoryOf([]int{os.Getpid(), 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	if memory < 64<<20 || resident < memory || memory > 1<<30 {
		t.Errorf("%d bytes, resident %d, want more than the %d of a block", memory, resident, len(block))
	}
	block[0] = 2 // it is in use until here
}
