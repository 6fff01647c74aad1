package remote

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"

	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/port"
	"airlift/scripts/fixtures/sshhost"
)

// assertRefused checks the class, the hint, and that no error has the password.
func assertRefused(t *testing.T, err error, class Class, texts ...string) {
	t.Helper()
	if err == nil || classOf(err) != class || fault.Hint(err) == "" {
		t.Fatalf("the class is %q and the hint %q: %v", classOf(err), fault.Hint(err), err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error()+"\n"+fault.Hint(err), text) {
			t.Errorf("no %q in the error %v, hint %s", text, err, fault.Hint(err))
		}
	}
	if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), sshhost.Password) {
		t.Error("the error has the password")
	}
}

// Pain 1: no rule in sudoers is an error at once, and not tried again.
func TestSudoWithoutARule(t *testing.T) {
	h := sshhost.Start(t)
	for _, user := range []string{"stranger", "openssh stranger"} {
		_, err := dialer(t, Options{Password: password(sshhost.Password)}).Dial(t.Context(), target(h, user))
		assertRefused(t, err, Sudo, "node-stranger", "127.0.0.1", "sudoers", "visudo")
	}
}

// A wrong password is sent once to one host of a group: the others would lock the account.
func TestWrongPasswordIsSentOnce(t *testing.T) {
	h := sshhost.Start(t)
	asked := atomic.Int64{}
	d := dialer(t, Options{Password: func(context.Context, string) (string, error) {
		asked.Add(1)
		return "not it", nil
	}})
	var wg sync.WaitGroup
	errs := make([]error, 5)
	for i, user := range []string{"secret", "secret", "secret", "ttysec", "ttysec"} {
		wg.Go(func() { _, errs[i] = d.Dial(t.Context(), target(h, user)) })
	}
	wg.Wait()
	for _, err := range errs {
		assertRefused(t, err, Sudo, "wrong password")
	}
	if asked.Load() != 2 { // two users
		t.Errorf("asked %d times", asked.Load())
	}
	awaitNoFiles(t, h)
}

func TestSudoPasswordWithoutATerminal(t *testing.T) {
	h := sshhost.Start(t)
	_, err := dialer(t, Options{}).Dial(t.Context(), target(h, "secret"))
	assertRefused(t, err, Sudo, "needs a password", "NOPASSWD")
}

func TestLoginShellThatRunsNothing(t *testing.T) {
	h := sshhost.Start(t)
	for _, user := range []string{"nologin", "openssh nologin"} {
		_, err := dialer(t, Options{}).Dial(t.Context(), target(h, user))
		assertRefused(t, err, Shell, "not available")
	}
}

// The SSH password is asked for once, for all hosts of a group.
func TestLoginWithAPassword(t *testing.T) {
	home := os.Getenv("HOME")
	t.Setenv("SSH_AUTH_SOCK", "")
	for _, config := range []string{"PubkeyAuthentication no\nKbdInteractiveAuthentication no", "PasswordAuthentication no\nKbdInteractiveAuthentication yes"} {
		t.Setenv("HOME", home) // the rig's cache is there
		h := sshhost.Start(t, config)
		t.Setenv("HOME", t.TempDir())
		prompts := []string{}
		d := dialer(t, Options{Password: func(_ context.Context, prompt string) (string, error) {
			prompts = append(prompts, prompt)
			return sshhost.Password, nil
		}})
		to := target(h, "nopasswd")
		to.SSH.KeyFile = ""
		for range 2 {
			c, err := d.Dial(t.Context(), to)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
		}
		if len(prompts) != 1 || !strings.HasPrefix(prompts[0], fmt.Sprintf("node-nopasswd (127.0.0.1:%d): logging in as nopasswd: there is no key to offer", h.Port)) ||
			!strings.HasSuffix(prompts[0], "; it asks for a password\nPassword of nopasswd on the hosts of group workers: ") {
			t.Errorf("asked %q", prompts)
		}
		asked := 0
		d = dialer(t, Options{Password: func(context.Context, string) (string, error) { asked++; return "not it", nil }})
		for range 2 {
			_, err := d.Dial(t.Context(), to)
			assertRefused(t, err, Authentication, "nopasswd", "wrong password")
		}
		if text, _ := os.ReadFile(h.Log); asked != 1 || bytes.Count(text, []byte("Failed"))+bytes.Count(text, []byte("PAM: Auth")) != 1 {
			t.Errorf("asked %d times: %s", asked, text)
		}
	}
}

