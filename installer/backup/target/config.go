package target

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"airlift/internal/documents"
	"airlift/internal/documents/problems"
	"airlift/internal/documents/strict"
	"airlift/internal/fault"
)

// A Config is the file of --target-config. It has secrets.
type Config struct {
	S3   *S3Config   `json:"s3"`
	SFTP *SFTPConfig `json:"sftp"`

	File string // for messages
	data []byte
}

// An S3Config is how a bucket is reached.
type S3Config struct {
	Endpoint  string `json:"endpoint"` // https://HOST:PORT
	Region    string `json:"region"`   // default us-east-1
	PathStyle *bool  `json:"pathStyle"`
	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`
	CA        string `json:"ca"` // PEM, instead of the host's CAs
}

// An SFTPConfig is how a directory of an SSH server is reached.
type SFTPConfig struct {
	HostKey    string `json:"hostKey"` // SHA256:… or "TYPE BASE64"
	PrivateKey string `json:"privateKey"`
	Password   string `json:"password"`
}

// Values of the fields apiVersion and kind.
const (
	apiVersion = "airlift/v1"
	kind       = "BackupTarget"
)

const (
	hintFile = "see ./install docs backup"
	maxFile  = 1 << 20
)

// Stdin is the name of standard input as a file.
const Stdin = "-"

// Load reads the file for a target. Only the user who runs the command, and root, may be able to read it.
func Load(file string, a Address) (*Config, error) {
	data, err := read(file)
	if err != nil {
		hint := "give the file with --target-config"
		var exposed *exposedError
		switch {
		case errors.Is(err, fs.ErrNotExist):
			hint = "correct its name, or create it"
		case errors.As(err, &exposed):
			hint = exposed.command + " " + fault.Word(file)
		}
		return nil, fault.New(fault.Usage, "reading the credentials of the backup target: %w", err).Hint(hint + "; " + hintFile)
	}
	if file == Stdin {
		file = "standard input"
	}
	return Parse(file, data, a)
}

// An exposedError is about a file that is not its owner's alone. The command repairs that.
type exposedError struct {
	error
	command string
}

// read opens the file once, so that what was checked is what is read.
func read(file string) ([]byte, error) {
	if file == "" {
		return nil, errors.New("the URL needs --target-config FILE")
	}
	f := os.Stdin
	if file != Stdin {
		if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() { // to open a pipe would wait
			return nil, fmt.Errorf("%s is not a regular file", file)
		}
		var err error
		if f, err = os.Open(file); err != nil {
			return nil, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a regular file", file)
		}
		if err := checkOwner(file, info); err != nil {
			return nil, err
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", file, maxFile)
	}
	if perr := (*fs.PathError)(nil); errors.As(err, &perr) {
		return nil, fmt.Errorf("%s: %w", file, perr.Err)
	}
	return data, err
}

// A reader collects all problems of a file. Their texts have no values, because these may be secrets.
type reader struct{ strict.Decoder }

// Parse reads the content of the file for a target.
func Parse(file string, data []byte, a Address) (*Config, error) {
	r := &reader{strict.Decoder{List: &problems.List{File: file}, Lines: strict.Lines{}, YAML12: true}}
	c := &Config{File: file, data: data}
	list, errs := documents.Read(data)
	switch {
	case len(errs) > 0: // the text of an error may quote a part of the file
		r.Add(errs[0].Line, "indent with spaces, and put values in quotes; "+hintFile, "the file is not YAML")
	case len(list) != 1:
		r.Add(1, hintFile, "the file must have one document")
	case r.Head(list[0], apiVersion, kind, "./install docs backup"):
		r.Document(c, list[0], "")
		r.hideValues()
		r.check(c, a)
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// hideValues replaces the texts of errors about values.
func (r *reader) hideValues() {
	for i, p := range r.Problems {
		if p.Field != "" && !strings.HasSuffix(p.Text, "is not known") {
			r.Problems[i].Text, r.Problems[i].Hint = p.Field+" has no value, or not a value of the right kind", "write a text in quotes; "+hintFile
		}
	}
}

func (r *reader) check(c *Config, a Address) {
	missing := func(field, hint string) { r.Add(r.Lines.Nearest("%s", field), hint, "the file has no %s", field) }
	wrong := func(field, why, hint string) { r.Add(r.Lines.Nearest("%s", field), hint, "%s %s", field, why) }
	switch {
	case a.Scheme == S3 && c.SFTP != nil, a.Scheme == SFTP && c.S3 != nil:
		r.Add(1, "use a file for each target", "the target is %s, and the file has fields of another kind of target", a)
	case a.Scheme == S3 && c.S3 == nil:
		missing("s3", "write s3: with endpoint, accessKey and secretKey; "+hintFile)
	case a.Scheme == SFTP && c.SFTP == nil:
		missing("sftp", "write sftp: with hostKey, and privateKey or password; "+hintFile)
	}
	if len(r.Problems) > 0 {
		return
	}
	if s := c.S3; s != nil {
		u, err := url.Parse(s.Endpoint)
		if s.Endpoint == "" {
			missing("s3.endpoint", "write the URL of the server, such as https://s3.site.example:9000")
		} else if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			wrong("s3.endpoint", "is not the URL of a server", "write only https://HOST:PORT; the bucket is in the URL of the target")
		}
		if s.AccessKey == "" {
			missing("s3.accessKey", hintFile)
		}
		if s.SecretKey == "" {
			missing("s3.secretKey", hintFile)
		}
		if strings.ContainsFunc(s.AccessKey+s.SecretKey+s.Region, func(c rune) bool { return c <= ' ' || c > '~' }) {
			wrong("s3", "has spaces or other characters that keys do not have", "copy accessKey and secretKey again")
		}
		if s.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(s.CA)) {
			wrong("s3.ca", "is not a certificate", "write ca: | and the lines from -----BEGIN CERTIFICATE----- below it, indented")
		}
	}
	if s := c.SFTP; s != nil {
		if s.HostKey == "" {
			missing("sftp.hostKey", hintHostKey)
		} else if _, _, err := s.Pin(); err != nil {
			wrong("sftp.hostKey", "is not a host key", hintHostKey)
		}
		if s.PrivateKey == "" && s.Password == "" {
			missing("sftp.privateKey", "write privateKey: | and the lines of a private key below it, indented; or password")
		}
		var locked *ssh.PassphraseMissingError
		if s.PrivateKey == "" {
		} else if _, err := ssh.ParsePrivateKey([]byte(s.PrivateKey)); errors.As(err, &locked) {
			wrong("sftp.privateKey", "has a passphrase, and the timer runs without a person", "create a key for this purpose: ssh-keygen -t ed25519 -N '' -f backup-key")
		} else if err != nil {
			wrong("sftp.privateKey", "is not a private key of SSH", "write privateKey: | and the lines from -----BEGIN OPENSSH PRIVATE KEY----- below it, indented")
		}
	}
}

const hintHostKey = "write SHA256:…, as ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub prints it on the server, or the text of that file"

// hostKeyTypes are the types of keys that a server can prove its identity with. A certificate is not one of them.
var hostKeyTypes = []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA}

// Pin returns the fingerprint of the server's key, and the key's type if the file has the whole key.
func (s *SFTPConfig) Pin() (fingerprint, keyType string, err error) {
	text := strings.TrimSpace(s.HostKey)
	if sum, ok := strings.CutPrefix(text, "SHA256:"); ok {
		if sum = strings.TrimRight(sum, "="); len(sum) != 43 {
			return "", "", errors.New("the fingerprint has another length")
		}
		return "SHA256:" + sum, "", nil
	}
	key, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil || len(rest) > 0 {
		return "", "", errors.New("not one public key")
	}
	if !slices.Contains(hostKeyTypes, key.Type()) {
		return "", "", errors.New("the type of the key is not supported")
	}
	return ssh.FingerprintSHA256(key), key.Type(), nil
}

// Data is the content of the file.
func (c *Config) Data() []byte { return c.data }

// Secrets are the texts that no message may have.
func (c *Config) Secrets() (list []string) {
	if c.S3 != nil {
		list = append(list, c.S3.SecretKey)
	}
	if c.SFTP != nil && c.SFTP.Password != "" {
		list = append(list, c.SFTP.Password)
	}
	return list
}

// Mark is what a plan shows of the content of a file, after the command that sets a timer.
func Mark(digest string) string { return "(target config " + digest + ")" }

// digestRounds makes a guess of a password as slow as OWASP asks for PBKDF2 with SHA-256.
const digestRounds = 600_000

// Digest identifies the content of a file of --target-config in a plan. Others may read a plan and a password may be short, so
// each guess has to be slow.
func Digest(url string, data []byte) string {
	salt := sha256.Sum256([]byte("backup target " + url))
	key, err := pbkdf2.Key(sha256.New, string(data), salt[:], digestRounds, 16)
	if err != nil {
		return "" // only with a key length that FIPS 140 does not allow
	}
	return hex.EncodeToString(key)
}
