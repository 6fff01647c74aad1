package installer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/installer/host"
)

// readStaticPod returns the flags of a static pod, and the host paths of its
// volumes by volume name. Both are nil if the host has no such pod.
func readStaticPod(h *host.Host, name string) (flags, volumes map[string]string, err error) {
	file := path.Join(config.ManifestsDir, name+".yaml")
	data, err := os.ReadFile(h.Path(file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var pod corev1.Pod
	if err := yaml.Unmarshal(data, &pod); err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", file, err)
	}
	flags, volumes = map[string]string{}, map[string]string{}
	for _, c := range pod.Spec.Containers {
		for _, arg := range slices.Concat(c.Command, c.Args) {
			if key, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "="); ok && strings.HasPrefix(arg, "-") {
				flags[key] = value
			}
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			volumes[v.Name] = v.HostPath.Path
		}
	}
	return flags, volumes, nil
}
