package remote

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"airlift/installer/multihost/spec"
)

// hostileHost is a server that lets everybody in, and does then what serve does.
func hostileHost(t *testing.T, config *ssh.ServerConfig, serve func(*ssh.ServerConn, <-chan ssh.NewChannel, <-chan *ssh.Request)) spec.Host {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("SSH_AUTH_SOCK", "")
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	config.AddHostKey(signer)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			socket, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				c, channels, requests, err := ssh.NewServerConn(socket, config)
				if err == nil {
					serve(c, channels, requests)
				}
			}()
		}
	}()
	return spec.Host{Name: "hostile", Group: "workers", SSH: spec.SSH{Address: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, User: "root",
		HostKey: ssh.FingerprintSHA256(signer.PublicKey())}}
}

// A host that lets the driver in and does not answer then does not keep it: neither before the first question is answered,
// nor before the first session is open.
func TestAHostThatDoesNotAnswerAfterTheLogin(t *testing.T) {
	for _, answersQuestions := range []bool{false, true} {
		reached := make(chan struct{}, 10)
		h := hostileHost(t, &ssh.ServerConfig{NoClientAuth: true}, func(_ *ssh.ServerConn, channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
			for r := range requests {
				if !answersQuestions {
					reached <- struct{}{}
				} else if r.WantReply {
					_ = r.Reply(true, nil)
				}
				if answersQuestions {
					<-channels // is neither accepted nor rejected
					reached <- struct{}{}
				}
			}
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		interrupted := errors.New("interrupted")
		go func() { <-reached; cancel(interrupted) }()
		if _, err := dialer(t, Options{}).Dial(ctx, h); !errors.Is(err, interrupted) {
			t.Errorf("answers questions: %v: %v", answersQuestions, err)
		}
	}
}

// What a host sends as its reason must not control the terminal of the driver.
func TestTextsOfAHostCannotControlTheTerminal(t *testing.T) {
	const text = "\x1b]0;title\a\x1b[2J\u009b31m\u202etxt.exe\r\nerror: gone"
	ask := func(c ssh.ConnMetadata, client ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
		_, _ = client("", "x\nSudo password"+text, []string{text + "Passphrase of id_rsa: "}, []bool{true})
		return nil, errors.New("no")
	}
	var prompt string
	d := dialer(t, Options{Password: func(_ context.Context, p string) (string, error) {
		prompt = p
		return "", nil
	}})
	_, err := d.Dial(t.Context(), hostileHost(t, &ssh.ServerConfig{KeyboardInteractiveCallback: ask}, nil))
	assertPlain(t, prompt)
	if strings.Contains(prompt, "\n") || !strings.HasPrefix(prompt, "hostile: x Sudo password") {
		t.Errorf("the question is %q", prompt)
	}
	if err == nil {
		t.Fatal("no error")
	}
	assertPlain(t, err.Error())
	h := hostileHost(t, &ssh.ServerConfig{NoClientAuth: true}, func(_ *ssh.ServerConn, channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
		go ssh.DiscardRequests(requests)
		for c := range channels {
			_ = c.Reject(ssh.Prohibited, text)
		}
	})
	_, err = d.Dial(t.Context(), h)
	if err == nil {
		t.Fatal("no error")
	}
	assertPlain(t, err.Error())
	var e error = &ExitError{Code: 1, Stderr: fill(text)}
	assertPlain(t, e.Error())
}

func fill(text string) string {
	last := &tail{}
	_, _ = last.Write([]byte(text))
	return last.String()
}

func assertPlain(t *testing.T, text string) {
	t.Helper()
	if i := strings.IndexAny(text, "\x1b\a\r\u009b\u202e"); i >= 0 {
		t.Errorf("%q has a control character", text)
	}
}

// A script is a transport whose sessions do what a function does with the public marker of the script that they got.
type scripted func(public string, stdin *io.PipeReader, stdout, stderr *io.PipeWriter)

var markers = regexp.MustCompile(`[A-Z2-7]{26}`)

func (f scripted) open(context.Context, string, bool) (*stream, error) {
	inR, in := io.Pipe()
	out, outW := io.Pipe()
	errR, errW := io.Pipe()
	closed := make(chan struct{})
	go func() {
		data := make([]byte, 64<<10)
		var script []byte
		for len(markers.Find(script)) == 0 {
			n, err := inR.Read(data)
			if err != nil {
				return
			}
			script = append(script, data[:n]...)
		}
		f(string(markers.Find(script)), inR, outW, errW)
	}()
	end := func() {
		_ = inR.Close()
		_ = outW.Close()
		_ = errW.Close()
		select {
		case <-closed:
		default:
			close(closed)
		}
	}
	return &stream{in, out, errR, func() (int, error) { <-closed; return 0, io.EOF }, end}, nil
}

func (scripted) done() <-chan struct{} { return nil }
func (scripted) Close() error          { return nil }

func (f scripted) conn() *conn {
	return &conn{host: host{name: "hostile", SSH: spec.SSH{Address: "127.0.0.1", Port: 22, User: "root"}}, transport: f, sessions: make(chan struct{}, maxSessions)}
}

// A shell that never starts the command, silent or not, is an error.
func TestACommandThatDoesNotBegin(t *testing.T) {
	for want, f := range map[string]scripted{
		"no answer for 2m0s: nothing was printed": func(string, *io.PipeReader, *io.PipeWriter, *io.PipeWriter) {},
		"no answer for 2m0s: LDAP Password:": func(_ string, _ *io.PipeReader, _, errs *io.PipeWriter) {
			_, _ = io.WriteString(errs, "LDAP Password: ")
		},
		"welcome\nwelcome\nwelcome": func(_ string, _ *io.PipeReader, out, _ *io.PipeWriter) {
			for {
				if _, err := out.Write(bytes.Repeat([]byte("welcome\n"), 1000)); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := f.conn().Run(t.Context(), Command{Args: []string{"true"}})
				assertRefused(t, err, Shell, want)
				time.Sleep(2 * time.Second) // the banner notices
			})
		})
	}
}

