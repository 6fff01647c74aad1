package remote

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"airlift/installer/multihost/spec"
)

// A host is where a connection goes.
type host struct {
	name  string // for errors
	group string // hosts of one group have the same passwords; "": only this host
	spec.SSH
}

// address returns HOST:PORT, with brackets around an IPv6 address.
func (h host) address() string {
	return net.JoinHostPort(strings.ToLower(h.Address), strconv.Itoa(h.Port))
}

// of names the hosts that have the same passwords.
func (h host) of() string {
	if h.group == "" {
		return h.name + " (" + h.address() + ")"
	}
	return "the hosts of group " + h.group
}

// account names a user with one password.
func (h host) account() string { return h.User + "@" + cmp.Or(h.group, h.key()) }

// key is the same for hosts that may share a connection. One by the command ssh is no way for a native one.
func (h host) key() string { return fmt.Sprintf("%#v", h.SSH) }

// ownFile returns a path in the directory of ssh of the driver's user.
func ownFile(name string) string { return filepath.Join("/", os.Getenv("HOME"), ".ssh", name) }
