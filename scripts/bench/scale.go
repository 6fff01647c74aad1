package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"airlift/scripts/bench/measure"
	"airlift/scripts/lab"
	"airlift/scripts/site"
)

// scaleParts are the values of --only.
var scaleParts = []string{"count", "bytes", "shape", "join"}

const (
	mib = 1 << 20
	gib = 1 << 30
)

// shapes are the images in addition to those of every bundle.
var shapes = map[string][]shape{
	"count": {
		{name: "none"},
		{name: "images-1", images: 1, layers: 5, files: 100, size: gib / 2 / 500},
		{name: "images-10", images: 10, layers: 5, files: 10, size: gib / 2 / 500},
		{name: "images-50", images: 50, layers: 5, files: 2, size: gib / 2 / 500},
		{name: "images-200", images: 200, layers: 5, files: 1, size: gib / 2 / 1000},
	},
	"bytes": {
		{name: "half-gb", images: 10, layers: 5, files: 10, size: 1e6},
		{name: "two-gb", images: 10, layers: 5, files: 40, size: 1e6},
		{name: "ten-gb", images: 10, layers: 5, files: 200, size: 1e6},
	},
	"shape": {
		{name: "small-files", images: 1, layers: 1, files: 100_000, size: 2000},
		{name: "huge-layer", images: 1, layers: 1, files: 2, size: 1e9},
	},
}

// scaleLab is the lab of bench scale, which may run at the same time as bench.
const scaleLab = "bench-scale"

// A grown has the cost of one shape.
type grown struct {
	Shape     string  `json:"shape"`
	Images    int     `json:"images"`
	Layers    int     `json:"layers"`
	Files     int     `json:"files"`
	Megabytes float64 `json:"mb"`

	Bundle      float64 `json:"bundleMB"`
	Build       float64 `json:"buildSeconds"`
	BuildCPU    float64 `json:"buildCPUSeconds"`
	BuildMemory float64 `json:"buildMemoryMB"`

	Import    float64 `json:"importSeconds"`
	OnDisk    float64 `json:"importOnDiskSeconds"`
	ImportCPU float64 `json:"importCPUSeconds"`
	Resident  float64 `json:"residentMB"`
	Held      float64 `json:"heldMB"`
	ExtraDisk float64 `json:"extraDiskMB"`
	Again     float64 `json:"secondImportSeconds"`

	// Only for "count": init with the images imported before, a second init, and the
	// import of one more bundle.
	Init       float64 `json:"initSeconds,omitempty"`
	SecondInit float64 `json:"secondInitSeconds,omitempty"`
	Other      float64 `json:"otherImportSeconds,omitempty"`
	Snapshots  int     `json:"snapshots,omitempty"`
}

// A joined has the cost of joins in parallel.
type joined struct {
	Hosts    int     `json:"hosts"`
	First    float64 `json:"firstReturnedSeconds"`
	Last     float64 `json:"lastReturnedSeconds"`
	Nodes    float64 `json:"allNodesReadySeconds"`
	Pods     float64 `json:"allPodsReadySeconds"`
	CPU      float64 `json:"installerCPUSeconds"` // mean of each join
	Resident float64 `json:"residentMB"`          // of the largest
}

type scaled struct {
	Version string   `json:"kubernetes"`
	Grown   []grown  `json:"grown,omitempty"`
	Joined  []joined `json:"joined,omitempty"`
}

// A scaling is one run of bench scale.
type scaling struct {
	options
	version    string
	dir, gauge string
	cache      string // of bundle build
	mirrors    []string
	other      string // the bundle that is imported last, when it was built
	scaled
}

func scale(ctx context.Context, o options, wanted func(part string) bool) error {
	version, err := site.KubernetesVersion(o.bundle)
	if err != nil {
		return err
	}
	// Next to the cache, because /tmp may be in memory and this gets large.
	base, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Join(base, "airlift"), "scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &scaling{options: o, version: version, dir: dir, cache: filepath.Join(dir, "cache"), scaled: scaled{Version: version}}
	if s.gauge, err = measure.BuildGauge(ctx, dir); err != nil {
		return err
	}
	for _, part := range scaleParts[:3] {
		if !wanted(part) {
			continue
		}
		if s.mirrors == nil {
			stop, err := s.fillCache(ctx)
			if err != nil {
				return err
			}
			defer stop()
		}
		if err := s.part(ctx, part); err != nil {
			return err
		}
	}
	if wanted("join") {
		if err := s.joining(ctx); err != nil {
			return err
		}
	}
	s.print(os.Stdout)
	if o.json != "" {
		return writeJSON(o.json, s.scaled)
	}
	return nil
}