// The memory of the driver has a bound whatever a host sends instead of an exit code, and 256 would be success to a shell.
func TestExitCodesThatAreNone(t *testing.T) {
	for name, code := range map[string]string{"endless": strings.Repeat("0", bufferSize+1), "256": "256\n", "negative": "-1\n", "a word": "x\n"} {
		t.Run(name, func(t *testing.T) {
			var written atomic.Int64
			f := scripted(func(public string, in *io.PipeReader, out, errs *io.PipeWriter) {
				_, _ = io.WriteString(out, public+"B")
				secret, _ := bufio.NewReader(in).ReadString('\n')
				secret = strings.TrimSpace(secret)
				go func() { _, _ = io.WriteString(errs, public+"B"+secret+"E"); _ = errs.Close() }()
				_, _ = io.WriteString(out, secret+"E")
				for {
					n, err := out.Write([]byte(code))
					written.Add(int64(n))
					if err != nil {
						return
					}
				}
			})
			err := f.conn().Run(t.Context(), Command{Args: []string{"true"}})
			if err == nil || errors.As(err, new(*ExitError)) {
				t.Errorf("the error is %v", err)
			}
			if written.Load() > 4*bufferSize {
				t.Errorf("%d bytes were read", written.Load())
			}
		})
	}
}

// forward is a jump host.
func forward(_ *ssh.ServerConn, channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	go func() {
		for r := range requests {
			_ = r.Reply(false, nil)
		}
	}()
	for c := range channels {
		var to struct {
			Host string
			Port uint32
			From string
			At   uint32
		}
		if c.ChannelType() != "direct-tcpip" || ssh.Unmarshal(c.ExtraData(), &to) != nil {
			_ = c.Reject(ssh.Prohibited, "this is a jump host")
			continue
		}
		out, err := net.Dial("tcp", net.JoinHostPort(to.Host, fmt.Sprint(to.Port)))
		if err != nil {
			_ = c.Reject(ssh.ConnectionFailed, err.Error())
			continue
		}
		in, moreRequests, err := c.Accept()
		if err != nil {
			return
		}
		go ssh.DiscardRequests(moreRequests)
		go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
		go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
	}
}

