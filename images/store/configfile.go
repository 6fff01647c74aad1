package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"
)

// defaultConfigFile is containerd's default.
const defaultConfigFile = "/etc/containerd/config.toml"

// A ConfigFile is the part of containerd's configuration files that its API does not report.
type ConfigFile struct {
	Version int    // of the file's format: 2 up to containerd 1.7, 3 since 2.0; 0 without a file
	Root    string // containerd's data directory; "" for its default
	// SandboxImage is the pause image of pods; "" for the default of the release.
	SandboxImage string
	// DisabledPlugins are the plugins that containerd does not load: "cri".
	DisabledPlugins []string
	// RegistryDirs is where the registries' directories are, as written: a list joined with colons. Mirrors are the
	// registries that have mirrors in the file itself, sorted: containerd refuses to use both.
	RegistryDirs string
	Mirrors      []string
}

type configFile struct {
	Version         int      `toml:"version"`
	Root            string   `toml:"root"`
	DisabledPlugins []string `toml:"disabled_plugins"`
	Plugins         map[string]struct {
		// Of the CRI plugin, up to 1.7. Later releases still read it.
		SandboxImage string `toml:"sandbox_image"`
		// Of the CRI image plugin, since 2.0.
		PinnedImages map[string]string `toml:"pinned_images"`
		Registry     struct {
			ConfigPath string         `toml:"config_path"`
			Mirrors    map[string]any `toml:"mirrors"`
		} `toml:"registry"`
	} `toml:"plugins"`
}

// criPlugins are the names of the plugins with the CRI's configuration of images, the oldest first.
var criPlugins = []string{"cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images"}

// A ConfigText is one file of containerd's configuration.
type ConfigText struct {
	Path string
	Data []byte
	// Missing is set for a file that is imported by its name and does not exist: containerd reads nothing after it.
	Missing bool
}

// A BadConfigError is why a file of containerd's configuration cannot be decoded.
type BadConfigError struct {
	Path string
	Err  error
}

func (e *BadConfigError) Error() string { return "reading " + e.Path + ": " + e.Err.Error() }
func (e *BadConfigError) Unwrap() error { return e.Err }

// maxConfigText limits one file. The files of containerd and of other software have a few KiB.
const maxConfigText = 4 << 20

// readConfigText reads one file. What root cannot read, containerd cannot read, too: then the error is a *BadConfigError. A device or a
// pipe might never end.
func readConfigText(files fs.FS, path string) ([]byte, error) {
	name := strings.TrimPrefix(path, "/")
	info, err := fs.Stat(files, name)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return nil, &BadConfigError{path, errors.New("it is not a file")}
	case err == nil && info.Size() > maxConfigText:
		return nil, fmt.Errorf("reading %s: it has more than %d bytes", path, maxConfigText)
	}
	data, err := fs.ReadFile(files, name) // also a file that is not on the host yet
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		err = &BadConfigError{path, err}
	}
	return data, err
}

// ReadConfigTexts reads the configuration file at an absolute path, and the files that it imports, of a file system whose
// root is /, in the order in which containerd merges them. containerd needs no file. One that it cannot read, or that is not TOML, is a
// *BadConfigError.
func ReadConfigTexts(files fs.FS, path string) (texts []ConfigText, err error) {
	loaded := map[string]bool{}
	for pending := []string{path}; len(pending) > 0; pending = pending[1:] {
		path := pending[0]
		if loaded[path] {
			continue
		}
		loaded[path] = true
		data, err := readConfigText(files, path)
		if errors.Is(err, fs.ErrNotExist) {
			if len(texts) > 0 {
				texts = append(texts, ConfigText{Path: path, Missing: true})
			}
			return texts, nil
		}
		if err != nil {
			return texts, err
		}
		texts = append(texts, ConfigText{Path: path, Data: data})
		var one struct {
			Imports []string `toml:"imports"`
		}
		if err := toml.Unmarshal(data, &one); err != nil {
			return texts, &BadConfigError{path, err}
		}
		for _, pattern := range one.Imports {
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(path), pattern)
			}
			pattern = filepath.Clean(pattern)
			if !strings.Contains(pattern, "*") {
				pending = append(pending, pattern)
				continue
			}
			found, err := fs.Glob(files, strings.TrimPrefix(pattern, "/"))
			if err != nil {
				return texts, fmt.Errorf("reading the imports of %s: %w", path, err)
			}
			for _, name := range found {
				pending = append(pending, "/"+name)
			}
		}
	}
	return texts, nil
}

// ReadConfigFile reads what the files of ReadConfigTexts have.
func ReadConfigFile(files fs.FS, path string) (c ConfigFile, err error) {
	texts, err := ReadConfigTexts(files, path)
	if err != nil {
		return ConfigFile{}, err
	}
	mirrors := map[string]bool{}
	for _, text := range texts {
		var one configFile
		if err := toml.Unmarshal(text.Data, &one); err != nil {
			return ConfigFile{}, fmt.Errorf("reading %s: %w", text.Path, err)
		}
		c.Version, c.Root = max(c.Version, one.Version), cmp.Or(one.Root, c.Root)
		c.DisabledPlugins = append(c.DisabledPlugins, one.DisabledPlugins...)
		// An imported file overrides the importing one.
		for _, plugin := range criPlugins {
			is := one.Plugins[plugin]
			c.SandboxImage = cmp.Or(is.PinnedImages["sandbox"], is.SandboxImage, c.SandboxImage)
			c.RegistryDirs = cmp.Or(is.Registry.ConfigPath, c.RegistryDirs)
			for host := range is.Registry.Mirrors {
				mirrors[host] = true
			}
		}
	}
	c.Mirrors = slices.Sorted(maps.Keys(mirrors))
	return c, nil
}

// ConfigFileOf returns the path of the configuration file in the arguments of a containerd, the first of which is its
// name, or containerd's default.
func ConfigFileOf(args []string) string {
	for i, arg := range args {
		flag, value, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || flag != "config" && flag != "c" {
			continue
		}
		if hasValue {
			return value
		}
		if i+1 < len(args) {
			return args[i+1]
		}
	}
	return defaultConfigFile
}

// sandboxImageFromFile returns the configured pause image of the containerd that listens
// on socket, or "" if its configuration has none, which means the default of its release.
func sandboxImageFromFile(socket string) (string, error) {
	p, err := ProcessOf(socket)
	if err != nil {
		return "", err
	}
	c, err := ReadConfigFile(os.DirFS("/"), p.Config)
	return c.SandboxImage, err
}

// A Process is a containerd that runs.
type Process struct {
	// Exe is its binary, or the one that has replaced it: "/usr/bin/containerd"; "" if it cannot be seen, or if it does not run as root.
	Exe string
	// Config is its configuration file.
	Config string
}

// ProcessOf returns the process that listens on a socket.
func ProcessOf(socket string) (p Process, err error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return p, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return p, err
	}
	var peer *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		peer, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return p, err
	}
	if credErr != nil {
		return p, credErr
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", peer.Pid))
	if errors.Is(err, fs.ErrNotExist) {
		return Process{Config: defaultConfigFile}, nil
	}
	if err != nil {
		return p, err
	}
	exe := ""
	if peer.Uid == 0 { // root runs no binary that another user has chosen
		exe, _ = os.Readlink(fmt.Sprintf("/proc/%d/exe", peer.Pid)) // only root may read it
	}
	return Process{Exe: strings.TrimSuffix(exe, " (deleted)"), Config: ConfigFileOf(strings.Split(string(b), "\x00"))}, nil
}
