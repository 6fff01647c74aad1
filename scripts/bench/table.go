package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"airlift/scripts/byhand"
	"airlift/scripts/upstream/components"
)

// The two ways, and what is measured of both.
const (
	ours   = "airlift"
	theirs = "by hand"

	importRow = "import of all images"
	initRow   = "init, to node and system pods Ready"
	joinRow   = "join, to node Ready"
	againRow  = "second init"
)

// A table collects measurements by row and way.
type table struct {
	size  map[string]int64
	times map[string]map[string][]time.Duration
}

func (t *table) add(row, way string, took time.Duration) {
	if t.times == nil {
		t.times = map[string]map[string][]time.Duration{}
	}
	if t.times[row] == nil {
		t.times[row] = map[string][]time.Duration{}
	}
	t.times[row][way] = append(t.times[row][way], took)
	fmt.Fprintf(os.Stderr, "  %s, %s: %.1f s\n", way, row, took.Seconds())
}

// time measures one act, if it succeeds.
func (t *table) time(row, way string, act func() error) error {
	started := time.Now()
	if err := act(); err != nil {
		return fmt.Errorf("%s, %s: %w", way, row, err)
	}
	t.add(row, way, time.Since(started))
	return nil
}

// sizes adds up what has to be carried: the one file, or image archives with
// gzip layers, release archives as released, and gzip -6 of what upstream
// ships bare.
func (t *table) sizes(path string, kit *byhand.Kit) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	t.size = map[string]int64{ours: info.Size()}
	for _, a := range kit.Archives {
		info, err := os.Stat(a.Path)
		if err != nil {
			return err
		}
		t.size[theirs] += info.Size()
	}
	cache, err := components.CacheDir()
	if err != nil {
		return err
	}
	for _, pattern := range []string{"containerd-*-linux-amd64.tar.gz", "cni-plugins-linux-amd64-*.tgz"} {
		list, err := filepath.Glob(filepath.Join(cache, "dist", "*", pattern))
		if err != nil || len(list) == 0 {
			return fmt.Errorf("looking for the release archive %s: none in the cache (%v)", pattern, err)
		}
		info, err := os.Stat(list[len(list)-1])
		if err != nil {
			return err
		}
		t.size[theirs] += info.Size()
	}
	for _, name := range []string{"kubelet", "kubectl", "kubeadm", "runc"} {
		program, err := components.Path(kit.Version, name)
		if err != nil {
			return err
		}
		n, err := gzipped(program)
		if err != nil {
			return err
		}
		t.size[theirs] += n
	}
	return nil
}

// gzipped is the size of a file after gzip -6, in bytes.
func gzipped(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var n counter
	w, err := gzip.NewWriterLevel(&n, 6)
	if err != nil {
		return 0, err
	}
	if _, err := io.Copy(w, f); err != nil {
		return 0, err
	}
	return int64(n), w.Close()
}

type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

func (t *table) print(out io.Writer, version string, runs int) {
	fmt.Fprintf(out, "Kubernetes %s, %d runs each way, in turns; median (least to most)\n\n", version, runs)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "what\tby hand\tairlift\tratio")
	fmt.Fprintf(w, "what is carried\t%.1f MB\t%.1f MB\t%.2f\n",
		float64(t.size[theirs])/1e6, float64(t.size[ours])/1e6, float64(t.size[ours])/float64(t.size[theirs]))
	for _, row := range []string{importRow, initRow, joinRow, againRow} {
		hand, own := t.times[row][theirs], t.times[row][ours]
		ratio := "–"
		if len(hand) > 0 && len(own) > 0 {
			ratio = fmt.Sprintf("%.2f", float64(median(own))/float64(median(hand)))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", row, spread(hand), spread(own), ratio)
	}
	_ = w.Flush() // to standard output
}

func median(list []time.Duration) time.Duration {
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

func spread(list []time.Duration) string {
	if len(list) == 0 {
		return "–"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%.1f s (%.1f to %.1f)", median(list).Seconds(), slices.Min(list).Seconds(), slices.Max(list).Seconds())
	return b.String()
}
