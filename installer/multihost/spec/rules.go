package spec

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"airlift/installer/config"
	"airlift/installer/patches"
	"airlift/internal/documents/problems"
	"airlift/internal/documents/strict"
	"airlift/internal/fault"
)

// A rule checks a text. It returns the text in the form in which equal values are equal, or what is wrong with it and
// what to write.
type rule func(r *reader, text string, at strict.Place) (set, why, hint string)

// rules by their names in document.
var rules map[string]rule

func init() {
	rules = map[string]rule{
		"clusterName":   lowerCase(validation.IsDNS1123Subdomain),
		"groupName":     lowerCase(validation.IsDNS1123Label),
		"nodeNames":     ranges(lowerCase(nodeName)),
		"labelName":     labelName,
		"labelValue":    valid(validation.IsValidLabelValue),
		"argument":      valid(func(string) []string { return nil }),
		"sshArgument":   sshArgument,
		"role":          role,
		"ip":            ip,
		"ips":           ranges(ip),
		"sshAddress":    sshAddress,
		"sshAddresses":  ranges(sshAddress),
		"userName":      userName,
		"hostKey":       hostKey,
		"keyFile":       keyFile,
		"kubeadmFile":   kubeadmFile,
		"patches":       patchDirectory,
		"taint":         taint,
		"apiEndpoint":   apiEndpoint,
		"duration":      duration,
		"limit":         limit,
		"day":           day,
		"clock":         clock,
		"hostDirectory": hostDirectory,
		"backupTarget":  backupTarget,
		"targetConfig":  targetConfig,
		"interval":      interval,
		"recipient":     recipient,
		"timeZone":      timeZone,
		"registryHost":  registryHost,
		"mirrorURL":     mirrorURL,
		"registryCA":    registryCA,
		"registryAuth":  registryAuth,
		"profile":       profile,
		"serial":        serial,
		"mac":           mac,
		"matchLabel":    matchLabel,
	}
}

// valid is the rule of a function of Kubernetes that returns what is wrong.
func valid(check func(string) []string) rule {
	return func(_ *reader, text string, _ strict.Place) (set, why, hint string) {
		if wrong := check(text); len(wrong) > 0 {
			return "", "is not valid: " + wrong[0], ""
		}
		return text, "", ""
	}
}

// lowerCase is valid for names. A name with capital letters is not changed silently: it would not be the name that
// Kubernetes shows.
func lowerCase(check func(string) []string) rule {
	return func(r *reader, text string, at strict.Place) (set, why, hint string) {
		if lower := strings.ToLower(text); lower != text && len(check(lower)) == 0 {
			return "", "has capital letters, which Kubernetes refuses", "write " + lower
		}
		return valid(check)(r, text, at)
	}
}

// nodeName is the rule of a Node, whose name is also the value of its label kubernetes.io/hostname.
func nodeName(text string) []string {
	return append(validation.IsDNS1123Subdomain(text), validation.IsValidLabelValue(text)...)
}

func labelName(r *reader, text string, at strict.Place) (set, why, hint string) {
	if slices.Contains(kubeletLabels, text) {
		return "", "cannot be used: Kubernetes sets this label itself", "remove the line"
	}
	return valid(validation.IsQualifiedName)(r, text, at)
}

// roles are the names of roles in other tools.
var roles = map[string]string{
	"controller": ControlPlane, "master": ControlPlane, "controlplane": ControlPlane, "control_plane": ControlPlane, "node": Worker,
	"controller+worker": ControlPlane + ", and taints: []", "single": ControlPlane + ", and taints: []",
	"etcd": ControlPlane + ": etcd runs on the control planes, or outside of the cluster (etcd.external of ClusterConfiguration)",
}

func role(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	if text == ControlPlane || text == Worker {
		return text, "", ""
	}
	hint = "write " + ControlPlane + " or " + Worker
	if known := roles[strings.ToLower(text)]; known != "" {
		hint = "write " + known
	}
	return "", "is not a role", hint
}

