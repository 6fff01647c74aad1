// Package target reads what a user writes about a target of backups on another machine: its URL, and the file with its
// credentials. It connects to nothing.
package target

import (
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"airlift/internal/fault"
)

// ConfigPath is the copy of the file of --target-config that the timer of this host reads in each run. Below /etc/kubernetes, an
// edited copy is replaced and removed like every file with keys there, and never saved under another name.
const ConfigPath = "/etc/kubernetes/airlift-backup-target.yaml"

// FormerConfigPath is where drivers of earlier versions wrote the file for a command. A driver that was killed has left it.
const FormerConfigPath = "/var/lib/airlift/cluster/backup-target.yaml"

// Schemes of an Address.
const (
	S3   = "s3"
	SFTP = "sftp"
)

// An Address is the URL of a target.
type Address struct {
	Scheme string
	Bucket string // of S3
	User   string // of SFTP, as Host and Port
	Host   string // without brackets
	Port   int
	// Path is the prefix in the bucket, without slashes at its ends and "" for none, or the absolute directory on the server.
	Path string
}

// A Copy is a backup that this host has sent to a target, or is going to send.
type Copy struct {
	Target string `json:"target"` // the URL
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Token is random. It is at the target, too, and was written here before: it proves whose an object or an unfinished file is.
	Token string `json:"token"`
	// Version identifies what was stored: the version of the object, or the time of the file.
	Version string `json:"version,omitempty"`
	// Stored is when it was read back and compared, nil if it was not yet.
	Stored *time.Time `json:"stored,omitempty"`
	// Once is a backup that retention leaves.
	Once bool `json:"once,omitempty"`
	// Recipients identifies who can decrypt it, "" if that is not known.
	Recipients string `json:"recipients,omitempty"`
	// Cluster is the ID of etcd's cluster, and Revision etcd's.
	Cluster  string `json:"cluster"`
	Revision int64  `json:"revision"`
}

var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// IsURL reports whether a text is a URL, and no path.
func IsURL(text string) bool { return scheme.MatchString(text) }

// Within returns the URL of a backup at a target.
func Within(target, name string) string { return strings.TrimSuffix(target, "/") + "/" + name }

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	hostName   = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?$`)
	userName   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}$`)
	pathText   = regexp.MustCompile(`^[A-Za-z0-9_.,:=@+~/-]*$`) // what needs no escape in a URL, a systemd unit and a key of S3
)

const hintURL = "write s3://BUCKET/PREFIX or sftp://USER@HOST:PORT/DIRECTORY"

// ParseURL reads the URL of a target. The errors do not repeat a password that is in it.
func ParseURL(text string) (a Address, err error) {
	wrong := func(why, hint string) (Address, error) {
		return Address{}, fault.New(fault.Usage, "the target %q %s", text, why).Hint(hint)
	}
	u, err := url.Parse(text)
	if err != nil { // the error of net/url has the text
		return Address{}, fault.New(fault.Usage, "the target of backups is not a URL").Hint(hintURL)
	}
	if _, has := u.User.Password(); has {
		return Address{}, fault.New(fault.Usage, "the URL of the target has a password, which other users of this host can see").Hint("write it in the file of --target-config, and change the password")
	}
	a = Address{Scheme: u.Scheme, Path: strings.Trim(u.Path, "/")}
	switch {
	case u.Scheme != S3 && u.Scheme != SFTP:
		hint := hintURL
		if u.Scheme == "http" || u.Scheme == "https" {
			hint += "; the URL of an S3 server is the field endpoint in the file of --target-config"
		}
		return wrong("is not supported", hint)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(text, "#"):
		return wrong("has a ? or a #", hintURL)
	case !pathText.MatchString(u.Path) || a.Path != "" && path.Clean("/"+a.Path) != "/"+a.Path:
		return wrong("has characters or parts that are not allowed in its path", "use letters, digits and ._-, and no . or .. as a directory")
	}
	if u.Scheme == S3 {
		if a.Bucket = u.Host; u.User != nil || !bucketName.MatchString(a.Bucket) || strings.Contains(a.Bucket, "..") {
			return wrong("has no valid name of a bucket", "write s3://BUCKET/PREFIX; the address of the server is the field endpoint in the file of --target-config")
		}
		return a, nil
	}
	a.Path, a.User, a.Host, a.Port = "/"+a.Path, u.User.Username(), u.Hostname(), 22
	if p := u.Port(); p != "" {
		if a.Port, err = strconv.Atoi(p); err != nil || a.Port < 1 || a.Port > 65535 {
			return wrong("has no valid port", "write sftp://USER@HOST:PORT/DIRECTORY")
		}
	}
	ip, notIP := netip.ParseAddr(a.Host)
	switch {
	case !userName.MatchString(a.User):
		return wrong("has no valid user", "write sftp://USER@HOST/DIRECTORY")
	case ip.Zone() != "": // systemd replaces % in a unit
		return wrong("has an address with a zone", "write sftp://USER@HOST/DIRECTORY, with a name or an address that needs no zone")
	case notIP != nil && !hostName.MatchString(a.Host):
		return wrong("has no valid host", "write sftp://USER@HOST/DIRECTORY, with a name or an address")
	case a.Path == "/":
		return wrong("has no directory", "write sftp://USER@HOST/DIRECTORY")
	}
	return a, nil
}

// String returns the URL, the same for all URLs of the same target.
func (a Address) String() string {
	if a.Scheme == S3 {
		return strings.TrimSuffix("s3://"+a.Bucket+"/"+a.Path, "/")
	}
	host := a.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if a.Port != 22 {
		host += ":" + strconv.Itoa(a.Port)
	}
	return "sftp://" + a.User + "@" + host + a.Path
}