// The error of a refused login names the user, the host, each key with the place from which it came, and what else could be tried,
// with and without a terminal, and so does the question for a password.
func TestRefusedLogin(t *testing.T) {
	home := os.Getenv("HOME")
	wrong, public := writeKey(t, filepath.Join(t.TempDir(), "wrong"))
	held := startAgent(t, "ops@laptop")
	t.Setenv("HOME", home) // the rig's cache is there
	onlyKeys, passwords := sshhost.Start(t, "PasswordAuthentication no\nKbdInteractiveAuthentication no"), sshhost.Start(t, "KbdInteractiveAuthentication no")
	own := t.TempDir()
	writeKey(t, filepath.Join(own, ".ssh", "id_ed25519"))
	mine := "the key SHA256:"
	for name, c := range map[string]struct {
		host             *sshhost.Host
		key, home, agent string
		texts            []string
	}{
		"a file":           {onlyKeys, wrong, own, "", []string{"logging in as root: the host refused the key " + ssh.FingerprintSHA256(public) + " of " + wrong, "ssh -i " + wrong + " -p", "ssh-copy-id -i " + wrong, "correct ssh.keyPath or ssh.user in cluster.yaml"}},
		"files and agent":  {onlyKeys, "", own, held, []string{"the host refused the key SHA256:", " of the agent (ops@laptop), " + mine, " of " + own + "/.ssh/id_ed25519"}},
		"no agent":         {onlyKeys, "", own, "", []string{"of " + own + "/.ssh/id_ed25519; there is no agent: SSH_AUTH_SOCK is not set"}},
		"a dead agent":     {onlyKeys, "", own, "/nowhere", []string{"; the agent at /nowhere does not answer"}},
		"nothing":          {onlyKeys, "", t.TempDir(), "", []string{"there is no key to offer; there is no agent"}},
		"and a password":   {passwords, wrong, own, "", []string{"the host refused the key " + ssh.FingerprintSHA256(public) + " of " + wrong + "; it asks for a password, and there is no terminal, so nobody can be asked"}},
		"a public key":     {onlyKeys, wrong + ".pub", own, "", []string{wrong + ".pub is a public key, and the agent does not have its private key; there is no agent", "ssh-add"}},
		"a missing file":   {onlyKeys, "/nowhere", own, "", []string{"open /nowhere", "correct ssh.keyPath in cluster.yaml"}},
		"no key for login": {sshhost.Start(t, "PubkeyAuthentication no\nKbdInteractiveAuthentication no"), wrong, own, "", []string{"the host takes no keys; it asks for a password"}},
	} {
		t.Setenv("HOME", c.home)
		t.Setenv("SSH_AUTH_SOCK", c.agent)
		to := target(c.host, "root")
		to.SSH.KeyFile = c.key
		_, err := dialer(t, Options{}).Dial(t.Context(), to)
		t.Logf("%s:\nerror: %v\nhint: %s", name, err, fault.Hint(err))
		assertRefused(t, err, Authentication, append(c.texts, "node-root (127.0.0.1:")...)
	}
	// The public key of a key in the agent.
	t.Setenv("SSH_AUTH_SOCK", held)
	to := target(onlyKeys, "root")
	to.SSH.KeyFile = held + ".pub"
	_, err := dialer(t, Options{}).Dial(t.Context(), to)
	assertRefused(t, err, Authentication, "the host refused the key SHA256:", held+".pub")
	// More keys than the host lets a login try.
	few := sshhost.Start(t, "MaxAuthTries 1")
	to = target(few, "root")
	to.SSH.KeyFile = ""
	t.Setenv("HOME", own)
	_, err = dialer(t, Options{}).Dial(t.Context(), to)
	assertRefused(t, err, Authentication, "they are more than it lets a login try", "name the one key to offer with ssh.keyPath")
}

