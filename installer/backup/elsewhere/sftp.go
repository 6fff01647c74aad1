package elsewhere

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"airlift/installer/backup/target"
)

var (
	errHostKey = errors.New("the server has another host key")
	errFull    = errors.New("the file system is full")
)

// An sftpDir is a directory of an SSH server.
type sftpDir struct {
	client *sftp.Client
	ssh    *ssh.Client
	meter  *meter
	dir    string
	file   string // with the credentials
}

// hostKeyAlgorithms are tried one after the other when only the fingerprint of a key is known: a server shows one of its keys.
var hostKeyAlgorithms = [][]string{{ssh.KeyAlgoED25519}, {ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521}, {ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}}

func newSFTP(ctx context.Context, a target.Address, c *target.Config, dial dialFunc) (backend, error) {
	s := &sftpDir{dir: a.Path, file: c.File}
	want, keyType, err := c.SFTP.Pin()
	if err != nil {
		return s, err
	}
	var seen string
	config := &ssh.ClientConfig{User: a.User, HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
		if seen = ssh.FingerprintSHA256(key) + " (" + key.Type() + ")"; ssh.FingerprintSHA256(key) != want {
			return errHostKey
		}
		return nil
	}}
	if c.SFTP.PrivateKey != "" {
		key, err := ssh.ParsePrivateKey([]byte(c.SFTP.PrivateKey))
		if err != nil {
			return s, errors.New("reading sftp.privateKey") // the text may have a part of the key
		}
		config.Auth = append(config.Auth, ssh.PublicKeys(key))
	}
	if c.SFTP.Password != "" {
		config.Auth = append(config.Auth, ssh.Password(c.SFTP.Password), ssh.KeyboardInteractive(func(_, _ string, questions []string, _ []bool) ([]string, error) {
			return slices.Repeat([]string{c.SFTP.Password}, len(questions)), nil
		}))
	}
	for _, algorithms := range hostKeyAlgorithms {
		if keyType != "" && keyType != ssh.KeyAlgoRSA && !slices.Contains(algorithms, keyType) || keyType == ssh.KeyAlgoRSA && !slices.Contains(algorithms, ssh.KeyAlgoRSASHA256) {
			continue
		}
		config.HostKeyAlgorithms = algorithms
		if keyType != "" && keyType != ssh.KeyAlgoRSA {
			config.HostKeyAlgorithms = []string{keyType}
		}
		if err = s.connect(ctx, net.JoinHostPort(a.Host, strconv.Itoa(a.Port)), config, dial); err == nil {
			return s, nil
		}
		var none *ssh.AlgorithmNegotiationError
		if !errors.Is(err, errHostKey) && !errors.As(err, &none) {
			return s, err
		}
	}
	if seen != "" {
		return s, fmt.Errorf("%w: %s", errHostKey, seen)
	}
	return s, err
}

func (s *sftpDir) connect(ctx context.Context, address string, config *ssh.ClientConfig, dial dialFunc) error {
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	s.meter = &meter{Conn: conn}
	c, channels, requests, err := ssh.NewClientConn(s.meter, address, config)
	if err != nil {
		stop()
		conn.Close()
		return err
	}
	s.ssh = ssh.NewClient(c, channels, requests)
	if s.client, err = sftp.NewClient(s.ssh, sftp.UseConcurrentWrites(true)); err != nil {
		s.ssh.Close()
		return err
	}
	return nil
}

// maxDirectory limits the bytes of a list of files: about 60,000 backups. The package sftp has no limit.
const maxDirectory = 16 << 20

// A meter limits what is received while a directory is listed.
type meter struct {
	net.Conn
	mutex    sync.Mutex
	limited  bool
	left     int
	exceeded bool
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.left -= n; m.limited && m.left < 0 {
		m.exceeded = true
		return 0, errTooMuch // which ends the connection
	}
	return n, err
}

func (m *meter) limit(on bool) (exceeded bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.limited, m.left = on, maxDirectory
	return m.exceeded
}

func (s *sftpDir) close() {
	s.client.Close()
	s.ssh.Close()
}

func (s *sftpDir) path(name string) string { return path.Join(s.dir, name) }

// temporary is the name of a file until it was read back. The token is only here and in the list of this host.
func temporary(c *target.Copy) string { return ".airlift-" + c.Token + "-" + c.Name }

