package remote

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/crypto/ssh/knownhosts"

	"airlift/childprocess"
)

// openSSH is a connection by the command ssh. Its master leaves the process group of the driver, so Ctrl-C does not end
// it, and ends some seconds after the last session, also if the driver was killed.
type openSSH struct {
	host
	dir   string // private, with the socket of the master
	held  io.Closer
	ended chan struct{}
}

// isConnected is what the first session prints.
const isConnected = "airlift-is-connected"

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
	o := &openSSH{host: h, dir: dir, ended: make(chan struct{})}
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
	login := o.command(ctx, options, "exec /bin/sh -c 'echo "+isConnected+"'")
	stdout, stderr := &tail{}, &tail{} // a host may print without an end
	login.Stdout, login.Stderr = stdout, stderr
	if err := login.Run(); err != nil || !strings.Contains(stdout.String(), isConnected) {
		return o.loginFailed(ctx, err, stderr.String(), stdout.String())
	}
	// One session stays for as long as the driver, and ends with the connection.
	s, err := o.open(context.WithoutCancel(ctx), "exec /bin/sh -c 'exec cat'", false)
	if err != nil {
		return err
	}
	o.held = s.stdin
	go func() {
		_, _ = io.Copy(io.Discard, s.stdout)
		_, _ = s.wait()
		close(o.ended)
	}()
	return nil
}

// masterOptions are the arguments of the first ssh. They precede ~/.ssh/config.
func (o *openSSH) masterOptions(d *Dialer, via transport) ([]string, error) {
	options := []string{"-o", "ControlMaster=yes", "-o", "ControlPersist=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4", "-o", "ConnectTimeout=10"}
	if d.options.Ask == nil {
		options = append(options, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes")
	} else {
		options = append(options, "-o", "StrictHostKeyChecking=ask")
	}
	if o.KeyFile != "" {
		options = append(options, "-i", o.KeyFile, "-o", "IdentitiesOnly=yes")
	}
	if d.ownFiles {
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

// arguments are for each ssh: the socket, more options, and the host.
func (o *openSSH) arguments(options []string) []string {
	args := append([]string{"-o", "ControlPath=" + strings.ReplaceAll(filepath.Join(o.dir, "s"), "%", "%%")}, options...)
	return append(args, "-p", strconv.Itoa(o.Port), "-l", o.User, "--", o.Address)
}

func (o *openSSH) command(ctx context.Context, options []string, command string) *exec.Cmd {
	c := childprocess.Command(ctx, "ssh", append(o.arguments(options), command)...)
	childprocess.Inherit(c, "SSH_AUTH_SOCK", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE", "DISPLAY", "WAYLAND_DISPLAY", "KRB5CCNAME")
	return c
}

// open starts a session in the master. Without a master, the proxy keeps ssh from another login.
func (o *openSSH) open(_ context.Context, command string, terminal bool) (*stream, error) {
	options := []string{"-o", "ControlMaster=no", "-o", "ProxyCommand=false", "-o", "BatchMode=yes", "-T"}
	if terminal {
		options[len(options)-1] = "-tt"
	}
	c := o.command(context.Background(), options, command)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the driver
	stdin, err1 := c.StdinPipe()
	stdout, err2 := c.StdoutPipe()
	stderr, err3 := c.StderrPipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	wait := func() (int, error) {
		err := c.Wait()
		if code := c.ProcessState.ExitCode(); code >= 0 && code != 255 {
			return code, nil
		}
		return 0, err
	}
	return &stream{stdin, stdout, stderr, wait, func() { _ = c.Process.Kill() }}, nil
}

func (o *openSSH) done() <-chan struct{} { return o.ended }

func (o *openSSH) Close() error {
	_ = o.held.Close()
	_ = o.command(context.Background(), []string{"-O", "exit"}, "").Run() // it may have ended
	<-o.ended
	return os.RemoveAll(o.dir)
}

// loginFailed returns the error for what ssh printed. ssh has one exit code for all errors.
func (o *openSSH) loginFailed(ctx context.Context, err error, stderr, stdout string) error {
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
	case !strings.Contains(stderr, "ssh:") && !strings.Contains(stderr, "kex_exchange") && !strings.Contains(stderr, "onnection"):
		class = Shell
	}
	return o.refused(class, hint, "ssh: %w: %s", err, strings.TrimSpace(stderr+"\n"+stdout))
}
