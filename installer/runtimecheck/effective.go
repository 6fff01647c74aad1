package runtimecheck

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"

	"airlift/images/store"
	"airlift/internal/childprocess"
)

// An Effective is the part of containerd's configuration that decides whether it serves a node, after all files are merged.
type Effective struct {
	// Socket is the path of its socket.
	Socket string
	// CRI reports whether the plugins that the kubelet needs are enabled. Without them, the fields below have defaults.
	CRI bool
	// SandboxImage is the pause image of pods.
	SandboxImage string
	// RegistryDirs are the directories of the registries' directories, RegistryMirrors the registries that the files themselves
	// configure, sorted. containerd's CRI does not start with both.
	RegistryDirs, RegistryMirrors []string
	// CNIBinDirs are where CNI plugins are, CNIConfDir is where their configuration is.
	CNIBinDirs []string
	CNIConfDir string
	// Snapshotter unpacks images.
	Snapshotter string
	// RestrictOOMScoreAdj reports whether containers start on a host where containerd may not lower oom_score_adj.
	RestrictOOMScoreAdj bool
	// DefaultRuntime is the name of the runtime of pods without a runtime class. Runtimes are all, by name.
	DefaultRuntime string
	Runtimes       map[string]Runtime
}

// A Runtime is a runtime handler.
type Runtime struct {
	Type          string // "io.containerd.runc.v2"
	SystemdCgroup bool   // only a runtime of that type has it
	Binary        string // in place of runc; "" for runc
	Snapshotter   string // of its pods; "" for the one of all
}

// runcType is the type of runtimes that run runc, or a binary in its place.
const runcType = "io.containerd.runc.v2"

// A Binary is the binary of a containerd: its path, or the open file of one that is not installed.
type Binary struct {
	Path string
	File *os.File
}

// Close closes the open file.
func (b Binary) Close() {
	if b.File != nil {
		_ = b.File.Close()
	}
}

// Effective returns what containerd makes of its configuration file and the files that it imports, in the order of
// store.ReadConfigTexts. The binary itself computes it (`containerd config dump`), because its rules differ between releases: 1.x
// replaces a plugin's whole table, 2.x merges the tables, and converts files of older versions. It starts nothing and changes
// nothing. The error is what containerd prints when it does not start with these files.
//
// containerd reads copies in memory, so files can be left out, and files that are not written yet can be evaluated.
func (b Binary) Effective(ctx context.Context, texts []store.ConfigText) (e Effective, err error) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	share := func(f *os.File) string { // returns its path in the new process, where the first one is 3
		files = append(files, f)
		return fmt.Sprintf("%s%d", fdDir, 2+len(files))
	}
	program := b.Path
	if b.File != nil {
		f, err := os.Open(fmt.Sprintf("%s%d", fdDir, b.File.Fd()))
		if err != nil {
			return e, err
		}
		program = share(f)
	}
	config, imports, names := fdDir+"none", []string{}, map[string]string{} // a file that does not exist: containerd then has its defaults
	for i := range texts {
		text := texts[(i+1)%len(texts)] // the first one, which imports the others, is the last one
		if text.Missing {
			imports = append(imports, fdDir+"none")
			continue
		}
		if i < len(texts)-1 {
			text.Data, err = withImports(text.Data)
		} else {
			text.Data, err = withImports(text.Data, imports...)
		}
		if err != nil {
			return e, fmt.Errorf("reading %s: %w", text.Path, err)
		}
		f, err := inMemory(text.Data, unix.MFD_NOEXEC_SEAL)
		if err != nil {
			return e, err
		}
		config = share(f)
		imports, names[config] = append(imports, config), text.Path
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dumpTime, fmt.Errorf("it has not ended after %s", dumpTime))
	defer cancel()
	cmd := childprocess.Command(ctx, program, "--config", config, "config", "dump")
	cmd.ExtraFiles, cmd.WaitDelay = files, time.Second
	var stdout, stderr output
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if failed := cmp.Or(context.Cause(ctx), stdout.tooLong, stderr.tooLong); failed != nil {
		return e, fmt.Errorf("running containerd: %w", failed)
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return e, &RefusedError{copies.ReplaceAllStringFunc(lastLine(stderr.text.String()), func(place string) string { return cmp.Or(names[place], place) })}
	}
	if err != nil {
		return e, fmt.Errorf("running containerd: %w", err)
	}
	return parse(stdout.text.Bytes())
}

// dumpTime limits a containerd that hangs. It needs 15 ms.
var dumpTime = 30 * time.Second

// Limits of what a containerd prints, in bytes: it has a few KiB.
const (
	maxOutput  = 4 << 20
	maxMessage = 500
)

// An output is what a process prints, at most maxOutput bytes.
type output struct {
	text    bytes.Buffer
	tooLong error
}

func (o *output) Write(data []byte) (int, error) {
	if o.text.Len()+len(data) > maxOutput {
		o.tooLong = fmt.Errorf("it printed more than %d bytes", maxOutput)
		return 0, o.tooLong
	}
	return o.text.Write(data)
}

// A RefusedError is what containerd prints when it does not start with its configuration.
type RefusedError struct{ Message string }

func (e *RefusedError) Error() string { return e.Message }

const fdDir = "/proc/self/fd/"

var copies = regexp.MustCompile(fdDir + `[0-9]+`)