// writeKey writes a key that no host knows, and its public key.
func writeKey(t *testing.T, path string) (string, ssh.PublicKey) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	writePEM(t, path, block)
	signer, err := ssh.NewSignerFromKey(private)
	if err == nil {
		err = os.WriteFile(path+".pub", ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path, signer.PublicKey()
}

// startAgent starts an agent with a key, whose public key is next to its socket.
func startAgent(t *testing.T, comment string) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "agent")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	public, private, err := ed25519.GenerateKey(nil)
	keys := agent.NewKeyring()
	if err == nil {
		err = keys.Add(agent.AddedKey{PrivateKey: private, Comment: comment})
	}
	key, keyErr := ssh.NewPublicKey(public)
	if err := errors.Join(err, keyErr, os.WriteFile(socket+".pub", ssh.MarshalAuthorizedKey(key), 0o600)); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(keys, c) }()
		}
	}()
	return socket
}

// A key with a passphrase: asked once for all hosts, and without a connection that waits.
func TestKeyWithAPassphrase(t *testing.T) {
	h := sshhost.Start(t)
	data, err := os.ReadFile(h.Key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := ssh.ParseRawPrivateKey(data)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte("open it"))
	if err != nil {
		t.Fatal(err)
	}
	to := target(h, "root")
	to.SSH.KeyFile = filepath.Join(t.TempDir(), "locked")
	writePEM(t, to.SSH.KeyFile, block)
	asked := 0
	d := dialer(t, Options{Password: func(context.Context, string) (string, error) { asked++; return "open it", nil }})
	for range 2 {
		c, err := d.Dial(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	_, err = dialer(t, Options{Password: password("wrong")}).Dial(t.Context(), to)
	assertRefused(t, err, Authentication, "locked")
}

// Pain 8: unknown keys are asked for and added once, in a form that the stock ssh reads; a changed one is refused.
func TestHostKeys(t *testing.T) {
	h := sshhost.Start(t)
	known := filepath.Join(t.TempDir(), ".ssh", "known_hosts")
	to := target(h, "root")
	to.SSH.HostKey = ""
	_, err := dialer(t, Options{KnownHosts: []string{known}}).Dial(t.Context(), to)
	assertRefused(t, err, HostKey, "not known", "ssh-keygen -lf", "ssh-keyscan is not safe", "set ssh.hostKey in cluster.yaml to SHA256:", "on a terminal")
	if _, err := os.Stat(known); err == nil {
		t.Error("a key was added without a question")
	}
	var questions []string
	ask := func(yes bool) func(context.Context, string) (bool, error) {
		return func(_ context.Context, q string) (bool, error) { questions = append(questions, q); return yes, nil }
	}
	_, err = dialer(t, Options{Ask: ask(false), KnownHosts: []string{known}}).Dial(t.Context(), to)
	assertRefused(t, err, HostKey)
	questions = nil
	d := dialer(t, Options{Ask: ask(true), KnownHosts: []string{known}})
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if c, err := d.Dial(t.Context(), to); err != nil {
				t.Error(err)
			} else {
				_ = c.Close()
			}
		})
	}
	wg.Wait()
	key, _ := parsePublicKey(h.HostKey)
	if len(questions) != 1 || !strings.Contains(questions[0], ssh.FingerprintSHA256(key)) || !strings.Contains(questions[0], "ssh-ed25519") {
		t.Errorf("asked %q", questions)
	}
	if data, _ := os.ReadFile(known); strings.Count(string(data), "\n") != 1 || !strings.HasSuffix(string(data), " "+h.HostKey+"\n") {
		t.Errorf("known_hosts is %q", data)
	}
	to.SSH.OpenSSH = true // the stock ssh as the oracle of the file
	if c, err := dialer(t, Options{KnownHosts: []string{known}}).Dial(t.Context(), to); err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
}

