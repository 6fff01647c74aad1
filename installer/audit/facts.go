package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/tools/clientcmd"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/preflight"
	"airlift/internal/fault"
)

// Time limits.
const (
	requestTimeout = 10 * time.Second
	readTimeout    = 60 * time.Second // of everything that the API server is asked for
)

// facts are what the rules judge.
type facts struct {
	root       fs.FS
	read       func(path string) ([]byte, error) // a file of the host
	glob       func(pattern string) []string
	walk       func(dir string) []string // all files and directories below a directory, and itself
	stat       func(path string) (status, error)
	role, name string
	managed    bool // Airlift installed or adopted this node
	pods       map[string]*component
	kubelet    kubelet
	objects    *objects // nil if the API server was not read
	unread     []string
	// kernelLacks are the options of this host's kernel without which the add-on network-policy enforces nothing.
	kernelLacks []string
}

// A status is the mode and the owner of a file.
type status struct {
	mode  os.FileMode
	owner string // "root:root"
}

// gather reads what the rules need.
func (r *Reader) gather(ctx context.Context) (*facts, error) {
	seen := node.Observe(r.Host)
	f := &facts{role: seen.Role, name: seen.Name, pods: map[string]*component{}}
	if f.role == node.NoNode {
		return nil, fault.New(fault.Failure, "this host is not a node of a cluster: it has neither %s nor %s", node.KubeletConf, config.ManifestsDir).Hint("run it as root on a node; for all hosts: ./install cluster audit")
	}
	r.files(f)
	if f.name == "" {
		f.name, _ = os.Hostname()
	}
	f.managed = r.Host.Records().Manages()
	for _, name := range append([]string{node.EtcdPod}, node.ControlPlaneComponents...) {
		data, err := f.read(node.ManifestPath(name))
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			f.cannotRead(node.ManifestPath(name), err)
			continue
		}
		if f.pods[name], err = parseComponent(name, data); err != nil {
			f.cannotRead(node.ManifestPath(name), err)
		}
	}
	client, err := r.connect(ctx)
	if err != nil {
		f.cannotRead("the API server", err)
	}
	f.kubelet = readKubelet(ctx, f, client)
	f.kubelet.version = cmp.Or(f.kubelet.version, node.BinaryVersion(ctx, r.Host, "kubelet"))
	if client != nil {
		limited, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		if f.objects, err = readObjects(limited, client); err != nil {
			f.cannotRead("the API server", err)
		}
	}
	return f, ctx.Err()
}

func (f *facts) cannotRead(what string, err error) {
	f.unread = append(f.unread, fmt.Sprintf("%s: %v", what, err))
}

// connect returns a client with the rights of an administrator; nil on a worker without such a kubeconfig.
func (r *Reader) connect(ctx context.Context) (*cluster.Client, error) {
	kubeconfig := r.Kubeconfig
	if kubeconfig == "" {
		if !node.FileExists(r.Host, node.AdminConf) {
			if node.Observe(r.Host).Role == node.Worker {
				return nil, nil
			}
			return nil, fault.New(fault.Failure, "%s does not exist: give a kubeconfig", node.AdminConf)
		}
		kubeconfig = r.Host.Path(node.AdminConf)
	}
	if r.dial != nil {
		return r.dial(ctx, kubeconfig)
	}
	client, err := cluster.Load(kubeconfig, "")
	if err != nil {
		return nil, err
	}
	client.SetTimeout(requestTimeout)
	if err := client.Reach(ctx); err != nil {
		return nil, err
	}
	return client, nil
}

// files lets the rules read the files of the host.
func (r *Reader) files(f *facts) {
	h := r.Host
	names := func(file string) map[uint32]string {
		list := map[uint32]string{0: "root"}
		data, _ := os.ReadFile(h.Path(file)) // without it, owners are numbers
		for line := range strings.Lines(string(data)) {
			if fields := strings.Split(line, ":"); len(fields) > 2 {
				if id, err := strconv.ParseUint(fields[2], 10, 32); err == nil && list[uint32(id)] == "" {
					list[uint32(id)] = fields[0]
				}
			}
		}
		return list
	}
	users, groups := names("/etc/passwd"), names("/etc/group")
	owners := r.owners
	if owners == nil {
		owners = func(name string) (uid, gid uint32, err error) {
			var st syscall.Stat_t
			err = syscall.Stat(h.Path(name), &st)
			return st.Uid, st.Gid, err
		}
	}
	f.kernelLacks = preflight.PolicyOptionsMissing(h)
	f.root = os.DirFS(h.Path("/"))
	f.read = func(name string) ([]byte, error) { return os.ReadFile(h.Path(name)) }
	f.stat = func(name string) (s status, err error) {
		info, err := os.Stat(h.Path(name))
		if err != nil {
			return s, err
		}
		uid, gid, err := owners(name)
		s.mode = info.Mode()
		s.owner = cmp.Or(users[uid], strconv.Itoa(int(uid))) + ":" + cmp.Or(groups[gid], strconv.Itoa(int(gid)))
		return s, err
	}
	onHost := func(file string) string { return "/" + strings.TrimPrefix(strings.TrimPrefix(file, h.Path("/")), "/") }
	f.glob = func(pattern string) (list []string) {
		found, _ := filepath.Glob(h.Path(pattern)) // the patterns are valid
		for _, file := range found {
			list = append(list, onHost(file))
		}
		return list
	}
	f.walk = func(dir string) (list []string) {
		_ = filepath.WalkDir(h.Path(dir)+"/", func(file string, _ os.DirEntry, err error) error { // what is missing is not applicable
			if err == nil {
				list = append(list, onHost(file))
			}
			return nil
		})
		return list
	}
}

// minor is the minor version of the API server, or else of the kubelet; 0 if it is not known.
func (f *facts) minor() int {
	v, err := version.ParseGeneric(f.version())
	if err != nil {
		return 0
	}
	return int(v.Minor())
}

// version is "v1.37.1", of the API server on this host or else of the kubelet; "" if it is not known.
func (f *facts) version() string {
	if api := f.pods["kube-apiserver"]; api != nil {
		_, tag, _ := strings.Cut(path.Base(api.image), ":")
		tag, _, _ = strings.Cut(tag, "@")
		if _, err := version.ParseGeneric(tag); err == nil {
			return tag
		}
	}
	return f.kubelet.version
}

// adminGroups returns the certificates of files on this host whose subject is in a group.
func (f *facts) adminGroups(group string) (files []string) {
	for _, file := range slices.Concat(f.glob(config.KubernetesDir+"/*.conf"), f.walk(f.pki())) {
		data, err := f.read(file)
		if err != nil {
			continue
		}
		text := [][]byte{data}
		if strings.HasSuffix(file, ".conf") {
			text = nil
			if parsed, err := clientcmd.Load(data); err == nil {
				for _, user := range parsed.AuthInfos {
					text = append(text, user.ClientCertificateData)
				}
			}
		} else if !strings.HasSuffix(file, ".crt") {
			continue
		}
		if slices.ContainsFunc(text, func(pem []byte) bool { return inGroup(pem, group) }) {
			files = append(files, file)
		}
	}
	return files
}
