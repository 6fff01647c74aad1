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
	"airlift/internal/fault"
)

// jumpHost begins the name of a jump host.
const jumpHost = "jump host "

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

// field names fields in cluster.yaml, of which one is to be set.
func (h host) field(names ...string) string {
	if strings.HasPrefix(h.name, jumpHost) {
		return strings.Join(names, " or ") + " of this jump host in cluster.yaml"
	}
	return "ssh." + strings.Join(names, " or ssh.") + " in cluster.yaml"
}

// typed returns a command of OpenSSH for the host, which the user can type.
func (h host) typed(command string) string {
	words := []string{command}
	if h.KeyFile != "" {
		words = append(words, "-i", h.KeyFile)
	}
	var jumps []string
	for _, j := range h.Jump {
		jumps = append(jumps, j.User+"@"+net.JoinHostPort(j.Address, strconv.Itoa(j.Port)))
	}
	if jumps != nil {
		words = append(words, "-o", "ProxyJump="+strings.Join(jumps, ","))
	}
	if h.Port != 22 {
		words = append(words, "-p", strconv.Itoa(h.Port))
	}
	words = append(words, h.User+"@"+h.Address)
	for i, w := range words {
		words[i] = fault.Word(w)
	}
	return strings.Join(words, " ")
}

// key is the same for hosts that may share a connection. One by the command ssh is no way for a native one.
func (h host) key() string { return fmt.Sprintf("%#v", h.SSH) }

// ownFile returns a path in the directory of ssh of the driver's user.
func ownFile(name string) string { return filepath.Join("/", os.Getenv("HOME"), ".ssh", name) }
