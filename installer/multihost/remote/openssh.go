package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"airlift/internal/childprocess"
)

// openSSH is a connection of the command ssh: ssh logs in, and its sessions are those of package ssh, through the socket of
// ssh's master. The master leaves the process group of the driver, so Ctrl-C does not end it. It ends some seconds after the
// socket has no user, also if the driver was killed.
type openSSH struct {
	*native
	host
	dir string // private, with the socket of the master
}

// dialOpenSSH starts the master. On a terminal ssh asks by itself, so one host after the other.
func (d *Dialer) dialOpenSSH(ctx context.Context, h host, via transport) (transport, error) {
	release, err := d.slot(ctx, h)
	if err != nil {
		return nil, err
	}
	defer release()
	if d.options.Ask != nil {
		d.asking.Lock()
		defer d.asking.Unlock()
	}
	dir, err := os.MkdirTemp("", "airlift-ssh-")
	if err != nil {
		return nil, err
	}
	o := &openSSH{host: h, dir: dir}
	if err := o.start(ctx, d, via); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return o, nil
}

func (o *openSSH) start(ctx context.Context, d *Dialer, via transport) error {
	options, err := o.masterOptions(d, via)
	if err != nil {
		return err
	}
	login := o.command(ctx, options)
	stderr := &tail{} // a host may print without an end
	login.Stderr = stderr
	login.WaitDelay = time.Second // the master of an old ssh keeps this open
	err = login.Run()
	socket, failed := net.Dial("unix", o.socketPath())
	if failed != nil {
		return o.loginFailed(ctx, cmp.Or(err, failed), stderr.String())
	}
	c, channels, requests, err := ssh.NewControlClientConn(socket)
	if err != nil {
		return o.loginFailed(ctx, errors.Join(err, socket.Close()), stderr.String())
	}
	o.native = newNative(ssh.NewClient(c, channels, requests))
	return nil
}

// masterOptions are the arguments of the first ssh. They precede ~/.ssh/config.
func (o *openSSH) masterOptions(d *Dialer, via transport) ([]string, error) {
	options := strings.Fields(fmt.Sprintf("-f -N -o ControlMaster=yes -o ControlPersist=10 -o ServerAliveInterval=%d -o ServerAliveCountMax=%d -o ConnectTimeout=%d",
		keepAliveInterval/time.Second, keepAliveLimit/keepAliveInterval-1, connectTimeout/time.Second))
	if d.options.Ask == nil {
		options = append(options, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes")
	} else {
		options = append(options, "-o", "StrictHostKeyChecking=ask")
	}
	if o.KeyFile != "" {
		options = append(options, "-i", o.KeyFile, "-o", "IdentitiesOnly=yes")
	}
	if d.options.KnownHosts != nil {
		options = append(options, "-o", "UserKnownHostsFile="+strings.Join(d.options.KnownHosts, " "))
	}
	if jump, ok := via.(*openSSH); ok {
		// ssh replaces what begins with %, which the zone of an address does.
		proxy := strings.ReplaceAll(quoteAll(jump.arguments(nil)), "%", "%%")
		options = append(options, "-o", "ProxyCommand=ssh -W '[%h]:%p' "+proxy)
	}
	pin, err := o.pin()
	// The first value of an option counts.
	return append(append(pin, options...), o.Options...), err
}

// pin writes the pinned host key to a file of known hosts, and returns the options that make it the only one.
func (o *openSSH) pin() ([]string, error) {
	if o.HostKey == "" {
		return nil, nil
	}
	key, err := parsePublicKey(o.HostKey)
	if err != nil {
		return nil, o.refused(HostKey, "with ssh.openSSH write hostKey as in a file of /etc/ssh/ssh_host_*_key.pub", "reading hostKey: %w", err)
	}
	file := filepath.Join(o.dir, "known_hosts")
	return []string{"-o", "HostKeyAlias=airlift", "-o", "StrictHostKeyChecking=yes", "-o", "VerifyHostKeyDNS=no", "-o", "GlobalKnownHostsFile=/dev/null", "-o", "UserKnownHostsFile=" + file,
		"-o", "HostKeyAlgorithms=" + strings.Join(algorithmsOf(key.Type()), ",")}, appendLine(file, knownhosts.Line([]string{"airlift"}, key))
}

func (o *openSSH) socketPath() string { return filepath.Join(o.dir, "s") }

// arguments are for each ssh: the socket, more options, and the host.
func (o *openSSH) arguments(options []string) []string {
	args := append([]string{"-o", "ControlPath=" + strings.ReplaceAll(o.socketPath(), "%", "%%")}, options...)
	return append(args, "-p", strconv.Itoa(o.Port), "-l", o.User, "--", o.Address)
}

func (o *openSSH) command(ctx context.Context, options []string) *exec.Cmd {
	c := childprocess.Command(ctx, "ssh", o.arguments(options)...)
	childprocess.Inherit(c, "SSH_AUTH_SOCK", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE", "DISPLAY", "WAYLAND_DISPLAY", "KRB5CCNAME")
	return c
}

func (o *openSSH) Close() error {
	_ = o.command(context.Background(), []string{"-O", "exit"}).Run() // it may have ended
	return errors.Join(o.native.Close(), os.RemoveAll(o.dir))
}

// loginFailed returns the error for what ssh printed. ssh has one exit code for all errors.
func (o *openSSH) loginFailed(ctx context.Context, err error, stderr string) error {
	hint := "try it: ssh " + quoteAll(append(o.Options, "-p", strconv.Itoa(o.Port), o.User+"@"+o.Address))
	class := Unreachable
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, exec.ErrNotFound):
		hint = "install the OpenSSH client, or remove ssh.openSSH from cluster.yaml"
	case strings.Contains(stderr, "Host key verification failed"), strings.Contains(stderr, "IDENTIFICATION HAS CHANGED"):
		class = HostKey
	case strings.Contains(stderr, "Permission denied"), strings.Contains(stderr, "Too many authentication failures"):
		class = Authentication
	}
	return o.refused(class, hint, "ssh: %w: %s", err, stderr)
}