// A jump host must not get the password of another one.
func TestEachJumpHostHasItsOwnPassword(t *testing.T) {
	var got sync.Map
	jumpHost := func(name string) spec.SSH {
		return hostileHost(t, &ssh.ServerConfig{PasswordCallback: func(_ ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			got.Store(name+" "+string(password), nil)
			if string(password) == "password of "+name {
				return nil, nil
			}
			return nil, errors.New("no")
		}}, forward).SSH
	}
	h := hostileHost(t, &ssh.ServerConfig{NoClientAuth: true}, forward)
	h.SSH.Jump = []spec.SSH{jumpHost("outer"), jumpHost("inner")}
	d := dialer(t, Options{Password: func(_ context.Context, prompt string) (string, error) {
		for i, name := range []string{"outer", "inner"} {
			if strings.Contains(prompt, fmt.Sprintf("root on jump host 127.0.0.1 (127.0.0.1:%d)", h.SSH.Jump[i].Port)) {
				return "password of " + name, nil
			}
		}
		t.Errorf("the question is %q", prompt)
		return "", errNobody
	}})
	if _, err := d.Dial(t.Context(), h); err == nil || !strings.Contains(err.Error(), "this is a jump host") {
		t.Errorf("the host behind them: %v", err)
	}
	n := 0
	got.Range(func(any, any) bool {
		n++
		return true
	})
	_, outer := got.Load("outer password of outer")
	if _, inner := got.Load("inner password of inner"); !outer || !inner || n != 2 {
		t.Errorf("the jump hosts got %v", &got)
	}
}

// A connection to a jump host is not shared with a host that wants another key of it, or the command ssh.
func TestConnectionsToJumpHostsAreSharedOnlyByEqualWays(t *testing.T) {
	h := hostileHost(t, &ssh.ServerConfig{NoClientAuth: true}, forward)
	jump := hostileHost(t, &ssh.ServerConfig{NoClientAuth: true}, forward).SSH
	d := dialer(t, Options{})
	through := func(jump spec.SSH, openSSH bool) error {
		to := h
		to.SSH.Jump, to.SSH.OpenSSH = []spec.SSH{jump}, openSSH
		_, err := d.Dial(t.Context(), to)
		return err
	}
	if err := through(jump, false); err == nil || !strings.Contains(err.Error(), "this is a jump host") {
		t.Fatal(err)
	}
	other := jump
	other.HostKey = h.SSH.HostKey
	assertRefused(t, through(other, false), HostKey, "jump host 127.0.0.1")
	t.Setenv("PATH", t.TempDir()) // without a command ssh
	jump.HostKey = ""
	assertRefused(t, through(jump, true), Unreachable, "jump host 127.0.0.1", "install the OpenSSH client")
}

// A host without a certificate is refused where known_hosts has an authority, and not as one with a changed key.
func TestAHostWithoutACertificateOfTheAuthority(t *testing.T) {
	h := hostileHost(t, &ssh.ServerConfig{NoClientAuth: true}, forward)
	h.SSH.HostKey = ""
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	known := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(known, []byte("@cert-authority "+knownhosts.Normalize(host{SSH: h.SSH}.address())+" "+string(ssh.MarshalAuthorizedKey(authority))), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = dialer(t, Options{KnownHosts: []string{known}}).Dial(t.Context(), h)
	assertRefused(t, err, HostKey, "known_hosts:1 wants a certificate of the authority", ssh.FingerprintSHA256(authority), "ssh.hostKey")
}

// A jump host that does not end a connection through it does not keep the driver.
func TestAJumpHostThatKeepsAConnectionOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &native{client: &ssh.Client{Conn: openForEver{}}, ended: make(chan struct{})}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}

// openForEver is a connection that nobody ends.
type openForEver struct{ ssh.Conn }

func (openForEver) Close() error { return nil }