func ip(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	addr, err := netip.ParseAddr(text)
	switch {
	case strings.Contains(text, ","):
		return "", "is not one IP address", "write a list of addresses: [" + text + "]"
	case err != nil:
		return "", "is not an IP address", "write it without the length of a prefix, a port and brackets"
	case addr.Zone() != "" || !addr.IsGlobalUnicast() || addr.Is4In6():
		return "", "cannot be the address of a node", "write an address that the other nodes reach"
	}
	return addr.String(), "", ""
}

var (
	sshName  = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?$`)
	lastByte = regexp.MustCompile(`(^|\.)(0[xX][0-9A-Fa-f]*|[0-9]+)$`) // a name that ends so is an IPv4 address with a mistake
	zoneName = regexp.MustCompile(`^[A-Za-z0-9_.-]*$`)                 // of an interface, after the % of an IPv6 address
)

// sshAddress is an IP address, a DNS name, or a Host of ~/.ssh/config for the command ssh.
func sshAddress(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	if addr, err := netip.ParseAddr(text); err == nil && zoneName.MatchString(addr.Zone()) {
		return addr.Unmap().String(), "", ""
	}
	const wrong = "is neither an IP address nor a name"
	host, port, _ := strings.Cut(text, ":")
	switch {
	case strings.Contains(text, "@"):
		return "", wrong, "write the user in ssh.user"
	case sshName.MatchString(host) && port != "" && strings.Trim(port, "0123456789") == "":
		return "", wrong, "write the port in ssh.port"
	case strings.HasPrefix(text, "["):
		return "", wrong, "write an IPv6 address without brackets, and the port in ssh.port"
	case !sshName.MatchString(text) || lastByte.MatchString(text):
		return "", wrong, "write an address such as 10.0.0.11 or cp-1.example.org"
	}
	return text, "", ""
}

// userName accepts also the users of a directory, DOMAIN\user and user@domain.
func userName(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	if strings.HasPrefix(text, "-") || strings.ContainsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) }) {
		return "", "is not the name of a user", "write it without spaces, and not with - at the beginning"
	}
	return text, "", ""
}

var unchecked = regexp.MustCompile(`(?i)StrictHostKeyChecking[=\s"]*(no|off|false|accept-new)|(UserKnownHostsFile|GlobalKnownHostsFile)[=\s"]*(/dev/null|none)`)

func sshArgument(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	if unchecked.MatchString(text) {
		return "", "would accept any host key", "remove it: Airlift asks once for an unknown key; ssh.hostKey of a host pins one"
	}
	return text, "", ""
}

var fingerprint = regexp.MustCompile(`^SHA256:[A-Za-z0-9+/]{43}=?$`)

// hostKey accepts what ssh-keygen -l prints, and what ssh-keyscan and .pub files have.
func hostKey(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	if fingerprint.MatchString(text) {
		return strings.TrimSuffix(text, "="), "", ""
	}
	hint = "write SHA256:…, as ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub prints it on the host, or the text of that file"
	words := strings.Fields(text)
	if len(words) < 2 {
		return "", "is not a host key", hint
	}
	// A public key begins with the length and the text of its type (RFC 4253, section 6.6).
	blob, err := base64.StdEncoding.DecodeString(words[1])
	if prefix := fmt.Sprintf("\x00\x00\x00%c%s", len(words[0]), words[0]); err != nil || !strings.HasPrefix(string(blob), prefix) || len(blob) == len(prefix) {
		return "", "is not a host key", hint
	}
	return words[0] + " " + words[1], "", ""
}

// keyFile is a private key, or the public key of a private key in the agent.
func keyFile(r *reader, text string, _ strict.Place) (set, why, hint string) {
	path, why, hint := r.path(text)
	if why != "" {
		return "", why, hint
	}
	if i, err := os.Stat(path); err != nil {
		return "", "cannot be read: " + err.Error(), "write the path of a private key of this machine" + r.relative
	} else if !i.Mode().IsRegular() {
		return "", "is not a file", "write the path of a private key of this machine"
	}
	return path, "", ""
}

// path returns the absolute path of a file of this machine.
func (r *reader) path(text string) (path, why, hint string) {
	rest, home := strings.CutPrefix(text, "~")
	switch dir, err := os.UserHomeDir(); {
	case !home && filepath.IsAbs(text):
		return filepath.Clean(text), "", ""
	case !home:
		return filepath.Join(r.dir, text), "", ""
	case rest != "" && rest[0] != '/':
		return "", "is not a path that Airlift knows", "write the absolute path of the home directory of another user"
	case err != nil:
		return "", "cannot be found: " + err.Error(), "write an absolute path"
	default:
		return filepath.Join(dir, rest), "", ""
	}
}

// patchDirectory checks the patches, and makes them a part of the digest.
func patchDirectory(r *reader, text string, at strict.Place) (set, why, hint string) {
	path, why, hint := r.path(text)
	if why != "" {
		return "", why, hint
	}
	if _, known := r.patches[path]; known {
		return path, "", ""
	}
	loaded, warnings, err := patches.Load(path)
	if wrong := (*problems.Wrong)(nil); errors.As(err, &wrong) {
		r.Problems = append(r.Problems, wrong.Problems...)
	} else if err != nil {
		return "", "is not valid: " + err.Error(), fault.Hint(err)
	}
	r.patches[path] = loaded
	for _, w := range warnings {
		r.warn(at.Line, "%s: %s", at.Path, w)
	}
	if err := r.addTree(path); err != nil {
		return "", "cannot be read: " + err.Error(), ""
	}
	return path, "", ""
}

// taint reads the form of kubectl: key=value:Effect or key:Effect.
func taint(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	const form = "write KEY=VALUE:EFFECT or KEY:EFFECT, with NoSchedule, PreferNoSchedule or NoExecute as the effect"
	before, effect, ok := strings.Cut(text, ":")
	key, value, _ := strings.Cut(before, "=")
	wrong := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
	switch {
	case !ok || !slices.Contains([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, effect):
		return "", "is not a taint", form
	case len(wrong) > 0:
		return "", "is not valid: " + wrong[0], form
	case strings.HasPrefix(key, "node.kubernetes.io/"), strings.HasPrefix(key, "node.cloudprovider.kubernetes.io/"):
		return "", "is a taint that the controllers of Kubernetes set and remove", "remove the line"
	}
	return strings.TrimSuffix(before, "=") + ":" + effect, "", ""
}

// TaintKey is what a node has once: the key and the effect.
func TaintKey(taint string) string {
	before, effect, _ := strings.Cut(taint, ":")
	key, _, _ := strings.Cut(before, "=")
	return key + ":" + effect
}

func apiEndpoint(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	if _, _, err := config.SplitEndpoint(text, 0); err != nil {
		return "", "is not HOST or HOST:PORT: " + strings.TrimPrefix(err.Error(), fmt.Sprintf("%q: ", text)), ""
	}
	return text, "", ""
}

func duration(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	if d, err := time.ParseDuration(text); err != nil || d < 0 {
		return "", "is not a duration", "write a number with its unit, such as 90s, 5m or 1h30m"
	}
	return text, "", ""
}

var percent = regexp.MustCompile(`^[1-9][0-9]?%$|^100%$|^[1-9][0-9]{0,3}$`)

func limit(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	if !percent.MatchString(text) {
		return "", "is not a number of hosts", "write a number from 1, or a percentage from 1% to 100%"
	}
	return text, "", ""
}

func day(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	for d := range time.Saturday + 1 {
		if strings.EqualFold(text, d.String()) || strings.EqualFold(text, d.String()[:3]) {
			return d.String(), "", ""
		}
	}
	return "", "is not a day of the week", "write Mon, Tue, Wed, Thu, Fri, Sat or Sun"
}

// clock returns the time since midnight as a duration.
func clock(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	t, err := time.Parse("15:04", text)
	switch {
	case text == "24:00":
		return "24h", "", ""
	case err != nil:
		return "", "is not a time of the day", `write hours and minutes, such as "22:30"`
	}
	return strconv.Itoa(t.Hour()) + "h" + strconv.Itoa(t.Minute()) + "m", "", ""
}

func timeZone(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	if _, err := time.LoadLocation(text); err != nil || text == "Local" {
		return "", "is not a time zone of this machine", "write UTC, or a name such as Europe/Berlin; the names need the package tzdata"
	}
	return text, "", ""
}
