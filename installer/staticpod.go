package installer

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
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

// healthURL returns the address of the health check of a static pod on this host, from its
// flags. port is the component's default.
func healthURL(h *host.Host, name string, port int) (string, error) {
	flags, _, err := readStaticPod(h, name)
	if err != nil {
		return "", err
	}
	if flags == nil {
		return "", fmt.Errorf("looking for the static pod of %s: it is not in %s", name, config.ManifestsDir)
	}
	address := net.JoinHostPort(cmp.Or(flags["bind-address"], "127.0.0.1"), cmp.Or(flags["secure-port"], strconv.Itoa(port)))
	return "https://" + address + "/healthz", nil
}