// lastLine returns the error of a containerd, which follows its warnings.
func lastLine(text string) (last string) {
	for line := range strings.Lines(text) {
		if message, ok := strings.CutPrefix(strings.TrimSpace(line), "containerd: "); ok {
			last = message
		}
	}
	if last = cmp.Or(last, strings.Join(strings.Fields(text), " ")); len(last) > maxMessage {
		last = strings.ToValidUTF8(last[:maxMessage], "") + "…"
	}
	return last
}

// withImports returns a configuration file that imports other files than it did.
func withImports(data []byte, paths ...string) ([]byte, error) {
	var all map[string]any
	if err := toml.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	if _, has := all["imports"]; !has && len(paths) == 0 {
		return data, nil
	}
	if all == nil {
		all = map[string]any{}
	}
	all["imports"] = append([]string{}, paths...)
	return toml.Marshal(all)
}

// Executable returns a binary in a file that is on no disk. The kernel may not allow that (sysctl vm.memfd_noexec).
func Executable(data []byte) (Binary, error) {
	f, err := inMemory(data, unix.MFD_EXEC)
	return Binary{File: f}, err
}

// inMemory returns a file that is on no disk.
func inMemory(data []byte, exec int) (*os.File, error) {
	fd, err := unix.MemfdCreate("containerd", unix.MFD_CLOEXEC|exec)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3 has no flags for execution and needs none
		fd, err = unix.MemfdCreate("containerd", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	if _, err := f.Write(data); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Plugins that the CRI has: one up to 1.7, and three since 2.0.
const (
	plugin1       = "io.containerd.grpc.v1.cri" // its gRPC service since 2.0
	imagesPlugin  = "io.containerd.cri.v1.images"
	runtimePlugin = "io.containerd.cri.v1.runtime"
	socketPlugin  = "io.containerd.server.v1.grpc" // since 2.3
)

// IsCRI reports whether a plugin is the CRI plugin, or a part of it.
func IsCRI(plugin string) bool {
	return plugin == "cri" || plugin == plugin1 || strings.HasPrefix(plugin, "io.containerd.cri.v1.")
}

// A dump is what Effective needs of what `containerd config dump` prints.
type dump struct {
	Disabled []string `toml:"disabled_plugins"`
	GRPC     struct {
		Address string `toml:"address"` // up to 2.2
	} `toml:"grpc"`
	Plugins map[string]plugin `toml:"plugins"`
}

type plugin struct {
	Address             string            `toml:"address"`
	SandboxImage        string            `toml:"sandbox_image"` // up to 1.7
	PinnedImages        map[string]string `toml:"pinned_images"`
	RestrictOOMScoreAdj bool              `toml:"restrict_oom_score_adj"`
	Snapshotter         string            `toml:"snapshotter"`
	Registry            struct {
		ConfigPath string         `toml:"config_path"`
		Mirrors    map[string]any `toml:"mirrors"`
	} `toml:"registry"`
	CNI struct {
		BinDir  string   `toml:"bin_dir"` // up to 2.0
		BinDirs []string `toml:"bin_dirs"`
		ConfDir string   `toml:"conf_dir"`
	} `toml:"cni"`
	Containerd struct {
		DefaultRuntimeName string `toml:"default_runtime_name"`
		Snapshotter        string `toml:"snapshotter"` // up to 1.7
		Runtimes           map[string]struct {
			Type        string `toml:"runtime_type"`
			Snapshotter string `toml:"snapshotter"`
			Options     struct {
				SystemdCgroup bool
				BinaryName    string
			} `toml:"options"`
		} `toml:"runtimes"`
	} `toml:"containerd"`
}

func parse(text []byte) (e Effective, err error) {
	var d dump
	if err := toml.Unmarshal(text, &d); err != nil {
		return e, fmt.Errorf("reading what containerd prints: %w", err)
	}
	images, runtime := d.Plugins[imagesPlugin], d.Plugins[runtimePlugin]
	if _, ok := d.Plugins[runtimePlugin]; !ok {
		images, runtime = d.Plugins[plugin1], d.Plugins[plugin1]
	}
	e = Effective{
		Socket: cmp.Or(d.Plugins[socketPlugin].Address, d.GRPC.Address), CRI: !slices.ContainsFunc(d.Disabled, IsCRI),
		SandboxImage: cmp.Or(images.PinnedImages["sandbox"], images.SandboxImage), RegistryDirs: filepath.SplitList(images.Registry.ConfigPath),
		RegistryMirrors: slices.Sorted(maps.Keys(images.Registry.Mirrors)), CNIBinDirs: runtime.CNI.BinDirs, CNIConfDir: runtime.CNI.ConfDir,
		Snapshotter: cmp.Or(images.Snapshotter, images.Containerd.Snapshotter), RestrictOOMScoreAdj: runtime.RestrictOOMScoreAdj, DefaultRuntime: runtime.Containerd.DefaultRuntimeName, Runtimes: map[string]Runtime{},
	}
	if is := runtime.CNI.BinDir; is != "" {
		e.CNIBinDirs = append([]string{is}, e.CNIBinDirs...)
	}
	for name, r := range runtime.Containerd.Runtimes {
		e.Runtimes[name] = Runtime{r.Type, r.Options.SystemdCgroup, r.Options.BinaryName, r.Snapshotter}
	}
	return e, nil
}
