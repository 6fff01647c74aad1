package sitefile

import (
	"bufio"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// unitTypes are the types of units that systemd reads from files and that can be enabled. The
// kubelet does not start on a host with swap, so .swap is not among them.
var unitTypes = []string{"service", "socket", "timer", "path", "mount", "automount", "target", "slice"}

var unitName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9:_.@-]*$`)

func (r *reader) checkUnitName(at, name string) bool {
	kind := strings.TrimPrefix(path.Ext(name), ".")
	base := strings.TrimSuffix(name, "."+kind)
	switch {
	case !slices.Contains(unitTypes, kind):
		r.refuse(at, "end the name with one of ."+strings.Join(unitTypes, ", .")+"; list other files in files", "unit %q is not of a supported type", name)
	case !unitName.MatchString(base) || len(name) > 255:
		r.refuse(at, "use letters, digits and : _ . @ - only, at most 255, for example exporter.service", "%q is not a unit's name", name)
	case strings.HasSuffix(base, "@"):
		r.refuse(at, "add name: with an instance, such as "+base+"1."+kind+"; list the template itself in files with path: /etc/systemd/system/"+name, "unit %q is a template, which cannot be started", name)
	default:
		return true
	}
	return false
}

// checkInstallSection refuses a unit that systemd would not start after a reboot.
func (r *reader) checkInstallSection(at, source, name string) {
	f, err := os.Open(source)
	if err != nil {
		return // reported before
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20) // systemd's limit for a line
	for section := ""; lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			section = line
		}
		key, _, ok := strings.Cut(line, "=")
		if ok && section == "[Install]" && slices.Contains([]string{"WantedBy", "RequiredBy", "UpheldBy", "Also", "Alias"}, strings.TrimSpace(key)) {
			return
		}
	}
	r.refuse(at, "add a section [Install], for example with WantedBy=multi-user.target. If another unit starts it, list it in files with path: /etc/systemd/system/"+name,
		"unit %q cannot be enabled: %q has no [Install] section that names a unit", name, source)
}