func TestKnownHostsFiles(t *testing.T) {
	h := sshhost.Start(t)
	other := sshhost.Start(t)
	address := fmt.Sprintf("[127.0.0.1]:%d", h.Port)
	fingerprint := func(text string) string { key, _ := parsePublicKey(text); return ssh.FingerprintSHA256(key) }
	for name, c := range map[string]struct {
		lines, pin string
		accepted   bool
		texts      []string
	}{
		"hashed":          {lines: knownhosts.HashHostname(address) + " " + h.HostKey, accepted: true},
		"list":            {lines: "# comment\n\nx,*," + address + " " + h.HostKey, accepted: true},
		"changed":         {lines: "\n" + address + " " + other.HostKey, texts: []string{"known_hosts:2", fingerprint(h.HostKey), fingerprint(other.HostKey), "ssh-keygen -R"}},
		"revoked":         {lines: "@revoked " + address + " " + h.HostKey, texts: []string{"revokes"}},
		"damaged":         {lines: address + " ssh-ed25519 xx", texts: []string{"known_hosts:1"}},
		"pinned":          {pin: h.HostKey, accepted: true},
		"pinned print":    {pin: fingerprint(h.HostKey), accepted: true},
		"pinned wrong":    {pin: other.HostKey, lines: address + " " + h.HostKey, texts: []string{fingerprint(h.HostKey)}},
		"wrong print":     {pin: fingerprint(other.HostKey), lines: address + " " + h.HostKey, texts: []string{fingerprint(h.HostKey)}},
		"damaged pin":     {pin: "ssh-ed25519", texts: []string{"hostKey"}},
		"two lines":       {pin: h.HostKey + "\n" + h.HostKey, texts: []string{"one line"}},
		"other authority": {lines: "@cert-authority " + address + " " + other.HostKey, texts: []string{"known_hosts:1"}},
	} {
		known := filepath.Join(t.TempDir(), "known_hosts")
		if err := os.WriteFile(known, []byte(c.lines+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		to := target(h, "root")
		to.SSH.HostKey = c.pin
		yes := func(context.Context, string) (bool, error) { t.Errorf("%s: asked", name); return true, nil }
		conn, err := dialer(t, Options{Ask: yes, KnownHosts: []string{known}}).Dial(t.Context(), to)
		if c.accepted != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = conn.Close()
			continue
		}
		assertRefused(t, err, HostKey, append(c.texts, "node-root")...)
	}
}

// Pains 8, 9 and 10: one connection to the jump host for all hosts, each host with its own key.
func TestJumpHostIsShared(t *testing.T) {
	h, bastion := sshhost.Start(t), sshhost.Start(t, "MaxSessions 1", "MaxStartups 3")
	for _, isOpenSSH := range []bool{false, true} {
		p := startProxy(t, bastion.Port)
		d := dialer(t, Options{})
		jump := target(bastion, "nopasswd").SSH
		jump.Port = p.port
		hosts := 10
		if isOpenSSH {
			hosts = 3
		}
		var wg sync.WaitGroup
		for range hosts {
			wg.Go(func() {
				to := target(h, "root")
				to.SSH.Jump, to.SSH.OpenSSH = []spec.SSH{jump}, isOpenSSH
				c, err := d.Dial(t.Context(), to)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				if got := output(t, c, "", "id", "-u"); got != "0\n" {
					t.Errorf("the user is %q", got)
				}
			})
		}
		wg.Wait()
		if n := p.accepted.Load(); n != 1 {
			t.Errorf("%d connections to the jump host", n)
		}
	}
}

// A jump host needs no shell for its user, whichever command logs in.
func TestJumpHostWithoutAShell(t *testing.T) {
	h := sshhost.Start(t)
	for _, isOpenSSH := range []bool{false, true} {
		to := target(h, "root")
		to.SSH.Jump, to.SSH.OpenSSH = []spec.SSH{target(h, "nologin").SSH}, isOpenSSH
		c, err := dialer(t, Options{}).Dial(t.Context(), to)
		if err != nil {
			t.Errorf("openSSH %v: %v", isOpenSSH, err)
			continue
		}
		_ = c.Close()
	}
}

// What ~/.ssh/config has for the sessions of a user is not for those of a driver.
func TestOpenSSHOnlyLogsIn(t *testing.T) {
	to := target(sshhost.Start(t), "openssh nopasswd")
	to.SSH.Options = []string{"-o", "RemoteCommand=tmux attach", "-o", "RequestTTY=force"}
	c, err := dialer(t, Options{}).Dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		if got := output(t, c, "", "id", "-u"); got != "0\n" {
			t.Errorf("the user is %q", got)
		}
	}
}

