package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"airlift/internal/fault"
)

// defaultKeys are the names in ~/.ssh that are tried after the agent's.
var defaultKeys = []string{"id_ed25519", "id_ecdsa", "id_rsa"}

// An identity is a key to offer to a host.
type identity struct {
	signer ssh.Signer
	from   string // where it is
}

// describeAll names keys for an error.
func describeAll(list []identity) string {
	var names []string
	for _, i := range list {
		names = append(names, "the key "+ssh.FingerprintSHA256(i.signer.PublicKey())+" of "+i.from)
	}
	return strings.Join(names, ", ")
}

// identities returns the keys for a host. Those of the agent work until the end of ctx. With KeyFile it is only that key: hosts
// close the connection after a few that they do not know.
func (d *Dialer) identities(ctx context.Context, h host) ([]identity, error) {
	list := agentKeys(ctx)
	if h.KeyFile != "" {
		signer, err := d.readKey(ctx, h.KeyFile)
		if err != nil {
			return nil, h.refused(Authentication, cmp.Or(fault.Hint(err), "correct "+h.field("keyPath")), "reading the key: %w", err)
		}
		for _, held := range list {
			if bytes.Equal(held.signer.PublicKey().Marshal(), signer.PublicKey().Marshal()) {
				signer = held.signer // needs no passphrase
			}
		}
		if k, ok := signer.(*lockedKey); ok && k.inAgent {
			return nil, h.refused(Authentication, "add the key to the agent: ssh-add; or name the file of the private key with "+h.field("keyPath"),
				"%s is a public key, and the agent does not have its private key%s", k.path, agentState())
		}
		return []identity{{signer, h.KeyFile}}, nil
	}
	for _, name := range defaultKeys {
		signer, err := d.readKey(ctx, ownFile(name))
		switch {
		case err == nil:
			list = append(list, identity{signer, ownFile(name)})
		case !errors.Is(err, fs.ErrNotExist):
			return nil, h.refused(Authentication, cmp.Or(fault.Hint(err), "name the key to use with "+h.field("keyPath")), "reading the key: %w", err)
		}
	}
	return list, nil
}

// agentKeys returns the keys of the agent, if there is one, for use until the end of ctx.
func agentKeys(ctx context.Context) (list []identity) {
	socket, err := net.Dial("unix", os.Getenv("SSH_AUTH_SOCK"))
	if err != nil {
		return nil
	}
	context.AfterFunc(ctx, func() { _ = socket.Close() })
	signers, _ := agent.NewClient(socket).Signers() // none of a locked agent
	for _, s := range signers {
		from := "the agent"
		if key, ok := s.PublicKey().(*agent.Key); ok && key.Comment != "" {
			from += " (" + oneLine(key.Comment) + ")"
		}
		list = append(list, identity{s, from})
	}
	return list
}

// agentState returns why the agent offered no key; "" if it did.
func agentState() string {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	path := os.Getenv("SSH_AUTH_SOCK")
	switch {
	case len(agentKeys(ctx)) > 0:
		return ""
	case path == "":
		return "; there is no agent: SSH_AUTH_SOCK is not set"
	}
	if socket, err := net.Dial("unix", path); err != nil {
		return "; the agent at " + path + " does not answer"
	} else {
		_ = socket.Close()
	}
	return "; the agent has no key, or is locked"
}

// readKey reads a private key. One with a passphrase is returned locked: only if a host accepts it is the user asked.
func (d *Dialer) readKey(ctx context.Context, path string) (ssh.Signer, error) {
	if signer, ok := d.opened.Load(path); ok {
		return signer.(ssh.Signer), nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(data)
	var missing *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &missing) && missing.PublicKey != nil:
		return &lockedKey{path: path, public: missing.PublicKey}, nil
	case errors.As(err, &missing): // a PEM file does not have the public key in clear
		return d.openKey(ctx, path)
	case err != nil:
		if public, publicErr := parsePublicKey(string(data)); publicErr == nil {
			return &lockedKey{path: path, public: public, inAgent: true}, nil
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return signer, nil
}

// openKey asks for the passphrase of a key.
func (d *Dialer) openKey(ctx context.Context, path string) (signer ssh.Signer, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	err = d.useSecret(ctx, "passphrase of "+path, "Passphrase of "+path+": ", func(text string) (err error) {
		if signer, err = ssh.ParsePrivateKeyWithPassphrase(data, []byte(text)); err != nil {
			return fmt.Errorf("opening %s: %w", path, errWrong)
		}
		d.opened.Store(path, signer)
		return nil
	})
	if errors.Is(err, errNobody) {
		err = fault.Wrap(err, fault.Failure, "run it on a terminal, or first give the key to an agent: ssh-add "+fault.Word(path))
	}
	return signer, err
}

// A lockedKey is a private key with a passphrase. Its signatures are errors, so that the user is asked without an open
// connection.
type lockedKey struct {
	path     string
	public   ssh.PublicKey
	accepted bool // by a host, which wants a signature
	inAgent  bool // path has only the public key
}

func (k *lockedKey) PublicKey() ssh.PublicKey { return k.public }

func (k *lockedKey) Sign(io.Reader, []byte) (*ssh.Signature, error) {
	k.accepted = true
	return nil, errors.New("the key has a passphrase")
}

// SignWithAlgorithm implements ssh.AlgorithmSigner, without which RSA keys are offered with SHA-1 only.
func (k *lockedKey) SignWithAlgorithm(r io.Reader, data []byte, _ string) (*ssh.Signature, error) {
	return k.Sign(r, data)
}
