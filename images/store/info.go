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

// defaultSnapshotter is containerd's own default on Linux.
const defaultSnapshotter = "overlayfs"

// Info is what a containerd says about itself.
type Info struct {
	// Version is containerd's own: "2.4.2", "1.6.20~ds1".
	Version string
	// Snapshotter is the one that images are unpacked with: "overlayfs".
	Snapshotter string
	// ImageDir is the directory that images are unpacked into, wherever
	// containerd's root or the snapshotter's is.
	ImageDir string
	// CRI says whether the kubelet can use this containerd at all. When it is
	// false (the plugin is disabled), the fields below it are empty.
	CRI bool
	// SandboxImage is the pause image pods are started with; "" for the
	// default of the release, which containerd 2 does not tell.
	SandboxImage string
	// DefaultRuntime is the runtime handler of pods that name none: "runc".
	DefaultRuntime string
	// SystemdCgroup says whether the default runtime uses systemd's cgroup
	// driver, which must be the kubelet's as well.
	SystemdCgroup bool
	// RestrictOOMScoreAdj says whether containers start on a host where
	// containerd may not lower oom_score_adj.
	RestrictOOMScoreAdj bool
	// Runtime and Network are the CRI's two conditions. Network is false
	// until a CNI configuration is in place.
	Runtime, Network Condition
}

// A Condition is a yes or no of the CRI with its reason.
type Condition struct {
	Ready   bool
	Message string
}

// Info asks containerd about itself.
func (s *Store) Info(ctx context.Context) (Info, error) {
	info := Info{Version: s.version, CRI: s.hasCRI, Snapshotter: s.snapshotter}
	if !s.hasCRI {
		return info, nil
	}
	st, err := s.criRuntime.Status(ctx, &criapi.StatusRequest{Verbose: true})
	if err != nil {
		return Info{}, fmt.Errorf("asking containerd for its status: %w", err)
	}
	for _, c := range st.GetStatus().GetConditions() {
		switch c.Type {
		case criapi.RuntimeReady:
			info.Runtime = Condition{c.Status, c.Message}
		case criapi.NetworkReady:
			info.Network = Condition{c.Status, c.Message}
		}
	}
	config, err := parseConfig(st.Info)
	if err != nil {
		return Info{}, fmt.Errorf("reading containerd's status: %w", err)
	}
	info.SandboxImage = config.SandboxImage
	if info.SandboxImage == "" {
		info.SandboxImage, err = sandboxImageFromFile(s.socket)
		if err != nil {
			return Info{}, fmt.Errorf("looking for containerd's sandbox image: %w", err)
		}
	}
	info.DefaultRuntime = config.Containerd.DefaultRuntimeName
	info.RestrictOOMScoreAdj = config.RestrictOOMScoreAdj
	if info.ImageDir, err = s.imageDir(ctx); err != nil {
		return Info{}, err
	}
	info.SystemdCgroup, err = s.systemdCgroup(ctx, config)
	return info, err
}

// criConfig is the part of the CRI plugin's configuration that we use. The
// plugin shows it as JSON in its verbose status; the field names are those of
// containerd's internal/cri/config (pkg/cri/config before 2.0).
type criConfig struct {
	SandboxImage        string `json:"sandboxImage"` // up to 1.7
	RestrictOOMScoreAdj bool   `json:"restrictOOMScoreAdj"`
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

func parseConfig(info map[string]string) (criConfig, error) {
	var config criConfig
	text, ok := info["config"]
	if !ok {
		return config, errors.New("it shows no configuration")
	}
	return config, json.Unmarshal([]byte(text), &config)
}

// systemdCgroup takes the answer of the CRI's RuntimeConfig where it exists
// (since 2.0), because that is what the kubelet will go by; else the option of
// the default criapi.
func (s *Store) systemdCgroup(ctx context.Context, config criConfig) (bool, error) {
	rc, err := s.criRuntime.RuntimeConfig(ctx, &criapi.RuntimeConfigRequest{})
	switch {
	case err == nil:
		return rc.GetLinux().GetCgroupDriver() == criapi.CgroupDriver_SYSTEMD, nil
	case status.Code(err) == codes.Unimplemented:
		return config.Containerd.Runtimes[config.Containerd.DefaultRuntimeName].Options.SystemdCgroup, nil
	default:
		return false, fmt.Errorf("asking containerd for its cgroup driver: %w", err)
	}
}

// criSnapshotter names the snapshotter that the CRI unpacks images with. Up to
// 1.7 it is in the plugin's configuration. Since 2.0 only the place of the
// image file system tells: a folder called after the snapshotter plugin.
func (s *Store) criSnapshotter(ctx context.Context) (string, error) {
	st, err := s.criRuntime.Status(ctx, &criapi.StatusRequest{Verbose: true})
	if err != nil {
		return "", err
	}
	config, err := parseConfig(st.Info)
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

// imageDir is the directory that the CRI reports as the file system of images,
// "" where it reports none.
func (s *Store) imageDir(ctx context.Context) (string, error) {
	fs, err := s.criImages.ImageFsInfo(ctx, &criapi.ImageFsInfoRequest{})
	if err != nil {
		return "", fmt.Errorf("asking containerd for the directory of its images: %w", err)
	}
	for _, f := range fs.GetImageFilesystems() {
		if dir := f.GetFsId().GetMountpoint(); dir != "" {
			return dir, nil
		}
	}
	return "", nil
}
