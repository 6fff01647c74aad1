package adoption

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/host/systemd"
	"airlift/installer/node"
	"airlift/installer/preflight"
	"airlift/installer/render"
	"airlift/internal/dialer"
)

// Read reads an Input of a host and its cluster. What cannot be read is in Unread; the error is the context's error.
// api is a client with the rights of an administrator on a control plane, and of the kubelet on a worker; nil if there is
// none. target is the version of the file's Kubernetes.
func Read(ctx context.Context, h *host.Host, api kubernetes.Interface, target string) (Input, error) {
	in := ReadHost(ctx, h)
	in.Target = target
	r := reader{&in, h}
	r.runtime(ctx)
	r.cluster(ctx, api)
	r.etcd(ctx)
	r.served(ctx)
	return in, ctx.Err()
}

// ReadHost reads only what the host knows without asking a component: its units, processes and packages.
func ReadHost(ctx context.Context, h *host.Host) Input {
	in := Input{Root: os.DirFS(h.Path("/")), Now: time.Now(), Units: map[string]systemd.UnitState{}}
	r := reader{&in, h}
	for _, name := range unitNames() {
		unit, err := h.Systemd().Unit(ctx, name)
		if err != nil {
			r.cannotRead("systemd", err)
			break // every other unit fails too
		}
		if unit.Load != "not-found" && unit.Load != "" {
			in.Units[name] = unit
		}
	}
	in.Kubelet, in.Containerd = r.process("kubelet.service"), r.process("containerd.service")
	r.packages(ctx)
	for _, file := range []string{node.BinaryPath("bin/kubelet"), render.KubeletUnitPath} {
		if dir := path.Dir(file); preflight.ReadOnly(h, dir) {
			in.ReadOnly = append(in.ReadOnly, dir)
		}
	}
	return in
}

// A reader reads an Input of a host.
type reader struct {
	in   *Input
	host *host.Host
}

func (r reader) cannotRead(what string, err error) {
	r.in.Unread = append(r.in.Unread, Unread{what, err.Error()})
}

// process reads the main process of a unit.
func (r reader) process(unit string) (p Process) {
	pid := int(r.in.Units[unit].MainPID)
	if pid == 0 {
		return p
	}
	dir := "/proc/" + strconv.Itoa(pid)
	exe, err := os.Readlink(r.host.Path(dir + "/exe"))
	if err == nil {
		var line []byte
		line, err = os.ReadFile(r.host.Path(dir + "/cmdline"))
		words := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		p = Process{PID: pid, Exe: exe, Args: words[min(1, len(words)):]}
	}
	if err != nil {
		r.cannotRead("the process of "+unit, err)
		return Process{}
	}
	return p
}

// runtime reads what the container runtime of the kubelet reports.
func (r reader) runtime(ctx context.Context) {
	socket := newView(*r.in).socket()
	r.in.Runtime.Socket = socket
	if isShim(socket) {
		return // it is refused
	}
	ctx, cancel := context.WithTimeout(ctx, node.RuntimeTimeout)
	defer cancel()
	var s *store.Store
	_, err := os.Stat(r.host.Path(socket))
	if err == nil {
		s, err = store.Connect(ctx, r.host.Path(socket))
	}
	if other := (*store.NotContainerdError)(nil); errors.As(err, &other) {
		r.in.Runtime.Other = other.Name
		return
	}
	if err == nil {
		defer s.Close()
		r.in.Runtime.Info, err = s.Info(ctx)
	}
	if err == nil && r.in.Runtime.Info.CRI {
		var images []store.Image
		images, err = s.Images(ctx)
		for _, i := range images {
			r.in.Runtime.Images = append(r.in.Runtime.Images, i.Names...)
		}
		if err == nil {
			r.in.Runtime.Files, err = (&node.ExistingRuntime{Info: r.in.Runtime.Info, Store: s}).Files(ctx, func(name string) bool { return slices.Contains(r.in.Runtime.Images, name) })
		}
	}
	if err != nil {
		r.cannotRead("the container runtime at "+socket, err)
	}
}

// etcd reads the state of an external etcd, with the files of the stored configuration. Missing files are refused by a
// check.
func (r reader) etcd(ctx context.Context) {
	v := newView(*r.in)
	if !external(v) {
		return
	}
	e := v.config.Etcd.External
	var cfg *tls.Config
	var c *etcd.Client
	var err error
	if e.CAFile != "" || e.CertFile != "" {
		for _, file := range []string{e.CAFile, e.CertFile, e.KeyFile} {
			if !v.host.exists(file) {
				return
			}
		}
		cfg, err = etcd.TLS(r.host.Path(e.CAFile), r.host.Path(e.CertFile), r.host.Path(e.KeyFile))
	}
	if err == nil {
		c, err = etcd.Connect(ctx, e.Endpoints, cfg, nil)
	}
	if err == nil {
		defer c.Close()
		c.Timeout = node.ProbeTimeout
		r.in.Etcd, _, err = c.Status(ctx)
	}
	if err != nil {
		r.cannotRead("etcd", err)
	}
}

// servedTimeout limits how long a component may take to serve its certificate.
const servedTimeout = 10 * time.Second

// served reads the certificates that the API server and etcd of this control plane serve.
func (r reader) served(ctx context.Context) {
	v := newView(*r.in)
	r.in.Served = map[string]string{}
	if !v.plane {
		return
	}
	read := func(file, address string) {
		if file == "" || address == "" {
			return
		}
		serial, err := servedSerial(ctx, address)
		if err != nil {
			r.cannotRead("the certificate at "+address, err)
			return
		}
		r.in.Served[file] = serial
	}
	if s := v.component("kube-apiserver"); s != nil && v.config != nil && v.config.LocalAPIEndpoint.AdvertiseAddress != "" {
		read(s.Flags["tls-cert-file"], net.JoinHostPort(v.config.LocalAPIEndpoint.AdvertiseAddress, strconv.Itoa(int(v.config.LocalAPIEndpoint.BindPort))))
	}
	if e := v.component(node.EtcdPod); e != nil {
		first, _, _ := strings.Cut(e.Flags["advertise-client-urls"], ",")
		if u, err := url.Parse(first); err == nil && u.Scheme == "https" {
			read(e.Flags["cert-file"], net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), strconv.Itoa(config.EtcdClientPort))))
		}
	}
}

// servedSerial returns the serial number of the certificate that a server shows, in hexadecimal. The server may then refuse
// a client without a certificate.
func servedSerial(ctx context.Context, address string) (serial string, err error) {
	ctx, cancel := context.WithTimeout(ctx, servedTimeout)
	defer cancel()
	raw, err := dialer.Dial(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer raw.Close()
	// The certificate is only compared with the file on this host.
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
		serial = fmt.Sprintf("%x", s.PeerCertificates[0].SerialNumber)
		return nil
	}})
	if err := conn.HandshakeContext(ctx); err != nil && serial == "" {
		return "", err
	}
	return serial, nil
}
