package seed

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"airlift/bundle/signature"
	"airlift/internal/fault"
)

// Driver precedes the name of the cluster as the holder of a host's lock for drivers.
const Driver = "the seed of cluster "

// Label is the label of a drive's file system. A drive with CloudLabel is one that cloud-init reads, too.
const (
	Label      = "AIRLIFT"
	CloudLabel = "CIDATA"
)

// What a host has for a seed. Reset removes it.
const (
	Directory  = "/etc/airlift"
	KeyFile    = Directory + "/seed.pub"
	ScriptFile = Directory + "/seed.sh"
	LabelFile  = Directory + "/label"
	Unit       = "airlift-seed.service"
	UnitFile   = "/etc/systemd/system/" + Unit
)

//go:embed seed.sh
var script string

// The unit does not hold up the boot: it is simple, and waits for its drive itself. It starts again after a failure that may pass, and
// not after a refusal (2, 3, 4), until the next boot or until a drive is connected.
const unit = `[Unit]
Description=Airlift: make this host a node of the cluster on the seed's drive
After=network.target
StartLimitIntervalSec=0

[Service]
Type=simple
ExecStart=/bin/sh ` + ScriptFile + `
Restart=on-failure
RestartSec=15
RestartPreventExitStatus=2 3 4
SuccessExitStatus=130
KillMode=mixed
StandardOutput=journal+console
StandardError=inherit
SyslogIdentifier=airlift-seed

[Install]
WantedBy=%s
`

// A HostFile is a file that a host has from its first boot.
type HostFile struct {
	Path string
	Text string
	Mode int
}

// A Boot is what a host needs to read a seed. It has no secrets.
type Boot struct {
	Key   signature.PublicKey
	Start Start // of the file next to the seed
	// Drive is a label of a file system or the absolute path of a directory. "": a drive with Label or CloudLabel.
	Drive string
}

// A Start is the part of a bundle file that starts the installer: its first and last bytes. They have the digests of all others.
type Start struct {
	First, Last int64  // bytes
	SHA256      string // of both together
}

var labelText = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,15}$`)

// Files returns the files of a host.
func (b Boot) Files() ([]HostFile, error) {
	drive, wanted := Label+" "+CloudLabel+" "+strings.ToLower(CloudLabel), "multi-user.target"
	switch {
	case path.IsAbs(b.Drive):
		if strings.ContainsAny(b.Drive, "'\n") || path.Clean(b.Drive) != b.Drive {
			return nil, fault.New(fault.Usage, "--drive %q is not a path that hosts can use", b.Drive).Hint("write it without quotation marks, and without a slash at its end")
		}
		drive = b.Drive
	case b.Drive != "":
		if !labelText.MatchString(b.Drive) {
			return nil, fault.New(fault.Usage, "--drive %q is not the label of a file system", b.Drive).Hint("write at most 16 letters, digits, - and _; or the absolute path of a directory")
		}
		drive = b.Drive
	}
	if !path.IsAbs(drive) {
		for label := range strings.FieldsSeq(drive) {
			wanted += ` dev-disk-by\x2dlabel-` + strings.ReplaceAll(label, "-", `\x2d`) + ".device"
		}
	}
	text := strings.NewReplacer("@FIRST@", strconv.FormatInt(b.Start.First, 10), "@LAST@", strconv.FormatInt(b.Start.Last, 10), "@SHA256@", b.Start.SHA256, "@RECORD@", RecordFile, "@DRIVE@", drive, "@FILE@", File, "@INSTALLER@", Installer, "@KEY@", KeyFile, "@COPY@", CopyDir).Replace(script)
	return []HostFile{
		{KeyFile, "untrusted comment: public key of the seed\n" + b.Key.String() + "\n", 0o644},
		{ScriptFile, text, 0o755},
		{UnitFile, fmt.Sprintf(unit, wanted), 0o644},
	}, nil
}

// CloudInit returns the user data for cloud-init.
func (b Boot) CloudInit() ([]byte, error) {
	files, err := b.Files()
	if err != nil {
		return nil, err
	}
	type file struct {
		Path        string `json:"path"`
		Permissions string `json:"permissions"`
		Content     string `json:"content"`
	}
	data := struct {
		Files []file     `json:"write_files"`
		Run   [][]string `json:"runcmd"`
	}{Run: [][]string{{"systemctl", "daemon-reload"}, {"systemctl", "enable", "--now", "--no-block", Unit}}}
	for _, f := range files {
		data.Files = append(data.Files, file{f.Path, fmt.Sprintf("%04o", f.Mode), f.Text})
	}
	text, err := yaml.Marshal(data)
	return append([]byte("#cloud-config\n"), text...), err
}

// Ignition returns a configuration for Ignition, of Fedora CoreOS and Flatcar.
func (b Boot) Ignition() ([]byte, error) {
	files, err := b.Files()
	if err != nil {
		return nil, err
	}
	type object = map[string]any
	var written, units []object
	for _, f := range files {
		if f.Path == UnitFile {
			units = append(units, object{"name": Unit, "enabled": true, "contents": f.Text})
			continue
		}
		written = append(written, object{"path": f.Path, "mode": f.Mode, "overwrite": true,
			"contents": object{"source": "data:;base64," + base64.StdEncoding.EncodeToString([]byte(f.Text))}})
	}
	text, err := json.MarshalIndent(object{"ignition": object{"version": "3.3.0"}, "storage": object{"files": written}, "systemd": object{"units": units}}, "", "  ")
	return append(text, '\n'), err
}

// CopyDir is where a host that is in the seed keeps its copy of the drive until it is done.
const CopyDir = "/var/lib/airlift/seed"
