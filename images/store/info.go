package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// defaultSnapshotter is containerd's default on Linux.
const defaultSnapshotter = "overlayfs"

// Info is what containerd reports about itself.
type Info struct {
	// Version is containerd's version: "2.4.2", "1.6.20~ds1".
	Version string
	// Snapshotter is the snapshotter for images: "overlayfs".
	Snapshotter string
	// ImageDir is the directory that images are unpacked to.
	ImageDir string
	// CRI reports whether the CRI plugin is enabled, which the kubelet needs. If it is
	// false, the following fields are empty.
	CRI bool
	// SandboxImage is the pause image of pods, or "" for the default of the release,
	// which containerd 2 does not report.
	SandboxImage string
	// DefaultRuntime is the runtime handler of pods without a runtime class: "runc".
	DefaultRuntime string
	// SystemdCgroup reports whether the default runtime uses the systemd cgroup driver.
	// The kubelet must use the same driver.
	SystemdCgroup bool
	// RestrictOOMScoreAdj reports whether containers start on a host where containerd
	// may not lower oom_score_adj.
	RestrictOOMScoreAdj bool
	// CNIBinDirs and CNIConfDir are where the CRI looks for CNI plugins and for their
	// configuration.
	CNIBinDirs []string
	CNIConfDir string
	// Runtime and Network are the CRI's two conditions. Network is false until there is
	// a CNI configuration.
	Runtime, Network Condition
}

// A Condition is a condition of the CRI with its reason.
type Condition struct {
	Ready   bool
	Message string
}

// Info returns what containerd reports about itself.
func (s *Store) Info(ctx context.Context) (Info, error) {
	info := Info{Version: s.version, CRI: s.hasCRI, Snapshotter: s.snapshotter}
	if !s.hasCRI {
		return info, nil
	}
	st, config, err := s.criStatus(ctx)
	if err != nil {
		return Info{}, fmt.Errorf("getting containerd's status: %w", err)
	}
	for _, c := range st.GetStatus().GetConditions() {
		switch c.Type {
		case criapi.RuntimeReady:
			info.Runtime = Condition{c.Status, c.Message}
		case criapi.NetworkReady:
			info.Network = Condition{c.Status, c.Message}
		}
	}
	info.SandboxImage = config.SandboxImage
	if info.SandboxImage == "" {
		info.SandboxImage, err = sandboxImageFromFile(s.socket)
		if err != nil {
			return Info{}, fmt.Errorf("finding containerd's sandbox image: %w", err)
		}
	}
	info.DefaultRuntime = config.Containerd.DefaultRuntimeName
	info.RestrictOOMScoreAdj = config.RestrictOOMScoreAdj
	info.CNIBinDirs, info.CNIConfDir = config.CNI.binDirs(), config.CNI.ConfDir
	if info.ImageDir, err = s.imageDir(ctx); err != nil {
		return Info{}, err
	}
	info.SystemdCgroup, err = s.systemdCgroup(ctx, config)
	return info, err
}

// criConfig is the part of the CRI plugin's configuration that Airlift uses. The plugin reports it
// as JSON in its verbose status; the field names come from containerd's internal/cri/config
// (pkg/cri/config before 2.0).
type criConfig struct {
	SandboxImage        string     `json:"sandboxImage"` // up to 1.7
	RestrictOOMScoreAdj bool       `json:"restrictOOMScoreAdj"`
	CNI                 criNetwork `json:"cni"`
	Containerd          struct {
		Snapshotter        string `json:"snapshotter"` // up to 1.7
		DefaultRuntimeName string `json:"defaultRuntimeName"`
		Runtimes           map[string]struct {
			Options struct {
				SystemdCgroup bool
			} `json:"options"`
		} `json:"runtimes"`
	} `json:"containerd"`
}

type criNetwork struct {
	BinDir  string   `json:"binDir"`  // deprecated in 2.1
	BinDirs []string `json:"binDirs"` // since 2.1
	ConfDir string   `json:"confDir"`
}

func (n criNetwork) binDirs() []string {
	if n.BinDir != "" {
		return append([]string{n.BinDir}, n.BinDirs...)
	}
	return n.BinDirs
}

// criStatus returns the CRI's status and the configuration in it.
func (s *Store) criStatus(ctx context.Context) (st *criapi.StatusResponse, config criConfig, err error) {
	if st, err = s.criRuntime.Status(ctx, &criapi.StatusRequest{Verbose: true}); err != nil {
		return st, config, err
	}
	text, ok := st.Info["config"]
	if !ok {
		return st, config, errors.New("containerd reports no configuration")
	}
	return st, config, json.Unmarshal([]byte(text), &config)
}

// systemdCgroup returns the cgroup driver from the CRI's RuntimeConfig, which the kubelet
// uses too. containerd before 2.0 does not have it; there it uses the option of the
// default runtime.
func (s *Store) systemdCgroup(ctx context.Context, config criConfig) (bool, error) {
	rc, err := s.criRuntime.RuntimeConfig(ctx, &criapi.RuntimeConfigRequest{})
	switch {
	case err == nil:
		return rc.GetLinux().GetCgroupDriver() == criapi.CgroupDriver_SYSTEMD, nil
	case status.Code(err) == codes.Unimplemented:
		return config.Containerd.Runtimes[config.Containerd.DefaultRuntimeName].Options.SystemdCgroup, nil
	default:
		return false, fmt.Errorf("getting containerd's cgroup driver: %w", err)
	}
}

// criSnapshotter returns the snapshotter of the CRI. Up to 1.7 it is in the plugin's
// configuration. Since 2.0 it only shows in the path of the image file system, a directory
// with the name of the snapshotter plugin.
func (s *Store) criSnapshotter(ctx context.Context) (string, error) {
	_, config, err := s.criStatus(ctx)
	if err != nil {
		return "", err
	}
	if config.Containerd.Snapshotter != "" {
		return config.Containerd.Snapshotter, nil
	}
	dir, err := s.imageDir(ctx)
	if err != nil {
		return "", err
	}
	const plugin = "io.containerd.snapshotter.v1."
	if name, ok := strings.CutPrefix(filepath.Base(dir), plugin); ok {
		return name, nil
	}
	return defaultSnapshotter, nil
}

func (s *Store) imageDir(ctx context.Context) (string, error) {
	fs, err := s.criImages.ImageFsInfo(ctx, &criapi.ImageFsInfoRequest{})
	if err != nil {
		return "", fmt.Errorf("getting containerd's image directory: %w", err)
	}
	for _, f := range fs.GetImageFilesystems() {
		if dir := f.GetFsId().GetMountpoint(); dir != "" {
			return dir, nil
		}
	}
	return "", nil
}
