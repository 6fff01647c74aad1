package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// defaultKeys are the names in ~/.ssh that are tried after the agent's.
var defaultKeys = []string{"id_ed25519", "id_ecdsa", "id_rsa"}

// identities returns the keys for a host. Those of the agent work until the end of ctx. With KeyFile it is only that key: hosts
// close the connection after a few that they do not know.
func (d *Dialer) identities(ctx context.Context, h host) ([]ssh.Signer, error) {
	signers := agentKeys(ctx)
	if h.KeyFile != "" {
		signer, err := d.readKey(ctx, h.KeyFile)
		if err != nil {
			return nil, h.refused(Authentication, "check ssh.keyPath in cluster.yaml", "reading the key: %w", err)
		}
		for _, held := range signers {
			if bytes.Equal(held.PublicKey().Marshal(), signer.PublicKey().Marshal()) {
				signer = held // needs no passphrase
			}
		}
		return []ssh.Signer{signer}, nil
	}
	for _, name := range defaultKeys {
		signer, err := d.readKey(ctx, ownFile(name))
		switch {
		case err == nil:
			signers = append(signers, signer)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, h.refused(Authentication, "name the key to use with ssh.keyPath in cluster.yaml", "reading the key: %w", err)
		}
	}
	return signers, nil
}

// agentKeys returns the keys of the agent, if there is one, for use until the end of ctx.
func agentKeys(ctx context.Context) []ssh.Signer {
	socket, err := net.Dial("unix", os.Getenv("SSH_AUTH_SOCK"))
	if err != nil {
		return nil
	}
	context.AfterFunc(ctx, func() { _ = socket.Close() })
	signers, _ := agent.NewClient(socket).Signers() // none of a locked agent
	return signers
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
	return signer, err
}

// A lockedKey is a private key with a passphrase. Its signatures are errors, so that the user is asked without an open
// connection.
type lockedKey struct {
	path     string
	public   ssh.PublicKey
	accepted bool // by a host, which wants a signature
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