// part measures the shapes of one part.
func (s *scaling) part(ctx context.Context, part string) error {
	if part == "count" {
		other := shape{name: "other", images: 10, layers: 2, files: 5, size: 1e6}
		path, _, err := s.build(ctx, other)
		if err != nil {
			return err
		}
		s.other = path
		defer os.Remove(path)
	}
	for _, sh := range shapes[part] {
		say("%s: %d images of %d layers, %d files each, %.0f MB", sh.name, sh.images, sh.layers, sh.files, float64(sh.bytes())/1e6)
		path, g, err := s.build(ctx, sh)
		if err != nil {
			return fmt.Errorf("%s: %w", sh.name, err)
		}
		g.Shape, g.Images, g.Layers, g.Files = sh.name, sh.images, sh.images*sh.layers, sh.images*sh.layers*sh.files
		g.Megabytes = float64(sh.bytes()) / 1e6
		// Remove the file when it was copied to the host: the largest one fills a small
		// machine.
		own := &airlift{bundle: path, version: s.version}
		err = onFreshHosts(ctx, lab.Options{Name: scaleLab, Hosts: 1}, own, s.gauge, func(l *lab.Lab) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return s.grow(ctx, &g, own, l.Hosts[0], part == "count")
		})
		_ = os.Remove(path) // already removed, unless something failed
		if err != nil {
			return fmt.Errorf("%s: %w", sh.name, err)
		}
		s.Grown = append(s.Grown, g)
		say("  build %.1f s, import %.1f s (on disk %.1f), %.0f MB resident, %.0f held, %.1f MB extra disk; again %.2f s",
			g.Build, g.Import, g.OnDisk, g.Resident, g.Held, g.ExtraDisk, g.Again)
	}
	return nil
}

// fillCache starts the rig and downloads what every bundle needs, so that a measured build
// only downloads the images of its shape. Missing optional components are requested in
// every build, so the rig keeps running.
func (s *scaling) fillCache(ctx context.Context) (stop func(), err error) {
	say("filling a separate cache")
	stop, mirrors, err := startRig(ctx, s.rig, s.version, s.dir, filepath.Join(s.dir, "access"))
	if err != nil {
		return nil, fmt.Errorf("starting the upstream rig: %w", err)
	}
	path, _, err := s.run(ctx, mirrors)
	if err != nil {
		stop()
		return nil, err
	}
	s.mirrors = mirrors
	return stop, os.Remove(path)
}

// build builds a bundle with a shape's images.
func (s *scaling) build(ctx context.Context, sh shape) (path string, g grown, err error) {
	registry, err := serveSynthetic(sh)
	if err != nil {
		return "", g, err
	}
	defer registry.Close()
	before, err := files(s.cache)
	if err != nil {
		return "", g, err
	}
	args := append([]string{"--mirror", syntheticHost + "=" + registry.url}, s.mirrors...)
	for _, reference := range sh.references() {
		args = append(args, "--image", reference)
	}
	path, g, err = s.run(ctx, args)
	if err != nil {
		return "", g, err
	}
	// Nothing else needs the cached contents of this shape.
	after, err := files(s.cache)
	if err != nil {
		return "", g, err
	}
	for file := range after {
		if !before[file] {
			if err := os.Remove(file); err != nil {
				return "", g, err
			}
		}
	}
	return path, g, nil
}

// run runs bundle build with the fastest compression, which is not measured here.
func (s *scaling) run(ctx context.Context, args []string) (path string, g grown, err error) {
	f, err := os.CreateTemp(s.dir, "bundle-")
	if err != nil {
		return "", g, err
	}
	f.Close()
	path = f.Name()
	args = append([]string{"build", "--version", s.version, "--cache-dir", s.cache, "--compression", "fastest", "--output", path}, args...)
	started := time.Now()
	cmd := exec.CommandContext(ctx, s.tool, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", g, fmt.Errorf("running %s build: %w: %s", s.tool, err, out)
	}
	g.Build = time.Since(started).Seconds()
	g.BuildCPU = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	g.BuildMemory = float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss<<10) / 1e6
	size, err := fileSize(path)
	g.Bundle = float64(size) / 1e6
	return path, g, err
}

func files(dir string) (map[string]bool, error) {
	list := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			list[path] = true
		}
		return err
	})
	return list, err
}

