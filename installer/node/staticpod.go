package node

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path"
	"strconv"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/staticpod"
)

// ReadStaticPod returns the flags of a static pod, and the host paths of its
// volumes by volume name. Both are nil if the host has no such pod.
func ReadStaticPod(h *host.Host, name string) (flags, volumes map[string]string, err error) {
	file := path.Join(config.ManifestsDir, name+".yaml")
	pod, err := staticpod.Read(h.Path(file))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, nil
	case errors.As(err, new(*fs.PathError)):
		return nil, nil, err
	case err != nil:
		return nil, nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return pod.Flags, pod.Volumes, nil
}

// APIEndpoint returns where an API server with these flags listens.
func APIEndpoint(flags map[string]string) (config.APIEndpoint, error) {
	e := config.APIEndpoint{AdvertiseAddress: flags["advertise-address"], BindPort: config.DefaultBindPort}
	if port := flags["secure-port"]; port != "" {
		n, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			return e, fmt.Errorf("reading %s: --secure-port=%q: %w", APIServerManifest, port, err)
		}
		e.BindPort = int32(n)
	}
	return e, nil
}

// HealthURL returns the address of the health check of a static pod on this host, from its
// flags. port is the component's default.
func HealthURL(h *host.Host, name string, port int) (string, error) {
	flags, _, err := ReadStaticPod(h, name)
	if err != nil {
		return "", err
	}
	if flags == nil {
		return "", fmt.Errorf("looking for the static pod of %s: it is not in %s", name, config.ManifestsDir)
	}
	address := net.JoinHostPort(cmp.Or(flags["bind-address"], "127.0.0.1"), cmp.Or(flags["secure-port"], strconv.Itoa(port)))
	return "https://" + address + "/healthz", nil
}

// ReadManifest reads the manifest of a component; nil if the host has none.
func (m *Machine) ReadManifest(component string) ([]byte, error) {
	return m.Existing.ReadIfExists(ManifestPath(component))
}

// ManifestPath returns the path of the manifest of a component.
func ManifestPath(component string) string { return path.Join(config.ManifestsDir, component+".yaml") }

// EtcdPod is the static pod of etcd.
const EtcdPod = "etcd"

// ControlPlaneComponents are the static pods of a control plane, without etcd.
var ControlPlaneComponents = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// ControllerManager is the static pod of the controller manager.
const ControllerManager = "kube-controller-manager"