// send writes a temporary file.
func (s *sftpDir) send(ctx context.Context, c *target.Copy, in *os.File) error {
	free, err := s.client.StatVFS(s.dir)
	if err == nil && free.Frsize > 0 && free.Bavail < uint64(c.Size)/free.Frsize+1 {
		return fmt.Errorf("%w: it has %d MB free, and the backup has %d MB", errFull, free.Bavail*free.Frsize/1e6, c.Size/1e6)
	}
	f, err := s.client.OpenFile(s.path(temporary(c)), os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_ = f.Chmod(0o600) // not every server has modes
	if _, err = f.ReadFrom(io.LimitReader(in, c.Size)); err == nil {
		_ = f.Sync() // an extension of OpenSSH
	}
	if err = errors.Join(err, f.Close()); err != nil {
		if free, sterr := s.client.StatVFS(s.dir); sterr == nil && free.Bavail*free.Frsize < 1<<20 { // SFTP has no code for it
			return errFull
		}
	}
	return err
}

func (s *sftpDir) open(_ context.Context, c *target.Copy, settled bool) (io.ReadCloser, error) {
	name := c.Name
	if !settled {
		name = temporary(c)
	}
	f, err := s.client.Open(s.path(name))
	if err != nil {
		return nil, absent(err)
	}
	return f, nil
}

func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return ErrMissing
	}
	return err
}

// settle renames the file. SFTP refuses to replace another one.
func (s *sftpDir) settle(_ context.Context, c *target.Copy) error {
	return s.client.Rename(s.path(temporary(c)), s.path(c.Name))
}

func (s *sftpDir) clean(_ context.Context, c *target.Copy) error {
	return ignoreMissing(s.client.Remove(s.path(temporary(c))))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// identify takes the time of a file as its version, because it has no other mark.
func (s *sftpDir) identify(ctx context.Context, c *target.Copy) error {
	c.Version = ""
	return s.look(ctx, c)
}

func (s *sftpDir) find(ctx context.Context, c *target.Copy) error {
	if c.Version == "" { // nothing proves whose a file with this name is
		return ErrOther
	}
	return s.look(ctx, c)
}

func (s *sftpDir) look(_ context.Context, c *target.Copy) error {
	info, err := s.client.Lstat(s.path(c.Name))
	if err != nil {
		return absent(err)
	}
	version := info.ModTime().UTC().Format(time.RFC3339)
	if !info.Mode().IsRegular() || info.Size() != c.Size || c.Version != "" && c.Version != version {
		return ErrOther
	}
	c.Version = version
	return nil
}

func (s *sftpDir) remove(_ context.Context, c *target.Copy) error {
	return s.client.Remove(s.path(c.Name))
}

func (s *sftpDir) stat(_ context.Context, name string) (Item, error) {
	info, err := s.client.Lstat(s.path(name))
	if err != nil {
		return Item{}, absent(err)
	}
	if !info.Mode().IsRegular() {
		return Item{}, ErrMissing
	}
	return Item{name, info.Size()}, nil
}

func (s *sftpDir) list(ctx context.Context) (list []Item, err error) {
	s.meter.limit(true)
	infos, err := s.client.ReadDirContext(ctx, s.dir)
	if s.meter.limit(false) {
		return nil, fmt.Errorf("%w: the list of its files is larger than %d MB", errTooMuch, maxDirectory>>20)
	}
	if err != nil {
		return nil, err
	}
	for _, i := range infos {
		if i.Mode().IsRegular() {
			list = append(list, Item{i.Name(), i.Size()})
		}
	}
	return list, nil
}

func (s *sftpDir) explain(err error) (text, hint string) {
	var auth *ssh.ServerAuthError
	var status *sftp.StatusError
	switch {
	case errors.Is(err, errHostKey):
		return err.Error(), "if the server was installed again, compare its key there (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), and correct sftp.hostKey in " + s.file
	case errors.As(err, &auth), strings.Contains(err.Error(), "unable to authenticate"): // package ssh has no type for it
		return "the server does not accept the credentials", "correct the user in the URL, and sftp.privateKey or sftp.password in " + s.file + "; the public key must be in ~/.ssh/authorized_keys on the server"
	case errors.Is(err, errFull):
		return err.Error(), "free some space at the target, or keep fewer backups: --keep"
	case errors.Is(err, fs.ErrNotExist):
		return "the directory " + s.dir + " does not exist", "create it on the server, writable for the user in the URL"
	case errors.Is(err, fs.ErrPermission):
		return "the server refuses it: permission denied", "make the directory " + s.dir + " writable for the user in the URL"
	case errors.As(err, &status):
		return "the server failed: " + status.Error(), "look at the log of the server: its file system may be read-only or full"
	}
	return "", ""
}