// Pain 10: sshd drops connections above MaxStartups, and many hosts behind one address have one sshd here.
func TestHundredHostsAtMaxStartups10(t *testing.T) {
	h := sshhost.Start(t, "MaxStartups 10:100:10")
	d := dialer(t, Options{})
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			c, err := d.Dial(t.Context(), target(h, "root"))
			if err != nil {
				t.Error(err)
				return
			}
			_ = c.Close()
		})
	}
	wg.Wait()
	if text, err := os.ReadFile(h.Log); err != nil || bytes.Contains(text, []byte("MaxStartups")) {
		t.Errorf("sshd dropped connections: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	ports, err := port.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, isOpenSSH := range []bool{false, true} {
		to := spec.Host{Name: "gone", SSH: spec.SSH{Address: "127.0.0.1", Port: ports[0], User: "root", OpenSSH: isOpenSSH}}
		_, err := dialer(t, Options{}).Dial(t.Context(), to)
		assertRefused(t, err, Unreachable, "gone", "127.0.0.1", "refused", "ssh")
		if text := err.Error(); !isOpenSSH && text != fmt.Sprintf("gone (127.0.0.1:%d): connecting: connection refused", ports[0]) {
			t.Error(text)
		}
		to.SSH.Address = "no-such-host.invalid"
		_, err = dialer(t, Options{}).Dial(t.Context(), to)
		assertRefused(t, err, Unreachable, "gone", "no-such-host.invalid")
		if !isOpenSSH {
			assertRefused(t, err, Unreachable, "lookup no-such-host.invalid", "getent hosts no-such-host.invalid", "address in cluster.yaml")
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := dialer(t, Options{}).Dial(ctx, spec.Host{SSH: spec.SSH{Address: "127.0.0.1", Port: ports[0], User: "root"}}); err == nil || err.Error() != "enough" {
		t.Errorf("the error is %v", err)
	}
}

// A host that is off in the middle of a command: the answer is unknown, and comes within the time of the keepalive.
func TestDeadConnectionEnds(t *testing.T) {
	t.Parallel()
	h := sshhost.Start(t)
	p := startProxy(t, h.Port)
	to := target(h, "root")
	to.SSH.Port = p.port
	c, err := dialer(t, Options{}).Dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	time.AfterFunc(time.Second, func() { close(p.frozen) })
	err = c.Run(t.Context(), Command{Args: []string{"sleep", "1000"}})
	if lost := (*LostError)(nil); !errors.As(err, &lost) || lost.Host != "node-root" {
		t.Errorf("the error is %v", err)
	}
	t.Logf("the connection ended after %v", time.Since(began)-time.Second)
	if err := c.Run(t.Context(), Command{Args: []string{"true"}}); err == nil {
		t.Error("a command runs in a dead connection")
	}
}
