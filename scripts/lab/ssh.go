package lab

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
)

// sshPackages are Debian's packages of a host that is managed over SSH.
var sshPackages = []string{"openssh-server", "sudo"}

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

// makeSSHKey creates the lab's key and returns the input of sshScript.
func (l *Lab) makeSSHKey() (string, error) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return "", fmt.Errorf("creating the lab's SSH key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "lab "+l.Name)
	if err != nil {
		return "", fmt.Errorf("creating the lab's SSH key: %w", err)
	}
	authorized, err := ssh.NewPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("creating the lab's SSH key: %w", err)
	}
	key := pem.EncodeToMemory(block)
	if err := os.WriteFile(l.sshKeyFile(), key, 0o600); err != nil {
		return "", fmt.Errorf("creating the lab's SSH key: %w", err)
	}
	return SSHPassword + "\n" + string(ssh.MarshalAuthorizedKey(authorized)) + string(key), nil
}

// installSSH gives a host that is off its own host keys, and its users what they log in with.
func (h *Host) installSSH(ctx context.Context, input string) error {
	cmd := exec.CommandContext(ctx, "chroot", h.disk(), "sh", "-ec", sshScript, "sh", SSHUser)
	cmd.Stdin = strings.NewReader(input)
	if err := runCommand(ctx, cmd); err != nil {
		return fmt.Errorf("preparing SSH: %w", err)
	}
	return nil
}