// grow imports a bundle's images on a host.
func (s *scaling) grow(ctx context.Context, g *grown, own *airlift, h *lab.Host, more bool) error {
	if err := own.runtime(ctx, h); err != nil {
		return err
	}
	if _, err := h.Output(ctx, "sync", "-f", "/"); err != nil {
		return err
	}
	disk, err := measure.SampleDisk(h)
	if err != nil {
		return err
	}
	started := time.Now()
	u, err := phaseImages(ctx, h, site.Installer)
	if err != nil {
		return err
	}
	if _, err := h.Output(ctx, "sync", "-f", "/"); err != nil {
		return err
	}
	g.Import, g.OnDisk = u.Wall.Seconds(), time.Since(started).Seconds()
	g.ImportCPU, g.Resident, g.Held = u.CPU.Seconds(), float64(u.Resident)/1e6, float64(u.Memory)/1e6
	extra, _, err := disk.Extra()
	if err != nil {
		return err
	}
	g.ExtraDisk = float64(extra) / 1e6
	if u, err = phaseImages(ctx, h, site.Installer); err != nil {
		return err
	}
	g.Again = u.Wall.Seconds()
	if !more {
		return nil
	}
	const other = "/root/other"
	if _, err := h.CopyIn(ctx, s.other, other, 0o755); err != nil {
		return err
	}
	out, err := h.Output(ctx, "ctr", "-n", "k8s.io", "snapshots", "list")
	if err != nil {
		return err
	}
	g.Snapshots = strings.Count(out, "\n") - 1 // without the heading
	if u, err = phaseImages(ctx, h, other); err != nil {
		return err
	}
	g.Other = u.Wall.Seconds()
	_, u, err = measure.Run(ctx, h, site.Installer, "init")
	if err != nil {
		return err
	}
	g.Init = u.Wall.Seconds()
	if _, u, err = measure.Run(ctx, h, site.Installer, "init"); err != nil {
		return err
	}
	g.SecondInit = u.Wall.Seconds()
	return nil
}

func phaseImages(ctx context.Context, h *lab.Host, installer string) (measure.Usage, error) {
	_, u, err := measure.Run(ctx, h, installer, "init", "phase", "images")
	return u, err
}

func (s *scaling) print(out io.Writer) {
	fmt.Fprintf(out, "Kubernetes %s. Images in addition to those of every bundle; built with --compression fastest, from a registry on this machine.\n", s.Version)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	if len(s.Grown) > 0 {
		fmt.Fprintln(w, "\n\timages\tlayers\tfiles\tMB\tfile MB\tbuild s\tCPU s\tMB\timport s\ton disk s\tCPU s\tresident MB\theld MB\textra disk MB\tagain s\t")
		for _, g := range s.Grown {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.0f\t%.0f\t%.1f\t%.1f\t%.0f\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t%.1f\t%.2f\t\n", g.Shape, g.Images, g.Layers, g.Files,
				g.Megabytes, g.Bundle, g.Build, g.BuildCPU, g.BuildMemory, g.Import, g.OnDisk, g.ImportCPU, g.Resident, g.Held, g.ExtraDisk, g.Again)
		}
		_ = w.Flush() // to standard output
		fmt.Fprintln(out, `
Build: bundle build downloads, compresses, writes and verifies; its peak resident memory. Import: "install init
phase images" imports these images and those of every bundle into a running containerd. Resident is the kernel's peak
(VmHWM); held is anonymous and shared memory, sampled. Again: the same phase with nothing to do.`)
	}
	var any bool
	for _, g := range s.Grown {
		if g.SecondInit == 0 {
			continue
		}
		if !any {
			fmt.Fprintln(w, "\non the host before\timages\tsnapshots\timport of 10 others s\tinit s\tsecond init s\t")
			any = true
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%.2f\t%.1f\t%.2f\t\n", g.Shape, g.Images, g.Snapshots, g.Other, g.Init, g.SecondInit)
	}
	_ = w.Flush() // to standard output
	if len(s.Joined) > 0 {
		fmt.Fprintln(w, "\njoining at once\tfirst returned s\tlast returned s\tall nodes Ready s\tall pods Ready s\tCPU s each\tresident MB\t")
		for _, j := range s.Joined {
			fmt.Fprintf(w, "%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f\t\n", j.Hosts, j.First, j.Last, j.Nodes, j.Pods, j.CPU, j.Resident)
		}
		_ = w.Flush() // to standard output
		fmt.Fprintln(out, "\nAll hosts share this machine's cores. Compare the CPU seconds of each join to see whether a join costs more.")
	}
}
