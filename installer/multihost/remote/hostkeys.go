package remote

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"airlift/internal/childprocess"
)

// errHostKey is in the error of a handshake that ended because of the host's key.
var errHostKey = errors.New("the host key is not the expected one")

// A hostKeyCheck accepts host keys of one host.
type hostKeyCheck struct {
	accept ssh.HostKeyCallback
	// algorithms are what to ask the host for, one list for each handshake. A host has several keys, and shows one.
	algorithms [][]string
}

var (
	rsaAlgorithms  = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	certAlgorithms = []string{ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01, ssh.CertAlgoECDSA521v01,
		ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01}
	ecdsaAlgorithms = []string{ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521}
	allAlgorithms   = slices.Concat([]string{ssh.KeyAlgoED25519}, ecdsaAlgorithms, rsaAlgorithms)
)

// checkHostKey returns the check of a host: its pinned key, or known_hosts.
func (d *Dialer) checkHostKey(h host) (hostKeyCheck, error) {
	switch {
	case strings.HasPrefix(h.HostKey, "SHA256:"):
		return hostKeyCheck{pinned(h.HostKey), [][]string{{ssh.KeyAlgoED25519}, ecdsaAlgorithms, rsaAlgorithms}}, nil
	case h.HostKey != "":
		key, err := parsePublicKey(h.HostKey)
		if err != nil {
			return hostKeyCheck{}, h.refused(HostKey, "write hostKey as SHA256:… or as in a file of /etc/ssh/ssh_host_*_key.pub", "reading hostKey: %w", err)
		}
		return hostKeyCheck{pinned(ssh.FingerprintSHA256(key)), [][]string{algorithmsOf(key.Type())}}, nil
	}
	known, err := d.knownHosts()
	if err != nil {
		return hostKeyCheck{}, h.refused(HostKey, "correct or remove that line", "reading known host keys: %w", err)
	}
	return hostKeyCheck{d.explained(h, known), [][]string{preferred(known, h.address())}}, nil
}

func parsePublicKey(text string) (ssh.PublicKey, error) {
	key, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	if err == nil && len(bytes.TrimSpace(rest)) > 0 {
		err = errors.New("more than one line")
	}
	return key, err
}

// pinned accepts the key with a fingerprint.
func pinned(fingerprint string) ssh.HostKeyCallback {
	return func(_ string, _ net.Addr, key ssh.PublicKey) error {
		if ssh.FingerprintSHA256(key) == fingerprint {
			return nil
		}
		return fmt.Errorf("%w: the host has the %s, and hostKey in cluster.yaml is another one", errHostKey, describe(key))
	}
}

// knownFiles are the files with host keys. New keys go to the first one.
func (d *Dialer) knownFiles() []string {
	if d.options.KnownHosts != nil {
		return d.options.KnownHosts
	}
	return []string{ownFile("known_hosts"), "/etc/ssh/ssh_known_hosts"}
}

// knownHosts reads the files each time, because another driver may have added a key.
func (d *Dialer) knownHosts() (ssh.HostKeyCallback, error) {
	var files []string
	for _, name := range d.knownFiles() {
		if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
			files = append(files, name)
		}
	}
	return knownhosts.New(files...)
}

// explained adds to the errors of known_hosts which key the host has, and which line of a file has another one. An unknown key is a
// question.
func (d *Dialer) explained(h host, known ssh.HostKeyCallback) ssh.HostKeyCallback {
	return func(address string, from net.Addr, key ssh.PublicKey) error {
		err := known(address, from, key)
		var differs *knownhosts.KeyError
		var revoked *knownhosts.RevokedError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &differs) && len(differs.Want) == 0:
			return &question{"the host key is not known", func(ctx context.Context) error { return d.learnHostKey(ctx, h, key) }}
		case errors.As(err, &differs):
			w := differs.Want[0]
			if isAuthority(w) {
				return fmt.Errorf("%w: the host has the %s, and %s:%d wants a certificate of the authority with the %s, or ssh.hostKey in cluster.yaml",
					errHostKey, describe(key), w.Filename, w.Line, describe(w.Key))
			}
			return fmt.Errorf("%w: the host has the %s, and %s:%d has the %s", errHostKey, describe(key), w.Filename, w.Line, describe(w.Key))
		case errors.As(err, &revoked):
			return fmt.Errorf("%w: %s:%d revokes the %s", errHostKey, revoked.Revoked.Filename, revoked.Revoked.Line, describe(key))
		}
		return fmt.Errorf("%w: %w", errHostKey, err)
	}
}

