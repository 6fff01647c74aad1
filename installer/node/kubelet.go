package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/bundle"
	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/render"
	"airlift/internal/childprocess"
	"airlift/internal/fault"
)

// AdoptedKubelet returns how the tool that made an adopted node starts its kubelet. It is nil on other nodes, and while
// the kubelet has Airlift's unit: since the first upgrade, also if that was before disown and adopt.
func AdoptedKubelet(h *host.Host) *ledger.AdoptedKubelet {
	a := h.Records().Adopted()
	if a == nil {
		return nil
	}
	if hasText(h, render.KubeletUnitPath, render.KubeletUnit) && hasText(h, render.KubeletDropInPath, render.KubeletDropIn) {
		return nil
	}
	e, ok := h.Records().Find(ledger.File, render.KubeletDropInPath)
	now, err := filesystem.Sum(h.Path(render.KubeletDropInPath))
	if !ok || err != nil || !e.Wrote(now) {
		return &a.Kubelet
	}
	if original, err := filesystem.Sum(h.Path(e.Original)); e.Original != "" && err == nil && original == now {
		return &a.Kubelet // undo has restored it
	}
	return nil
}

// hasText reports whether a file has exactly this text.
func hasText(h *host.Host, path, text string) bool {
	data, err := os.ReadFile(h.Path(path))
	return err == nil && string(data) == text
}

// KubeletConfigFile returns the path of the kubelet's configuration on this host.
func KubeletConfigFile(h *host.Host) string {
	if k := AdoptedKubelet(h); k != nil && k.Config != "" {
		return k.Config
	}
	return config.KubeletConfigFile
}

// KubeletConfiguration reads the configuration of a host's kubelet.
func KubeletConfiguration(h *host.Host) (*kubeletv1.KubeletConfiguration, error) {
	path := KubeletConfigFile(h)
	data, err := os.ReadFile(h.Path(path))
	if err != nil {
		return nil, err
	}
	c := &kubeletv1.KubeletConfiguration{}
	err = yaml.Unmarshal(data, c)
	if err == nil && c.Kind == "" {
		err = errors.New("it has no KubeletConfiguration")
	}
	if err != nil {
		return nil, fault.New(fault.Failure, "reading %s: the file is damaged: %w", path, err).
			Hint("write it again: the cluster's is in 'kubectl get configmap kubelet-config -n kube-system -o yaml', and another node has the same file")
	}
	return c, nil
}

// KubeletHealth returns the URL of the health check of a kubelet with this configuration, or "" if that disables the check.
func KubeletHealth(c *kubeletv1.KubeletConfiguration) string {
	port := int32(config.KubeletHealthzPort)
	if c.HealthzPort != nil {
		port = *c.HealthzPort
	}
	if port == 0 {
		return ""
	}
	address := cmp.Or(c.HealthzBindAddress, "127.0.0.1")
	if ip := net.ParseIP(address); ip != nil && ip.IsUnspecified() {
		address = "localhost"
	}
	return "http://" + net.JoinHostPort(address, strconv.Itoa(int(port))) + "/healthz"
}

// endpointFlag is the kubelet's flag for the container runtime's socket.
var endpointFlag = regexp.MustCompile(`--container-runtime-endpoint[= ]"?([^\s"]+)`)

// RuntimeSocket returns the path of the socket that the kubelet's flags or its configuration
// name. Flags precede the configuration.
func RuntimeSocket(h *host.Host) (string, error) {
	flags, err := h.ReadIfExists(config.KubeletFlagsFile)
	if err != nil {
		return "", err
	}
	if adopted := AdoptedKubelet(h); adopted != nil {
		flags = []byte(strings.Join(adopted.Args, " "))
	}
	endpoint := ""
	for _, match := range endpointFlag.FindAllSubmatch(flags, -1) {
		endpoint = string(match[1]) // the last one counts
	}
	for _, path := range []string{KubeletConfigFile(h), render.KubeletInstanceConfigPath} {
		if endpoint != "" {
			break
		}
		data, err := h.ReadIfExists(path)
		if err != nil {
			return "", err
		}
		var written struct { // a file with errors elsewhere has a socket, too
			ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
		}
		if err := yaml.Unmarshal(data, &written); err != nil {
			return "", fmt.Errorf("reading %s: %w", path, err)
		}
		endpoint = written.ContainerRuntimeEndpoint
	}
	if endpoint == "" {
		return config.ContainerdSocket, nil
	}
	return strings.TrimPrefix(endpoint, "unix://"), nil
}

// openTimeout limits the connection to a container runtime that hangs.
const openTimeout = 5 * time.Second

// OpenRuntime connects to the container runtime of a node, to read.
func OpenRuntime(ctx context.Context, h *host.Host) (*store.Store, error) {
	socket, err := RuntimeSocket(h)
	if err != nil {
		return nil, err
	}
	if !FileExists(h, socket) {
		return nil, fmt.Errorf("the container runtime does not run: %s does not exist", socket)
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return store.Connect(ctx, socket)
}

// versionTimeout limits how long a binary may take to print its version: a slow disk has to read it first.
const versionTimeout = 30 * time.Second

// versionNumber matches the version in what a binary prints.
var versionNumber = regexp.MustCompile(`\bv?[0-9]+\.[0-9]+\.[0-9]+[-+.~0-9A-Za-z]*`)

// PrintedVersion returns the version that a binary prints, or "".
func PrintedVersion(ctx context.Context, file string) string {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := childprocess.Command(ctx, file, "--version").Output()
	if err != nil {
		return ""
	}
	return string(versionNumber.Find(out))
}

// BinaryVersion returns the version that an installed binary prints, or "".
func BinaryVersion(ctx context.Context, h *host.Host, name string) string {
	file := h.Path(BinaryPath(bundle.BinDir + name))
	if adopted := AdoptedKubelet(h); name == "kubelet" && adopted != nil {
		file = h.Path(adopted.Binary)
	}
	if _, err := os.Stat(file); err != nil {
		if file, err = exec.LookPath(name); err != nil {
			return ""
		}
	}
	return PrintedVersion(ctx, file)
}
