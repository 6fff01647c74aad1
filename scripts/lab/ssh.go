package lab

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
)

// SSHPackages are Debian's packages of a host that is managed over SSH.
var SSHPackages = []string{"openssh-server", "sudo"}

// SSHUser is a user of each host of a lab with SSH. It may run sudo with SSHPassword, which has all that a shell could change.
const (
	SSHUser     = "ops"
	SSHPassword = `c4nary $HOME "it's" \n`
)

// sshScript prepares a host's disk, in a chroot. Its input has the password, the lab's public key and its private key, of which
// the first two are lines. The host keys of the tarball would be the same on all hosts.
const sshScript = `
IFS= read -r password; IFS= read -r public
rm -f /etc/ssh/ssh_host_*
ssh-keygen -A >/dev/null
useradd --create-home --shell /bin/bash --groups sudo $1
printf '%s:%s\n' $1 "$password" | chpasswd
for home in /root /home/$1; do
	mkdir -p -m 700 $home/.ssh
	echo "$public" >$home/.ssh/authorized_keys
done
(umask 077; cat >/root/.ssh/id_ed25519)
chown -R $1: /home/$1
`

// sshKeyFile has the private key of the lab, which opens root and SSHUser on each host. Each root has it too.
func (l *Lab) sshKeyFile() string { return filepath.Join(l.Dir(), "id_ed25519") }

// An SSHKey is a private key in PEM, with which root of each host where it is installed logs in at the others, as root and as
// SSHUser.
type SSHKey []byte

// NewSSHKey creates a key.
func NewSSHKey(comment string) (SSHKey, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("creating an SSH key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, comment)
	if err != nil {
		return nil, fmt.Errorf("creating an SSH key: %w", err)
	}
	return pem.EncodeToMemory(block), nil
}

// Install gives a host that is off its own host keys, and its users what they log in with. root is its file system.
func (k SSHKey) Install(ctx context.Context, root string) error {
	signer, err := ssh.ParsePrivateKey(k)
	if err != nil {
		return fmt.Errorf("preparing SSH: %w", err)
	}
	cmd := exec.CommandContext(ctx, "chroot", root, "sh", "-ec", sshScript, "sh", SSHUser)
	cmd.Stdin = strings.NewReader(SSHPassword + "\n" + string(ssh.MarshalAuthorizedKey(signer.PublicKey())) + string(k))
	if err := runCommand(ctx, cmd); err != nil {
		return fmt.Errorf("preparing SSH: %w", err)
	}
	return nil
}