func describe(key ssh.PublicKey) string {
	return "key " + ssh.FingerprintSHA256(key) + " (" + key.Type() + ")"
}

// preferred returns the algorithms with those first of which a key is known.
func preferred(known ssh.HostKeyCallback, address string) (list []string) {
	none, _ := ssh.NewPublicKey(make(ed25519.PublicKey, ed25519.PublicKeySize)) // no error with this size
	var differs *knownhosts.KeyError
	if errors.As(known(address, &net.TCPAddr{}, none), &differs) {
		for _, k := range differs.Want {
			if isAuthority(k) {
				list = append(list, certAlgorithms...)
			} else {
				list = append(list, algorithmsOf(k.Key.Type())...)
			}
		}
	}
	return append(list, allAlgorithms...)
}

// isAuthority reports whether the line of a known key is for certificates. Package knownhosts does not report it.
func isAuthority(k knownhosts.KnownKey) bool {
	data, err := os.ReadFile(k.Filename)
	lines := bytes.Split(data, []byte("\n"))
	return err == nil && k.Line <= len(lines) && bytes.HasPrefix(bytes.TrimSpace(lines[k.Line-1]), []byte("@cert-authority"))
}

func algorithmsOf(keyType string) []string {
	if keyType == ssh.KeyAlgoRSA {
		return rsaAlgorithms
	}
	return []string{keyType}
}

// learnHostKey asks whether an unknown key is the host's, and adds it to the first file.
func (d *Dialer) learnHostKey(ctx context.Context, h host, key ssh.PublicKey) error {
	d.asking.Lock()
	defer d.asking.Unlock()
	known, err := d.knownHosts()
	if err != nil {
		return err
	}
	if known(h.address(), &net.TCPAddr{}, key) == nil {
		return nil // a host with the same address was asked for
	}
	yes, compare := false, "compare it on the host with: ssh-keygen -lf /etc/ssh/ssh_host_"+strings.SplitN(strings.TrimPrefix(key.Type(), "ssh-"), "-", 2)[0]+"_key.pub"
	if d.options.Ask != nil {
		yes, err = d.options.Ask(ctx, fmt.Sprintf("The host key of %s (%s) is not known.\nIt is the %s.\nTo be sure, %s\nIs it the key of this host?", h.name, h.address(), describe(key), compare))
		if err != nil {
			return err
		}
	}
	if !yes {
		return h.refused(HostKey, compare+"; then set "+h.field("hostKey")+" to "+ssh.FingerprintSHA256(key)+", or run the command on a terminal, which asks; ssh-keyscan is not safe, because it trusts the network",
			"the host key is not known: %s", describe(key))
	}
	name := knownhosts.Normalize(h.address())
	if hashesNames(ctx, h) {
		name = knownhosts.HashHostname(name)
	}
	if err := appendLine(d.knownFiles()[0], knownhosts.Line([]string{name}, key)); err != nil {
		return fmt.Errorf("remembering the host key of %s: %w", h.name, err)
	}
	return nil
}

// hashesNames reports whether ssh's configuration has HashKnownHosts for a host. Only ssh can read all of that configuration. If
// it does not answer, the file does not list the hosts for whoever reads it.
func hashesNames(ctx context.Context, h host) bool {
	out, _ := childprocess.Command(ctx, "ssh", "-G", "-p", strconv.Itoa(h.Port), "-l", h.User, "--", h.Address).Output()
	return !bytes.Contains(out, []byte("\nhashknownhosts no\n"))
}

// appendLine adds a line to a file, which it creates if it does not exist.
func appendLine(name, line string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(data) > 0 && !bytes.HasSuffix(data, []byte("\n")) {
		line = "\n" + line
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}
