package store

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"
)

// defaultConfigFile is containerd's default.
const defaultConfigFile = "/etc/containerd/config.toml"

// A configFile is the part of containerd's configuration file that its API does not
// report.
type configFile struct {
	Imports []string `toml:"imports"`
	Plugins map[string]struct {
		// Of the CRI plugin, up to 1.7. Later releases still read it.
		SandboxImage string `toml:"sandbox_image"`
		// Of the CRI image plugin, since 2.0.
		PinnedImages map[string]string `toml:"pinned_images"`
	} `toml:"plugins"`
}

// sandboxImageFromFile returns the configured pause image of the containerd that listens
// on socket, or "" if its configuration has none, which means the default of its release.
func sandboxImageFromFile(socket string) (string, error) {
	path, err := configPath(socket)
	if err != nil {
		return "", err
	}
	image := ""
	loaded := map[string]bool{}
	for pending := []string{path}; len(pending) > 0; pending = pending[1:] {
		path := pending[0]
		if loaded[path] {
			continue
		}
		loaded[path] = true
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // containerd does not need a configuration file
		}
		if err != nil {
			return "", err
		}
		var c configFile
		if err := toml.Unmarshal(b, &c); err != nil {
			return "", fmt.Errorf("reading %s: %w", path, err)
		}
		// An imported file overrides the importing one.
		for _, plugin := range []string{"cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images"} {
			for _, name := range []string{c.Plugins[plugin].SandboxImage, c.Plugins[plugin].PinnedImages["sandbox"]} {
				if name != "" {
					image = name
				}
			}
		}
		for _, pattern := range c.Imports {
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(path), pattern)
			}
			files, err := filepath.Glob(pattern)
			if err != nil {
				return "", fmt.Errorf("reading the imports of %s: %w", path, err)
			}
			pending = append(pending, files...)
		}
	}
	return image, nil
}

// configPath returns the configuration file of the containerd that listens on socket, from
// its command line.
func configPath(socket string) (string, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return "", err
	}
	var peer *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		peer, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return "", err
	}
	if credErr != nil {
		return "", credErr
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", peer.Pid))
	if errors.Is(err, fs.ErrNotExist) {
		return defaultConfigFile, nil // it runs in another PID namespace
	}
	if err != nil {
		return "", err
	}
	args := strings.Split(string(b), "\x00")
	for i, arg := range args {
		flag, value, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || flag != "config" && flag != "c" {
			continue
		}
		if hasValue {
			return value, nil
		}
		if i+1 < len(args) {
			return args[i+1], nil
		}
	}
	return defaultConfigFile, nil
}
